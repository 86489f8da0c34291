"""Computed beside observed: what every case says about the estimator."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..diagnostics import NoAnswerError, Severity
from ..i18n import N_
from ..units import GIB
from .case import estimate_case
from .ranges import LOGGED, OTHER, TRAINING, Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..catalog.models.case import Case
    from .estimate import Estimate
    from .peaks import Verdict
    from .registries import Registries
    from .training import TrainingEstimate

#: Which computed figure an observed one is compared with.
Figure = Literal["counter", "peak"]

EASYR1 = "easyr1"
#: What people call the groups.
GROUPS: Mapping[str, str] = {
    TRAINING: N_("Fine-tuning, PyTorch's counter"),
    LOGGED: N_("verl's metric"),
    EASYR1: N_("EasyR1, counter not stated"),
    OTHER: N_("Other peaks"),
}


@dataclass(frozen=True)
class Score:
    """One case, computed and observed. Sizes are bytes per GPU.

    Attributes:
        case: as recorded.
        estimate: None where there is none.
        error: why there is none.
        group: a key of ``GROUPS``.
        figure: what the observed value is compared with.
        computed: that figure; None where nothing is compared.
        low, high: its range.
        observed: the measured value.
    """

    case: Case
    estimate: Estimate | TrainingEstimate | None
    error: str
    group: str
    figure: Figure
    computed: float | None = None
    low: float | None = None
    high: float | None = None
    observed: float | None = None

    @property
    def deviation(self) -> float | None:
        """Computed over observed, less one; None where either is missing or no measure."""
        if self.computed is None or not self.observed:
            return None
        found = self.computed / self.observed - 1
        return found if math.isfinite(found) else None

    @property
    def inside(self) -> bool | None:
        """Whether the observed value lies in the range; None where there is nothing to compare."""
        if self.deviation is None or self.low is None or self.high is None or self.observed is None:
            return None
        return self.low <= self.observed <= self.high

    @property
    def verdict(self) -> Verdict:
        """Whether the estimate says that the run fits."""
        return self.estimate.verdict if self.estimate else "unknown"

    @property
    def agrees(self) -> bool | None:
        """Whether the verdict does not contradict what happened; None where nothing happened or is said."""
        if self.case.outcome is None or self.verdict == "unknown":
            return None
        if self.case.outcome == "oom":
            return self.verdict != "fits"
        return self.verdict != "does not fit"


@dataclass(frozen=True)
class Summary:
    """The errors of a group of cases.

    Attributes:
        group: a key of ``GROUPS``.
        cases: how many have a measured value that is compared.
        mean, median, worst: of the absolute relative errors.
        inside: share of the observed values inside their range.
        half_width: median of half the width of the ranges over the computed values.
    """

    group: str
    cases: int
    mean: float
    median: float
    worst: float
    inside: float
    half_width: float


def score(case: Case, registries: Registries) -> Score:
    """One case, estimated and compared with what was observed."""
    group = group_of(case)
    figure: Figure = "peak"
    kind = case.measured.counter_kind if case.measured else None
    if (case.training is not None and case.config is None) or kind in {
        "torch-allocated",
        "torch-allocated-with-pool",
    }:
        figure = "counter"
    try:
        found = estimate_case(case, registries)
    except NoAnswerError as error:
        errors = (item.message for item in error.diagnostics if item.severity is Severity.ERROR)
        return Score(case, None, "; ".join(errors), group, figure)
    observed = case.measured.gib * GIB if case.measured and case.measured.gib else None
    if observed is None or kind in {"torch-static", "torch-reserved"}:
        return Score(case, found, "", group, figure)
    if figure == "counter":
        low, high = found.torch_peak_range
        return Score(case, found, "", group, figure, found.torch_peak, low, high, observed)
    return Score(case, found, "", group, figure, found.peak, found.low, found.high, observed)


def group_of(case: Case) -> str:
    """The group of a case, by what was measured how."""
    if case.training is not None and case.config is None:
        return TRAINING
    if (case.framework or "").lower().startswith("easyr1"):
        return EASYR1
    kind = case.measured.counter_kind if case.measured else None
    return LOGGED if kind in {"torch-allocated", "torch-allocated-with-pool"} else OTHER


def summaries(scores: Iterable[Score]) -> tuple[Summary, ...]:
    """The errors of each group that has any; cases that are contested or not scored do not count."""
    compared: dict[str, list[Score]] = {group: [] for group in GROUPS}
    for item in scores:
        if item.case.is_scored and item.deviation is not None:
            compared[item.group].append(item)
    return tuple(summary(group, found) for group, found in compared.items() if found)


def summary(group: str, scores: Sequence[Score]) -> Summary:
    """The errors of some cases with a measured value, at least one."""
    errors = [abs(item.deviation or 0) for item in scores]
    widths = [((item.high or 0) - (item.low or 0)) / 2 / item.computed for item in scores if item.computed]
    return Summary(
        group=group,
        cases=len(scores),
        mean=statistics.fmean(errors),
        median=statistics.median(errors),
        worst=max(errors),
        inside=sum(item.inside is True for item in scores) / len(scores),
        half_width=statistics.median(widths),
    )


def verdict_shares(scores: Iterable[Score]) -> dict[str, tuple[int, int]]:
    """By outcome, ``fits`` and ``oom``: how many verdicts do not contradict it, of how many."""
    shares = {"fits": (0, 0), "oom": (0, 0)}
    for item in scores:
        outcome = "fits" if item.case.outcome == "measured" else item.case.outcome
        if item.case.is_scored and item.agrees is not None and outcome:
            agreed, total = shares[outcome]
            shares[outcome] = agreed + item.agrees, total + 1
    return shares


def ranges_from(scores: Iterable[Score]) -> tuple[Range, ...]:
    """The ranges that the errors of scored cases give: 90 % prediction intervals of measured over computed.

    Other kinds of runs, of which there are few, take the errors of EasyR1 with their own.
    """
    ratios: dict[str, list[float]] = {TRAINING: [], LOGGED: [], OTHER: []}
    for item in scores:
        if item.case.is_scored and item.deviation is not None and item.deviation > -1:
            kind = OTHER if item.group == EASYR1 else item.group
            ratios[kind].append(-math.log1p(item.deviation))
    return tuple(Range(kind, *_interval(found)) for kind, found in ratios.items() if len(found) > 1)


def _interval(logs: Sequence[float]) -> tuple[float, float]:
    """Both ends of the prediction interval for one more value, from logarithms."""
    count = len(logs)
    middle, spread = statistics.fmean(logs), statistics.stdev(logs)
    half = _student(count - 1) * spread * math.sqrt(1 + 1 / count)
    # A range always holds the computed value itself.
    return min(1.0, math.exp(middle - half)), max(1.0, math.exp(middle + half))


#: 95 % quantiles of Student's distribution for 1 to 30 degrees of freedom.
_STUDENT = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812,
    1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725,
    1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
)  # fmt: skip


def _student(freedom: int) -> float:
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    return statistics.NormalDist().inv_cdf(0.95) * (1 + 1.65 / freedom)
