"""The phases of one step of verl: the allocations on the fullest GPU in each.

They take turns, so the peak is the largest of them and not their sum. Roles count their own memory; the
vocabulary-wide outputs of a micro-batch (logits, their gradient, entropy) are counted here. Source of what
is resident when: verl at 1dda039b9 and the releases before it, see ``versions``.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..breakdown import Breakdown, Category
from ..i18n import N_
from . import kinds
from .allocations import allocate, fixed, per_token, size_of
from .constants import (
    COMMUNICATOR,
    CONTEXT,
    ENTROPY,
    FRAGMENTATION,
    FUSED_KERNEL_TOKENS,
    LAST_NORM,
    LOGITS_COPY,
    LOGITS_EAGER,
    LOGITS_ENTROPY,
    LOGITS_ENTROPY_RECOMPUTED,
    LOGITS_OLD,
    LOGITS_OLD_EAGER,
    LOGITS_PLAIN,
    LOGITS_REFERENCE,
    NEXT_COMMUNICATOR,
    SECOND_CONTEXT,
)
from .engine import engine_allocations
from .fsdp import FsdpRole
from .megatron import megatron_roles
from .settings import micro_batches, old_tokens, reference_tokens, update_tokens
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..breakdown import Evidence
    from .allocations import Allocation, Allocations
    from .constants import Constant
    from .engine import EngineState
    from .kinds import Kind
    from .settings import Role, Settings
    from .shape import Shape


def update_logits(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """Return logits, loss, entropy if it is wanted, and the gradient of the logits, in an update."""
    if settings.fused_kernels:
        # The backward pass of the fused kernels makes the gradient of the whole head.
        head = (("parameters of the head", float(shape.head)),)
        kind, shards = kinds.FUSED_HEAD_GRADIENT, _shards(settings)
        gradient = allocate(kind, "assumed", head, 2, "bytes", shards, "TP")
        return (*_fused(shape, settings), gradient, _last_hidden(shape, tokens))
    copy = _second_copy(settings, entropy=settings.computes_entropy)
    chunk: Allocations = ()
    if not settings.computes_entropy:
        constant, copy = LOGITS_PLAIN, 0.0  # it includes the second copy
    elif settings.entropy_recomputed:
        constant = LOGITS_ENTROPY_RECOMPUTED
    elif settings.entropy_chunk:
        constant, copy, chunk = LOGITS_PLAIN, 0.0, _entropy_chunk(shape, settings, tokens)
    else:
        constant = LOGITS_ENTROPY if settings.compiled_entropy else LOGITS_EAGER
    return (*_logits(shape, settings, tokens, constant, copy), *chunk, _last_hidden(shape, tokens))


def old_logits(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """Return logits and entropy in an old-log-prob pass; only EasyR1 computes no entropy there."""
    if settings.fused_kernels:
        return _fused(shape, settings)
    copy = _second_copy(settings, entropy=not settings.entropy_free)
    if settings.entropy_free:
        return _logits(shape, settings, tokens, LOGITS_REFERENCE, copy)
    if settings.entropy_chunk:
        logits = _logits(shape, settings, tokens, LOGITS_REFERENCE, copy)
        return logits + _entropy_chunk(shape, settings, tokens)
    constant = LOGITS_OLD if settings.compiled_entropy else LOGITS_OLD_EAGER
    return _logits(shape, settings, tokens, constant, copy)


def reference_logits(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """Return the logits in a reference pass, without entropy."""
    if settings.fused_kernels:
        return _fused(shape, settings)
    return _logits(shape, settings, tokens, LOGITS_REFERENCE, _second_copy(settings, entropy=False))


def _second_copy(settings: Settings, *, entropy: bool) -> float:
    """Return the bytes of a second copy; Megatron divides in place, and clones for the entropy only."""
    if not behaviour(settings.version).second_logits_copy:
        return 0.0
    return LOGITS_COPY.value if entropy or settings.actor.backend != "megatron" else 0.0


def _logits(shape: Shape, settings: Settings, tokens: float, constant: Constant, copy: float) -> Allocations:
    evidence: Evidence = "assumed" if copy else constant.evidence
    variables = (("tokens", tokens), ("vocabulary", float(shape.vocabulary)))
    size, shards = constant.value + copy, _shards(settings)
    return (allocate(kinds.LOGITS, evidence, variables, size, "bytes", shards, "TP"),)


def _last_hidden(shape: Shape, tokens: float) -> Allocation:
    return per_token(kinds.LAST_HIDDEN, "measured", tokens, shape.hidden, "hidden size", LAST_NORM.value)


def _entropy_chunk(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    chunk = min(float(settings.entropy_chunk), tokens)
    return _of_chunk(kinds.ENTROPY_CHUNK, shape, settings, chunk, ENTROPY.value)


def _fused(shape: Shape, settings: Settings) -> Allocations:
    """Return three chunks of logits in fp32: fused kernels never store all of them."""
    return _of_chunk(kinds.LOGITS_CHUNK, shape, settings, FUSED_KERNEL_TOKENS.value, 12)


def _of_chunk(kind: Kind, shape: Shape, settings: Settings, tokens: float, size: float) -> Allocations:
    variables = (("tokens of a chunk", tokens), ("vocabulary", float(shape.vocabulary)))
    return (allocate(kind, "assumed", variables, size, "bytes", _shards(settings), "TP"),)


def _shards(settings: Settings) -> int:
    """Return the number of GPUs that share the vocabulary."""
    actor = settings.actor
    return actor.megatron.tensor if actor.backend == "megatron" else 1


#: The phases in the order in which they take turns, and their names for people.
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

_CONTEXT = fixed(kinds.CUDA_CONTEXT, CONTEXT.evidence, CONTEXT.value, "context")
_ENGINE_CONTEXT = fixed(kinds.ENGINE_CONTEXT, SECOND_CONTEXT.evidence, SECOND_CONTEXT.value, "context")


class Phase(NamedTuple):
    """One phase on the GPU that is fullest in it. Sizes are bytes.

    Attributes:
        name: a key of ``LABELS``.
        trainer: allocations of PyTorch in the training process.
        engine_state: the state of the rollout engine.
        engine: allocations of the rollout engine.
        runtime_overhead: contexts and communicators, which neither counts and no phase changes.
        counted: total of ``trainer``: what PyTorch's counter sees, without the rollout pool.
        allocated: total of all tensors: ``trainer`` and ``engine``.
        total: everything.
    """

    name: str
    trainer: Allocations
    engine_state: EngineState
    engine: Allocations
    runtime_overhead: Allocations
    counted: float
    allocated: float
    total: float

    @property
    def label(self) -> str:
        """The name for people."""
        return LABELS[self.name]

    @property
    def allocations(self) -> Allocations:
        """Everything; the memory that PyTorch's allocator cannot use comes last."""
        lost = (("allocated", self.counted), ("share", FRAGMENTATION.value))
        fragments = allocate(kinds.FRAGMENTATION, FRAGMENTATION.evidence, lost, unit="")
        return (*self.trainer, *self.engine, *self.runtime_overhead, fragments)

    @property
    def breakdown(self) -> Breakdown:
        """Everything, with formulas."""
        return Breakdown(tuple(allocation.component for allocation in self.allocations))

    @property
    def sizes(self) -> dict[Category, float]:
        """Bytes by category."""
        sizes = dict.fromkeys(Category, 0.0)
        for allocation in self.allocations:
            sizes[allocation.kind.category] += allocation.size
        return sizes

    @property
    def exact(self) -> float:
        """Bytes of the tensors that follow from counts and sizes alone."""
        return size_of(tuple(item for item in self.trainer + self.engine if item.evidence == "exact"))

    def on_gpu_of(self, shape: Shape, settings: Settings) -> Phase:
        """Return this phase of the same run on another GPU, whose memory the rollout engine shares in."""
        engine = engine_allocations(self.engine_state, shape, settings, self.counted)
        if engine == self.engine:
            return self
        return phase_of(self.name, self.trainer, self.engine_state, engine, self.runtime_overhead)


def phase_of(
    name: str,
    trainer: Allocations,
    engine_state: EngineState,
    engine: Allocations,
    runtime_overhead: Allocations,
) -> Phase:
    """Return a phase with its totals."""
    counted = size_of(trainer)
    allocated = counted + size_of(engine)
    # The sum of the breakdown, whose components are only made when they are shown.
    total = allocated + size_of(runtime_overhead) + counted * FRAGMENTATION.value
    return Phase(name, trainer, engine_state, engine, runtime_overhead, counted, allocated, total)


class TrainedRole(Protocol):
    """The memory of the actor or the critic on one GPU, whichever backend trains it. Sizes are bytes."""

    @property
    def stage_index(self) -> int:
        """The pipeline stage; 0 without stages."""

    @property
    def has_head(self) -> bool:
        """True where the vocabulary-wide outputs are computed."""

    @property
    def idle(self) -> Allocations:
        """What stays on the GPU while other roles work, from the first update on."""

    def inference(self, tokens: float) -> Allocations:
        """Return the allocations in a pass without gradients."""

    def update(self, tokens: float, micro_batches: int) -> tuple[Allocations, Allocations, Allocations]:
        """Return the allocations at the loss, in the backward pass and in the optimizer step.

        Args:
            tokens: of a micro-batch on this GPU.
            micro_batches: per optimizer step; gradients of earlier ones wait for the last.
        """

    def resident_reference(self) -> Allocations:
        """Return what the reference policy keeps on the GPU all the time."""

    def reference_pass(self, tokens: float, resident: Allocations) -> Allocations:
        """Return the allocations in a pass of the reference policy, without ``resident_reference``."""

    def weight_sync(self) -> Allocations:
        """Return the allocations while the weights are sent to the rollout engine."""

    def offloaded(self) -> Allocations:
        """Return the states of this GPU that are in host memory at some time."""

    def offloaded_reference(self) -> Allocations:
        """Return this GPU's share of a reference policy in host memory."""


def phases_of(shape: Shape, settings: Settings) -> tuple[Phase, ...]:
    """Return every phase of a step; of the stages of a pipeline the fullest in each."""
    fullest: dict[str, Phase] = {}
    actors, critics = roles_of(shape, settings)
    aligned = [role.stage_index for role in actors] == [role.stage_index for role in critics]
    # The stages of a critic with the same layout are on the GPUs of the actor's stages.
    pairs = zip(actors, critics, strict=True) if aligned else product(actors, critics or (None,))
    overhead = runtime_overhead(settings)
    asleep = engine_allocations("asleep", shape, settings, 0.0)
    for actor, critic in pairs:
        for name, trainer, state in _trainer_phases(shape, settings, actor, critic):
            engine = asleep
            if state != "asleep":
                engine = engine_allocations(state, shape, settings, size_of(trainer))
            phase = phase_of(name, trainer, state, engine, overhead)
            known = fullest.get(name)
            if known is None or phase.total > known.total:
                fullest[name] = phase
    return tuple(fullest[name] for name in LABELS if name in fullest)


def roles_of(shape: Shape, settings: Settings) -> tuple[tuple[TrainedRole, ...], tuple[TrainedRole, ...]]:
    """Return the actor, and the critic if there is one, on each pipeline stage that can be the fullest."""
    actors = _stages_of(shape, settings, settings.actor, critic=False)
    critics = _stages_of(shape, settings, settings.critic, critic=True) if settings.critic else ()
    return actors, critics


def _stages_of(shape: Shape, settings: Settings, role: Role, *, critic: bool) -> tuple[TrainedRole, ...]:
    if role.backend != "megatron":
        return (FsdpRole(shape, settings, role, critic=critic),)
    return megatron_roles(shape, settings, role, micro_batches(settings, role), critic=critic)


def _trainer_phases(
    shape: Shape, settings: Settings, actor: TrainedRole, critic: TrainedRole | None
) -> Iterator[tuple[str, Allocations, EngineState]]:
    """Yield each phase on one GPU: its name, the training process, and the state of the rollout engine."""
    reference = actor.resident_reference() if settings.reference else ()
    others = (critic.idle if critic else ()) + reference
    if not settings.rollout.separate:
        yield "rollout", actor.idle + others, "awake"
    if settings.old_log_prob:
        tokens = old_tokens(settings)
        logits = old_logits(shape, settings, tokens) if actor.has_head else ()
        yield "old-log-prob", actor.inference(tokens) + logits + others, "asleep"
    if settings.reference:
        tokens = reference_tokens(settings)
        logits = reference_logits(shape, settings, tokens) if actor.has_head else ()
        yield "ref-log-prob", actor.reference_pass(tokens, reference) + logits + others, "asleep"
    if critic and settings.critic:
        beside_critic = actor.idle + reference
        tokens = update_tokens(settings, settings.critic)
        yield "critic-values", critic.inference(tokens) + beside_critic, "asleep"
        loss, backward, step = critic.update(tokens, micro_batches(settings, settings.critic))
        yield "critic-forward", loss + beside_critic, "asleep"
        yield "critic-backward", backward + beside_critic, "asleep"
        yield "critic-optimizer-step", step + beside_critic, "asleep"
    tokens = update_tokens(settings, settings.actor)
    logits = update_logits(shape, settings, tokens) if actor.has_head else ()
    loss, backward, step = actor.update(tokens, micro_batches(settings, settings.actor))
    yield "update-forward", loss + logits + others, "asleep"
    yield "update-backward", backward + others, "asleep"
    yield "optimizer-step", step + others, "asleep"
    yield "weight-sync", actor.weight_sync() + others, "taking weights"


def runtime_overhead(settings: Settings) -> Allocations:
    """Return the contexts and communicators, which are the same in every phase."""
    overhead: Allocations = (_CONTEXT,)
    if not behaviour(settings.version).engine_in_process and not settings.rollout.separate:
        overhead += (_ENGINE_CONTEXT,)
    if settings.gpus > 1:
        size = COMMUNICATOR.value + NEXT_COMMUNICATOR.value * _further_groups(settings)
        overhead += (fixed(kinds.COMMUNICATORS, COMMUNICATOR.evidence, size, "buffers"),)
    return overhead


def _further_groups(settings: Settings) -> int:
    """Count the ways in which GPUs are grouped besides the group of all; each has a communicator."""
    actor, rollout = settings.actor, settings.rollout
    groups = [rollout.tensor > 1 and not rollout.separate]
    if actor.backend == "megatron":
        megatron = actor.megatron
        sizes = (megatron.tensor, megatron.pipeline, megatron.context)
        groups += [size > 1 for size in (*sizes, megatron.expert, megatron.expert_tensor)]
    else:
        groups += [actor.fsdp.ulysses > 1, actor.fsdp.shard < settings.gpus]
    return sum(groups)
