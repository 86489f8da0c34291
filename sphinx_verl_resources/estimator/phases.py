"""The phases of one step of verl: the allocations on the fullest GPU in each.

They take turns, so the peak is the largest of them and not their sum. Roles count their own memory; the
vocabulary-wide outputs of a micro-batch (logits, their gradient, entropy) are counted here. Source of what
is resident when: verl at 1dda039b9 and the releases before it, see ``versions``.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ..breakdown import Breakdown, Category
from ..i18n import N_
from .allocations import Kind, allocate, size_of
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
from .settings import old_tokens, reference_tokens, update_tokens
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..breakdown import Evidence
    from .allocations import Allocation, Allocations
    from .constants import Constant
    from .engine import EngineState
    from .settings import Role, Settings
    from .shape import Shape

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
        lost = {"allocated": self.counted, "share": FRAGMENTATION.value}
        fragments = allocate(Kind.FRAGMENTATION, FRAGMENTATION.evidence, lost)
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
        """The allocations that stay on the GPU while other roles work, from the first update on."""

    def inference(self, tokens: float) -> Allocations:
        """Return the allocations in a pass without gradients."""

    def update(self, tokens: float) -> tuple[Allocations, Allocations, Allocations]:
        """Return the allocations at the loss, in the backward pass and in the optimizer step."""

    def resident_reference(self) -> Allocations:
        """Return what the reference policy keeps on the GPU all the time."""

    def reference_pass(self, tokens: float, resident: Allocations) -> Allocations:
        """Return the allocations in a pass of the reference policy, without ``resident_reference``."""

    def weight_sync(self) -> Allocations:
        """Return the allocations while the weights are sent to the rollout engine."""

    def offloaded(self) -> Allocations:
        """Return the states and activations of this GPU that are in host memory at some time."""

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
                before = size_of(trainer) if state == "awake" else 0.0
                engine = engine_allocations(state, shape, settings, before)
            phase = phase_of(name, trainer, state, engine, overhead)
            known = fullest.get(name)
            if known is None or phase.total > known.total:
                fullest[name] = phase
    return tuple(fullest[name] for name in LABELS if name in fullest)


def roles_of(shape: Shape, settings: Settings) -> tuple[tuple[TrainedRole, ...], tuple[TrainedRole, ...]]:
    """Return the actor, and the critic if there is one, on each pipeline stage that can be the fullest."""

    def stages_of(role: Role, *, critic: bool) -> tuple[TrainedRole, ...]:
        if role.backend == "megatron":
            return megatron_roles(shape, settings, role, critic=critic)
        return (FsdpRole(shape, settings, role, critic=critic),)

    critics = stages_of(settings.critic, critic=True) if settings.critic else ()
    return stages_of(settings.actor, critic=False), critics


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
        logits = _logits("old", shape, settings, tokens) if actor.has_head else ()
        yield "old-log-prob", actor.inference(tokens) + logits + others, "asleep"
    if settings.reference:
        tokens = reference_tokens(settings)
        logits = _logits("reference", shape, settings, tokens) if actor.has_head else ()
        yield "ref-log-prob", actor.reference_pass(tokens, reference) + logits + others, "asleep"
    if critic and settings.critic:
        beside_critic = actor.idle + reference
        tokens = update_tokens(settings, settings.critic)
        yield "critic-values", critic.inference(tokens) + beside_critic, "asleep"
        loss, backward, step = critic.update(tokens)
        yield "critic-forward", loss + beside_critic, "asleep"
        yield "critic-backward", backward + beside_critic, "asleep"
        yield "critic-optimizer-step", step + beside_critic, "asleep"
    tokens = update_tokens(settings, settings.actor)
    logits = _logits("update", shape, settings, tokens) if actor.has_head else ()
    loss, backward, step = actor.update(tokens)
    yield "update-forward", loss + logits + others, "asleep"
    yield "update-backward", backward + others, "asleep"
    yield "optimizer-step", step + others, "asleep"
    yield "weight-sync", actor.weight_sync() + others, "taking weights"


Pass = Literal["old", "reference", "update"]

#: Bytes a token and vocabulary entry in a pass, by how the entropy is computed.
_PER_LOGIT: Mapping[Pass, Mapping[str, Constant]] = {
    "old": {
        "none": LOGITS_REFERENCE,
        "chunked": LOGITS_REFERENCE,
        "compiled": LOGITS_OLD,
        "eager": LOGITS_OLD_EAGER,
    },
    "reference": {"none": LOGITS_REFERENCE},
    "update": {
        "none": LOGITS_PLAIN,
        "recomputed": LOGITS_ENTROPY_RECOMPUTED,
        "chunked": LOGITS_PLAIN,
        "compiled": LOGITS_ENTROPY,
        "eager": LOGITS_EAGER,
    },
}


def _entropy(name: Pass, settings: Settings) -> str:
    """Return how a pass computes the entropy."""
    computed = settings.computes_entropy if name == "update" else name == "old" and not settings.entropy_free
    if not computed:
        return "none"
    if settings.entropy_recomputed and name == "update":
        return "recomputed"
    if settings.entropy_chunk:
        return "chunked"
    return "compiled" if settings.compiled_entropy else "eager"


def _logits(name: Pass, shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """Return the vocabulary-wide outputs of a pass, and in an update the last hidden states."""
    megatron = settings.actor.backend == "megatron"
    sharers = settings.actor.megatron.tensor if megatron else 1

    def of_vocabulary(kind: Kind, evidence: Evidence, symbol: str, rows: float, each: float) -> Allocation:
        variables = {symbol: rows, "vocabulary": shape.vocabulary}
        return allocate(kind, evidence, variables, each, sharers, "TP")

    found: Allocations
    if settings.fused_kernels:  # they store three chunks in fp32, and never all logits
        rows = FUSED_KERNEL_TOKENS.value
        found = (of_vocabulary(Kind.LOGITS_CHUNK, "assumed", "tokens of a chunk", rows, 12),)
        if name == "update":  # their backward pass makes the gradient of the whole head
            head = {"parameters of the head": shape.head}
            found += (allocate(Kind.FUSED_HEAD_GRADIENT, "assumed", head, 2, sharers, "TP"),)
    else:
        entropy = _entropy(name, settings)
        constant = _PER_LOGIT[name][entropy]
        copied = behaviour(settings.version).second_logits_copy and constant is not LOGITS_PLAIN
        if megatron and entropy == "none":  # Megatron divides in place, and clones for the entropy only
            copied = False
        each = constant.value + (LOGITS_COPY.value if copied else 0)
        evidence = "assumed" if copied else constant.evidence
        found = (of_vocabulary(Kind.LOGITS, evidence, "tokens", tokens, each),)
        if entropy == "chunked":
            rows = min(float(settings.entropy_chunk), tokens)
            found += (of_vocabulary(Kind.ENTROPY_CHUNK, "assumed", "tokens of a chunk", rows, ENTROPY.value),)
    if name == "update":
        hidden = {"tokens": tokens, "hidden size": shape.hidden}
        found += (allocate(Kind.LAST_HIDDEN, "measured", hidden, LAST_NORM.value),)
    return found


_CONTEXT = allocate(Kind.CUDA_CONTEXT, CONTEXT.evidence, {"context": CONTEXT.value})
_ENGINE_CONTEXT = allocate(Kind.ENGINE_CONTEXT, SECOND_CONTEXT.evidence, {"context": SECOND_CONTEXT.value})


def runtime_overhead(settings: Settings) -> Allocations:
    """Return the contexts and communicators, which are the same in every phase."""
    overhead: Allocations = (_CONTEXT,)
    if not behaviour(settings.version).engine_in_process and not settings.rollout.separate:
        overhead += (_ENGINE_CONTEXT,)
    if settings.gpus > 1:
        size = COMMUNICATOR.value + NEXT_COMMUNICATOR.value * _further_groups(settings)
        overhead += (allocate(Kind.COMMUNICATORS, COMMUNICATOR.evidence, {"buffers": size}),)
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
