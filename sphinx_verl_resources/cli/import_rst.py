"""``verl-resources import-rst``: run files out of a hand-typed page, or the page compared with the data."""

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
from ..views.problems import plain_problem
from .data import data_snapshot, default_paths, holds_data, read_snapshot, registries_of
from .files import create_file, read_file, replace_file
from .terminal import UsageError, report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from ..catalog.catalog import Catalog
    from ..catalog.files import Snapshot
    from ..intake.page import Page

NAME = "import-rst"
HELP = "write run files from a hand-typed page, or compare it with the data"
EXAMPLES = """\
examples:
  verl-resources import-rst device_tuning.rst --output data --dry-run
  verl-resources import-rst device_tuning.rst --output data --model Qwen2-70B=Qwen/Qwen2-72B-Instruct
  verl-resources import-rst device_tuning.rst --check --output data

Read are list-tables, csv-tables, simple tables and grid tables under headings such as 7B, with the columns
Tag, Model, Task, Resource, MaxBatch, Train, Infer, Link and Contributor in any order. What was mended, taken
for something or not understood is a line on standard error: path:line:col: LEVEL: message [code].
Exit codes: 0 all understood, and with --check no difference; 1 otherwise, the rest is written all the same;
2 could not run."""

#: What is said of a run file that is written, and says nothing where cells are compared.
_OF_WRITING = frozenset({Code.unknown_model, Code.page_assumed})


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(options: argparse.Namespace) -> int:
    """Read the page, then write or compare; what there is to say goes to standard error."""
    wrong = _wrong_options(options)
    if wrong:
        return _refused(wrong)
    snapshot = _snapshot(options)
    facts, _ = registries_of(snapshot)
    models = dict(_pair(text) for text in options.model)
    unknown = [name for name in models.values() if name not in facts.architectures]
    if unknown:
        near = suggest_or(unknown[0], facts.architectures.names, "add it to architectures.yaml first")
        return _refused(f"--model: there is no checkpoint {unknown[0]!r}; {near}")
    from ..intake.page import Known, read_page  # loads Sphinx, which no other command needs

    known = Known(facts.gpus, facts.architectures, models, options.ref)
    try:
        page = read_page(read_file(options.page), known)
    except NoAnswerError as error:
        report(error.diagnostics)
        return 2
    page = replace(page, problems=(*_labels_without_rows(page, models), *page.problems))
    if options.check:
        return _compared(page, load_catalog(snapshot), options)
    return _written(page, snapshot, options)


def _wrong_options(options: argparse.Namespace) -> str:
    """What is wrong with the options, empty if nothing is."""
    if not options.output and not (options.check or options.dry_run):
        return "name the data directory to write to with --output DIR, or look first with --dry-run"
    if any("=" not in text for text in options.model):
        return "--model: expected LABEL=CHECKPOINT, as in Qwen2-70B=Qwen/Qwen2-72B-Instruct"
    if options.ref is not None and not is_fixed_ref(options.ref):
        return f"--ref: {options.ref[:80]!r} is neither a commit nor a release, which stay what they are"
    return ""


def _refused(message: str) -> int:
    print(f"verl-resources: {message}", file=sys.stderr)
    return 2


def _pair(text: str) -> tuple[str, str]:
    label, _, checkpoint = text.partition("=")
    return label.strip(), checkpoint.strip()


def _labels_without_rows(page: Page, models: Mapping[str, str]) -> list[Diagnostic]:
    """What ``--model`` names and no row that is read has, which is mostly a slip of the pen."""
    labels = {run.record.short_name for run in page.runs}
    return [
        Diagnostic(
            Location("command line"),
            Code.unknown_model,
            f"--model: no row of the page has the model {label!r}",
            did_you_mean(label, labels),
            Severity.WARNING,
        )
        for label in models
        if label not in labels
    ]


def _snapshot(options: argparse.Namespace) -> Snapshot:
    """The data to compare with, or whose registries are used; the directory may still be missing."""
    if options.output:
        try:
            return read_snapshot([options.output])
        except UsageError:
            if options.check:
                raise
    return data_snapshot(None)


def _compared(page: Page, catalog: Catalog, options: argparse.Namespace) -> int:
    usual = [name for name in default_paths() if holds_data(name)]
    data = options.output or next(iter(usual), bundled_directory().shown)
    from ..intake.page_compare import differences

    found = [*differences(page.runs, catalog.runs.values(), data)]
    broken = [problem for problem in catalog.diagnostics if problem.severity is Severity.ERROR]
    about_page = [problem for problem in page.problems if problem.code not in _OF_WRITING]
    problems = [*about_page, *sorted(found, key=lambda problem: problem.sort_key), *broken]
    told = f"{counted(page.rows, 'row')}, {data}: {counted(len(catalog.runs), 'run')}"
    return _told(page, problems, f"{told}, {counted(len(found), 'difference')}", [], options)


def _written(page: Page, snapshot: Snapshot, options: argparse.Namespace) -> int:
    """Write what is not there yet; nothing at all where something else is in the way."""
    paths = [Path(options.output or "", RUNS, f"{run.record.id}.yaml") for run in page.runs]
    if options.dry_run:
        return _told(page, page.problems, f"{counted(page.rows, 'row')}, nothing written", [], options)
    texts = dict(zip(paths, (run.text for run in page.runs), strict=True))
    new = [path for path, text in texts.items() if _read(path) != text]
    in_the_way = [path for path in new if path.is_dir() or (not options.force and os.path.lexists(path))]
    for path in in_the_way:
        what = "is a directory; remove it" if path.is_dir() else "exists already; --force replaces it"
        print(f"verl-resources: {path}: {what}", file=sys.stderr)
    if in_the_way:
        print("verl-resources: no run file was written", file=sys.stderr)
        return 2
    _write(new, texts, replace_file if options.force else create_file)
    folder = os.path.realpath(Path(options.output, RUNS))
    there = [file for file in snapshot.runs if os.path.realpath(file.path.parent) == folder]
    from ..intake.page_compare import leftovers

    page = replace(page, problems=(*page.problems, *leftovers(page.runs, there)))
    told = f"{counted(page.rows, 'row')}, {counted(len(new), 'run file')} written"
    unchanged = len(texts) - len(new)
    return _told(page, page.problems, told + (f", {unchanged} unchanged" if unchanged else ""), new, options)


def _write(paths: Sequence[Path], texts: Mapping[Path, str], write: Callable[[Path, str], None]) -> None:
    """Write the files one by one; where one cannot be written, how many were is said with it."""
    done = 0
    try:
        for path in paths:
            write(path, texts[path])
            done += 1
    except (FileExistsError, UsageError) as error:
        before = f"; {done} of {len(paths)} run files were written before it" if done else ""
        raise UsageError(f"{error}{before}") from None


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return None


def _told(
    page: Page,
    problems: Sequence[Diagnostic],
    told: str,
    written: Sequence[Path],
    options: argparse.Namespace,
) -> int:
    """Print what was done and what there is to say; returns the exit code."""
    levels = Counter(problem.severity for problem in problems)
    if options.format == "json":
        runs = [{"id": run.record.id, "line": run.place.line, "text": run.text} for run in page.runs]
        result = {
            "page": page.shown,
            "rows": page.rows,
            "runs": runs,
            "written": [path.as_posix() for path in written],
            "problems": [plain_problem(problem) for problem in problems],
        }
        print(json.dumps(result, indent=2))
    else:
        report(problems)
        if options.dry_run:
            print("\n".join(f"# {RUNS}/{run.record.id}.yaml\n{run.text}" for run in page.runs))
        for path in written:
            print(f"wrote {path}")
        errors = counted(levels[Severity.ERROR], "error")
        print(f"{page.shown}: {told}, {errors}, {counted(levels[Severity.WARNING], 'warning')}")
    return 1 if levels[Severity.ERROR] else 0
