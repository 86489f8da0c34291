"""``verl-resources import-rst``: write run files from a hand-typed page, or compare it with the data."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..catalog.files import RUNS, LeadsOutError, read_data_file, refuse_leading_out
from ..catalog.links import is_fixed_ref
from ..catalog.run_text import text_for
from ..diagnostics import Code, Diagnostic, Location, NoAnswerError, Severity, counted, printable, suggest_or
from ..views.problems import plain_problem
from .command import Command, UsageError, report
from .data import given_data, holds_data
from .files import create_file, read_file, replace_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from ..catalog.catalog import Catalog
    from ..catalog.files import Snapshot
    from ..intake.page import Page

#: Problems of writing a run file; they do not matter for ``--check``.
_OF_WRITING = frozenset({Code.unknown_model, Code.page_assumed})


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("page", metavar="PAGE.rst", help="the page, in reStructuredText")
    add("--output", metavar="DIR", help="data directory; run files are written to DIR/runs")
    add("--check", action="store_true", help="compare the page with the data; write nothing")
    add("--dry-run", action="store_true", help="print the run files; write nothing")
    add("--force", action="store_true", help="replace existing run files")
    add("--ref", metavar="COMMIT", help="pin links to a branch to this commit")
    checkpoint = "model for a label on the page; repeatable"
    add("--model", action="append", default=[], metavar="LABEL=CHECKPOINT", help=checkpoint)
    add("--format", choices=("text", "json"), default="text", help="default: text")


def _run(options: argparse.Namespace) -> int:
    """Read the page, then write or compare."""
    from ..intake.page import Known, read_page  # imports Sphinx, which no other command needs

    if not options.output and (options.check or not options.dry_run):
        raise UsageError("give the data directory with --output DIR, or try --dry-run first")
    if options.ref is not None and not is_fixed_ref(options.ref):
        raise UsageError(f"--ref: {options.ref[:80]!r} is neither a commit nor a release; give one of these")
    has_data = options.check or (options.output and holds_data(options.output))
    data = given_data([options.output] if has_data else None)
    models = _models(options.model, data.architectures.names)
    try:
        known = Known(data.gpus, data.architectures, models, options.ref)
        page = read_page(read_file(options.page), known)
        page.runs = [replace(run, text=text_for(run.text, Path(options.output or ""))) for run in page.runs]
    except NoAnswerError as error:
        report(error.diagnostics)
        return 2
    if options.check:
        return _compare(page, data.catalog, options)
    return (
        _finish(page, "nothing written", options) if options.dry_run else _write(page, data.snapshot, options)
    )


def _models(pairs: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the models of ``--model`` by label.

    Raises:
        UsageError: a pair has no ``=``, or its model is unknown.
    """
    models = {}
    for pair in pairs:
        label, separator, model = map(str.strip, pair.partition("="))
        if not separator:
            raise UsageError("--model: expected LABEL=CHECKPOINT, as in Qwen2-70B=Qwen/Qwen2-72B-Instruct")
        if model not in names:
            near = suggest_or(model, names, "add it to architectures.yaml first")
            raise UsageError(f"--model: unknown model {model!r}; {near}")
        models[label] = model
    return models


def _compare(page: Page, catalog: Catalog, options: argparse.Namespace) -> int:
    """Report the differences between a page and the data."""
    from ..intake.page import differences

    found = sorted(differences(page, catalog.runs, options.output))
    broken = [problem for problem in catalog.diagnostics if problem.is_error]
    about_page = [problem for problem in page.problems if problem.code not in _OF_WRITING]
    page.problems = [*about_page, *found, *broken]
    counts = f"{counted(len(catalog.runs), 'run')}, {counted(len(found), 'difference')}"
    summary = f"{printable(options.output)}: {counts}"
    return _finish(page, summary, options)


def _write(page: Page, snapshot: Snapshot, options: argparse.Namespace) -> int:
    """Write the run files that do not exist yet.

    Raises:
        UsageError: a file already exists, so nothing was written; or a file cannot be written.
    """
    directory = Path(options.output)
    texts = {directory / RUNS / f"{run.record.id}.yaml": run.text for run in page.runs}
    new = [path for path, text in texts.items() if not _has(path, directory, text.encode())]
    taken = [str(path) for path in new if path.is_dir() or (os.path.lexists(path) and not options.force)]
    if taken:
        existing = printable(", ".join(taken))
        raise UsageError(f"nothing was written; already exists: {existing}; --force replaces run files")
    for path in new:
        (replace_file if options.force else create_file)(path, directory, texts[path])
    unchanged = len(texts) - len(new)
    summary = f"{counted(len(new), 'run file')} written" + (f", {unchanged} unchanged" if unchanged else "")
    page.problems += _leftovers(page, snapshot)
    return _finish(page, summary, options, new)


def _has(path: Path, directory: Path, content: bytes) -> bool:
    """Return whether a file of a data directory has this content.

    Raises:
        UsageError: the path is outside the directory.
    """
    try:
        refuse_leading_out(path, directory)
    except LeadsOutError as error:
        raise UsageError(f"{printable(str(path))}: {error}; {error.remedy}; nothing was written") from None
    return path.is_file() and read_data_file(path, "").content == content


def _leftovers(page: Page, snapshot: Snapshot) -> Iterator[Diagnostic]:
    """Yield an error for each run file of an earlier import whose model is still TODO."""
    ids = {run.record.id for run in page.runs}
    for file in snapshot.runs:
        if b"\nmodel: TODO" in file.content and file.path.stem not in ids:
            message = "'model' is TODO, and no row of the page has this id"
            remedy = "delete this file if its row now has another id"
            yield Diagnostic(Location(file.shown), Code.todo, message, remedy)


def _finish(page: Page, summary: str, options: argparse.Namespace, written: Sequence[Path] = ()) -> int:
    """Print the result, and return the exit code."""
    levels = Counter(problem.severity for problem in page.problems)
    if options.format == "json":
        result = {
            "page": page.shown,
            "rows": page.rows,
            "runs": [{"id": run.record.id, "line": run.place.line, "text": run.text} for run in page.runs],
            "written": [path.as_posix() for path in written],
            "problems": [plain_problem(problem) for problem in page.problems],
        }
        print(json.dumps(result, indent=2))
    else:
        report(page.problems)
        if options.dry_run:
            print("\n".join(f"# {RUNS}/{run.record.id}.yaml\n{run.text}" for run in page.runs))
        for path in written:
            print(f"wrote {printable(str(path))}")
        errors = counted(levels[Severity.ERROR], "error")
        warnings = counted(levels[Severity.WARNING], "warning")
        print(f"{printable(page.shown)}: {counted(page.rows, 'row')}, {summary}, {errors}, {warnings}")
    return 1 if levels[Severity.ERROR] else 0


IMPORT_RST = Command(
    "import-rst",
    "write run files from a hand-typed page, or compare it with the data",
    {
        "device_tuning.rst --output data --dry-run": "",
        "device_tuning.rst --output data --model Qwen2-70B=Qwen/Qwen2-72B-Instruct": "",
        "device_tuning.rst --check --output data": "",
    },
    "0 every row was read and --check finds no difference; 1 problems found, other rows are still written; "
    "2 could not run.",
    _add_arguments,
    _run,
    notes="The command reads list-tables, csv-tables, simple tables and grid tables under headings such as "
    "7B, with the columns Tag, Model, Task, Resource, MaxBatch, Train, Infer, Link and Contributor in any "
    "order. Every correction, assumption and unreadable cell is reported on standard error.",
)
