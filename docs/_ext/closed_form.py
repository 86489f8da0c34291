"""``.. docs-closed-form::``: a closed form next to the estimator, for the logs of verl up to v0.7.1.

Its constants are guesses made without these logs.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from sphinx.util.docutils import SphinxDirective

from sphinx_verl_resources.catalog.names import FSDP
from sphinx_verl_resources.estimator.accuracy import CANDIDATES, error_with, source_of
from sphinx_verl_resources.estimator.lora import lora_parameters
from sphinx_verl_resources.estimator.queries import Accuracies
from sphinx_verl_resources.sphinx_ext.domain import VerlDomain
from sphinx_verl_resources.units import GIB, gib_number, percent, share
from sphinx_verl_resources.views.table import Cell, bold, empty_table, table_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from docutils import nodes
    from sphinx.application import Sphinx

    from sphinx_verl_resources.estimator.backtest import Score
    from sphinx_verl_resources.estimator.estimate import Estimate

    Error = Callable[[float, Score], float]

#: Bytes a token and vocabulary entry in the update: as traced.
TRACED = 8
#: Tokens of the fullest micro-batch over the mean: a guess.
FULLEST = 1.15
#: Bytes of the rollout budget that are not in PyTorch's pool: a guess.
OUTSIDE_POOL = 3 * GIB
HEADINGS = (
    "Log",
    "Closed form (GiB)",
    "Estimator (GiB)",
    "Measured (GiB)",
    "Error, closed form",
    "Error, estimator",
)


def closed_form(found: Estimate, per_logit: float = TRACED) -> float:
    """Return the bytes that PyTorch counts in the update of an actor with A parameters in adapters.

    4·P/N + 16·A/N + 2·R + 2·h·L·T + c·T·V + the rollout pool.
    """
    shape, settings = found.shape, found.settings
    actor = settings.actor
    adapters = lora_parameters(shape.architecture, actor.lora_rank, actor.targets)
    states = (4 * shape.parameters + 16 * adapters) / actor.fsdp.shard
    tokens = (actor.micro_batch.sequences or 1) * settings.lengths.mean * FULLEST
    checkpoints = 2 * shape.hidden * shape.layers * tokens
    pool = settings.rollout.utilization * settings.capacity - OUTSIDE_POOL
    return states + 2 * shape.counts.root + checkpoints + per_logit * tokens * shape.vocabulary + pool


class ClosedForm(SphinxDirective):
    """The table of both, with errors."""

    def run(self) -> list[nodes.Node]:
        scores, _ = VerlDomain.of(self.env).ask(Accuracies((FSDP,)))
        table = empty_table("verl-docs-estimator")
        table += table_group(HEADINGS, list(rows(scores)))
        self.set_source_info(table)
        return [table]


def rows(scores: Iterable[Score]) -> Iterator[list[Cell]]:
    """Yield a row for each log, and the mean errors of both with the same bytes per logit."""
    logs = [item for item in scores if item.case.is_scored and item.deviation is not None]
    for item in logs:
        sizes = (_closed(item), item.computed or 0, item.observed or 0)
        errors = (sizes[0] / sizes[2] - 1, item.deviation or 0)
        yield [
            Cell.path(item.case.id),
            *(Cell.number(gib_number(size)) for size in sizes),
            *(Cell.number(percent(error)) for error in errors),
        ]
    for title, mean in (
        (f"{TRACED} bytes per logit, as traced", _mean),
        ("bytes per logit fitted to other sources", _fitted),
    ):
        means = (Cell.number(share(mean(error, logs))) for error in (_error, error_with))
        yield bold([Cell.of(f"Mean error, {title}"), *[Cell.of("")] * 3, *means])


def _mean(error: Error, logs: Sequence[Score], per_logit: float = TRACED) -> float:
    return fmean(error(per_logit, item) for item in logs)


def _fitted(error: Error, logs: Sequence[Score]) -> float:
    """Return the mean error, with the bytes per logit fitted to the logs of the other sources."""
    errors = []
    for source in dict.fromkeys(source_of(item.case) for item in logs):
        others = [item for item in logs if source_of(item.case) != source]
        best = min(CANDIDATES, key=lambda each: _mean(error, others, each))
        errors += [error(best, item) for item in logs if source_of(item.case) == source]
    return fmean(errors)


def _error(per_logit: float, item: Score) -> float:
    return abs(_closed(item, per_logit) / (item.observed or 1) - 1)


def _closed(item: Score, per_logit: float = TRACED) -> float:
    return closed_form(cast("Estimate", item.estimate), per_logit)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-closed-form", ClosedForm)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
