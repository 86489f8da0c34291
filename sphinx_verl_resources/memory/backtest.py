"""Comparison of the estimator with recorded cases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..diagnostics import NoAnswerError
from ..units import GIB
from .accuracy import OTHER
from .recorded import estimate_case

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .cases import Case
    from .context import EstimatorContext
    from .estimate import AnyEstimate
    from .registries import Registries
    from .request import Verdict

#: The computed figure that an observed one is compared with.
Figure = Literal["counter", "peak"]
_TORCH_COUNTERS = {"torch-allocated", "torch-allocated-with-pool"}
#: Counters without a corresponding computed figure.
_NOT_COMPARED = {"torch-static", "torch-reserved"}


@dataclass(frozen=True)
class Score:
    """One case, computed and observed. Sizes are bytes per GPU.

    Attributes:
        case: the recorded case.
        estimate: its estimate; None if there is none.
        error: the reason for a missing estimate.
        group: the kind of run, one of ``CASE_GROUPS``.
        figure: the computed figure that corresponds to the observed value.
        computed: the value of this figure, in the measured phase if the case has one; None if nothing is
            compared.
        low, high: its range.
        observed: the measured value.
    """

    case: Case
    estimate: AnyEstimate | None
    error: str
    group: str
    figure: Figure
    computed: float | None = None
    low: float | None = None
    high: float | None = None
    observed: float | None = None

    @property
    def deviation(self) -> float | None:
        """The relative error, computed ÷ observed - 1; None if either is missing or not finite."""
        if self.computed is None or not self.observed:
            return None
        deviation = self.computed / self.observed - 1
        return deviation if math.isfinite(deviation) else None

    @property
    def inside(self) -> bool | None:
        """True if the observed value is in the range; None if nothing is compared."""
        if self.deviation is None or self.low is None or self.high is None or self.observed is None:
            return None
        return self.low <= self.observed <= self.high

    @property
    def verdict(self) -> Verdict:
        """The verdict of the estimate."""
        return self.estimate.verdict if self.estimate else "unknown"

    @property
    def agrees(self) -> bool | None:
        """True if the verdict is compatible with the outcome; None if either is unknown."""
        if self.case.outcome is None or self.verdict == "unknown":
            return None
        return self.verdict != ("fits" if self.case.outcome == "oom" else "does-not-fit")


def score(case: Case, registries: Registries) -> Score:
    """Estimate one case and compare it with the observed value."""
    try:
        own = estimate_case(case, registries)
    except NoAnswerError as error:
        errors = (item.message for item in error.diagnostics if item.is_error)
        return Score(case, None, "; ".join(errors), OTHER, "peak")
    kind = case.measured.kind if case.measured else None
    return score_of(case, own, "counter" if kind in _TORCH_COUNTERS else "peak")


def score_of(case: Case, own: AnyEstimate, figure: Figure) -> Score:
    """Compare the estimate of a case with the observed value."""
    measured = case.measured
    if own.undecided or not measured or not measured.gib or measured.kind in _NOT_COMPARED:
        return Score(case, own, "", own.kind, figure)
    part = own.of_phase(case.phase or "")
    computed, ends = part.peak, (part.low, part.high)
    if figure == "counter":
        computed, ends = part.torch_peak, part.torch_peak_range
    return Score(case, own, "", own.kind, figure, computed, *ends, measured.gib * GIB)


def scores_of(data: EstimatorContext, groups: Iterable[str]) -> tuple[Score, ...]:
    """Return the scores of verl's cases in some groups, in the order of the groups, then of the files."""
    cases = data.cases.by_id.values()
    every = [score(case, data.registries) for case in cases if case.config is not None]
    return tuple(item for group in groups for item in every if item.group == group)
