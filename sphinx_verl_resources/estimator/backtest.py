"""Comparison of the estimator with recorded cases."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..catalog.names import EASYR1, FSDP, FSDP_TODAY, MEGATRON, OTHER, TRAINING, VERDICTS
from ..diagnostics import NoAnswerError
from ..i18n import N_
from ..units import GIB
from .estimate import estimate, largest_that_fits
from .peak import FixedEstimate
from .recorded import estimate_case, request_of_case

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..catalog.models.case import Case
    from ..catalog.names import Verdict
    from .peak import AnyEstimate
    from .registries import Registries
    from .request import Request

#: The computed figure that an observed one is compared with.
Figure = Literal["counter", "peak"]

#: Labels of the kinds of runs.
GROUPS: Mapping[str, str] = {
    TRAINING: N_("Fine-tuning with FSDP"),
    FSDP: N_("verl with FSDP, up to v0.7.1"),
    FSDP_TODAY: N_("verl with FSDP, from v0.8.0"),
    MEGATRON: N_("Training with Megatron"),
    EASYR1: N_("EasyR1, counter not stated"),
    OTHER: N_("verl with FSDP: experts, vision, a critic"),
}
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
        group: a key of ``GROUPS``.
        figure: the computed figure that corresponds to the observed value.
        computed: the value of this figure; None if nothing is compared.
        low, high: its range.
        observed: the measured value.
        compared: the estimate, restricted to the measured phase if the case has only one.
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
    compared: AnyEstimate | None = None

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
        if self.case.outcome == "oom":
            return self.verdict != "fits"
        return self.verdict != "does-not-fit"


def score(case: Case, registries: Registries) -> Score:
    """Estimate one case and compare it with the observed value."""
    measured = case.measured
    kind = measured.counter_kind if measured else None
    figure: Figure = "counter" if _is_training(case) or kind in _TORCH_COUNTERS else "peak"
    try:
        found = estimate_case(case, registries)
    except NoAnswerError as error:
        errors = (item.message for item in error.diagnostics if item.is_error)
        return Score(case, None, "; ".join(errors), OTHER, figure)
    group = found.kind
    if found.undecided or not measured or not measured.gib or kind in _NOT_COMPARED:
        return Score(case, found, "", group, figure)
    part = found
    if phases := tuple(phase for phase in found.phases if phase.name == case.phase):
        part = FixedEstimate(found.shape, phases, group, found.widening, found.capacity)
    computed, (low, high) = part.peak, part.peak_range
    if figure == "counter":
        computed, (low, high) = part.torch_peak, part.torch_peak_range
    return Score(case, found, "", group, figure, computed, low, high, measured.gib * GIB, part)


def _is_training(case: Case) -> bool:
    return case.training is not None and case.config is None


class Outcomes(NamedTuple):
    """The number of cases with one verdict, by outcome.

    Attributes:
        ran: cases that ran.
        oom: cases that ran out of memory.
    """

    ran: int = 0
    oom: int = 0


def verdict_counts(scores: Iterable[Score]) -> dict[Verdict, Outcomes]:
    """Count the scored runs of verl by verdict and outcome; those without an estimate count as unknown.

    Plain fine-tuning is left out: its cases use a small part of their GPU, so all of them fit.
    """
    found = Counter(
        (item.verdict, item.case.outcome == "oom")
        for item in scores
        if item.case.is_scored and item.group != TRAINING
    )
    return {verdict: Outcomes(found[verdict, False], found[verdict, True]) for verdict in VERDICTS}


# -- the largest batch that ran

#: Scripts that list batch sizes record no sequence lengths; this case has the same data and limits.
LENGTHS_OF = "verl-data-gsm8k-qwen2.5-7b-grpo-lora"
_BATCHES = ("data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size")


@dataclass(frozen=True)
class Boundary:
    """The largest batch that ran, and the largest that fits by the estimate.

    Some launch scripts list the batch sizes that were tried.

    Attributes:
        name: the name of the search.
        case: the case with the largest batch that ran.
        recorded: its sequences per GPU and micro-batch.
        computed: the largest number of sequences whose peak is within the GPU's memory.
        peak: the computed peak with the recorded number, in bytes per GPU.
        capacity: the GPU's capacity in bytes.
    """

    name: str
    case: Case
    recorded: int
    computed: int
    peak: float
    capacity: float

    @property
    def deviation(self) -> float:
        """The relative error, computed ÷ recorded - 1."""
        return self.computed / self.recorded - 1


def boundaries(cases: Iterable[Case], registries: Registries) -> tuple[Boundary, ...]:
    """Return every boundary in the cases; the sequence lengths are those of ``LENGTHS_OF``."""
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
    """Return the run with another number of sequences per GPU; one micro-batch holds a step's prompts."""
    total = sequences * (request.gpus or 1)
    changed = {
        key: total
        for key in request.config
        if key in _BATCHES or key.endswith(("micro_batch_size", "micro_batch_size_per_gpu"))
    }
    per_gpu = {key: sequences for key in changed if key.endswith("per_gpu")}
    return request.having({**changed, **per_gpu})
