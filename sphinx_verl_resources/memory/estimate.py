"""One estimate: the peak, its range and verdict, host memory, and the figures of PyTorch's counters."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar

from ..diagnostics import Diagnostic, NoAnswerError
from ..units import Breakdown, Factor
from .allocations import (
    ABOVE,
    BELOW,
    ENGINE_LEAST,
    ENGINE_MOST,
    HOST,
    TYPICAL_LENGTH,
    Allocations,
    Constant,
    Kind,
    fixed,
    size_of,
)
from .engine import cache_problems, sleeping_weights, vllm_pool_in_torch_peak
from .keys import key_warnings
from .phases import Phase, phases_of, roles_of
from .registries import EASYR1, FSDP, MEGATRON, TRAINING, EstimatorContext, capacity_of, capacity_range
from .request import Request, Verdict
from .resolve import resolve
from .settings import Settings, gpu_of, least
from .shape import Shape
from .versions import Version, behaviour

#: The first version of verl with today's training workers.
_TODAY = (0, 8, 0)


def _end(phases: Iterable[Phase], error: float, engine: Constant) -> float:
    """Return the largest total if the training process differs by an error, and the engine by a constant."""
    totals = (phase.total + error * phase.counted + (engine.value - 1) * phase.of_engine for phase in phases)
    return max(totals, default=0.0)


@dataclass(frozen=True, kw_only=True)
class AnyEstimate:
    """The peak, its range and its verdict, from phases. Sizes are bytes on the fullest GPU.

    Attributes:
        phases: the phases, in their order within a step.
        kind: the kind of run, see ``kind_of``.
        errors: the relative errors of the training process's memory that 90 % of known runs stay within, for
            the GPU's peak and for PyTorch's counter.
        capacity: bytes that the GPU offers to programs; None if unknown. If only its nominal memory is known,
            the least that GPUs of this size offer.
        most_capacity: the most that they offer; None if the capacity is known.
        pool_in_torch_peak: bytes of a rollout engine's pool that PyTorch counts too.
        undecided: unknown settings that decide memory, each with a reason; with any of them, no figure is
            valid.
        unsupported: settings that the estimate ignores, each with a reason.
        ran: whether the run is known to have run on these GPUs.
        version: the version of verl.
        warnings: warnings about the request.
        host: host memory. Sizes are bytes per node.
        fits_up_to_tokens: the largest mean sequence length that fits, in tokens; None if it does not matter.
    """

    phases: tuple[Phase, ...] = field(repr=False, compare=False)
    kind: str
    errors: tuple[float, float]
    capacity: float | None
    most_capacity: float | None = None
    pool_in_torch_peak: float = 0.0
    undecided: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    ran: bool = False
    version: Version | None = None
    warnings: ClassVar[tuple[Diagnostic, ...]] = ()
    host: ClassVar[Breakdown | None] = None
    fits_up_to_tokens: ClassVar[float | None] = None

    @cached_property
    def least(self) -> tuple[Phase, ...]:
        """The phases with everything unknown at its most favourable value."""
        return self.phases

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
        """The high end of the peak's range."""
        return ABOVE.value + _end(self.phases, self.errors[0], ENGINE_MOST)

    @cached_property
    def low(self) -> float:
        """The low end of the peak's range."""
        return _end(self.least, -self.errors[0], ENGINE_LEAST) - BELOW.value

    @property
    def torch_peak(self) -> float:
        """PyTorch's ``max_memory_allocated``, which verl prints as ``perf/max_memory_allocated_gb``.

        If the training process runs the rollout engine (vLLM before v0.7.1), PyTorch also counts the pool of
        the sleeping engine, although its memory is free: the figure can exceed the GPU's memory.
        """
        return self.pool_in_torch_peak + max(phase.counted for phase in self.phases)

    @property
    def torch_peak_range(self) -> tuple[float, float]:
        """Both ends of the range of ``torch_peak``."""
        low, high = (max(phase.counted for phase in phases) for phases in (self.least, self.phases))
        pool = self.pool_in_torch_peak
        return pool + low * (1 - self.errors[1]), pool + high * (1 + self.errors[1])

    def of_phase(self, *names: str) -> AnyEstimate:
        """Return the estimate of some phases alone; the whole estimate if it has none of them."""
        phases = tuple(phase for phase in self.phases if phase.name in names)
        return replace(self, phases=phases) if phases else self

    @property
    def fits(self) -> bool:
        """True if the verdict is ``fits``; faster to compute than the verdict."""
        return self.capacity is not None and not self.undecided and self.high <= self.capacity

    @property
    def verdict(self) -> Verdict:
        """The verdict: both ends of the range compared with the capacity."""
        if self.capacity is None or self.undecided:
            return "unknown"
        if self.fits:
            return "fits"
        if self.low > (self.most_capacity or self.capacity):
            return "borderline" if self.ran else "does-not-fit"
        return "borderline" if self.fits_up_to_tokens is None else "depends-on-lengths"


@dataclass(frozen=True, kw_only=True)
class Estimate(AnyEstimate):
    """The memory of a run of verl.

    Attributes:
        shape: the model's shape.
        settings: verl's settings, resolved.
        request: the request.
        registries: the registries.
        earlier: warnings about the request, except those about keys and the rollout engine's cache.
    """

    shape: Shape
    settings: Settings
    request: Request = field(repr=False, compare=False)
    registries: EstimatorContext = field(repr=False, compare=False)
    earlier: tuple[Diagnostic, ...]

    @cached_property
    def least(self) -> tuple[Phase, ...]:
        """The phases with everything unknown at its most favourable value."""
        names = {phase.name for phase in self.phases}
        other = (phase for phase in phases_of(self.shape, least(self.settings)) if phase.name in names)
        # Logits can take more memory without padding than with it.
        return min(tuple(other), self.phases, key=lambda phases: max(phase.total for phase in phases))

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:  # type: ignore[override]
        """The warnings about the request, its keys and the rollout engine's cache."""
        named = key_warnings(self.request, self.registries, self.earlier)
        return (*self.earlier, *named, *cache_problems(self.shape, self.settings))

    @property
    def is_complete(self) -> bool:
        """True if the settings suffice for a useful estimate."""
        return not any(issue.code == "missing_key" for issue in self.warnings)

    def with_mean(self, mean: float) -> Estimate:
        """Return the estimate for sequences of a known mean length in tokens."""
        settings = replace(self.settings, lengths=replace(self.settings.lengths, mean=mean))
        return replace(self, settings=settings, phases=phases_of(self.shape, settings))

    def with_engine(self, request: Request, capacity: float, tensor: int, utilization: float) -> Estimate:
        """Return the estimate for a request that differs in its GPU and the engine's TP and share only."""
        rollout = replace(self.settings.rollout, tensor=tensor, utilization=utilization)
        settings = replace(self.settings, rollout=rollout, capacity=capacity)
        return replace(
            self,
            request=request,
            settings=settings,
            phases=tuple(phase.with_engine(self.shape, settings) for phase in self.phases),
            capacity=capacity if self.capacity else None,
            pool_in_torch_peak=size_of(vllm_pool_in_torch_peak(settings)),
        )

    @cached_property
    def fits_up_to_tokens(self) -> float | None:  # type: ignore[override]
        """The largest mean sequence length that fits; None unless lengths are unknown and decide the verdict.

        Among the lengths of real data, this is the largest whose whole range fits, otherwise the largest
        whose peak fits. If there is none, shorter lengths are tried, with their whole range.
        """
        lengths, capacity = self.settings.lengths, self.capacity
        if lengths.known or self.undecided or capacity is None or not self.low <= capacity < self.high:
            return None
        usual = math.ceil(lengths.longest * TYPICAL_LENGTH.value)
        tries = [(usual, "high"), (usual, "peak"), (1, "high")][: 3 if self.peak > capacity else 1]
        for shortest, end in tries:
            fits = partial(lambda end, mean: getattr(self.with_mean(mean), end) <= capacity, end)
            if fits(shortest):
                return largest_that_fits(shortest, int(lengths.longest), fits)
        return None

    @cached_property
    def host(self) -> Breakdown:  # type: ignore[override]
        """Host memory of the fullest node, roughly. Sizes are bytes per node.

        These are the offloaded states of every GPU of the node, the reference policy, the
        sleeping rollout engine's weights if its version keeps them, and the memory of Ray, data and Python.
        """
        settings = self.settings
        actors, critics = roles_of(self.shape, settings)
        of_gpu: Allocations = ()
        for stages in (actors, critics):
            of_gpu += max((role.offloaded() for role in stages), key=size_of, default=())
        if settings.reference:
            of_gpu += max((actor.offloaded_reference() for actor in actors), key=size_of)
        if settings.actor.backend == "megatron" and behaviour(settings.version).offload_doubles:
            of_gpu += tuple(item for item in of_gpu if item.kind is Kind.WEIGHTS)
        components = [item.component for item in of_gpu + sleeping_weights(self.shape, settings)]
        per_node = settings.gpus / settings.nodes
        if per_node != 1:
            components = [part.changed(Factor("GPUs of the node", per_node)) for part in components]
        return Breakdown((*components, fixed(Kind.HOST_PROCESSES, HOST)[0].component))


def estimate(request: Request, registries: EstimatorContext) -> Estimate:
    """Estimate the memory of a run of verl.

    Args:
        request: model, settings and GPUs.
        registries: the registries.

    Raises:
        NoAnswerError: the request cannot be estimated.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> from sphinx_verl_resources.memory.request import Request
    >>> config = {"actor_rollout_ref.actor.use_dynamic_bsz": True, "algorithm.adv_estimator": "grpo"}
    >>> registries = EstimatorContext()
    >>> estimate(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), registries).peak_phase.name
    'rollout'
    """
    shape, settings, warnings, unsupported = resolve(request, registries)
    kind, most = kind_of(shape, settings), None
    if request.memory_gb and not gpu_of(request, registries):
        alike = [capacity_of(gpu) for gpu in registries.gpus if gpu.memory_gb == request.memory_gb]
        most = max(alike, default=capacity_range(request.memory_gb)[1])
    return Estimate(
        phases=phases_of(shape, settings),
        kind=kind,
        errors=errors_of(kind, registries),
        capacity=settings.capacity if settings.capacity_known else None,
        most_capacity=most,
        pool_in_torch_peak=size_of(vllm_pool_in_torch_peak(settings)),
        undecided=settings.undecided,
        unsupported=unsupported,
        version=settings.version,
        shape=shape,
        settings=settings,
        request=request,
        registries=registries,
        earlier=warnings,
    )


def attempt(request: Request, registries: EstimatorContext) -> Estimate | NoAnswerError:
    """Return the estimate of a request, or the error, so that a search can continue."""
    try:
        return estimate(request, registries)
    except NoAnswerError as error:
        return error


def kind_of(shape: Shape, settings: Settings) -> str:
    """Return the kind of a run; errors are recorded by kind.

    This is one of ``CASE_GROUPS``, for verl with ``-lora`` for adapters, ``-experts``, and
    ``-offload-policy`` if FSDP2 keeps its states on the host, in this order.
    """
    if settings.entropy_free:
        return EASYR1
    if settings.trains_alone:
        return TRAINING
    actor = settings.actor
    traits = {
        "-today": settings.version >= _TODAY,
        "-lora": actor.lora_rank > 0,
        "-experts": shape.architecture.moe is not None,
        "-offload-policy": actor.backend == "fsdp2" and actor.fsdp.offload_policy,
    }
    group = MEGATRON if actor.backend == "megatron" else FSDP
    return group + "".join(name for name, applies in traits.items() if applies)


def errors_of(kind: str, registries: EstimatorContext) -> tuple[float, float]:
    """Return the errors of a kind of run, see ``AnyEstimate``; for an unlisted kind, the largest of all."""
    own = registries.accuracy.get(kind)
    pairs = [(entry.error, entry.counter_error) for entry in ([own] if own else registries.accuracy)]
    error, counter_error = zip(*pairs or [(1.0, 1.0)], strict=True)
    return max(error), max(counter_error)


def largest_that_fits(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Find the largest number from ``low`` to ``high`` that fits, by bisection; ``low`` must fit.

    >>> largest_that_fits(0, 100, lambda size: size <= 42)
    42
    """
    return low + bisect_left(range(low + 1, high + 1), True, key=lambda size: not fits(size))
