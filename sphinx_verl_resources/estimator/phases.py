"""The phases of one step of verl: what is on the fullest GPU in each.

They take turns, so the peak is the largest of them and not their sum. Source of what is resident when:
verl at 1dda039b9 and the releases before it, see ``versions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..memory.breakdown import Breakdown
from . import engine
from .fsdp import FsdpRole, actor_of, critic_of
from .logits import old_logits, reference_logits, update_logits
from .megatron import MegatronRole, megatron_roles
from .overhead import outside
from .parts import fixed, part, size_of
from .tokens import log_prob_tokens, micro_batches, update_tokens
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..memory.breakdown import Component
    from .settings import Settings
    from .shape import Shape

Parts = tuple["Component", ...]
TrainedRole = FsdpRole | MegatronRole

#: The phases in the order in which they take turns, and what people call them.
LABELS = {
    "rollout": "Rollout",
    "old-log-prob": "Old log-prob",
    "ref-log-prob": "Reference log-prob",
    "critic-values": "Critic: values",
    "critic-forward": "Critic update: loss",
    "critic-backward": "Critic update: backward",
    "critic-optimizer-step": "Critic: optimizer step",
    "update-forward": "Update: loss",
    "update-backward": "Update: backward",
    "optimizer-step": "Optimizer step",
    "weight-sync": "Weight sync",
}


@dataclass(frozen=True)
class Phase:
    """One phase on the GPU that is fullest in it.

    Attributes:
        name: a key of ``LABELS``.
        trainer: what PyTorch allocates in the training process.
        engine: what the rollout engine holds.
        outside: what neither counts: contexts, communicators, fragments.
    """

    name: str
    trainer: Parts
    engine: Parts
    outside: Parts

    @property
    def label(self) -> str:
        """For people."""
        return LABELS[self.name]

    @property
    def breakdown(self) -> Breakdown:
        """All components. Sizes are bytes per GPU."""
        return Breakdown(self.trainer + self.engine + self.outside)

    @cached_property
    def counted(self) -> float:
        """Bytes that PyTorch's counter of the training process sees, without the rollout pool."""
        return size_of(self.trainer)

    @cached_property
    def allocated(self) -> float:
        """Bytes of tensors: what is counted, and the rollout engine."""
        return self.counted + size_of(self.engine)

    @cached_property
    def total(self) -> float:
        """Bytes."""
        return self.allocated + size_of(self.outside)


def phases_of(shape: Shape, settings: Settings) -> tuple[Phase, ...]:
    """Every phase that a step has; of the stages of a pipeline the fullest in each. Sizes are bytes per GPU."""
    found: dict[str, Phase] = {}
    critics = _critics(shape, settings)
    for index, actor in enumerate(_actors(shape, settings)):
        critic = critics[min(index, len(critics) - 1)] if critics else None
        for phase in _on_one_gpu(shape, settings, actor, critic):
            known = found.get(phase.name)
            if known is None or phase.total > known.total:
                found[phase.name] = phase
    return tuple(found[name] for name in LABELS if name in found)


def _actors(shape: Shape, settings: Settings) -> tuple[TrainedRole, ...]:
    if settings.actor.backend == "megatron":
        return megatron_roles(shape, settings.actor, settings.gpus)
    return (actor_of(shape, settings.actor),)


def _critics(shape: Shape, settings: Settings) -> tuple[TrainedRole, ...]:
    critic = settings.critic
    if critic is None:
        return ()
    if critic.backend == "megatron":
        return megatron_roles(shape, critic, settings.gpus, "critic-", "Critic:")
    return (critic_of(shape, critic),)


def _on_one_gpu(
    shape: Shape, settings: Settings, actor: TrainedRole, critic: TrainedRole | None
) -> Iterator[Phase]:
    around = outside(settings)
    asleep = engine.asleep(settings)
    reference = _reference(settings, actor)
    beside_actor = (critic.idle() if critic else ()) + reference

    def phase(name: str, trainer: Parts, rollout: Parts = asleep) -> Phase:
        return Phase(name, trainer, rollout, around(trainer))

    if not settings.rollout.separate:
        resident = actor.idle() + beside_actor
        yield phase("rollout", resident, engine.awake(settings, size_of(resident)))
    if not settings.rollout.separate:
        yield _weight_sync(shape, settings, actor, beside_actor, around)
    tokens = log_prob_tokens(settings, settings.old_micro_batch)
    if settings.old_log_prob:
        passing = actor.root() + actor.layer() + actor.forward(tokens)
        logits = old_logits(shape, settings, tokens) if _has_head(actor) else ()
        yield phase("old-log-prob", actor.evaluating() + passing + logits + beside_actor)
    if settings.reference:
        tokens = log_prob_tokens(settings, settings.reference_micro_batch)
        passing = actor.root() + actor.layer() + actor.forward(tokens)
        logits = reference_logits(shape, settings, tokens) if _has_head(actor) else ()
        own = reference or (_loaded_reference(actor) if isinstance(actor, MegatronRole) else ())
        states = actor.idle() + (critic.idle() if critic else ())
        yield phase("ref-log-prob", states + own + passing + logits)
    if critic:
        beside_critic = actor.idle() + reference
        yield from _critic_phases(settings, critic, beside_critic, phase)
    yield from _update(shape, settings, actor, beside_actor, phase)


def _update(shape, settings, actor, beside, phase) -> Iterator[Phase]:  # type: ignore[no-untyped-def]
    tokens = update_tokens(settings, settings.actor)
    states = actor.updating()
    several = micro_batches(settings, settings.actor) > 1
    grown = _gradients_between(settings, actor, several)
    logits = update_logits(shape, settings, tokens) if _has_head(actor) else ()
    kept = actor.kept(tokens)
    yield phase("update-forward", states + grown + actor.root() + kept + logits + beside)
    backward = actor.root() + actor.layer() + actor.head_gradient() + actor.working(tokens)
    yield phase("update-backward", states + _at_backward(actor, grown, kept) + backward + beside)
    yield phase("optimizer-step", states + _gradients(actor) + actor.step_buffer() + beside)


def _critic_phases(settings, critic, beside, phase) -> Iterator[Phase]:  # type: ignore[no-untyped-def]
    tokens = update_tokens(settings, settings.critic)
    yield phase(
        "critic-values",
        critic.evaluating() + critic.root() + critic.layer() + critic.forward(tokens) + beside,
    )
    several = micro_batches(settings, settings.critic) > 1
    grown = _gradients_between(settings, critic, several)
    kept = critic.kept(tokens)
    states = critic.updating()
    yield phase("critic-forward", states + grown + critic.root() + kept + beside)
    backward = critic.root() + critic.layer() + critic.working(tokens)
    yield phase("critic-backward", states + _at_backward(critic, grown, kept) + backward + beside)
    yield phase("critic-optimizer-step", states + _gradients(critic) + critic.step_buffer() + beside)


def _gradients(role: TrainedRole) -> Parts:
    """Those that are not counted among the states already."""
    return () if isinstance(role, MegatronRole) else role.gradients()


def _gradients_between(settings: Settings, role: TrainedRole, several: bool) -> Parts:
    """Gradients that the first micro-batches leave behind for the last."""
    if not several:
        return ()
    if behaviour(settings.version).unsharded_gradients and not isinstance(role, MegatronRole):
        return role.whole_gradients(2 if role.role.backend == "fsdp" else 4)
    return _gradients(role)


def _at_backward(role: TrainedRole, grown: Parts, kept: Parts) -> Parts:
    """What is kept at the start of the backward pass, or the gradients at its end, whichever is more."""
    if grown:
        return grown + kept
    gradients = _gradients(role)
    return max(kept, gradients, key=size_of)


def _has_head(actor: TrainedRole) -> bool:
    return actor.stage.last if isinstance(actor, MegatronRole) else True


def _reference(settings: Settings, actor: TrainedRole) -> Parts:
    """What the reference policy keeps on the GPU all the time."""
    if not settings.reference:
        return ()
    if isinstance(actor, MegatronRole):
        return () if settings.reference_offload else _loaded_reference(actor)
    if behaviour(settings.version).reference_resident:
        count = (("parameters", float(actor.parameters)),)
        return (
            part(
                "reference",
                "Reference policy",
                "measured",
                count,
                2,
                "bytes",
                settings.reference_shard,
                "GPUs",
            ),
        )
    return ()


def _loaded_reference(actor: MegatronRole) -> Parts:
    count = (("parameters on the GPU", actor.on_gpu),)
    return (part("reference", "Reference policy", "exact", count, 2),)


def _weight_sync(shape, settings, actor, beside, around) -> Phase:  # type: ignore[no-untyped-def]
    """Both copies of the weights, and what they travel through."""
    rollout, does = settings.rollout, behaviour(settings.version)
    role = settings.actor
    weights = actor.weights()
    trainer: Parts = weights
    if role.backend == "megatron":
        optimizer = () if role.megatron.optimizer_offload else actor.optimizer()
        if not role.megatron.param_offload:
            trainer += actor.gradients()
    else:
        optimizer = () if role.fsdp.optimizer_offload else actor.optimizer()
        streams = (
            role.backend == "fsdp2"
            and not role.lora_rank
            and (does.fsdp2_streams or not role.fsdp.param_offload)
        )
        if streams and role.fsdp.param_offload:
            trainer = ()
        size = role.fsdp.parameter_bytes
        largest = float(shape.vocabulary * shape.hidden)
        if not role.lora_rank:
            trainer += (
                part(
                    "largest-tensor",
                    "Largest tensor, whole",
                    "exact",
                    (("vocabulary × hidden", largest),),
                    size,
                ),
            )
            if role.backend == "fsdp" and settings.gpus > 1:
                trainer += (_renamed(weights, "state-dict", "Copy of the weights in the state dict"),)
        elif rollout.layered_summon and not rollout.merge_lora:
            trainer += (
                part(
                    "summoned-layer",
                    "One layer, whole",
                    "exact",
                    (("parameters of a layer", float(shape.unit)),),
                    size,
                ),
            )
        else:
            trainer += (
                part(
                    "summoned-model",
                    "The whole model",
                    "exact",
                    (("parameters", float(shape.parameters)),),
                    size,
                ),
            )
    trainer += optimizer + beside
    if does.cache_awake_in_sync:
        awake = engine.awake(settings, 0.0)
    else:
        awake = (engine.engine_weights(shape, settings), *engine.graphs(settings))
    if rollout.bucket:
        awake += (fixed("bucket", "Bucket for weights", "exact", rollout.bucket, "bucket"),)
    return Phase("weight-sync", trainer, awake, around(trainer))


def _renamed(parts: Parts, key: str, label: str) -> Component:
    from dataclasses import replace

    return replace(parts[0], key=key, label=label, evidence="assumed")
