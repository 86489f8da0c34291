"""``verl-resources import-rst``: write run files from a hand-typed page, or compare it with the data."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..catalog.catalog import load_catalog
from ..catalog.files import RUNS, bundled_directory
from ..catalog.links import is_fixed_ref
from ..diagnostics import (
    Code,
    Diagnostic,
    Location,
    NoAnswerError,
    Severity,
    counted,
    did_you_mean,
    suggest_or,
)
from ..intake.page_columns import Known
from ..intake.page_compare import differences, leftovers
from ..views.problems import plain_problem
from .command import Command, UsageError, report
from .data import data_snapshot, default_paths, holds_data, read_snapshot, registries_of
from .files import create_file, read_file, replace_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from ..catalog.catalog import Catalog
    from ..catalog.files import Snapshot
    from ..intake.page import Page

#: Problems of writing a run file, which do not matter where cells are compared.
_OF_WRITING = frozenset({Code.unknown_model, Code.page_assumed})


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("page", metavar="PAGE.rst", help="the page, in reStructuredText")
    parser.add_argument("--output", metavar="DIR", help="data directory; run files go to DIR/runs")
    parser.add_argument(
        "--check", action="store_true", help="compare the page with the data and write nothing"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the run files and write nothing")
    parser.add_argument("--force", action="store_true", help="replace run files that are there already")
    parser.add_argument("--ref", metavar="COMMIT", help="pin links that name a branch to this commit")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="LABEL=CHECKPOINT",
        help="the checkpoint that a label stands for; may be given several times",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def _run(options: argparse.Namespace) -> int:
    """Read the page, then write or compare."""
    models = _models(options)
    snapshot = _snapshot(options)
    registries, _ = registries_of(snapshot)
    names = registries.architectures.names
    for model in models.values():
        if model not in names:
            near = suggest_or(model, names, "add it to architectures.yaml first")
            raise UsageError(f"--model: there is no checkpoint {model!r}; {near}")
    from ..intake.page import read_page  # loads Sphinx, which no other command needs

    known = Known(registries.gpus, registries.architectures, models, options.ref)
    try:
        page = read_page(read_file(options.page), known)
    except NoAnswerError as error:
        report(error.diagnostics)
        return 2
    page = replace(page, problems=(*_labels_without_rows(page, models), *page.problems))
    if options.check:
        return _compare(page, load_catalog(snapshot), options)
    if options.dry_run:
        return _finish(page, "nothing written", options)
    return _write(page, snapshot, options)


def _models(options: argparse.Namespace) -> dict[str, str]:
    """Return the checkpoints that the options name, by label.

    Raises:
        UsageError: the options make no import.
    """
    if not options.output and not (options.check or options.dry_run):
        raise UsageError(
            "name the data directory to write to with --output DIR, or look first with --dry-run"
        )
    if options.ref is not None and not is_fixed_ref(options.ref):
        reason = "neither a commit nor a release, which stay what they are"
        raise UsageError(f"--ref: {options.ref[:80]!r} is {reason}")
    pairs = [text.partition("=") for text in options.model]
    if not all(separator for _, separator, _ in pairs):
        raise UsageError("--model: expected LABEL=CHECKPOINT, as in Qwen2-70B=Qwen/Qwen2-72B-Instruct")
    return {label.strip(): model.strip() for label, _, model in pairs}


def _labels_without_rows(page: Page, models: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield a warning for each label of ``--model`` that no row has, mostly a misspelling."""
    labels = {run.record.short_name for run in page.runs}
    for label in models:
        if label not in labels:
            message = f"--model: no row of the page has the model {label!r}"
            remedy = did_you_mean(label, labels)
            place = Location("command line")
            yield Diagnostic(place, Code.unknown_model, message, remedy, Severity.WARNING)


def _snapshot(options: argparse.Namespace) -> Snapshot:
    """Return the data to compare with, or to take registries from; the directory may still be missing."""
    if options.output:
        try:
            return read_snapshot([options.output])
        except UsageError:
            if options.check:
                raise
    return data_snapshot(None)


def _compare(page: Page, catalog: Catalog, options: argparse.Namespace) -> int:
    """Report the differences between a page and the data."""
    usual = [name for name in default_paths() if holds_data(name)]
    data = options.output or next(iter(usual), bundled_directory().shown)
    found = sorted(differences(page.runs, catalog.runs.values(), data))
    broken = [problem for problem in catalog.diagnostics if problem.is_error]
    about_page = [problem for problem in page.problems if problem.code not in _OF_WRITING]
    summary = f"{data}: {counted(len(catalog.runs), 'run')}, {counted(len(found), 'difference')}"
    return _finish(replace(page, problems=(*about_page, *found, *broken)), summary, options)


def _write(page: Page, snapshot: Snapshot, options: argparse.Namespace) -> int:
    """Write the run files that are not there yet.

    Raises:
        UsageError: something is in the way, and no file was written; or one cannot be written.
    """
    texts = {Path(options.output, RUNS, f"{run.record.id}.yaml"): run.text for run in page.runs}
    new = [path for path, text in texts.items() if _read(path) != text]
    in_the_way = [path for path in new if path.is_dir() or (not options.force and os.path.lexists(path))]
    for path in in_the_way:
        reason = "is a directory; remove it" if path.is_dir() else "exists already; --force replaces it"
        print(f"verl-resources: {path}: {reason}", file=sys.stderr)
    if in_the_way:
        raise UsageError("no run file was written")
    write, done = replace_file if options.force else create_file, 0
    try:
        for path in new:
            write(path, texts[path])
            done += 1
    except (FileExistsError, UsageError) as error:
        before = f"; {done} of {len(new)} run files were written before it" if done else ""
        raise UsageError(f"{error}{before}") from None
    folder = os.path.realpath(Path(options.output, RUNS))
    files = [file for file in snapshot.runs if os.path.realpath(file.path.parent) == folder]
    page = replace(page, problems=(*page.problems, *leftovers(page.runs, files)))
    unchanged = len(texts) - len(new)
    summary = f"{counted(len(new), 'run file')} written" + (f", {unchanged} unchanged" if unchanged else "")
    return _finish(page, summary, options, new)


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return None


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
            print(f"wrote {path}")
        errors = counted(levels[Severity.ERROR], "error")
        warnings = counted(levels[Severity.WARNING], "warning")
        print(f"{page.shown}: {counted(page.rows, 'row')}, {summary}, {errors}, {warnings}")
    return 1 if levels[Severity.ERROR] else 0


IMPORT_RST = Command(
    "import-rst",
    "write run files from a hand-typed page, or compare it with the data",
    {
        "device_tuning.rst --output data --dry-run": "",
        "device_tuning.rst --output data --model Qwen2-70B=Qwen/Qwen2-72B-Instruct": "",
        "device_tuning.rst --check --output data": "",
    },
    "0 all understood, and with --check no difference; 1 otherwise, the rest is written all the same; "
    "2 could not run.",
    _add_arguments,
    _run,
    notes="The command reads list-tables, csv-tables, simple tables and grid tables under headings such as "
    "7B, with the columns Tag, Model, Task, Resource, MaxBatch, Train, Infer, Link and Contributor in any "
    "order. What was mended, taken for something or not understood is a line on standard error.",
)
