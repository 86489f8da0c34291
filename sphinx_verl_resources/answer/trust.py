"""Trust: the measured runs of the same kind as an estimate, and the estimator's error for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..catalog.names import MEGATRON
from ..estimator.estimate import likeness
from .evidence import runs_of_model

if TYPE_CHECKING:
    from ..catalog.models.run import Run
    from ..estimator.context import EstimatorContext
    from .evidence import Needs
    from .layouts import Layout


@dataclass(frozen=True)
class Trust:
    """The measured and recorded runs behind an estimate.

    Attributes:
        measured_runs: the number of measured runs of the same kind: by training backend, old or today's verl,
            full fine-tuning or LoRA, and dense or expert layers.
        mean_error: the estimator's mean error for them, as a fraction; None without measured runs.
        smallest: the run of this model that ran or was reported with the least total GPU memory; None if
            there is none.
        undercuts: whether the estimate fits in less memory than this run had.
    """

    measured_runs: int
    mean_error: float | None = None
    smallest: Run | None = None
    undercuts: bool = False


def trust_in(layout: Layout, needs: Needs | None, data: EstimatorContext) -> Trust:
    """Return the runs behind a layout's estimate; ``needs`` are the needs of the question."""
    found = layout.estimate
    parts = [
        part
        for entry in data.registries.accuracy
        if (entry.name == MEGATRON) == layout.is_megatron
        for part in entry.parts
        if (part.today, part.lora, part.experts) == likeness(found)
    ]
    cases = sum(part.cases for part in parts)
    error = sum(part.cases * part.mean_error for part in parts) / cases if cases else None
    smallest = smallest_run(needs, data)
    if needs is None or smallest is None:
        return Trust(cases, error)
    least, run = smallest
    used = needs.on(layout.request.gpus, None)
    return Trust(cases, error, run, found.fits and used.total_gb < least)


def smallest_run(needs: Needs | None, data: EstimatorContext) -> tuple[float, Run] | None:
    """Return the total GPU memory in GB of the run in ``Trust.smallest``, and the run."""
    recorded = [
        (own.total_gb, run)
        for run, own in (runs_of_model(needs, data) if needs else ())
        if needs and run.was_seen_to_run and own.is_like(needs)
    ]
    return min(recorded, key=lambda pair: (pair[0], pair[1].id), default=None)
