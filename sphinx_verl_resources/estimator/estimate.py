"""One estimate: the peak, its range, the phase that sets it, and what the counters would say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..diagnostics import Code
from .engine import vllm_pool_in_torch_peak
from .host import host_memory
from .peaks import Peaks
from .phases import phases_of
from .ranges import kind_of
from .resolve import least, resolve
from .support import unsupported_keys

if TYPE_CHECKING:
    from ..breakdown import Breakdown
    from ..diagnostics import Diagnostic
    from .phases import Phase
    from .ranges import Range
    from .registries import Registries
    from .request import Request
    from .settings import Settings
    from .shape import Shape
    from .suggestion import Suggestion


@dataclass(frozen=True)
class Estimate(Peaks):
    """What a run takes. All sizes are bytes per GPU, on the GPU that is fullest.

    Attributes:
        shape: of the model.
        settings: verl's, resolved.
        range: how far measured values lie from computed ones.
        warnings: about the request.
        unsupported: settings that the estimate ignores, each with a reason.
    """

    shape: Shape
    settings: Settings
    range: Range
    warnings: tuple[Diagnostic, ...] = ()
    unsupported: tuple[str, ...] = ()

    @cached_property
    def phases(self) -> tuple[Phase, ...]:  # type: ignore[override]
        """In the order in which they take turns."""
        return phases_of(self.shape, self.settings)

    @cached_property
    def low(self) -> float:
        """The lower end of the peak: tensors alone, and what is not known as favourable as it may be."""
        scaled = self.range.low * max(phase.allocated for phase in self._least)
        # Never below what is exact, nor above the peak, whatever contradicts itself in what was observed.
        return min(self.peak, max(scaled, *(phase.exact for phase in self._least)))

    @cached_property
    def torch_peak(self) -> float:
        """What verl prints as ``perf/max_memory_allocated_gb``, in bytes.

        PyTorch counts the training process. With the rollout engine in it (vLLM before v0.7.1) the pool of
        the sleeping engine counts too, though its memory is free: the figure can exceed the card.
        """
        return vllm_pool_in_torch_peak(self.settings) + max(phase.counted for phase in self.phases)

    @property
    def is_complete(self) -> bool:
        """Whether the settings say enough for an estimate that is worth looking at."""
        return not any(problem.code is Code.missing_key for problem in self.warnings)

    @property
    def torch_peak_range(self) -> tuple[float, float]:
        """Both ends of the range of what verl prints, in bytes."""
        least_logged = vllm_pool_in_torch_peak(self.settings) + max(phase.counted for phase in self._least)
        return min(self.torch_peak, self.range.low * least_logged), self.range.high * self.torch_peak

    @cached_property
    def _least(self) -> tuple[Phase, ...]:
        """The phases with what is not known as favourable as it may be."""
        settings = least(self.settings)
        return self.phases if settings == self.settings else phases_of(self.shape, settings)

    @property
    def capacity(self) -> float | None:  # type: ignore[override]
        """What the GPU offers to programs."""
        return self.settings.capacity if self.settings.capacity_known else None

    @cached_property
    def host(self) -> Breakdown:
        """Host memory. Sizes are bytes per node."""
        return host_memory(self.shape, self.settings)

    @cached_property
    def suggestion(self) -> Suggestion | None:
        """The one setting that lowers the binding phase most; None if none does."""
        from .suggestion import best_relief

        return best_relief(self)


def estimate(request: Request, registries: Registries) -> Estimate:
    """The memory of a run of verl.

    Args:
        request: model, settings and GPUs.
        registries: the registries.

    Raises:
        NoAnswerError: something in the request leaves no estimate; its diagnostics say what.

    >>> from sphinx_verl_resources.cli.data import load_registries
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> config = {"actor_rollout_ref.actor.use_dynamic_bsz": True, "algorithm.adv_estimator": "grpo"}
    >>> found = estimate(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), load_registries([]))
    >>> found.peak_phase.name
    'rollout'
    """
    config = registries.in_todays_names(request.config)
    if config is not request.config:
        request = replace(request, config=config)
    shape, settings, warnings = resolve(request, registries)
    return Estimate(
        shape,
        settings,
        kind_of(shape, settings, registries),
        warnings,
        unsupported_keys(request, settings, registries),
    )
