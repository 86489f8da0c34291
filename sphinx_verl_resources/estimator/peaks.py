"""What every estimate can say once its phases are known."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .phases import Phase
    from .ranges import Range
    from .shape import Shape

Verdict = Literal["fits", "tight", "does not fit", "unknown"]


class Peaks:
    """Peak, range and verdict. All sizes are bytes per GPU, on the GPU that is fullest.

    Attributes:
        shape: of the model.
        phases: in the order in which they take turns.
        range: how far measured values lie from computed ones.
        capacity: what the GPU offers to programs; None if it is not known.
    """

    shape: Shape
    phases: tuple[Phase, ...]
    range: Range
    capacity: float | None

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
    def verdict(self) -> Verdict:
        """Whether it fits: yes at the upper end of the range, no at the lower end, otherwise tight."""
        if self.capacity is None:
            return "unknown"
        if self.high <= self.capacity:
            return "fits"
        return "does not fit" if self.low > self.capacity else "tight"
