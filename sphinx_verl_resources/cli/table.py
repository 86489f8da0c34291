"""``verl-resources table``: the recorded runs as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..catalog import selection
from ..catalog.links import Links
from ..catalog.names import PAGE_COLUMNS, SIZES
from ..catalog.selection import FILTERS, RunQuery, select_runs
from ..diagnostics import NoAnswerError
from ..estimator.questions import RunEstimate
from ..views.estimate import run_texts
from ..views.exports import FORMATS, runs_text
from ..views.runs import COMPUTED, uncomputed_texts
from .data import add_data_option, add_path_argument, data_snapshot, load_records
from .files import add_result_options
from .terminal import UsageError, report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from ..catalog.catalog import Catalog
    from ..catalog.models.run import Run
    from ..estimator.context import EstimatorContext

Words = TypeVar("Words")

NAME = "table"
HELP = "print recorded runs as a table"
EXAMPLES = """\
examples:
  verl-resources table --size 7B
  verl-resources table --gpu H100,H800 --train fsdp --sort=-gpus,model
  verl-resources table --format github --columns model,gpus,measured.gib
  verl-resources table --columns model,gpus,measured.gib,estimate.peak   measured beside computed
  verl-resources table docs/data --format list-table --output runs.rst   a table to paste

The filters are those of the directive verl-runs, and so are the names of fields and the order. A value may be
a list with commas, and an option may be given several times. An order that is turned round is written with an
equals sign: --sort=-added.

Each problem is a line on standard error: path:line:col: LEVEL: message [code].
Exit codes: 0 good, 1 the data have errors and the table lacks those runs, 2 could not run."""
#: What the filters are set to.
_VALUES = {
    "tag": "MIN or RECOMMENDED",
    "task": "GRPO-LoRA for example",
    "gpu": "H100 for example, by any of its names",
    "train": "training backend, fsdp for example",
    "infer": "rollout engine, with or without version",
    "kind": "tested, measured, stated or script-default",
    "model": "checkpoint, or what the row shows",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_path_argument(parser)
    add_data_option(parser)
    chosen = parser.add_argument_group("which runs")
    chosen.add_argument("--size", action="append", metavar="SIZE,...", help=f"size class: {', '.join(SIZES)}")
    for name in FILTERS:
        chosen.add_argument(f"--{name}", action="append", metavar=f"{name.upper()},...", help=_VALUES[name])
    shown = parser.add_argument_group("how they are shown")
    shown.add_argument("--columns", metavar="FIELD,...", help="fields to show; default: those of the page")
    shown.add_argument(
        "--sort",
        metavar="FIELD,...",
        help="fields to sort by, with a leading - from the largest to the smallest; default: by size class, "
        "in the order of the page",
    )
    add_result_options(parser, FORMATS, "plain")


def run(options: argparse.Namespace) -> int:
    """Print the table; problems of the data go to standard error."""
    columns = _words(options, "columns", lambda text: selection.columns(text, COMPUTED)) or PAGE_COLUMNS
    context, problems = load_records(data_snapshot([*options.paths, *(options.data or ())]))
    query = _query(options, context.catalog)
    bad = report(problems)
    runs = select_runs(context.catalog, query)
    if not query.sort:
        runs.sort(key=lambda run: (query.sizes or SIZES).index(run.size))
    computed = {run.id: _computed(context, run) for run in runs} if COMPUTED.keys() & set(columns) else {}
    print(runs_text(runs, columns, Links(), options.format, computed))
    return int(bad)


def _query(options: argparse.Namespace, catalog: Catalog) -> RunQuery:
    """Return the query that the options ask."""

    def values(name: str) -> tuple[str, ...] | None:
        return _words(
            options, name, lambda text: selection.filter_values(catalog, name, selection.phrases(text))
        )

    return RunQuery(
        _words(options, "size", selection.sizes) or (),
        tuple((name, found) for name in FILTERS if (found := values(name)) is not None),
        _words(options, "sort", lambda text: selection.sort_fields(text, COMPUTED)) or (),
    )


def _words(options: argparse.Namespace, name: str, read: Callable[[str], Words]) -> Words | None:
    """Return the value of an option as ``read`` understands it, None where it is not given.

    Raises:
        UsageError: it selects nothing that exists.
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
        return run_texts(RunEstimate(run.id).answer(context))
    except NoAnswerError:
        return uncomputed_texts(run)
