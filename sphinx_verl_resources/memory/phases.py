"""The phases of one step of verl: the allocations on the fullest GPU in each.

They take turns, so the peak is their maximum and not their sum. Source for the resident allocations of each
phase: verl at 1dda039b9 and earlier releases, see ``versions``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Literal, NamedTuple

from ..i18n import N_
from ..units import GIB, Breakdown, Category
from .allocations import (
    COMMUNICATORS,
    CONTEXT,
    FRAGMENTATION,
    Allocations,
    Constant,
    Kind,
    allocate,
    fixed,
    size_of,
)
from .engine import EngineState, engine_allocations
from .fsdp import FsdpRole
from .megatron import MegatronRole, megatron_roles
from .roles import Role, tokens_of
from .settings import Settings
from .shape import Shape
from .versions import behaviour

# -- vocabulary-wide tensors

Pass = Literal["old", "reference", "update", "gradient"]
#: Bytes per token and vocabulary entry: for every token, and for each token of a chunk.
PerLogit = tuple[float, float]
#: ``PerLogit`` by the way to compute the entropy: in older and newer versions without gradients, and the same
#: in updates. With FSDP, newer versions divide logits out of place; Megatron changed with v0.6.0. In updates,
#: chunks keep copies in fp32 for the backward pass, so they cost more than one compiled kernel.
_PER_LOGIT: Mapping[str, tuple[PerLogit, PerLogit, PerLogit, PerLogit]] = {
    "none": ((2, 0), (4, 0), (8, 0), (4, 0)),
    "compiled": ((2, 0), (4, 0), (8, 0), (6, 0)),
    "eager": ((14, 0), (16, 0), (28, 0), (26, 0)),
    "eager recomputed": ((14, 0), (16, 0), (28, 0), (30, 0)),
    "chunked": ((2, 12), (4, 12), (12, 12), (10, 20)),
    "chunked recomputed": ((2, 12), (4, 12), (12, 12), (14, 12)),
    "megatron none": ((6, 0), (6, 0), (6, 0), (8, 0)),
    "megatron eager": ((8, 0), (12, 0), (8, 0), (12, 0)),
    "megatron chunked": ((8, 0), (8, 4), (8, 0), (12, 0)),
    # The fused kernel has chunks of 512 tokens.
    "fused none": ((0, 12), (0, 12), (0, 20), (0, 20)),
    "fused entropy": ((0, 12), (0, 12), (0, 28), (0, 28)),
}

LOGITS_IN_LOGS = Constant(
    "logits and entropy in an update with known lengths, up to v0.7.1",
    10,
    "seven logs, which show the peak of their longest step next to the lengths of another; the trace gives 8",
    "bytes per token and vocabulary entry",
    "measured",
)


def logits(name: Pass, shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """Return the vocabulary-wide tensors of a pass, or the gradient of the logits."""
    rows = 512.0 if settings.fused_kernels else min(float(settings.entropy_chunk), tokens)
    whole, chunk = _per_logit(name, settings, tokens, rows)
    vocabulary, sharers = {"vocabulary": shape.vocabulary}, settings.actor.megatron.tensor
    return tuple(
        allocate(Kind.LOGITS, {**count, **vocabulary}, each, sharers, "TP", evidence="measured")
        for count, each in (({"tokens": tokens}, whole), ({"tokens of a chunk": rows}, chunk))
        if each
    )


def _per_logit(name: Pass, settings: Settings, tokens: float, rows: float) -> PerLogit:
    """Return the bytes per token and vocabulary entry in a pass; chunks have ``rows`` tokens."""
    actor, update, version = settings.actor, name == "update", settings.version
    if name == "gradient":
        return (0 if settings.fused_kernels else 4 if actor.backend == "megatron" else 2), 0
    computed = settings.computes_entropy if update else name == "old" and not settings.entropy_free
    way = ("chunked" if settings.entropy_chunk else "eager") if computed else "none"
    newer = behaviour(version).second_logits_copy
    if settings.fused_kernels:
        way = "fused entropy" if computed else "fused none"
    elif actor.backend == "megatron":
        if settings.trains_alone and (actor.megatron.fused_loss or actor.megatron.fused_activation):
            return 2, 0  # plain training whose source states fused kernels; verl computes its own loss
        way, newer = f"megatron {way}", version >= (0, 6, 0)
    else:
        newer |= update and not actor.remove_padding  # padded logits are not a view
        if way == "eager" and settings.compiled_entropy and actor.remove_padding:
            way = "compiled"  # never for padded batches
            if update and settings.lengths.observed and version < (0, 8, 0):
                return LOGITS_IN_LOGS.value, 0
        elif computed and settings.entropy_recomputed:
            way += " recomputed"
    each = _PER_LOGIT[way][2 * update + newer]
    # The loss of an update with chunks is wider than its backward pass if there are many.
    choices = (each, (12, 4)) if update and way == "chunked" else (each,)
    return max(choices, key=lambda pair: pair[0] * tokens + pair[1] * rows)


# -- phases

#: The phases in their order within a step, and their display names.
LABELS = {
    "loading": N_("Loading"),
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
MEGATRON_COMMUNICATORS = Constant(
    "communicators of Megatron's groups of GPUs",
    3 * GIB,
    "as FSDP's, but for six groups or more; experts add buffers between all GPUs of a node",
)
UNEVEN_EXPERTS = Constant(
    "fragmentation if experts exchange tokens",
    0.25,
    "simulated once with PyTorch's allocator for layers whose experts' tokens vary by 10 to 30 %",
    "of activations, logits and gathered parameters",
)
#: Categories of allocations that come and go, and so leave fragments.
_TRANSIENT = frozenset({Category.ACTIVATIONS, Category.LOGITS, Category.GATHERED})


class Phase(NamedTuple):
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
    def of(cls, name: str, trainer: Allocations, overhead: Allocations, fragmented: Constant) -> Phase:
        """Return a phase without a rollout engine, with fragments among the overhead."""
        transient = sum(item.size for item in trainer if item.kind.category in _TRANSIENT)
        if transient:
            lost = {"activations, logits and gathered": transient, "share": fragmented.value}
            overhead += (allocate(Kind.FRAGMENTATION, lost, evidence="assumed"),)
        counted = size_of(trainer)
        return cls(name, trainer, (), overhead, counted, 0.0, counted + size_of(overhead))

    def with_engine(self, shape: Shape, settings: Settings) -> Phase:
        """Return the phase with the rollout engine of some settings, which changes nothing else in it."""
        engine = engine_allocations(ENGINE_STATES.get(self.name, "asleep"), shape, settings, self.counted)
        if engine == self.engine:
            return self
        of_engine = size_of(engine)
        total = self.counted + of_engine + size_of(self.overhead)
        return self._replace(engine=engine, of_engine=of_engine, total=total)

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


TrainedRole = FsdpRole | MegatronRole
#: The state of the rollout engine in each phase; in others it sleeps.
ENGINE_STATES: Mapping[str, EngineState] = {
    "loading": "not started", "rollout": "awake", "weight-sync": "taking weights",
}  # fmt: skip


def roles_of(shape: Shape, settings: Settings) -> tuple[tuple[TrainedRole, ...], tuple[TrainedRole, ...]]:
    """Return the actor, and the critic if there is one, on each pipeline stage that can be the fullest."""

    def stages_of(role: Role | None, *, critic: bool) -> tuple[TrainedRole, ...]:
        if role and role.backend == "megatron":
            return megatron_roles(shape, settings, role, critic=critic)
        return (FsdpRole(shape, settings, role, critic=critic),) if role else ()

    return stages_of(settings.actor, critic=False), stages_of(settings.critic, critic=True)


def phases_of(shape: Shape, settings: Settings) -> tuple[Phase, ...]:
    """Return every phase of a step, each on the pipeline stage that is fullest in it."""
    actors, critics = roles_of(shape, settings)
    aligned, megatron, rollout = len(actors) == len(critics), settings.actor.megatron, settings.rollout
    # A critic with the actor's pipeline size has its stages on the same GPUs.
    pairs = zip(actors, critics, strict=True) if aligned else product(actors, critics or (None,))
    # In every phase: the contexts of the processes on a GPU, and the communicators. SGLang always has its own
    # processes: ``AsyncEngine`` in verl/workers/rollout/sglang_rollout/sglang_rollout.py:134 at v0.5.0.
    shared = rollout.engine != "sglang" and behaviour(settings.version).engine_in_process
    contexts = [CONTEXT] if shared or rollout.separate else [CONTEXT, CONTEXT]
    of_groups = MEGATRON_COMMUNICATORS if settings.actor.backend == "megatron" else COMMUNICATORS
    overhead = fixed(Kind.OVERHEAD, *contexts, *([of_groups] if settings.gpus > 1 else []))
    fragmented = UNEVEN_EXPERTS if shape.expert_parameters and megatron.expert > 1 else FRAGMENTATION

    def phase(name: str, trainer: Allocations) -> Phase:
        return Phase.of(name, trainer, overhead, fragmented).with_engine(shape, settings)

    of_stages = [[phase(*one) for one in _trainer_phases(shape, settings, *pair)] for pair in pairs]
    return tuple(max(of_one, key=lambda phase: phase.total) for of_one in zip(*of_stages, strict=True))


def _trainer_phases(
    shape: Shape, settings: Settings, actor: TrainedRole, critic: TrainedRole | None
) -> Iterator[tuple[str, Allocations]]:
    """Yield each phase on one GPU: its name and the trainer's allocations."""
    reference = actor.resident_reference() if settings.reference else ()
    lengths, padless = settings.lengths, settings.actor.remove_padding
    others = (critic.idle if critic else ()) + reference

    def vocabulary(name: Pass, tokens: float) -> Allocations:
        return logits(name, shape, settings, tokens) if actor.has_head else ()

    if behaviour(settings.version).loads_whole_model and settings.actor.backend == "fsdp2":
        # ``_distribute_tensors`` in torch/distributed/_state_dict_utils.py makes shards that are views.
        each = settings.actor.fsdp.parameter_bytes
        yield "loading", (allocate(Kind.WEIGHTS, {"parameters": shape.parameters}, each),)
    if not settings.rollout.separate:
        yield "rollout", actor.idle + others
    if settings.old_log_prob:
        tokens = tokens_of(lengths, settings.old_micro_batch, padless)
        at_layer, at_head = actor.inference(tokens)
        yield "old-log-prob", max(at_layer, at_head + vocabulary("old", tokens), key=size_of) + others
    if settings.reference:
        tokens = tokens_of(lengths, settings.reference_micro_batch, padless)
        at_layer, at_head = actor.reference_pass(tokens, reference)
        yield "ref-log-prob", max(at_layer, at_head + vocabulary("reference", tokens), key=size_of) + others
    if critic:
        beside = actor.waiting + reference
        tokens = tokens_of(lengths, critic.role.micro_batch, critic.role.remove_padding)
        yield "critic-values", max(critic.inference(tokens), key=size_of) + beside
        update = critic.update(tokens)
        yield "critic-forward", update.loss + beside
        yield "critic-backward", update.backward + beside
        yield "critic-optimizer-step", update.step + beside
    tokens = tokens_of(lengths, settings.actor.micro_batch, padless)
    update = actor.update(tokens)
    at_head = update.at_head + vocabulary("gradient", tokens)
    yield "update-forward", update.loss + vocabulary("update", tokens) + others
    yield "update-backward", max(update.backward, at_head, key=size_of) + others
    yield "optimizer-step", update.step + others
    if not settings.trains_alone:
        size = settings.rollout.bucket
        # verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py:176 at 1dda039b9
        bucket = (allocate(Kind.BUCKET, {"bucket": size}),) if size else ()
        yield "weight-sync", actor.weight_sync(bucket) + others
