"""The commands that print recorded data: ``table``, ``export`` and ``schema``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .. import __version__, selection
from ..analysis_records import AnalysisFile
from ..answer.export import export_of
from ..diagnostics import NoAnswerError, printable
from ..estimator.accuracy_records import AccuracyFile
from ..estimator.case_records import CaseFile
from ..estimator.recorded import estimate_run
from ..links import Links
from ..records import PAGE_COLUMNS, SIZES, Run
from ..registries import ArchitectureFile, ConfigKeyFile, GpuFile
from ..selection import FILTERS, RunSelection, select_runs
from ..validation import schema_text
from ..views.estimate import run_texts
from ..views.exports import FORMATS, download_texts, runs_text
from ..views.file_names import CSV, JSON
from ..views.runs import COMPUTED
from .command import Command, UsageError, add_result_options, report
from .data import add_data_option, add_path_argument, given_data
from .files import write_result, write_results

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from pydantic import BaseModel

    from ..dataset import Dataset
    from ..diagnostics import Diagnostic
    from ..estimator.context import EstimatorContext

Words = TypeVar("Words")


def _add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_path_argument(parser)
    add_data_option(parser)
    chosen = parser.add_argument_group("which runs")
    chosen.add_argument("--size", action="append", metavar="SIZE,...", help=f"size class: {', '.join(SIZES)}")
    for name, (meaning, example, *_rest) in FILTERS.items():
        words = f"only runs {meaning}, such as {example}"
        chosen.add_argument(f"--{name}", action="append", metavar=f"{name.upper()},...", help=words)
    shown = parser.add_argument_group("how to show them")
    shown.add_argument("--columns", metavar="FIELD,...", help="fields to show; default: as on the page")
    shown.add_argument(
        "--sort",
        metavar="FIELD,...",
        help="fields to sort by; a leading - reverses the order; default: by size class, in the order of "
        "the page",
    )
    add_result_options(parser, FORMATS, "plain")


def _loaded(options: argparse.Namespace) -> tuple[EstimatorContext, list[Diagnostic]]:
    """Load the data, and return the problems of runs and of the estimator's ranges."""
    data = given_data([*options.paths, *(options.data or ())])
    return data, sorted([*data.diagnostics_of("runs"), *data.diagnostics_of("accuracy")])


def _print_table(options: argparse.Namespace) -> int:
    """Print the table, and problems of the data to standard error."""
    columns = _words(options, "columns", lambda text: selection.columns(text, COMPUTED)) or PAGE_COLUMNS
    context, problems = _loaded(options)
    chosen = _chosen(options, context)
    bad = report(problems)
    runs = select_runs(context, chosen)
    if not chosen.sort:
        runs.sort(key=lambda run: (chosen.sizes or SIZES).index(run.size))
    computed = {run.id: _computed(context, run) for run in runs} if COMPUTED.keys() & set(columns) else {}
    print(runs_text(runs, columns, Links(), options.format, computed))
    return int(bad)


def _chosen(options: argparse.Namespace, catalog: Dataset) -> RunSelection:
    """Return the selection of runs and their order from the options."""

    def values(name: str) -> tuple[str, ...] | None:
        return _words(
            options, name, lambda text: selection.filter_values(catalog, name, selection.phrases(text))
        )

    return RunSelection(
        _words(options, "size", selection.sizes) or (),
        tuple((name, found) for name in FILTERS if (found := values(name)) is not None),
        _words(options, "sort", lambda text: selection.sort_fields(text, COMPUTED)) or (),
    )


def _words(options: argparse.Namespace, name: str, read: Callable[[str], Words]) -> Words | None:
    """Parse the value of an option with ``read``; return None if it is not given.

    Raises:
        UsageError: the value is unknown.
    """
    given = getattr(options, name)
    if given is None:
        return None
    try:
        return read(given if isinstance(given, str) else ",".join(given))
    except NoAnswerError as error:
        raise UsageError(f"--{name}: {error}") from None


def _computed(context: EstimatorContext, run: Run) -> dict[str, str]:
    """Return the cells of the computed columns."""
    try:
        return run_texts(estimate_run(run, context.registries))
    except NoAnswerError:
        return {}


TABLE = Command(
    "table",
    "print recorded runs as a table",
    {
        "--size 7B": "",
        "--gpu H100,H800 --train fsdp --sort=-gpus,model": "",
        "--format github --columns model,gpus,measured.gib": "",
        "--columns model,gpus,measured.gib,estimate.peak": "measured and computed",
        "docs/data --format list-table --output runs.rst": "a table to paste",
    },
    "0 success, 1 runs with errors are missing from the table, 2 could not run.",
    _add_table_arguments,
    _print_table,
    notes="Filters, field names and order are the same as in the verl-runs directive. A value may be a list "
    "separated by commas, and options may be repeated. Write a reversed order with an equals sign: "
    "--sort=-added.",
)


_FILES = {"json": JSON, "csv": CSV}


def _add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_path_argument(parser)
    add_data_option(parser)
    parser.add_argument(
        "--format",
        choices=tuple(_FILES),
        help="default: from the file's name, otherwise json; a folder gets all formats",
    )
    parser.add_argument(
        "--output",
        metavar="FILE or DIR",
        help="write to this file, or to a folder if it exists or the path ends with a slash",
    )


def _print_export(options: argparse.Namespace) -> int:
    """Print or write the export."""
    context, problems = _loaded(options)
    bad = report(problems)
    texts = download_texts(export_of(context, __version__))
    if options.output is None:
        print(texts[_FILES[options.format or "json"]], end="")
    else:
        _write_export(options.output, options.format, texts)
    return int(bad)


def _write_export(output: str, form: str | None, texts: Mapping[str, str]) -> None:
    """Write one file, or several into a folder, which is created if necessary."""
    path = Path(output)
    if not output.endswith("/") and not path.is_dir():
        by_name = "csv" if path.suffix.lower() == ".csv" else "json"
        write_result(path, texts[_FILES[form or by_name]])
        return
    write_results(path, texts if form is None else {_FILES[form]: texts[_FILES[form]]})


EXPORT = Command(
    "export",
    "export every recorded run with its estimate, for programs and spreadsheets",
    {
        "": "print JSON",
        "--format csv": "print a table for spreadsheets",
        "--output runs.csv": "write one file",
        "docs/data --output out/": "write all files into a folder",
    },
    "0 success, 1 runs with errors are missing from the export, 2 could not run.",
    _add_export_arguments,
    _print_export,
    notes=f"The files are {JSON} and {CSV}. They are identical to the downloads of the "
    "verl-downloads directive.",
)


#: The model of each kind of file.
MODELS: dict[str, type[BaseModel]] = {
    "run": Run,
    "cases": CaseFile,
    "gpus": GpuFile,
    "architectures": ArchitectureFile,
    "analysis": AnalysisFile,
    "config_keys": ConfigKeyFile,
    "accuracy": AccuracyFile,
}


def _add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    kinds = sorted(MODELS)
    which = f"kind of file: {', '.join(kinds)}; default: run, or all with --output"
    parser.add_argument("kind", metavar="KIND", nargs="?", choices=kinds, help=which)
    parser.add_argument("--output", metavar="DIR", type=Path, help="write to this directory instead")


def _print_schema(options: argparse.Namespace) -> int:
    """Print one schema, or write one or all."""
    texts = {kind: schema_text(model) for kind, model in MODELS.items()}
    if options.output is None:
        print(texts[options.kind or "run"], end="")
        return 0
    if options.output.exists() and not options.output.is_dir():
        raise UsageError(f"{printable(str(options.output))}: not a directory; give --output a folder")
    kinds = [options.kind] if options.kind else texts
    write_results(options.output, {f"{kind}.json": texts[kind] for kind in kinds})
    return 0


SCHEMA = Command(
    "schema",
    "print or write the JSON Schemas of the data files",
    {
        "run": "print the schema of a run file",
        "--output data/schema": "write all schemas",
    },
    "0 success, 2 could not run.",
    _add_schema_arguments,
    _print_schema,
)
