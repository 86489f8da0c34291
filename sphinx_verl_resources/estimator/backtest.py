"""The estimator compared with recorded cases, and the record of its accuracy that follows."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..catalog.catalog import Registry
from ..catalog.dataset import no_progress
from ..catalog.models.registries import Accuracy
from ..catalog.names import EASYR1, LOGGED, OTHER, TRAINING, VERDICTS
from ..diagnostics import NoAnswerError
from ..i18n import N_
from ..units import GIB
from .estimate import estimate
from .planner import largest_that_fits
from .recorded import estimate_case, request_of_case

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..catalog.dataset import Progress
    from ..catalog.models.case import Case
    from ..catalog.names import Verdict
    from .estimate import AnyEstimate
    from .registries import Registries
    from .request import Request

#: The computed figure that an observed one is compared with.
Figure = Literal["counter", "peak"]

#: Labels of the groups.
GROUPS: Mapping[str, str] = {
    TRAINING: N_("Fine-tuning, PyTorch's counter"),
    LOGGED: N_("verl's metric"),
    EASYR1: N_("EasyR1, counter not stated"),
    OTHER: N_("Other peaks"),
}
_TORCH_COUNTERS = {"torch-allocated", "torch-allocated-with-pool"}
#: Counters that no computed figure corresponds to.
_NOT_COMPARED = {"torch-static", "torch-reserved"}


@dataclass(frozen=True)
class Score:
    """One case, computed and observed. Sizes are bytes per GPU.

    Attributes:
        case: as recorded.
        estimate: None where there is none.
        error: the reason why there is none.
        group: a key of ``GROUPS``.
        figure: the computed figure that the observed value is compared with.
        computed: that figure; None where nothing is compared.
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
        """Computed over observed, less one; None where either is missing or not finite."""
        if self.computed is None or not self.observed:
            return None
        deviation = self.computed / self.observed - 1
        return deviation if math.isfinite(deviation) else None

    @property
    def inside(self) -> bool | None:
        """True where the observed value is in the range; None without one."""
        if self.deviation is None or self.low is None or self.high is None or self.observed is None:
            return None
        return self.low <= self.observed <= self.high

    @property
    def verdict(self) -> Verdict:
        """The verdict of the estimate."""
        return self.estimate.verdict if self.estimate else "unknown"

    @property
    def agrees(self) -> bool | None:
        """True if the verdict does not contradict the outcome; None where either is unknown."""
        if self.case.outcome is None or self.verdict == "unknown":
            return None
        if self.case.outcome == "oom":
            return self.verdict != "fits"
        return self.verdict != "does-not-fit"


def score(case: Case, registries: Registries) -> Score:
    """Estimate one case and compare it with what was observed."""
    measured = case.measured
    kind = measured.counter_kind if measured else None
    figure: Figure = "counter" if _is_training(case) or kind in _TORCH_COUNTERS else "peak"
    group = group_of(case)
    try:
        found = estimate_case(case, registries)
    except NoAnswerError as error:
        errors = (item.message for item in error.diagnostics if item.is_error)
        return Score(case, None, "; ".join(errors), group, figure)
    if not measured or not measured.gib or kind in _NOT_COMPARED:
        return Score(case, found, "", group, figure)
    computed, (low, high) = found.peak, (found.low, found.high)
    if figure == "counter":
        computed, (low, high) = found.torch_peak, found.torch_peak_range
    return Score(case, found, "", group, figure, computed, low, high, measured.gib * GIB)


def group_of(case: Case) -> str:
    """Return the group of a case, by what was measured how."""
    if _is_training(case):
        return TRAINING
    if (case.framework or "").lower().startswith("easyr1"):
        return EASYR1
    return LOGGED if case.measured and case.measured.counter_kind in _TORCH_COUNTERS else OTHER


def _is_training(case: Case) -> bool:
    return case.training is not None and case.config is None


def summaries(scores: Iterable[Score]) -> tuple[Accuracy, ...]:
    """Return the errors of each group that has any; cases that are contested or not scored do not count."""
    compared: dict[str, list[Score]] = {group: [] for group in GROUPS}
    for item in scores:
        if item.case.is_scored and item.deviation is not None:
            compared[item.group].append(item)
    return tuple(_summary(group, items) for group, items in compared.items() if items)


def _summary(group: str, scores: Sequence[Score]) -> Accuracy:
    errors = [abs(item.deviation or 0) for item in scores]
    widths = [((item.high or 0) - (item.low or 0)) / 2 / item.computed for item in scores if item.computed]
    return Accuracy(
        name=group,
        cases=len(scores),
        mean_error=statistics.fmean(errors),
        median_error=statistics.median(errors),
        worst_error=max(errors),
        inside=sum(item.inside is True for item in scores) / len(scores),
        half_width=statistics.median(widths),
    )


class Outcomes(NamedTuple):
    """The cases with one verdict, by what happened.

    Attributes:
        ran: cases that ran.
        oom: cases that ran out of memory.
    """

    ran: int = 0
    oom: int = 0


def verdict_counts(scores: Iterable[Score]) -> dict[Verdict, Outcomes]:
    """Return the scored runs of verl by verdict and outcome; one without an estimate is unknown.

    Plain fine-tuning is left out: its cases take a small part of their GPU, so that every one of them fits.
    """
    found = Counter(
        (item.verdict, item.case.outcome == "oom")
        for item in scores
        if item.case.is_scored and item.group != TRAINING
    )
    return {verdict: Outcomes(found[verdict, False], found[verdict, True]) for verdict in VERDICTS}


# -- the record of accuracy


def accuracy_of(
    cases: Sequence[Case],
    registries: Registries,
    progress: Progress = no_progress,
) -> tuple[tuple[Score, ...], tuple[Accuracy, ...]]:
    """Score every case with the ranges that the cases themselves give, and return the record of accuracy.

    Args:
        cases: the observations.
        registries: the registries; their record of accuracy is not used.
        progress: shows how many cases are done.
    """
    ranges = _ranges_from([score(case, registries) for case in progress(cases, "cases")])
    accuracy = Registry([_NOTHING.model_copy(update={"name": name, **ends}) for name, ends in ranges.items()])
    refitted = replace(registries, accuracy=accuracy)
    scores = tuple(score(case, refitted) for case in progress(cases, "cases"))
    found = {summary.name: _rounded(summary) for summary in summaries(scores)}
    return scores, tuple(
        found.get(name, _NOTHING).model_copy(update={"name": name, **ranges.get(name, {})})
        for name in dict.fromkeys([*found, *ranges])
    )


def _ranges_from(scores: Iterable[Score]) -> dict[str, dict[str, float]]:
    """Return by kind the range that the errors of scored cases give, in thousandths, rounded outwards.

    They are 90 % prediction intervals of measured over computed. Other kinds of runs, of which there are
    few, take the errors of EasyR1 with their own.
    """
    ratios: dict[str, list[float]] = {TRAINING: [], LOGGED: [], OTHER: []}
    for item in scores:
        if item.case.is_scored and item.deviation is not None and item.deviation > -1:
            kind = OTHER if item.group == EASYR1 else item.group
            ratios[kind].append(-math.log1p(item.deviation))
    ranges = {}
    for kind, logs in ratios.items():
        if len(logs) > 1:
            low, high = _interval(logs)
            ranges[kind] = {
                "low": max(1, int(low * 1000)) / 1000,
                "high": -int(-high * 1000 - 0.999) / 1000,
            }
    return ranges


def _interval(logs: Sequence[float]) -> tuple[float, float]:
    """Return both ends of the prediction interval for one more value, from logarithms."""
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


#: The record of a group without a case that is compared.
_NOTHING = Accuracy(name=OTHER, cases=1, mean_error=0, median_error=0, worst_error=0, inside=0, half_width=0)


def _rounded(found: Accuracy) -> Accuracy:
    figures = {name: round(value, 3) + 0.0 for name, value in found if type(value) is float}
    return found.model_copy(update=figures)


_HEAD = """\
# yaml-language-server: $schema=schema/accuracy.json
# What the cases in cases/ say about the estimator, and the ranges that it prints because of them. Written by
# `make accuracy`; a test fails when the estimator does worse than this.
accuracy:
"""


def accuracy_text(entries: Iterable[Accuracy]) -> str:
    """Return the text of ``accuracy.yaml``, the same on every run."""
    lines = []
    for entry in entries:
        values = {name: value for name, value in entry if value is not None}
        first, *others = (f"{name}: {value}" for name, value in values.items())
        lines += [f"  - {first}", *(f"    {line}" for line in others)]
    return _HEAD + "\n".join(lines) + "\n"


# -- the largest batch that ran

#: The scripts that list batch sizes do not record sequence lengths; this case has the same data and limits.
LENGTHS_OF = "verl-data-gsm8k-qwen2.5-7b-grpo-lora"
_BATCHES = ("data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size")


@dataclass(frozen=True)
class Boundary:
    """The largest batch that ran, and the largest that is computed to fit.

    Some launch scripts list the batch sizes that were tried. The largest that ran is a boundary, which an
    estimate can be compared with.

    Attributes:
        name: of the search.
        case: the largest that ran.
        recorded: its sequences per GPU and micro-batch.
        computed: the most whose peak is within the GPU's memory.
        peak: bytes per GPU, computed at the recorded one.
        capacity: bytes that the GPU offers.
    """

    name: str
    case: Case
    recorded: int
    computed: int
    peak: float
    capacity: float

    @property
    def deviation(self) -> float:
        """Computed over recorded, less one."""
        return self.computed / self.recorded - 1


def boundaries(cases: Iterable[Case], registries: Registries) -> tuple[Boundary, ...]:
    """Return every boundary among the cases, at the lengths of ``LENGTHS_OF``."""
    known = {case.id: case for case in cases}
    lengths = known.get(LENGTHS_OF)
    if lengths is None or lengths.observed_tokens is None:
        return ()
    names = ("prompt_length_mean", "response_length_mean")
    observed = {name: value for name, value in lengths.observed_tokens if name in names and value}
    ran = [case for case in known.values() if case.boundary and case.outcome == "fits"]
    return tuple(found for case in ran if (found := _boundary(case, observed, registries)))


def _boundary(case: Case, observed: Mapping[str, float], registries: Registries) -> Boundary | None:
    request = replace(request_of_case(case), observed=observed)
    gpus = request.gpus or 1
    total = request.config.get(_BATCHES[0])
    if type(total) is not int or total < gpus:
        return None
    recorded = total // gpus
    at_recorded = estimate(_with_batch(request, recorded), registries)
    capacity = at_recorded.capacity
    if capacity is None:
        return None

    def fits(sequences: int) -> bool:
        return estimate(_with_batch(request, sequences), registries).peak <= capacity

    computed = largest_that_fits(0, 8 * recorded, fits)
    return Boundary(case.boundary or case.id, case, recorded, computed, at_recorded.peak, capacity)


def _with_batch(request: Request, sequences: int) -> Request:
    """Return the run with other sequences per GPU: one micro-batch holds all of a step's prompts."""
    total = sequences * (request.gpus or 1)
    changed = {
        key: total
        for key in request.config
        if key in _BATCHES or key.endswith(("micro_batch_size", "micro_batch_size_per_gpu"))
    }
    per_gpu = {key: sequences for key in changed if key.endswith("per_gpu")}
    return request.having({**changed, **per_gpu})
