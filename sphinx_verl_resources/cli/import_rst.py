"""``verl-resources import-rst``: run files out of a hand-typed page, or the page compared with the data."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ..catalog.files import RUNS
from ..catalog.load import load_catalog
from ..diagnostics import Code, Severity
from ..intake.page import Known, UnreadablePageError, read_page
from ..intake.page_compare import differences
from ..render.problems import plain_problem
from .data import data_snapshot, default_paths, facts_of, read_file, read_snapshot
from .terminal import report
from .writing import create_file, replace_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ..catalog.catalog import Catalog
    from ..catalog.files import Snapshot
    from ..diagnostics import Diagnostic
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
    """The arguments of the command."""
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
    facts, _ = facts_of(snapshot)
    models = dict(_pair(text) for text in options.model)
    unknown = [name for name in models.values() if name not in facts.architectures]
    if unknown:
        return _refused(f"--model: there is no checkpoint {unknown[0]!r}; add it to architectures.yaml first")
    known = Known(facts.gpus, facts.architectures, models, options.ref)
    try:
        page = read_page(read_file(options.page), known)
    except UnreadablePageError as error:
        report([error.problem])
        return 2
    if options.check:
        return _compared(page, load_catalog(snapshot), options)
    return _written(page, options)


def _wrong_options(options: argparse.Namespace) -> str:
    """What is wrong with the options, empty if nothing is."""
    if not options.output and not (options.check or options.dry_run):
        return "name the data directory to write to with --output DIR, or look first with --dry-run"
    if any("=" not in text for text in options.model):
        return "--model: expected LABEL=CHECKPOINT, as in Qwen2-70B=Qwen/Qwen2-72B-Instruct"
    return ""


def _refused(message: str) -> int:
    print(f"verl-resources: {message}", file=sys.stderr)
    return 2


def _pair(text: str) -> tuple[str, str]:
    label, _, checkpoint = text.partition("=")
    return label.strip(), checkpoint.strip()


def _snapshot(options: argparse.Namespace) -> Snapshot:
    """The data to compare with, or whose registries are used; the directory may still be missing."""
    if options.output:
        try:
            return read_snapshot([options.output])
        except NotADirectoryError:
            if options.check:
                raise
    return data_snapshot(None)


def _compared(page: Page, catalog: Catalog, options: argparse.Namespace) -> int:
    data = options.output or next(iter(default_paths()), "the dataset of the package")
    found = [*differences(page.runs, catalog.runs.values(), data)]
    broken = [problem for problem in catalog.diagnostics if problem.severity is Severity.ERROR]
    about_page = [problem for problem in page.problems if problem.code not in _OF_WRITING]
    problems = [*about_page, *sorted(found, key=lambda problem: problem.sort_key), *broken]
    counted = f"{_counted(page.rows, 'row')}, {data}: {_counted(len(catalog.runs), 'run')}"
    return _told(page, problems, f"{counted}, {_counted(len(found), 'difference')}", [], options)


def _written(page: Page, options: argparse.Namespace) -> int:
    """Write what is not there yet; nothing at all where something else is in the way."""
    paths = [Path(options.output or "", RUNS, f"{run.record.id}.yaml") for run in page.runs]
    if options.dry_run:
        return _told(page, page.problems, f"{_counted(page.rows, 'row')}, nothing written", [], options)
    texts = dict(zip(paths, (run.text for run in page.runs), strict=True))
    new = [path for path, text in texts.items() if _read(path) != text]
    in_the_way = [path for path in new if os.path.lexists(path)]
    if in_the_way and not options.force:
        for path in in_the_way:
            print(f"verl-resources: {path}: exists already; --force replaces it", file=sys.stderr)
        return 2
    for path in new:
        (replace_file if options.force else create_file)(path, texts[path])
    counted = f"{_counted(page.rows, 'row')}, {_counted(len(new), 'run file')} written"
    unchanged = len(texts) - len(new)
    return _told(
        page, page.problems, counted + (f", {unchanged} unchanged" if unchanged else ""), new, options
    )


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return None


def _told(
    page: Page,
    problems: Sequence[Diagnostic],
    counted: str,
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
        errors = _counted(levels[Severity.ERROR], "error")
        print(f"{page.shown}: {counted}, {errors}, {_counted(levels[Severity.WARNING], 'warning')}")
    return 1 if levels[Severity.ERROR] else 0


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
