"""``verl-resources check``: list every problem of the data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dataset import REGISTRIES, plain_path
from ..diagnostics import counted, printable
from ..git import GitError, open_repository
from .command import Command, UsageError, add_result_options, report
from .data import add_path_argument, default_paths, enclosing_data_directory, load_check

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence, Set

    from ..check import Check
    from ..diagnostics import Diagnostic
    from ..estimator.context import EstimatorContext


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_path_argument(parser, "data directory, or a file or folder in one", "if it exists")
    parser.add_argument(
        "--repo",
        metavar="DIR",
        help="git checkout of verl: check that commits and paths exist in it and that scripts agree with the "
        "settings; nothing is fetched or run",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 for warnings too")
    add_result_options(parser)


def _run(options: argparse.Namespace) -> int:
    """Check and report."""
    asked = {plain_path(Path(path)) for path in options.paths}
    try:
        context = _context(options)
        problems = [problem for problem in context.problems() if _is_under(problem.place.path, asked)]
    except GitError as error:
        raise UsageError(str(error)) from None
    errors = sum(problem.is_error for problem in problems)
    if options.format == "json":
        print(json.dumps([_plain(problem) for problem in problems], indent=2))
    else:
        report(problems)
        print(_summary(context, problems, errors))
    return 1 if errors or (options.strict and problems) else 0


def _plain(problem: Diagnostic) -> dict[str, Any]:
    """Return a problem as a JSON object."""
    return {
        "path": problem.place.path,
        "line": problem.place.line,
        "column": problem.place.column,
        "level": problem.severity.name,
        "code": problem.code.id,
        "message": problem.named_message,
        "hint": problem.remedy,
    }


def _context(options: argparse.Namespace) -> Check[EstimatorContext]:
    """Load the data directories of the paths, and the checkout of verl.

    Raises:
        UsageError: a path is not part of a data directory.
        GitError: the checkout is not a git repository.
    """
    directories = sorted({_data_directory(path) for path in options.paths}) or default_paths()
    repository = None if options.repo is None else open_repository(options.repo, printable(options.repo))
    return load_check(directories, repository)


def _summary(context: Check[EstimatorContext], problems: Sequence[Diagnostic], errors: int) -> str:
    """Return a summary line with the numbers of runs and problems."""
    counts = {
        "run": sum(kind == "run" for kind, _file, _document in context.files),
        "error": errors,
        "warning": len(problems) - errors,
    }
    texts = [counted(number, word) for word, number in counts.items()]
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
        "--format json --output problems.json": "write the problems for another program",
    },
    "0 no error, 1 errors found, 2 could not run. With --strict, warnings count as errors.",
    _add_arguments,
    _run,
    notes="The documentation explains every rule.",
)
