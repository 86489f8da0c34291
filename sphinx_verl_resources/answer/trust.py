"""Trust: how many measured runs of its kind stand behind an estimate, and how far off they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..estimator.context import EstimatorContext
    from ..estimator.estimate import Estimate


@dataclass(frozen=True)
class Trust:
    """What stands behind an estimate.

    Attributes:
        measured_runs: of this kind: training backend, time of verl, full or LoRA, dense or experts.
        mean_error: how far off the estimator was for them, as a share; None without one.
        fewest_recorded: the fewest GPUs of any recorded run of this model; None without one.
        undercuts: the estimate fits on fewer GPUs, or less memory, than every recorded run of this model.
    """

    measured_runs: int
    mean_error: float | None = None
    fewest_recorded: int | None = None
    undercuts: bool = False


def trust_in(found: Estimate, data: EstimatorContext) -> Trust:
    """Return what stands behind an estimate."""
    entry = data.registries.accuracy.get(found.kind)
    return Trust(entry.cases, entry.mean_error) if entry else Trust(0)
