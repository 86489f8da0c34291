"""One estimate: the peak, its range and verdict, host memory, and the counters' figures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ..breakdown import Breakdown, Change
from ..catalog.names import LOGGED, OTHER
from ..diagnostics import Code, NoAnswerError
from .allocations import Kind, allocate, size_of
from .constants import HOST_BASE
from .engine import sleeping_weights, vllm_pool_in_torch_peak
from .phases import phases_of, roles_of
from .resolve import resolve
from .settings import least
from .suggestions import suggestions

if TYPE_CHECKING:
    from ..catalog.names import Verdict
    from ..diagnostics import Diagnostic
    from .allocations import Allocations
    from .phases import Phase
    from .registries import Registries
    from .request import Request
    from .settings import Settings
    from .shape import Shape
    from .suggestions import Suggestion
    from .versions import Version


class Range(NamedTuple):
    """Factors from a computed value to the lower and to the upper end of its range."""

    low: float
    high: float


def range_of(kind: str, registries: Registries) -> Range:
    """Return the range of a kind of runs; from nothing to twice the value where none is recorded."""
    found = registries.accuracy.get(kind)
    return Range((found and found.low) or 0.0, (found and found.high) or 2.0)


class AnyEstimate:
    """The base of estimates: of runs of verl, and of plain fine-tuning. Sizes are bytes on the fullest GPU.

    Attributes:
        shape: of the model.
        phases: in the order in which they take turns.
        range: of measured values around computed ones.
        capacity: bytes that the GPU offers to programs; None if it is not known.
        warnings: about the request.
        unsupported: settings that the estimate ignores, each with a reason.
        ran: the run is known to have run on such GPUs.
    """

    shape: Shape
    phases: tuple[Phase, ...]
    range: Range
    capacity: float | None
    warnings: tuple[Diagnostic, ...] = ()
    unsupported: tuple[str, ...] = ()
    ran: bool = False

    @property
    def undecided(self) -> tuple[str, ...]:
        """Settings that decide memory and were not read, each with a reason: no figure holds."""
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
    def suggestion(self) -> Suggestion | None:
        """The one setting that lowers the peak most."""
        return None

    @cached_property
    def peak_phase(self) -> Phase:
        """The phase that sets the peak."""
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def peak(self) -> float:
        """The most that is on the GPU at any moment: decides whether a run fits."""
        return self.peak_phase.total

    @property
    def low(self) -> float:
        """The lower end of the peak: tensors alone, without contexts, communicators and fragments."""
        return self.range.low * max(phase.allocated for phase in self.phases)

    @property
    def high(self) -> float:
        """The upper end of the peak."""
        return self.range.high * self.peak

    @property
    def torch_peak(self) -> float:
        """PyTorch's ``max_memory_allocated``."""
        return max(phase.counted for phase in self.phases)

    @property
    def torch_peak_range(self) -> tuple[float, float]:
        """Both ends of the range of ``torch_peak``."""
        return self.range.low * self.torch_peak, self.range.high * self.torch_peak

    @property
    def verdict(self) -> Verdict:
        """Compare both ends of the range with the capacity; "borderline" if it is between them."""
        if self.capacity is None or self.undecided:
            return "unknown"
        if self.high <= self.capacity:
            return "fits"
        if self.low > self.capacity:
            return "borderline" if self.ran else "does-not-fit"
        return "borderline" if self.fits_up_to_tokens is None else "depends-on-lengths"

    @property
    def fits_up_to_tokens(self) -> float | None:
        """The largest mean length of sequences, in tokens, that fits; None if the lengths do not decide."""
        return None


@dataclass(frozen=True)
class Estimate(AnyEstimate):
    """The memory of a run of verl. Sizes are bytes per GPU, on the GPU that is fullest.

    Attributes:
        shape: of the model.
        settings: verl's, resolved.
        range: of measured values around computed ones.
        warnings: about the request.
        unsupported: settings that the estimate ignores, each with a reason.
        ran: the run is known to have run on such GPUs.
        elsewhere: the estimate of the same run on another GPU, whose training process is the same.
    """

    shape: Shape
    settings: Settings
    range: Range
    warnings: tuple[Diagnostic, ...] = ()
    unsupported: tuple[str, ...] = ()
    ran: bool = False
    elsewhere: Estimate | None = field(default=None, repr=False, compare=False)

    def on_gpu(self, capacity: float) -> Estimate:
        """Estimate the same run on GPUs that offer ``capacity`` bytes, faster than from its request.

        Only with FSDP: all GPUs are alike there, and only the rollout engine's share depends on the capacity.
        """
        if capacity == self.capacity:
            return self
        settings = replace(self.settings, capacity=capacity, capacity_known=True)
        return replace(self, settings=settings, elsewhere=self)

    @cached_property
    def phases(self) -> tuple[Phase, ...]:  # type: ignore[override]
        """The phases in the order in which they take turns."""
        if self.elsewhere:
            return tuple(phase.on_gpu_of(self.shape, self.settings) for phase in self.elsewhere.phases)
        return phases_of(self.shape, self.settings)

    @cached_property
    def _least(self) -> tuple[Phase, ...]:
        """The phases with every unknown setting at its most favourable value."""
        settings = least(self.settings)
        if settings == self.settings:
            return self.phases
        if self.elsewhere:
            return tuple(phase.on_gpu_of(self.shape, settings) for phase in self.elsewhere._least)
        return phases_of(self.shape, settings)

    @cached_property
    def low(self) -> float:
        """The lower end of the peak: tensors alone, every unknown setting at its most favourable value."""
        scaled = self.range.low * max(phase.allocated for phase in self._least)
        # Never below the exact tensors nor above the peak, even if observations contradict each other.
        return min(self.peak, max(scaled, *(phase.exact for phase in self._least)))

    @cached_property
    def torch_peak(self) -> float:
        """The bytes that verl prints as ``perf/max_memory_allocated_gb``.

        PyTorch counts the training process. With the rollout engine in it (vLLM before v0.7.1) the pool of
        the sleeping engine counts too, though its memory is free: the figure can exceed the GPU's memory.
        """
        return vllm_pool_in_torch_peak(self.settings) + super().torch_peak

    @property
    def torch_peak_range(self) -> tuple[float, float]:
        """Both ends of the range of ``torch_peak``."""
        least_peak = vllm_pool_in_torch_peak(self.settings) + max(phase.counted for phase in self._least)
        return min(self.torch_peak, self.range.low * least_peak), self.range.high * self.torch_peak

    @property
    def undecided(self) -> tuple[str, ...]:
        """Settings that decide memory and were not read, each with a reason: no figure holds."""
        return self.settings.undecided

    @property
    def is_complete(self) -> bool:
        """True if the settings say enough for a useful estimate."""
        return not any(issue.code is Code.missing_key for issue in self.warnings)

    @property
    def capacity(self) -> float | None:  # type: ignore[override]
        """The bytes that the GPU offers to programs."""
        return self.settings.capacity if self.settings.capacity_known else None

    @property
    def version(self) -> Version:
        """The version of verl."""
        return self.settings.version

    @cached_property
    def host(self) -> Breakdown:
        """Host memory. Sizes are bytes per node."""
        return host_memory(self.shape, self.settings)

    @cached_property
    def suggestion(self) -> Suggestion | None:
        """The one setting that lowers the peak most; None if none does."""
        return max(self.suggestions, key=lambda suggestion: suggestion.saves, default=None)

    @property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """Every single setting that lowers the peak noticeably."""
        return tuple(suggestions(self.shape, self.settings, self.peak))


def estimate(request: Request, registries: Registries) -> Estimate:
    """Estimate the memory of a run of verl.

    Args:
        request: model, settings and GPUs.
        registries: the registries.

    Raises:
        NoAnswerError: something in the request leaves no estimate.

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> config = {"actor_rollout_ref.actor.use_dynamic_bsz": True, "algorithm.adv_estimator": "grpo"}
    >>> found = estimate(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), read_data([]).registries)
    >>> found.peak_phase.name
    'rollout'
    """
    shape, settings, warnings, unsupported = resolve(request, registries)
    measured = range_of(LOGGED if _is_like_the_logs(shape, settings) else OTHER, registries)
    return Estimate(shape, settings, measured, warnings, unsupported)


def attempt(request: Request, registries: Registries) -> Estimate | NoAnswerError:
    """Return the estimate of a request, or why there is none: for searches, which go on without it."""
    try:
        return estimate(request, registries)
    except NoAnswerError as error:
        return error


def _is_like_the_logs(shape: Shape, settings: Settings) -> bool:
    architecture = shape.architecture
    return (
        settings.actor.backend == "fsdp"
        and settings.critic is None
        and settings.rollout.engine == "vllm"
        and settings.nodes == 1
        and not architecture.moe
        and not architecture.vision
        and not architecture.linear_attention
    )


def host_memory(shape: Shape, settings: Settings) -> Breakdown:
    """Return the host memory of the fullest node. Sizes are bytes per node.

    Offloaded states and activations of every GPU of the node, the reference policy, sleeping weights of the
    rollout engine where its version keeps them, and the memory of Ray, data and Python.
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
        of_node = Change("×", per_node, "GPUs of the node")
        components = [component.changed(of_node) for component in components]
    base = allocate(Kind.HOST_PROCESSES, HOST_BASE.evidence, {"base": HOST_BASE.value})
    return Breakdown((*components, base.component))
