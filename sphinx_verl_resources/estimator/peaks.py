"""Peak, range and verdict of every estimate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ..breakdown import Breakdown
    from ..diagnostics import Diagnostic
    from .phases import Phase
    from .registries import Registries
    from .shape import Shape
    from .suggestion import Suggestion
    from .versions import Version

Verdict = Literal["fits", "tight", "does not fit", "unknown"]

#: The kinds of cases that ranges rest on. Plain fine-tuning, a single counter, known token counts:
TRAINING = "training"
#: verl's own metric with FSDP, a dense text model and no critic.
LOGGED = "verl-log"
#: Everything else: Megatron, experts, vision, a critic, other engines.
OTHER = "other"


@dataclass(frozen=True)
class Range:
    """Factors from a computed value to both ends of its range.

    Attributes:
        kind: the cases that it rests on.
        low: for the lower end.
        high: for the upper end.
    """

    kind: str
    low: float
    high: float


def range_of(kind: str, registries: Registries) -> Range:
    """Return the range of a kind of runs; from nothing to twice the value where none is recorded."""
    found = registries.accuracy.get(kind)
    return Range(kind, (found and found.low) or 0.0, (found and found.high) or 2.0)


class AnyEstimate:
    """The base of estimates: of runs of verl, and of plain fine-tuning. Sizes are bytes on the fullest GPU.

    Attributes:
        shape: of the model.
        phases: in the order in which they take turns.
        range: of measured values around computed ones.
        capacity: bytes that the GPU offers to programs; None if it is not known.
        warnings: about the request.
        unsupported: settings that the estimate ignores, each with a reason.
    """

    shape: Shape
    phases: tuple[Phase, ...]
    range: Range
    capacity: float | None
    warnings: tuple[Diagnostic, ...] = ()
    unsupported: tuple[str, ...] = ()

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
        """Compare both ends of the range with the capacity; "tight" if it is between them."""
        if self.capacity is None:
            return "unknown"
        if self.high <= self.capacity:
            return "fits"
        return "does not fit" if self.low > self.capacity else "tight"
