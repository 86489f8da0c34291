"""How far apart measured and computed values lie, by kind of run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .registries import Registries
    from .settings import Settings
    from .shape import Shape


@dataclass(frozen=True)
class Range:
    """What a computed value is multiplied by to get both ends of its range.

    Attributes:
        kind: the cases that it rests on.
        low: for the lower end.
        high: for the upper end.
    """

    kind: str
    low: float
    high: float


#: Plain fine-tuning, a single counter, known token counts.
TRAINING = "training"
#: verl's own metric with FSDP, a dense text model and no critic.
LOGGED = "verl-log"
#: Everything else: Megatron, experts, vision, a critic, other engines.
OTHER = "other"


def kind_of(shape: Shape, settings: Settings, registries: Registries) -> Range:
    """The range of an estimate: that of the cases that are most like it."""
    architecture = shape.architecture
    like_logs = (
        settings.actor.backend == "fsdp"
        and settings.critic is None
        and settings.rollout.engine == "vllm"
        and settings.nodes == 1
        and not architecture.moe
        and not architecture.vision
        and not architecture.linear_attention
    )
    return range_of(LOGGED if like_logs else OTHER, registries)


def range_of(kind: str, registries: Registries) -> Range:
    """Return the range of a kind of runs; from nothing to twice the value where none is recorded."""
    found = registries.accuracy.get(kind)
    return Range(kind, (found and found.low) or 0.0, (found and found.high) or 2.0)
