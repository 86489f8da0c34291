"""The same run on another card: only what the rollout engine takes follows from what a card offers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from . import engine
from .estimate import Estimate
from .phases import Phase
from .resolve import least
from .weight_sync import sync_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .allocations import Allocations
    from .settings import Settings
    from .shape import Shape


@dataclass(frozen=True)
class OnCard(Estimate):
    """An estimate that takes what the training process holds from that of another card.

    Attributes:
        other: of the same run with FSDP, in which all GPUs are alike.
    """

    other: Estimate = field(kw_only=True)

    @cached_property
    def phases(self) -> tuple[Phase, ...]:  # type: ignore[override]
        """In the order in which they take turns."""
        return tuple(_moved(self.other.phases, self.shape, self.settings))

    @cached_property
    def _least(self) -> tuple[Phase, ...]:
        settings = least(self.settings)
        if settings == self.settings:
            return self.phases
        return tuple(_moved(self.other._least, self.shape, settings))


def on_card(found: Estimate, capacity: float) -> Estimate:
    """An estimate with FSDP for a card that offers ``capacity`` bytes, faster than a new one."""
    if capacity == found.capacity:
        return found
    settings = replace(found.settings, capacity=capacity, capacity_known=True)
    return OnCard(found.shape, settings, found.range, found.warnings, found.unsupported, other=found)


def _moved(phases: tuple[Phase, ...], shape: Shape, settings: Settings) -> Iterator[Phase]:
    """The phases with what the engine holds on this card; most stay as they are."""
    asleep = engine.asleep(shape, settings)
    for phase in phases:
        holds: Allocations = asleep
        if phase.name == "rollout":
            holds = engine.awake(shape, settings, phase.counted)
        elif phase.name == "weight-sync":
            holds = sync_engine(shape, settings)
        yield (
            phase
            if holds == phase.engine
            else Phase(phase.name, phase.trainer, holds, phase.runtime_overhead)
        )
