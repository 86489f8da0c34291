"""One estimate: the peak, its range and verdict, host memory, and the figures of PyTorch's counters."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from ..units import Breakdown, Factor
from .allocations import Kind, fixed, size_of
from .architectures import EASYR1, FSDP, FSDP_TODAY, MEGATRON, OTHER
from .constants import HOST_BASE, TYPICAL_LENGTH
from .engine import sleeping_weights, vllm_pool_in_torch_peak
from .keys import key_warnings
from .peak import AnyEstimate, widening_of
from .phases import on_gpu_of, phases_of, roles_of
from .pools import is_npu
from .registries import capacity_of
from .request import changed, made
from .resolve import cache_problems, resolve
from .settings import least, most
from .suggestions import Suggestion, override_text, reliefs
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..diagnostics import Diagnostic
    from ..registries import Gpu
    from .allocations import Allocations
    from .phases import Phase
    from .registries import Registries
    from .request import Request
    from .settings import Settings
    from .shape import Shape
    from .suggestions import Relief
    from .versions import Version

#: The first version of verl with today's training workers.
_TODAY = (0, 8, 0)


@dataclass(frozen=True)
class Estimate(AnyEstimate):
    """The memory of a run of verl. Sizes are bytes per GPU, on the fullest GPU.

    Attributes:
        shape: the model's shape.
        settings: verl's settings, resolved.
        kind: the kind of run, one of ``CASE_GROUPS``.
        widening: the factor on the width of ranges for this kind of run.
        request: the request.
        registries: the registries.
        noted: warnings about the request, except those about the rollout engine's cache and about keys.
        unsupported: settings that the estimate ignores, each with a reason.
        ran: whether the run is known to have run on these GPUs.
        elsewhere: the estimate of the same run on another GPU, with the same training process.
    """

    shape: Shape
    settings: Settings
    kind: str
    widening: float
    request: Request = field(repr=False, compare=False)
    registries: Registries = field(repr=False, compare=False)
    noted: tuple[Diagnostic, ...] = ()
    unsupported: tuple[str, ...] = ()
    ran: bool = False
    elsewhere: Estimate | None = field(default=None, repr=False, compare=False)

    @property
    def trains_apart(self) -> bool:
        """True if another GPU, or another share of it for the engine, changes only the engine's memory.

        vLLM takes the same amount on each GPU of a pipeline, so the fullest stage stays the same.
        """
        rollout = self.settings.rollout
        in_process = behaviour(self.settings.version).engine_in_process
        with_trainer = rollout.engine == "vllm" and not rollout.separate and not in_process
        return with_trainer and self.settings.capacity_known

    def on_gpu(self, request: Request, gpu: Gpu, **engine: Any) -> Estimate:
        """Estimate the run on another GPU, if it ``trains_apart``; faster than from its request.

        Args:
            request: the request with the other GPU.
            gpu: the other GPU.
            engine: fields of ``Rollout`` that differ on that GPU.
        """
        rollout = changed(self.settings.rollout, **engine) if engine else self.settings.rollout
        there = {"capacity": capacity_of(gpu), "capacity_known": True, "npu": is_npu(gpu)}
        settings = changed(self.settings, rollout=rollout, **there)
        return changed(self._bare, settings=settings, request=request, elsewhere=self)

    @cached_property
    def _bare(self) -> Estimate:
        """A copy without cached properties."""
        return made(Estimate, {item.name: getattr(self, item.name) for item in fields(self)})

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:  # type: ignore[override]
        """The warnings about the request, about the rollout engine's cache, and about keys."""
        named = key_warnings(self.request, self.registries, self.noted)
        return (*self.noted, *named, *cache_problems(self.shape, self.settings))

    @cached_property
    def phases(self) -> tuple[Phase, ...]:  # type: ignore[override]
        """The phases, in their order within a step."""
        if self.elsewhere:
            return on_gpu_of(self.elsewhere.phases, self.shape, self.settings)
        return phases_of(self.shape, self.settings)

    @property
    def varies(self) -> bool:
        """True if lengths vary around a known mean and nothing else is unknown."""
        return self.settings.lengths.known and least(self.settings).actor == self.settings.actor

    @cached_property
    def least(self) -> tuple[Phase, ...]:
        """The phases with everything unknown at its most favourable value."""
        return self._with(least(self.settings), self.elsewhere.least if self.elsewhere else None)

    @cached_property
    def most(self) -> tuple[Phase, ...]:
        """The phases with everything unknown at its least favourable value."""
        return self._with(most(self.settings), self.elsewhere.most if self.elsewhere else None)

    def _with(self, settings: Settings, elsewhere: tuple[Phase, ...] | None) -> tuple[Phase, ...]:
        """Return the phases with other settings; given the same phases on another GPU, this is faster."""
        if settings == self.settings:
            return self.phases
        if elsewhere:
            return on_gpu_of(elsewhere, self.shape, settings)
        return phases_of(self.shape, settings)

    @cached_property
    def fits_up_to_tokens(self) -> float | None:
        """The largest mean sequence length that fits; None unless lengths are unknown and decide the verdict.

        Among the lengths of real data, this is the largest whose whole range fits, otherwise the largest
        whose peak fits. If there is none, shorter lengths are tried, with their whole range.
        """
        lengths, capacity = self.settings.lengths, self.capacity
        if lengths.known or capacity is None or not self.low <= capacity < self.high:
            return None

        def longest(shortest: int, fits: Callable[[Estimate], bool]) -> int | None:
            def with_mean(mean: int) -> bool:
                settings = changed(self.settings, lengths=replace(lengths, mean=mean, known=True))
                return fits(changed(self._bare, settings=settings, elsewhere=None))

            return (
                largest_that_fits(shortest, int(lengths.longest), with_mean) if with_mean(shortest) else None
            )

        usual = math.ceil(lengths.longest * TYPICAL_LENGTH.value)
        found = longest(usual, lambda estimate: estimate.fits)
        if found is None and self.peak > capacity:
            found = longest(usual, lambda estimate: estimate.peak <= capacity)
            found = found or longest(1, lambda estimate: estimate.fits)
        return found

    @cached_property
    def torch_peak(self) -> float:
        """The bytes that verl prints as ``perf/max_memory_allocated_gb``.

        PyTorch counts the memory of the training process. If this process runs the rollout engine (vLLM
        before v0.7.1), PyTorch also counts the pool of the sleeping engine, although its memory is free: the
        figure can exceed the GPU's memory.
        """
        return size_of(self.counted_besides) + super().torch_peak

    @cached_property
    def counted_besides(self) -> Allocations:
        """The pool of a rollout engine in the training process."""
        return vllm_pool_in_torch_peak(self.settings)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Unknown settings that decide memory, each with a reason; with any of them, no figure is valid."""
        return self.settings.undecided

    @property
    def is_complete(self) -> bool:
        """True if the settings suffice for a useful estimate."""
        return not any(issue.code == "missing_key" for issue in self.warnings)

    @property
    def capacity(self) -> float | None:  # type: ignore[override]
        """The GPU's capacity: the bytes that it offers to programs."""
        return self.settings.capacity if self.settings.capacity_known else None

    @property
    def version(self) -> Version:
        """The version of verl."""
        return self.settings.version

    @cached_property
    def host(self) -> Breakdown:
        """Host memory. Sizes are bytes per node."""
        here = sleeping_weights(self.shape, self.settings)
        if self.elsewhere and here == sleeping_weights(self.shape, self.elsewhere.settings):
            return self.elsewhere.host
        return host_memory(self.shape, self.settings)

    @cached_property
    def suggestion(self) -> Suggestion | None:
        """The single setting that lowers the peak most; None if no setting does."""
        return max(self.suggestions, key=lambda suggestion: suggestion.saves, default=None)

    @cached_property
    def reliefs(self) -> tuple[Relief, ...]:
        """Every setting that may save memory."""
        given = self.registries.in_todays_names(self.request.config)
        return reliefs(self.shape, self.settings, given, self.registries)

    @cached_property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """Every setting that alone lowers the peak by more than 1 %, at the step that saves most."""
        found = []
        for relief in self.reliefs:
            steps = ((self._phases_after(step), step) for step in relief.steps)
            peaks = [(max(phases, key=lambda phase: phase.total), step) for phases, step in steps if phases]
            if peaks:
                phase, step = min(peaks, key=lambda pair: pair[0].total)
                saves = self.peak - phase.total
                found.append(Suggestion(override_text(step), saves, phase.total, phase.name))
        return tuple(suggestion for suggestion in found if suggestion.saves > 0.01 * self.peak)

    def _phases_after(self, overrides: Mapping[str, Any]) -> tuple[Phase, ...]:
        """Return the phases with other settings and the same lengths; none if these settings cannot run."""
        after = attempt(self.request.having(overrides), self.registries)
        if isinstance(after, NoAnswerError):
            return ()
        return phases_of(after.shape, replace(after.settings, lengths=self.settings.lengths))


def estimate(request: Request, registries: Registries) -> Estimate:
    """Estimate the memory of a run of verl.

    Args:
        request: model, settings and GPUs.
        registries: the registries.

    Raises:
        NoAnswerError: the request cannot be estimated.

    >>> from sphinx_verl_resources.estimator.context import EstimatorContext
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> config = {"actor_rollout_ref.actor.use_dynamic_bsz": True, "algorithm.adv_estimator": "grpo"}
    >>> registries = EstimatorContext().registries
    >>> found = estimate(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), registries)
    >>> found.peak_phase.name
    'rollout'
    """
    shape, settings, warnings, unsupported = resolve(request, registries)
    kind = kind_of(shape, settings)
    widening = widening_of(kind, registries)
    return Estimate(shape, settings, kind, widening, request, registries, warnings, unsupported)


def attempt(request: Request, registries: Registries) -> Estimate | NoAnswerError:
    """Return the estimate of a request, or the error, so that a search can continue."""
    try:
        return estimate(request, registries)
    except NoAnswerError as error:
        return error


def kind_of(shape: Shape, settings: Settings) -> str:
    """Return the kind of a run, by backend and verl version; accuracy is recorded by kind."""
    architecture = shape.architecture
    if settings.entropy_free:
        return EASYR1
    if settings.actor.backend == "megatron":
        return MEGATRON
    if architecture.moe or architecture.vision or architecture.linear_attention or settings.critic:
        return OTHER
    return FSDP if settings.version < _TODAY else FSDP_TODAY


def likeness(found: Estimate) -> tuple[bool, bool, bool]:
    """Return whether a run uses today's verl, trains adapters and has experts; see ``AccuracyPart``."""
    settings = found.settings
    return settings.version >= _TODAY, settings.actor.lora_rank > 0, found.shape.architecture.moe is not None


def largest_that_fits(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Find the largest number from ``low`` to ``high`` that fits, by bisection; ``low`` must fit.

    >>> largest_that_fits(0, 100, lambda size: size <= 42)
    42
    """
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def host_memory(shape: Shape, settings: Settings) -> Breakdown:
    """Return the host memory of the fullest node. Sizes are bytes per node.

    These are the offloaded states and activations of every GPU of the node, the reference policy, the
    sleeping rollout engine's weights if its version keeps them, and the memory of Ray, data and Python.
    """
    actors, critics = roles_of(shape, settings)
    of_gpu: Allocations = ()
    for stages in (actors, critics):
        of_gpu += max((role.offloaded() for role in stages), key=size_of, default=())
    if settings.reference:
        of_gpu += max((actor.offloaded_reference() for actor in actors), key=size_of)
    of_gpu += sleeping_weights(shape, settings)
    components = [allocation.component for allocation in of_gpu]
    per_node = settings.gpus / settings.nodes
    if per_node != 1:
        of_node = Factor("GPUs of the node", per_node)
        components = [component.changed(of_node) for component in components]
    base = fixed(Kind.HOST_PROCESSES, "base", HOST_BASE)
    return Breakdown((*components, base.component))
