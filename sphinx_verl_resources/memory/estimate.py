"""One estimate: the peak, its range and verdict, host memory, and the figures of PyTorch's counters."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..diagnostics import NoAnswerError
from ..units import Breakdown, Factor
from .accuracy import EASYR1, FSDP, FSDP_TODAY, MEGATRON, OTHER
from .allocations import Kind, fixed, size_of
from .constants import ABOVE, BELOW, ENGINE_LEAST, ENGINE_MOST, HOST_BASE, TYPICAL_LENGTH
from .engine import cache_problems, sleeping_weights, vllm_pool_in_torch_peak
from .keys import key_warnings
from .phases import phases_of, roles_of
from .resolve import resolve
from .settings import least

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..diagnostics import Diagnostic
    from .allocations import Allocations
    from .phases import Phase
    from .registries import Registries
    from .request import Request, Verdict
    from .settings import Settings
    from .shape import Shape
    from .versions import Version

#: The first version of verl with today's training workers.
_TODAY = (0, 8, 0)


class AnyEstimate:
    """The base of estimates: the peak, its range and its verdict. Sizes are bytes on the fullest GPU.

    Attributes:
        phases: the phases, in their order within a step.
        least: the phases with everything unknown at its most favourable value.
        kind: the kind of run, one of ``CASE_GROUPS``.
        error: the relative error of the training process's memory that 90 % of known runs of this kind stay
            within.
        capacity: bytes that the GPU offers to programs; None if unknown.
        counted_besides: bytes of a rollout engine's pool that PyTorch counts too.
        undecided: unknown settings that decide memory, each with a reason; with any of them, no figure is
            valid.
        unsupported: settings that the estimate ignores, each with a reason.
        ran: whether the run is known to have run on these GPUs.
    """

    phases: tuple[Phase, ...]
    least: tuple[Phase, ...]
    kind: str
    error: float
    capacity: float | None
    counted_besides: float = 0.0
    undecided: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    ran: bool = False

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Warnings about the request."""
        return ()

    @property
    def version(self) -> Version | None:
        """The version of verl."""
        return None

    @property
    def host(self) -> Breakdown | None:
        """Host memory. Sizes are bytes per node."""
        return None

    @property
    def fits_up_to_tokens(self) -> float | None:
        """The largest mean sequence length that fits, in tokens; None if it does not matter."""
        return None

    @cached_property
    def peak_phase(self) -> Phase:
        """The phase with the largest total."""
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def peak(self) -> float:
        """The most memory in use on the GPU at any moment."""
        return self.peak_phase.total

    @cached_property
    def high(self) -> float:
        """The high end of the peak."""
        return ABOVE.value + max(
            phase.total + self.error * phase.counted + (ENGINE_MOST.value - 1) * phase.of_engine
            for phase in self.phases
        )

    @cached_property
    def low(self) -> float:
        """The low end of the peak."""
        return (
            max(
                phase.total - self.error * phase.counted - (1 - ENGINE_LEAST.value) * phase.of_engine
                for phase in self.least
            )
            - BELOW.value
        )

    @property
    def torch_peak(self) -> float:
        """PyTorch's ``max_memory_allocated``, which verl prints as ``perf/max_memory_allocated_gb``.

        If the training process runs the rollout engine (vLLM before v0.7.1), PyTorch also counts the pool of
        the sleeping engine, although its memory is free: the figure can exceed the GPU's memory.
        """
        return self.counted_besides + max(phase.counted for phase in self.phases)

    @property
    def torch_peak_range(self) -> tuple[float, float]:
        """Both ends of the range of ``torch_peak``."""
        low, high = (max(phase.counted for phase in phases) for phases in (self.least, self.phases))
        besides = self.counted_besides
        return besides + low * (1 - self.error), besides + high * (1 + self.error)

    def of_phase(self, name: str) -> AnyEstimate:
        """Return the estimate of one phase alone; the whole estimate if it has no such phase."""
        phases, least = (
            tuple(phase for phase in all_ if phase.name == name) for all_ in (self.phases, self.least)
        )
        if not phases:
            return self
        return PhasesEstimate(phases, least, self.kind, self.error, self.capacity, self.counted_besides)

    @property
    def fits(self) -> bool:
        """True if the verdict is ``fits``; faster to compute than the verdict."""
        return self.capacity is not None and not self.undecided and self.high <= self.capacity

    @property
    def verdict(self) -> Verdict:
        """The verdict: both ends of the range compared with the capacity."""
        if self.capacity is None or self.undecided:
            return "unknown"
        if self.high <= self.capacity:
            return "fits"
        if self.low > self.capacity:
            return "borderline" if self.ran else "does-not-fit"
        return "borderline" if self.fits_up_to_tokens is None else "depends-on-lengths"


@dataclass(frozen=True)
class PhasesEstimate(AnyEstimate):
    """An estimate with given phases, for example of a single phase of a run."""

    phases: tuple[Phase, ...]
    least: tuple[Phase, ...]
    kind: str
    error: float
    capacity: float | None
    counted_besides: float = 0.0


@dataclass(frozen=True)
class Estimate(AnyEstimate):
    """The memory of a run of verl.

    Attributes:
        shape: the model's shape.
        settings: verl's settings, resolved.
        request: the request.
        registries: the registries.
        noted: warnings about the request, except those about the rollout engine's cache and about keys.
    """

    shape: Shape
    settings: Settings
    kind: str
    error: float
    request: Request = field(repr=False, compare=False)
    registries: Registries = field(repr=False, compare=False)
    noted: tuple[Diagnostic, ...] = ()
    unsupported: tuple[str, ...] = ()
    ran: bool = False

    @cached_property
    def phases(self) -> tuple[Phase, ...]:  # type: ignore[override]
        """The phases, in their order within a step."""
        return phases_of(self.shape, self.settings)

    @cached_property
    def least(self) -> tuple[Phase, ...]:  # type: ignore[override]
        """The phases with everything unknown at its most favourable value."""
        # Logits can take more memory without padding than with it.
        other = phases_of(self.shape, least(self.settings))
        return min(other, self.phases, key=lambda phases: max(phase.total for phase in phases))

    @property
    def capacity(self) -> float | None:  # type: ignore[override]
        """The GPU's capacity: the bytes that it offers to programs."""
        return self.settings.capacity if self.settings.capacity_known else None

    @property
    def undecided(self) -> tuple[str, ...]:  # type: ignore[override]
        """Unknown settings that decide memory, each with a reason; with any of them, no figure is valid."""
        return self.settings.undecided

    @property
    def version(self) -> Version:
        """The version of verl."""
        return self.settings.version

    @cached_property
    def counted_besides(self) -> float:  # type: ignore[override]
        """Bytes of the pool of a rollout engine in the training process."""
        return size_of(vllm_pool_in_torch_peak(self.settings))

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The warnings about the request, about the rollout engine's cache, and about keys."""
        named = key_warnings(self.request, self.registries, self.noted)
        return (*self.noted, *named, *cache_problems(self.shape, self.settings))

    @property
    def is_complete(self) -> bool:
        """True if the settings suffice for a useful estimate."""
        return not any(issue.code == "missing_key" for issue in self.warnings)

    def with_mean(self, mean: float) -> Estimate:
        """Return the estimate for sequences of a known mean length in tokens."""
        lengths = replace(self.settings.lengths, mean=mean, known=True)
        return replace(self, settings=replace(self.settings, lengths=lengths))

    @cached_property
    def fits_up_to_tokens(self) -> float | None:
        """The largest mean sequence length that fits; None unless lengths are unknown and decide the verdict.

        Among the lengths of real data, this is the largest whose whole range fits, otherwise the largest
        whose peak fits. If there is none, shorter lengths are tried, with their whole range.
        """
        lengths, capacity = self.settings.lengths, self.capacity
        if lengths.known or self.undecided or capacity is None or not self.low <= capacity < self.high:
            return None

        def longest(shortest: int, fits: Callable[[Estimate], bool]) -> int | None:
            def with_mean(mean: int) -> bool:
                return fits(self.with_mean(mean))

            if not with_mean(shortest):
                return None
            return largest_that_fits(shortest, int(lengths.longest), with_mean)

        usual = math.ceil(lengths.longest * TYPICAL_LENGTH.value)
        tokens = longest(usual, lambda estimate: estimate.fits)
        if tokens is None and self.peak > capacity:
            tokens = longest(usual, lambda estimate: estimate.peak <= capacity)
            tokens = tokens or longest(1, lambda estimate: estimate.fits)
        return tokens

    @cached_property
    def host(self) -> Breakdown:
        """Host memory of the fullest node, roughly. Sizes are bytes per node.

        These are the offloaded states and activations of every GPU of the node, the reference policy, the
        sleeping rollout engine's weights if its version keeps them, and the memory of Ray, data and Python.
        """
        settings = self.settings
        actors, critics = roles_of(self.shape, settings)
        of_gpu: Allocations = ()
        for stages in (actors, critics):
            of_gpu += max((role.offloaded() for role in stages), key=size_of, default=())
        if settings.reference:
            of_gpu += max((actor.offloaded_reference() for actor in actors), key=size_of)
        components = [item.component for item in of_gpu + sleeping_weights(self.shape, settings)]
        per_node = settings.gpus / settings.nodes
        if per_node != 1:
            of_node = Factor("GPUs of the node", per_node)
            components = [component.changed(of_node) for component in components]
        return Breakdown((*components, fixed(Kind.HOST_PROCESSES, HOST_BASE)[0].component))


def estimate(request: Request, registries: Registries) -> Estimate:
    """Estimate the memory of a run of verl.

    Args:
        request: model, settings and GPUs.
        registries: the registries.

    Raises:
        NoAnswerError: the request cannot be estimated.

    >>> from sphinx_verl_resources.memory.context import EstimatorContext
    >>> from sphinx_verl_resources.memory.request import Request
    >>> config = {"actor_rollout_ref.actor.use_dynamic_bsz": True, "algorithm.adv_estimator": "grpo"}
    >>> registries = EstimatorContext().registries
    >>> estimate(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), registries).peak_phase.name
    'rollout'
    """
    shape, settings, warnings, unsupported = resolve(request, registries)
    kind = kind_of(shape, settings)
    return Estimate(
        shape, settings, kind, error_of(kind, registries), request, registries, warnings, unsupported
    )


def attempt(request: Request, registries: Registries) -> Estimate | NoAnswerError:
    """Return the estimate of a request, or the error, so that a search can continue."""
    try:
        return estimate(request, registries)
    except NoAnswerError as error:
        return error


def kind_of(shape: Shape, settings: Settings) -> str:
    """Return the kind of a run, by backend and verl version; errors are recorded by kind."""
    architecture = shape.architecture
    if settings.entropy_free:
        return EASYR1
    if settings.actor.backend == "megatron":
        return MEGATRON
    if architecture.moe or architecture.vision or architecture.linear_attention or settings.critic:
        return OTHER
    return FSDP if settings.version < _TODAY else FSDP_TODAY


def likeness(own: Estimate) -> tuple[bool, bool, bool]:
    """Return whether a run uses today's verl, trains adapters and has experts; see ``AccuracyPart``."""
    settings = own.settings
    return settings.version >= _TODAY, settings.actor.lora_rank > 0, own.shape.architecture.moe is not None


def error_of(kind: str, registries: Registries) -> float:
    """Return the error of a kind of run; if it is unknown, the worst that is known."""
    own = registries.accuracy.get(kind)
    return own.error if own else max((entry.error for entry in registries.accuracy), default=1.0)


def largest_that_fits(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Find the largest number from ``low`` to ``high`` that fits, by bisection; ``low`` must fit.

    >>> largest_that_fits(0, 100, lambda size: size <= 42)
    42
    """
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
