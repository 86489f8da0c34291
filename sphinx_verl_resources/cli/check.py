"""``verl-resources check``: list every problem of the data."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..catalog.files import REGISTRIES, DataFile, plain_path
from ..diagnostics import Location, counted, printable
from ..git import GitError, open_repository
from ..lint.check import check_data
from ..lint.renames import renames
from ..lint.repairs import Repair, repaired_files
from ..views.problems import problems_github, problems_json, problems_sarif
from .command import Command, UsageError, add_result_options, report
from .data import add_path_argument, default_paths, enclosing_data_directory, load_check_context
from .files import ChangedError, create_file, remove_unchanged, replace_unchanged

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Set

    from ..lint.check import CheckResult
    from ..lint.context import CheckContext, SourceFile
    from ..lint.renames import Rename
    from ..lint.repairs import RepairedFile

FORMATS = ("text", "json", "github", "sarif")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_path_argument(parser, "data directory, or a file or folder in one", "if it exists")
    parser.add_argument(
        "--repo",
        metavar="DIR",
        help="git checkout of verl: check that commits and paths exist in it and that scripts agree with the "
        "settings; nothing is fetched or run",
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="repair the schema line, id, quotes and links; with --repo, also pin branches to their current "
        "commits; comments and layout stay",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 for warnings too")
    add_result_options(parser, FORMATS)


def _run(options: argparse.Namespace) -> int:
    """Check and report."""
    asked = {plain_path(Path(path)) for path in options.paths}
    try:
        context = _context(options)
        if options.fix and _fix(context, asked):
            context = _context(options)
        while options.fix and _rename(context, asked):  # one renaming may change the references of the next
            context = _context(options)
        result = _asked_for(check_data(context), asked)
    except GitError as error:
        raise UsageError(str(error)) from None
    errors = sum(problem.is_error for problem in result.problems)
    _print(options.format, result, _summary(context, result, errors))
    return 1 if errors or (options.strict and result.problems) else 0


def _context(options: argparse.Namespace) -> CheckContext:
    """Load the data directories of the paths, and the checkout of verl.

    Raises:
        UsageError: a path is not part of a data directory.
        GitError: the checkout is not a git repository.
    """
    directories = sorted({_data_directory(path) for path in options.paths}) or default_paths()
    repository = None if options.repo is None else open_repository(options.repo, printable(options.repo))
    return load_check_context(directories, repository)


def _fix(context: CheckContext, asked: Set[Path]) -> bool:
    """Repair files, report the repairs, and return whether any file changed.

    Raises:
        UsageError: the data are the bundled dataset, or a file cannot be written.
    """
    if not context.is_own:
        raise UsageError("--fix does not change the bundled dataset; give a data directory")
    files = list(repaired_files(context))  # if git fails at one, nothing is written
    found = [file for file in files if _is_under(file.source.shown, asked)]
    for file in found:
        _repair(file, context)
    return bool(found)


def _repair(file: RepairedFile, context: CheckContext) -> None:
    """Write one file and report its repairs; skip it if it has changed since it was read.

    Raises:
        UsageError: the file cannot be written.
    """
    source = file.source
    try:
        replace_unchanged(source.file, _directory_of(source, context), file.text)
    except ChangedError as error:
        print(f"{Location(source.shown)}: not repaired: {error}", file=sys.stderr)
    else:
        _report_repairs(source.shown, file.repairs)


def _directory_of(source: SourceFile, context: CheckContext) -> Path:
    """Return the data directory of a file."""
    paths = (directory.path for directory in context.directories)
    return next(path for path in paths if source.file.path.is_relative_to(path))


def _report_repairs(shown: str, repairs: Iterable[Repair]) -> None:
    for repair in repairs:
        print(f"{Location(shown).shown_path}:{repair.line}: repaired: {repair.done}", file=sys.stderr)


def _rename(context: CheckContext, asked: Set[Path]) -> bool:
    """Rename one run whose id contradicts its model or GPU; return False if none is left.

    Raises:
        UsageError: a file cannot be written.
    """
    taken = []
    for found in renames(context):
        if _is_under(found.source.shown, asked):
            if not os.path.lexists(found.path):
                _write_renamed(found, context)
                return True
            taken.append(found)
    for found in taken:
        exists = f"{printable(found.shown)} exists"
        print(f"{Location(found.source.shown).shown_path}:1: not renamed: {exists}", file=sys.stderr)
    return False


def _write_renamed(found: Rename, context: CheckContext) -> None:
    """Write a run under its new name, update references to it, and remove the old file.

    Raises:
        UsageError: a file cannot be written, or has changed since it was read; every change is undone.
    """
    old, directory = found.source.file.path, _directory_of(found.source, context)
    new = DataFile(found.path, found.shown, found.text.encode())
    try:
        with ExitStack() as undo:
            create_file(new.path, directory, found.text)
            undo.callback(remove_unchanged, new)
            new.path.chmod(old.stat().st_mode & 0o777)
            for source, text, _ in found.references:
                place, before = _directory_of(source, context), source.file.content.decode()
                replace_unchanged(source.file, place, text)
                undo.callback(replace_unchanged, replace(source.file, content=text.encode()), place, before)
            remove_unchanged(found.source.file)
            undo.pop_all()
    except (OSError, UsageError) as error:
        raise UsageError(f"{printable(found.source.shown)}: not renamed: {error}") from None
    done = Repair(
        1, f"renamed to {printable(found.shown)}; change the pages that refer to the run {old.stem!r}"
    )
    _report_repairs(found.source.shown, [done])
    for source, _, repairs in found.references:
        _report_repairs(source.shown, repairs)


def _asked_for(result: CheckResult, asked: Set[Path]) -> CheckResult:
    """Return the part of a result about the given files and folders; everything if none is given."""
    return replace(
        result,
        problems=tuple(problem for problem in result.problems if _is_under(problem.place.path, asked)),
        suppressed=tuple(item for item in result.suppressed if _is_under(item.problem.place.path, asked)),
        gaps=tuple(item for item in result.gaps if _is_under(item.problem.place.path, asked)),
    )


def _print(form: str, result: CheckResult, summary: str) -> None:
    if form == "json":
        print(problems_json(result.problems))
    elif form == "github":
        print(problems_github(result.problems, summary))
    elif form == "sarif":
        print(problems_sarif(result.problems, (*result.suppressed, *result.gaps), __version__))
    else:
        report(result.problems)
        print(summary)


def _summary(context: CheckContext, result: CheckResult, errors: int) -> str:
    """Return a summary line with the numbers of runs and problems."""
    counts = {
        "run": sum(map(context.is_checked, context.snapshot.runs)),
        "error": errors,
        "warning": len(result.problems) - errors,
    }
    texts = [counted(number, word) for word, number in counts.items()]
    if result.suppressed:
        texts.append(f"{len(result.suppressed)} excused")
    if result.gaps:
        texts.append(f"{counted(len(result.gaps), 'gap')} in rows published before {result.published_before}")
    directories = ", ".join(printable(directory.shown) for directory in context.directories)
    return f"{directories}: {', '.join(texts)}"


def _data_directory(path: str) -> str:
    """Return the data directory of a path.

    Raises:
        UsageError: the path does not exist.
    """
    if not os.path.lexists(path):
        raise UsageError(f"{printable(path)}: no such file or directory")
    place = plain_path(Path(path))
    beside = os.path.relpath(place.parent) if place.name in REGISTRIES and not place.is_dir() else path
    return next(iter(enclosing_data_directory(place)), beside)


def _is_under(shown: str, asked: Set[Path]) -> bool:
    """Return whether a file is in one of the given paths; True if none is given."""
    place = plain_path(Path(shown))
    return not asked or not asked.isdisjoint((place, *place.parents))


CHECK = Command(
    "check",
    "check run files, registries and cases",
    {
        "": "check ./data, or the enclosing data directory",
        "docs/data": "check another directory",
        "data/runs/a.yaml": "report problems of one file only",
        "--repo ../verl": "also check links and scripts in a checkout of verl",
        "--fix": "repair quotes, ids and links first",
        "--format github": "print annotations for GitHub Actions",
        "--format sarif --output check.sarif": "",
    },
    "0 no error, 1 errors found, 2 could not run. With --strict, warnings count as errors.",
    _add_arguments,
    _run,
    notes="Formats other than text print the problems as the result; repairs are always listed on standard "
    "error. To excuse a warning about correct data, add it, with a reason, to exceptions.yaml in the data "
    "directory. The documentation explains every rule.",
)
