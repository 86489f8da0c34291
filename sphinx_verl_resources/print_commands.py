"""The commands about recorded data: ``check``, ``table``, ``export`` and ``schema``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__, commands, selection
from .analysis_records import AnalysisFile
from .answer.export import export_of
from .check import Check
from .commands import DATA, FORMAT, OUTPUT, Command, option
from .dataset import bundled_directory, plain_path
from .diagnostics import NoAnswerError, counted, printable
from .estimator.accuracy_records import AccuracyFile
from .estimator.case_records import CaseFile
from .estimator.context import EstimatorContext
from .estimator.recorded import estimate_run
from .git import open_repository
from .links import Links
from .printed import CSV, FORMATS, JSON, download_texts, runs_text
from .records import PAGE_COLUMNS, SIZES, Run
from .registries import ArchitectureFile, ConfigKeyFile, GpuFile
from .run_cells import COMPUTED
from .selection import FILTERS
from .validation import schema_text
from .views.estimate import run_texts

if TYPE_CHECKING:
    import argparse

    from .diagnostics import Diagnostic
    from .git import Repository

_PATHS = option("paths", nargs="*", metavar="PATH", help="data directory; for check also a path in one")

# -- check


def load_check(names: list[str], repository: Repository | None = None) -> Check[EstimatorContext]:
    """Load data directories, or the bundled dataset, and all rules.

    Args:
        names: the paths of the directories.
        repository: a checkout of verl.

    Raises:
        OSError: a path is not a directory.
        UsageError: a directory contains no data.
    """
    from .estimator import rules  # noqa: F401  # rules register themselves
    from .settings import rules as rules_of_settings  # noqa: F401

    directories = commands.data_directories(names)
    return Check(EstimatorContext(directories), directories or [bundled_directory()], repository=repository)


def _check(options: argparse.Namespace) -> tuple[str, int]:
    # A folder ./data without data is refused: a check of nothing would pass.
    default = ["data"] if Path("data").is_dir() else commands.default_data()
    directories = sorted({_directory_of(path) for path in options.paths}) or default
    repository = None if options.repo is None else open_repository(options.repo, printable(options.repo))
    check = load_check(directories, repository)
    asked = {plain_path(Path(path)) for path in options.paths}
    problems = [each for each in check.problems() if not asked or asked & {*_upwards(each.place.path)}]
    errors = sum(problem.is_error for problem in problems)
    code = 1 if errors or (options.strict and problems) else 0
    if options.format == "json":
        return json.dumps([_plain(problem) for problem in problems], indent=2), code
    commands.report(problems)
    runs = sum(kind == "run" for kind, _file, _document in check.files)
    counts = {"run": runs, "error": errors, "warning": len(problems) - errors}
    shown = ", ".join(printable(directory.shown) for directory in check.directories)
    return f"{shown}: {', '.join(counted(number, word) for word, number in counts.items())}", code


def _directory_of(path: str) -> str:
    """Return the data directory at or above a path, which must exist."""
    Path(path).lstat()
    return next(iter(commands.first_with_data(*_upwards(path))), path)


def _upwards(path: str) -> tuple[Path, ...]:
    place = plain_path(Path(path))
    return place, *place.parents


def _plain(problem: Diagnostic) -> dict[str, Any]:
    place, level, code = problem.place, problem.severity.name, f"verl.{problem.code}"
    where = {"path": place.path, "line": place.line, "column": place.column, "level": level, "code": code}
    return {**where, "message": problem.named_message, "hint": problem.remedy}


CHECK = Command(
    "check",
    "check run files, registries and cases",
    (
        _PATHS,
        option("--repo", metavar="DIR", help="git checkout of verl: also check links and scripts; only read"),
        option("--strict", action="store_true", help="exit with 1 for warnings too"),
        FORMAT,
        OUTPUT,
    ),
    _check,
    {
        "": "check ./data, or the enclosing data directory",
        "data/runs/a.yaml": "report problems of one file only",
        "--repo ../verl": "also check links and scripts in a checkout of verl",
        "--format json --output problems.json": "write the problems for another program",
    },
    "0 no error, 1 errors found, 2 could not run. With --strict, warnings count as errors.",
)

# -- table

_CHOICES = {
    "size": f"size classes: {', '.join(SIZES)}",
    **{name: f"only runs {each.meaning}, such as {each.example}" for name, each in FILTERS.items()},
    "columns": "fields to show; default: as on the page",
    "sort": "fields to sort by; a leading - reverses the order; default: by size class, as on the page",
}


def _loaded(options: argparse.Namespace) -> tuple[EstimatorContext, int]:
    """Return the data, and exit code 1 if runs with errors are missing; print the problems."""
    data = commands.given_data([*options.paths, *options.data])
    return data, int(
        commands.report(sorted([*data.diagnostics_of("runs"), *data.diagnostics_of("accuracy")]))
    )


def _table(options: argparse.Namespace) -> tuple[str, int]:
    given = {name: ",".join(words) for name in _CHOICES if (words := getattr(options, name)) is not None}
    columns = selection.columns(given["columns"], COMPUTED) if "columns" in given else PAGE_COLUMNS
    sizes = selection.sizes(given["size"]) if "size" in given else ()
    sort = selection.sort_fields(given["sort"], COMPUTED) if "sort" in given else ()
    data, code = _loaded(options)
    words = {name: selection.phrases(given[name]) for name in FILTERS if name in given}
    filters = tuple((name, selection.filter_values(data, name, each)) for name, each in words.items())
    runs = selection.select_runs(data, selection.RunSelection(sizes, filters, sort))
    if not sort:
        runs.sort(key=lambda run: (sizes or SIZES).index(run.size))
    computed = {run.id: _computed(data, run) for run in runs} if COMPUTED.keys() & {*columns} else {}
    return runs_text(runs, columns, Links(), options.format, computed), code


def _computed(data: EstimatorContext, run: Run) -> dict[str, str]:
    """Return the cells of the computed columns; they are empty if there is no estimate."""
    try:
        return run_texts(estimate_run(run, data.registries))
    except NoAnswerError:
        return {}


TABLE = Command(
    "table",
    "print recorded runs as a table",
    (
        _PATHS,
        DATA,
        *(option(f"--{name}", action="append", metavar="A,B,...", help=_CHOICES[name]) for name in _CHOICES),
        option("--format", choices=FORMATS, default="plain", help="format of the table; default: plain"),
        OUTPUT,
    ),
    _table,
    {
        "--size 7B": "",
        "--gpu H100,H800 --train fsdp --sort=-gpus,model": "",
        "--format github --columns model,gpus,measured.gib,estimate.peak": "measured and computed",
        "docs/data --format list-table --output runs.rst": "a table to paste",
    },
    "0 success, 1 runs with errors are missing from the table, 2 could not run.",
    "Filters, fields and order are those of the verl-runs directive. Reverse an order with --sort=-added.",
)

# -- export


def _export(options: argparse.Namespace) -> tuple[str, int]:
    data, code = _loaded(options)
    form = options.format or Path(options.result_file or "").suffix
    texts = download_texts(export_of(data, __version__))
    return texts[CSV if form.lower() in {"csv", ".csv"} else JSON].rstrip("\n"), code


EXPORT = Command(
    "export",
    "export every recorded run with its estimate, for programs and spreadsheets",
    (
        _PATHS,
        DATA,
        option("--format", choices=("json", "csv"), help="default: by the name of the file, otherwise json"),
        OUTPUT,
    ),
    _export,
    {
        "": "print JSON",
        "--format csv": "print a table for spreadsheets",
        "docs/data --output runs.csv": "write it to a file",
    },
    "0 success, 1 runs with errors are missing from the export, 2 could not run.",
    f"The results are {JSON} and {CSV}, the downloads of the verl-downloads directive.",
)

# -- schema

#: The model of each kind of file.
MODELS: dict[str, type[Any]] = {
    "accuracy": AccuracyFile, "analysis": AnalysisFile, "architectures": ArchitectureFile, "cases": CaseFile,
    "config_keys": ConfigKeyFile, "gpus": GpuFile, "run": Run,
}  # fmt: skip


def _schema(options: argparse.Namespace) -> tuple[str, int]:
    kinds = [options.kind] if options.kind else [*MODELS]
    if not options.folder:
        return schema_text(MODELS[kinds[-1]]).rstrip("\n"), 0
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        commands.write_file(Path(options.folder, f"{kind}.json"), schema_text(MODELS[kind]))
    return "", 0


SCHEMA = Command(
    "schema",
    "print or write the JSON Schemas of the data files",
    (
        option("kind", nargs="?", choices=[*MODELS], help="kind of file; default: run, or all with --output"),
        option("--output", dest="folder", metavar="DIR", help="write to this directory instead"),
    ),
    _schema,
    {"run": "print the schema of a run file", "--output data/schema": "write all schemas"},
    "0 success, 2 could not run.",
)
