"""The phases of one step of verl: the allocations on the fullest GPU in each.

They take turns, so the peak is their maximum and not their sum. Source for the resident allocations of each
phase: verl at 1dda039b9 and earlier releases, see ``versions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from ..i18n import N_
from ..units import Breakdown, Category
from .allocations import Kind, allocate, fixed, size_of
from .constants import COMMUNICATORS, CONTEXT, FRAGMENTATION, MEGATRON_COMMUNICATORS, UNEVEN_EXPERTS
from .engine import engine_allocations
from .fsdp import FsdpRole
from .logits import logits, logits_gradient
from .megatron import megatron_roles
from .settings import old_tokens, reference_tokens, update_tokens
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .allocations import Allocations, Update
    from .constants import Constant
    from .engine import EngineState
    from .roles import Role
    from .settings import Settings
    from .shape import Shape

#: The phases in their order within a step, and their display names.
LABELS = {
    "rollout": N_("Rollout"),
    "old-log-prob": N_("Old log-prob"),
    "ref-log-prob": N_("Reference log-prob"),
    "critic-values": N_("Critic: values"),
    "critic-forward": N_("Critic update: loss"),
    "critic-backward": N_("Critic update: backward"),
    "critic-optimizer-step": N_("Critic: optimizer step"),
    "update-forward": N_("Update: loss"),
    "update-backward": N_("Update: backward"),
    "optimizer-step": N_("Optimizer step"),
    "weight-sync": N_("Weight sync"),
}
#: Categories of allocations that come and go, and so leave fragments.
_TRANSIENT = frozenset({Category.ACTIVATIONS, Category.LOGITS, Category.GATHERED})


@dataclass(frozen=True)
class Phase:
    """One phase, on the GPU that is fullest in it. Sizes are bytes.

    Attributes:
        name: a key of ``LABELS``.
        trainer: PyTorch's allocations in the training process.
        engine: the allocations of the rollout engine.
        overhead: contexts, communicators and fragments, which are part of neither.
        counted: the total of ``trainer``, which PyTorch's counter shows, without the rollout pool.
        of_engine: the total of ``engine``.
        total: the total of all allocations.
    """

    name: str
    trainer: Allocations
    engine: Allocations
    overhead: Allocations
    counted: float
    of_engine: float
    total: float

    @classmethod
    def of(
        cls, name: str, trainer: Allocations, engine: Allocations, overhead: Allocations, fragmented: Constant
    ) -> Phase:
        """Return a phase with its totals, and with fragments among the overhead."""
        transient = sum(item.size for item in trainer if item.kind.category in _TRANSIENT)
        if transient:
            lost = {"activations, logits and gathered": transient, "share": fragmented.value}
            overhead += (allocate(Kind.FRAGMENTATION, lost, evidence="assumed"),)
        counted, of_engine = size_of(trainer), size_of(engine)
        return cls(
            name, trainer, engine, overhead, counted, of_engine, counted + of_engine + size_of(overhead)
        )

    @property
    def label(self) -> str:
        """The display name."""
        return LABELS[self.name]

    @property
    def allocations(self) -> Allocations:
        """All allocations."""
        return self.trainer + self.engine + self.overhead

    @property
    def breakdown(self) -> Breakdown:
        """All allocations, with formulas."""
        return Breakdown(tuple(allocation.component for allocation in self.allocations))

    @property
    def sizes(self) -> dict[Category, float]:
        """Bytes by category."""
        sizes = dict.fromkeys(Category, 0.0)
        for allocation in self.allocations:
            sizes[allocation.kind.category] += allocation.size
        return sizes


_TOTAL: Callable[[Phase], float] = attrgetter("total")


class TrainedRole(Protocol):
    """The memory of the actor or the critic on one GPU, with any training backend. Sizes are bytes."""

    @property
    def has_head(self) -> bool:
        """True if the role computes the vocabulary-wide outputs on this GPU."""

    @property
    def idle(self) -> Allocations:
        """The allocations that stay on the GPU while other roles work, from the first update on."""

    @property
    def waiting(self) -> Allocations:
        """The allocations that stay on the GPU between a pass without gradients and the update."""

    def inference(self, tokens: float) -> tuple[Allocations, Allocations]:
        """Return the allocations in a pass without gradients: at its widest layer, and at the head."""

    def update(self, tokens: float) -> Update:
        """Return the allocations of an update."""

    def resident_reference(self) -> Allocations:
        """Return the reference policy's allocations that stay on the GPU in all phases."""

    def reference_pass(self, tokens: float, resident: Allocations) -> tuple[Allocations, Allocations]:
        """Return the same as ``inference`` for the reference policy, without its ``resident`` allocations."""

    def weight_sync(self, bucket: Allocations) -> Allocations:
        """Return the allocations during weight sync, which sends the weights in a bucket."""

    def offloaded(self) -> Allocations:
        """Return this GPU's states and activations that are in host memory at any time."""

    def offloaded_reference(self) -> Allocations:
        """Return this GPU's share of a reference policy in host memory."""


def roles_of(shape: Shape, settings: Settings) -> tuple[tuple[TrainedRole, ...], tuple[TrainedRole, ...]]:
    """Return the actor, and the critic if there is one, on each pipeline stage that can be the fullest."""

    def stages_of(role: Role, *, critic: bool) -> tuple[TrainedRole, ...]:
        if role.backend == "megatron":
            return megatron_roles(shape, settings, role, critic=critic)
        return (FsdpRole(shape, settings, role, critic=critic),)

    critics = stages_of(settings.critic, critic=True) if settings.critic else ()
    return stages_of(settings.actor, critic=False), critics


def phases_of(shape: Shape, settings: Settings) -> tuple[Phase, ...]:
    """Return every phase of a step, each on the pipeline stage that is fullest in it."""
    actors, critics = roles_of(shape, settings)
    aligned = len(actors) == len(critics)
    # A critic with the actor's pipeline size has its stages on the same GPUs.
    pairs = zip(actors, critics, strict=True) if aligned else product(actors, critics or (None,))
    overhead, megatron = _overhead(settings), settings.actor.megatron
    fragmented = UNEVEN_EXPERTS if shape.expert_parameters and megatron.expert > 1 else FRAGMENTATION

    def phase(name: str, trainer: Allocations, state: EngineState) -> Phase:
        engine = engine_allocations(state, shape, settings, size_of(trainer))
        return Phase.of(name, trainer, engine, overhead, fragmented)

    of_stages = [_trainer_phases(shape, settings, actor, critic) for actor, critic in pairs]
    return tuple(
        max((phase(*of_one) for of_one in of_stage), key=_TOTAL) for of_stage in zip(*of_stages, strict=True)
    )


def _trainer_phases(
    shape: Shape, settings: Settings, actor: TrainedRole, critic: TrainedRole | None
) -> Iterator[tuple[str, Allocations, EngineState]]:
    """Yield each phase on one GPU: its name, the trainer's allocations and the rollout engine's state."""
    reference = actor.resident_reference() if settings.reference else ()
    others = (critic.idle if critic else ()) + reference
    if not settings.rollout.separate:
        yield "rollout", actor.idle + others, "awake"
    if settings.old_log_prob:
        tokens = old_tokens(settings)
        of_vocabulary = logits("old", shape, settings, tokens) if actor.has_head else ()
        yield "old-log-prob", _wider(*actor.inference(tokens), of_vocabulary) + others, "asleep"
    if settings.reference:
        tokens = reference_tokens(settings)
        of_vocabulary = logits("reference", shape, settings, tokens) if actor.has_head else ()
        passing = _wider(*actor.reference_pass(tokens, reference), of_vocabulary)
        yield "ref-log-prob", passing + others, "asleep"
    if critic and settings.critic:
        beside_critic = actor.waiting + reference
        tokens = update_tokens(settings, settings.critic)
        yield "critic-values", _wider(*critic.inference(tokens), ()) + beside_critic, "asleep"
        update = critic.update(tokens)
        yield "critic-forward", update.loss + beside_critic, "asleep"
        yield "critic-backward", update.backward + beside_critic, "asleep"
        yield "critic-optimizer-step", update.step + beside_critic, "asleep"
    tokens = update_tokens(settings, settings.actor)
    of_vocabulary = logits("update", shape, settings, tokens) if actor.has_head else ()
    gradient = logits_gradient(shape, settings, tokens) if actor.has_head else ()
    update = actor.update(tokens)
    yield "update-forward", update.loss + of_vocabulary + others, "asleep"
    yield "update-backward", max(update.backward, update.at_head + gradient, key=size_of) + others, "asleep"
    yield "optimizer-step", update.step + others, "asleep"
    if not settings.trains_alone:
        size = settings.rollout.bucket
        # verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py:176 at 1dda039b9
        bucket = (allocate(Kind.BUCKET, {"bucket": size}),) if size else ()
        yield "weight-sync", actor.weight_sync(bucket) + others, "taking weights"


def _wider(at_layer: Allocations, at_head: Allocations, of_vocabulary: Allocations) -> Allocations:
    """Return the larger moment of a pass without gradients: a layer, or the logits after the layers."""
    return max(at_layer, at_head + of_vocabulary, key=size_of)


def _overhead(settings: Settings) -> Allocations:
    """Return the contexts of the processes on a GPU and the communicators, the same in every phase."""
    of_groups = MEGATRON_COMMUNICATORS if settings.actor.backend == "megatron" else COMMUNICATORS
    constants = [CONTEXT, *([of_groups] if settings.gpus > 1 else [])]
    if not behaviour(settings.version).engine_in_process and not settings.rollout.separate:
        constants.append(CONTEXT)  # of the engine
    return fixed(Kind.OVERHEAD, *constants)
