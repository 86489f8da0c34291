"""The peak of an estimate, its range and its verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from .allocations import Ends, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..diagnostics import Diagnostic
    from ..units import Breakdown
    from .allocations import Allocations
    from .phases import Phase
    from .registries import Registries
    from .request import Verdict
    from .shape import Shape
    from .suggestions import Suggestion
    from .versions import Version


def widening_of(kind: str, registries: Registries) -> float:
    """Return the widening of ranges for a kind of run; without cases, that of the worst kind."""
    found = registries.accuracy.get(kind)
    if found and found.widening is not None:
        return found.widening
    return max((entry.widening or 1.0 for entry in registries.accuracy), default=2.0)


class AnyEstimate:
    """The base of estimates. Sizes are bytes on the fullest GPU.

    Attributes:
        shape: the model's shape.
        phases: the phases, in their order within a step.
        kind: the kind of run, one of ``CASE_GROUPS``.
        widening: the factor on the ranges of uncertain allocations for this kind of run.
        capacity: bytes that the GPU offers to programs; None if unknown.
        warnings: warnings about the request.
        unsupported: settings that the estimate ignores, each with a reason.
        ran: whether the run is known to have run on these GPUs.
    """

    shape: Shape
    phases: tuple[Phase, ...]
    kind: str
    widening: float
    capacity: float | None
    warnings: tuple[Diagnostic, ...] = ()
    unsupported: tuple[str, ...] = ()
    ran: bool = False

    @property
    def undecided(self) -> tuple[str, ...]:
        """Unknown settings that decide memory, each with a reason; with any of them, no figure is valid."""
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
        """The single setting that lowers the peak most."""
        return None

    @property
    def fits_up_to_tokens(self) -> float | None:
        """The largest mean sequence length that fits, in tokens; None if it does not matter."""
        return None

    @property
    def varies(self) -> bool:
        """True if lengths vary around a known mean and nothing else is unknown."""
        return False

    @property
    def least(self) -> tuple[Phase, ...]:
        """The phases with everything unknown at its most favourable value."""
        return self.phases

    @property
    def most(self) -> tuple[Phase, ...]:
        """The phases with everything unknown at its least favourable value."""
        return self.phases

    @cached_property
    def peak_phase(self) -> Phase:
        """The phase with the largest total."""
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def peak(self) -> float:
        """The most memory in use on the GPU at any moment."""
        return self.peak_phase.total

    @property
    def low(self) -> float:
        """The low end of the peak."""
        return self.peak_range.low

    @cached_property
    def high(self) -> float:
        """The high end of the peak; faster to compute than both ends."""
        if self.varies:
            return self.peak_range.high
        return max(phase.ends(self.widening).high for phase in self.most)

    @cached_property
    def peak_range(self) -> Ends:
        """Both ends of the peak."""
        return self.peak_ends(self.widening)

    def peak_ends(self, widening: float) -> Ends:
        """Return both ends of the peak with another widening."""
        return self._ends(lambda phase: phase.ends(widening), lambda phase: phase.total)

    def _ends(self, ends: Callable[[Phase], Ends], size: Callable[[Phase], float]) -> Ends:
        """Return both ends of the largest phase, from the ends and the size of each phase.

        With unknown settings, these are the low end with the most favourable values and the high end with the
        least favourable ones. Lengths that vary around a known mean add another independent error.
        """
        if not self.varies:
            # Logits can take more memory without padding than with it.
            low = min(max(ends(phase).low for phase in phases) for phases in (self.least, self.phases))
            return Ends(low, max(ends(phase).high for phase in self.most))
        found = []
        for phase, shorter, longer in zip(self.phases, self.least, self.most, strict=True):
            middle, (low, high) = size(phase), ends(phase)
            below = math.hypot(middle - low, middle - size(shorter))
            above = math.hypot(high - middle, size(longer) - middle)
            found.append(Ends(middle - below, middle + above))
        return Ends(max(end.low for end in found), max(end.high for end in found))

    @property
    def torch_peak(self) -> float:
        """PyTorch's ``max_memory_allocated``."""
        return max(phase.counted for phase in self.phases)

    @property
    def torch_peak_range(self) -> Ends:
        """Both ends of the range of ``torch_peak``."""
        return self.torch_peak_ends(self.widening)

    def torch_peak_ends(self, widening: float) -> Ends:
        """Return both ends of ``torch_peak`` with another widening."""
        besides = self.counted_besides
        whole = size_of(besides)
        return self._ends(
            lambda phase: phase.counted_ends(widening, besides), lambda phase: whole + phase.counted
        )

    @property
    def counted_besides(self) -> Allocations:
        """The allocations that PyTorch counts in each phase, besides those of the training itself."""
        return ()

    @property
    def fits(self) -> bool:
        """True if the verdict is ``fits``; faster to compute than the verdict."""
        capacity = self.capacity
        if capacity is None or self.undecided:
            return False
        return self.peak <= capacity and self.high <= capacity  # the peak is faster to compute

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
class FixedEstimate(AnyEstimate):
    """An estimate with given phases, for example of a single phase of a run."""

    shape: Shape
    phases: tuple[Phase, ...]
    kind: str
    widening: float
    capacity: float | None
