"""The phases of one step of verl: what is on the fullest GPU in each.

They take turns, so the peak is the largest of them and not their sum. Source of what is resident when:
verl at 1dda039b9 and the releases before it, see ``versions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from ..breakdown import Breakdown, Category
from ..i18n import N_
from ..lazy import lazy
from . import engine, kinds
from .allocations import allocate, size_of
from .constants import FRAGMENTATION
from .fsdp import FsdpRole, actor_of, critic_of
from .logits import old_logits, reference_logits, update_logits
from .megatron import MegatronRole, megatron_roles
from .overhead import fragments, outside
from .tokens import micro_batches, old_tokens, reference_tokens, update_tokens
from .versions import behaviour
from .weight_sync import sync_engine, sync_trainer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .allocations import Allocations
    from .settings import Role, Settings
    from .shape import Shape

TrainedRole = FsdpRole | MegatronRole

#: The phases in the order in which they take turns, and what people call them.
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


@dataclass(frozen=True)
class Phase:
    """One phase on the GPU that is fullest in it.

    Attributes:
        name: a key of ``LABELS``.
        trainer: what PyTorch allocates in the training process.
        engine: what the rollout engine holds.
        beside: what neither counts and what no phase changes: contexts, communicators.
    """

    name: str
    trainer: Allocations
    engine: Allocations
    runtime_overhead: Allocations

    @property
    def label(self) -> str:
        """For people."""
        return LABELS[self.name]

    @property
    def breakdown(self) -> Breakdown:
        """All components. Sizes are bytes per GPU."""
        return Breakdown(tuple(allocation.component for allocation in self.allocations))

    @property
    def sizes(self) -> dict[Category, float]:
        """Bytes by category."""
        sizes = dict.fromkeys(Category, 0.0)
        for allocation in self.allocations:
            sizes[allocation.kind.category] += allocation.size
        return sizes

    @property
    def allocations(self) -> Allocations:
        """Everything in this phase; memory that PyTorch's allocator cannot use comes last."""
        return (*self.trainer, *self.engine, *self.runtime_overhead, fragments(self.counted))

    @lazy
    def counted(self) -> float:
        """Bytes that PyTorch's counter of the training process sees, without the rollout pool."""
        return size_of(self.trainer)

    @lazy
    def exact(self) -> float:
        """Bytes of the tensors that follow from counts and sizes alone."""
        return size_of(tuple(item for item in self.trainer + self.engine if item.evidence == "exact"))

    @lazy
    def allocated(self) -> float:
        """Bytes of tensors: what is counted, and the rollout engine."""
        return self.counted + size_of(self.engine)

    @lazy
    def total(self) -> float:
        """Bytes."""
        # As the sum of the breakdown, whose components are only made where somebody looks at them.
        return self.allocated + size_of(self.runtime_overhead) + self.counted * FRAGMENTATION.value


@dataclass(frozen=True)
class _Gpu:
    """Who shares one GPU.

    Attributes:
        shape: of the model.
        settings: of the run.
        actor: on this GPU.
        critic: on this GPU; None without one.
        reference: what the reference policy keeps there all the time.
        asleep: what the rollout engine keeps there while others work.
        beside: what lies there beside all tensors.
    """

    shape: Shape
    settings: Settings
    actor: TrainedRole
    critic: TrainedRole | None
    reference: Allocations
    asleep: Allocations
    runtime_overhead: Allocations

    @lazy
    def beside_actor(self) -> Allocations:
        """What critic and reference keep there while the actor works."""
        return (self.critic.idle if self.critic else ()) + self.reference

    def phase(self, name: str, trainer: Allocations, rollout: Allocations | None = None) -> Phase:
        """One phase; the rollout engine sleeps where nothing else is said."""
        return Phase(name, trainer, self.asleep if rollout is None else rollout, self.runtime_overhead)


def phases_of(shape: Shape, settings: Settings) -> tuple[Phase, ...]:
    """Every phase that a step has; of the stages of a pipeline the fullest in each.

    Sizes are bytes per GPU.
    """
    found: dict[str, Phase] = {}
    for gpu in _gpus(shape, settings):
        for phase in _on_one(gpu):
            known = found.get(phase.name)
            if known is None or phase.total > known.total:
                found[phase.name] = phase
    return tuple(found[name] for name in LABELS if name in found)


def _gpus(shape: Shape, settings: Settings) -> Iterator[_Gpu]:
    """The GPUs that can be the fullest: every stage of a pipeline, of the actor and of the critic."""
    asleep, runtime_overhead = engine.asleep(shape, settings), outside(settings)
    actors, critics = roles_of(shape, settings)
    together = (
        zip(actors, critics, strict=True)
        if _aligned(actors, critics)
        else product(actors, critics or (None,))
    )
    for actor, critic in together:
        yield _Gpu(shape, settings, actor, critic, _reference(settings, actor), asleep, runtime_overhead)


def _aligned(actors: tuple[TrainedRole, ...], critics: tuple[TrainedRole, ...]) -> bool:
    """Whether the stages of the critic lie on the GPUs of the same stages of the actor."""
    return [role.stage_index for role in actors] == [role.stage_index for role in critics]


def roles_of(shape: Shape, settings: Settings) -> tuple[tuple[TrainedRole, ...], tuple[TrainedRole, ...]]:
    """The actor, and the critic if there is one, on each stage of the pipeline that can be the fullest."""
    actor, critic = settings.actor, settings.critic
    actors: tuple[TrainedRole, ...] = (
        megatron_roles(shape, actor, settings.gpus, micro_batches(settings, actor))
        if actor.backend == "megatron"
        else (actor_of(shape, actor),)
    )
    return actors, _critics(shape, settings, critic) if critic else ()


def _critics(shape: Shape, settings: Settings, critic: Role) -> tuple[TrainedRole, ...]:
    if critic.backend != "megatron":
        return (critic_of(shape, critic),)
    batches = micro_batches(settings, critic)
    return megatron_roles(shape, critic, settings.gpus, batches, "critic-")


def _reference(settings: Settings, actor: TrainedRole) -> Allocations:
    """What the reference policy keeps on the GPU all the time."""
    if not settings.reference:
        return ()
    if isinstance(actor, MegatronRole):
        return () if settings.reference_offload else _loaded_reference(actor)
    if not behaviour(settings.version).reference_resident:
        return ()
    count = (("parameters", float(actor.parameters)),)
    shard = settings.reference_fsdp.shard
    return (allocate(kinds.REFERENCE, "measured", count, 2, "bytes", shard, "GPUs"),)


def _loaded_reference(actor: MegatronRole) -> Allocations:
    count = (("parameters on the GPU", actor.on_gpu),)
    return (allocate(kinds.REFERENCE, "exact", count, 2),)


def _on_one(gpu: _Gpu) -> Iterator[Phase]:
    settings, actor = gpu.settings, gpu.actor
    if not settings.rollout.separate:
        resident = actor.idle + gpu.beside_actor
        yield gpu.phase("rollout", resident, engine.awake(gpu.shape, settings, size_of(resident)))
    if settings.old_log_prob:
        yield _old_log_prob(gpu)
    if settings.reference:
        yield _reference_log_prob(gpu)
    if gpu.critic and settings.critic:
        yield from _critic_phases(gpu, gpu.critic, settings.critic)
    yield from _update(gpu)
    trainer = sync_trainer(gpu.shape, settings, actor) + gpu.beside_actor
    yield gpu.phase("weight-sync", trainer, sync_engine(gpu.shape, settings))


def _old_log_prob(gpu: _Gpu) -> Phase:
    actor, tokens = gpu.actor, old_tokens(gpu.settings)
    logits = old_logits(gpu.shape, gpu.settings, tokens) if actor.has_head else ()
    transient = actor.root + actor.layer + actor.forward(tokens) + logits
    return gpu.phase("old-log-prob", actor.evaluating() + transient + gpu.beside_actor)


def _reference_log_prob(gpu: _Gpu) -> Phase:
    actor, tokens = gpu.actor, reference_tokens(gpu.settings)
    logits = reference_logits(gpu.shape, gpu.settings, tokens) if actor.has_head else ()
    if isinstance(actor, MegatronRole):
        weights = () if gpu.reference else _loaded_reference(actor)
    else:
        weights = actor.root + actor.layer if gpu.reference else actor.streamed()
    transient = weights + actor.forward(tokens) + logits
    return gpu.phase("ref-log-prob", actor.idle + transient + gpu.beside_actor)


def _update(gpu: _Gpu) -> Iterator[Phase]:
    actor, settings = gpu.actor, gpu.settings
    tokens = update_tokens(settings, settings.actor)
    logits = update_logits(gpu.shape, settings, tokens) if actor.has_head else ()
    names = ("update-forward", "update-backward", "optimizer-step")
    moments = _update_phases(gpu, actor, settings.actor, tokens, logits)
    return (gpu.phase(name, own + gpu.beside_actor) for name, own in zip(names, moments, strict=True))


def _critic_phases(gpu: _Gpu, critic: TrainedRole, role: Role) -> Iterator[Phase]:
    runtime_overhead = gpu.actor.idle + gpu.reference
    tokens = update_tokens(gpu.settings, role)
    transient = critic.root + critic.layer + critic.forward(tokens)
    yield gpu.phase("critic-values", critic.evaluating() + transient + runtime_overhead)
    names = ("critic-forward", "critic-backward", "critic-optimizer-step")
    for name, own in zip(names, _update_phases(gpu, critic, role, tokens, ()), strict=True):
        yield gpu.phase(name, own + runtime_overhead)


def _update_phases(
    gpu: _Gpu, trained: TrainedRole, role: Role, tokens: float, logits: Allocations
) -> tuple[Allocations, Allocations, Allocations]:
    """What a role has at the loss, in the backward pass and in the optimizer step.

    Args:
        gpu: where.
        trained: actor or critic.
        role: its settings.
        tokens: of a micro-batch on this GPU.
        logits: what the loss takes.
    """
    states, kept = trained.updating(), trained.kept(tokens)
    accumulated_gradients: Allocations = ()
    if micro_batches(gpu.settings, role) > 1:
        accumulated_gradients = trained.accumulated_gradients(
            whole=behaviour(gpu.settings.version).unsharded_gradients
        )
    loss = states + accumulated_gradients + trained.root + trained.whole_layers + kept + logits
    # What is kept at the start of the backward pass goes while the gradients come.
    remaining_activations = trained.remaining_activations(tokens, kept)
    halfway = (
        accumulated_gradients + remaining_activations
        if accumulated_gradients
        else max(remaining_activations, trained.gradients, key=size_of)
    )
    transient = trained.root + trained.layer + trained.head_gradient() + trained.working(tokens)
    return loss, states + halfway + transient, states + trained.gradients + trained.step_buffer()
