"""The phases of one step of verl: the allocations on the fullest GPU in each.

They take turns, so the peak is their maximum and not their sum. Source for the resident allocations of each
phase: verl at 1dda039b9 and earlier releases, see ``versions``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from ..i18n import N_
from ..units import Breakdown, Category
from .allocations import Kind, allocate, ends_of, fixed, of_constant, size_of
from .constants import (
    ALL_TO_ALL,
    COMMUNICATOR,
    CONTEXT,
    FRAGMENTATION,
    IDLE_FRAGMENTATION,
    SECOND_CONTEXT,
    UNEVEN_CACHE,
)
from .engine import bucket, engine_allocations
from .fsdp import FsdpRole
from .logits import logits, logits_gradient
from .megatron import megatron_roles
from .request import made
from .settings import old_tokens, reference_tokens, update_tokens
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .allocations import Allocations, Ends, Update
    from .engine import EngineState
    from .settings import Role, Settings
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


@dataclass(frozen=True)
class Phase:
    """One phase, on the GPU that is fullest in it. Sizes are bytes.

    Attributes:
        name: a key of ``LABELS``.
        trainer: PyTorch's allocations in the training process.
        engine_state: the state of the rollout engine.
        engine: the allocations of the rollout engine.
        runtime_overhead: contexts, communicators and cached blocks, which are part of neither.
        counted: the total of ``trainer``, which PyTorch's counter shows, without the rollout pool.
        total: the total of all allocations.
    """

    name: str
    trainer: Allocations
    engine_state: EngineState
    engine: Allocations
    runtime_overhead: Allocations
    counted: float
    total: float
    _ends: dict[float, Ends] = field(default_factory=dict, repr=False, compare=False)

    @property
    def label(self) -> str:
        """The display name."""
        return LABELS[self.name]

    @property
    def allocations(self) -> Allocations:
        """All allocations; memory that PyTorch's allocator cannot use comes last."""
        lost = {"allocated": self.counted, "share": FRAGMENTATION.value}
        constant = FRAGMENTATION if self.engine_state == "asleep" else IDLE_FRAGMENTATION
        fragments = allocate(Kind.FRAGMENTATION, constant.evidence, lost, spread=constant.spread)
        return (*self.trainer, *self.engine, *self.runtime_overhead, fragments)

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

    def ends(self, widening: float) -> Ends:
        """Return both ends of ``total``; cached, since estimates of several GPUs need them again."""
        if widening not in self._ends:
            self._ends[widening] = ends_of(self.allocations, widening, self.counted)
        return self._ends[widening]

    def counted_ends(self, widening: float, besides: Allocations) -> Ends:
        """Return both ends of ``counted`` plus the other allocations that PyTorch counts."""
        return ends_of(besides + self.trainer, widening, self.counted)


def phase_of(
    name: str,
    trainer: Allocations,
    engine_state: EngineState,
    engine: Allocations,
    runtime_overhead: Allocations,
) -> Phase:
    """Return a phase, with its totals computed."""
    counted = size_of(trainer)
    # Equal to the breakdown's total, whose components are made only when they are shown.
    total = counted * (1 + FRAGMENTATION.value) + size_of(engine + runtime_overhead)
    values = {
        "name": name,
        "trainer": trainer,
        "engine_state": engine_state,
        "engine": engine,
        "runtime_overhead": runtime_overhead,
        "counted": counted,
        "total": total,
        "_ends": {},
    }
    return made(Phase, values)


def on_gpu_of(phases: Iterable[Phase], shape: Shape, settings: Settings) -> tuple[Phase, ...]:
    """Return the phases of the same run on another GPU, on which vLLM takes a different amount of memory."""
    engines: dict[EngineState, Allocations] = {}
    found = []
    for phase in phases:
        state = phase.engine_state
        if state not in engines:
            engines[state] = engine_allocations(state, shape, settings, 0.0)
        if engines[state] != phase.engine:
            phase = phase_of(phase.name, phase.trainer, state, engines[state], phase.runtime_overhead)
        found.append(phase)
    return tuple(found)


_TOTAL: Callable[[Phase], float] = attrgetter("total")


class TrainedRole(Protocol):
    """The memory of the actor or the critic on one GPU, with any training backend. Sizes are bytes."""

    @property
    def stage_index(self) -> int:
        """The pipeline stage; 0 without stages."""

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


def phases_of(shape: Shape, settings: Settings) -> tuple[Phase, ...]:
    """Return every phase of a step, each on the pipeline stage that is fullest in it."""
    actors, critics = roles_of(shape, settings)
    aligned = [role.stage_index for role in actors] == [role.stage_index for role in critics]
    # A critic with the actor's pipeline size has its stages on the same GPUs.
    pairs = zip(actors, critics, strict=True) if aligned else product(actors, critics or (None,))
    overhead = runtime_overhead(settings)
    asleep = engine_allocations("asleep", shape, settings, 0.0)

    def with_engine(name: str, trainer: Allocations, state: EngineState) -> Phase:
        engine = asleep
        if state != "asleep":
            before = size_of(trainer) if state == "awake" else 0.0
            engine = engine_allocations(state, shape, settings, before)
        return phase_of(name, trainer, state, engine, overhead + _cached_blocks(shape, settings, trainer))

    of_stages = [_trainer_phases(shape, settings, actor, critic) for actor, critic in pairs]
    return tuple(
        max((with_engine(*of_one) for of_one in of_stage), key=_TOTAL)
        for of_stage in zip(*of_stages, strict=True)
    )


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
    yield "weight-sync", actor.weight_sync(bucket(settings)) + others, "taking weights"


def _wider(at_layer: Allocations, at_head: Allocations, of_vocabulary: Allocations) -> Allocations:
    """Return the larger moment of a pass without gradients: a layer, or the logits after the layers."""
    return max(at_layer, at_head + of_vocabulary, key=size_of)


CUDA_CONTEXT = fixed(Kind.CUDA_CONTEXT, "context", CONTEXT)
_ENGINE_CONTEXT = fixed(Kind.ENGINE_CONTEXT, "context", SECOND_CONTEXT)


def runtime_overhead(settings: Settings) -> Allocations:
    """Return the contexts and communicators, which are the same in every phase."""
    actor = settings.actor
    sizes = (_megatron_groups if actor.backend == "megatron" else _fsdp_groups)(settings, actor)
    exchanging = actor.megatron.expert if actor.backend == "megatron" else actor.fsdp.ulysses
    partners = min(exchanging, settings.gpus // settings.nodes) - 1
    engine = not behaviour(settings.version).engine_in_process and not settings.rollout.separate
    return _overhead(engine, sum(size > 1 for size in sizes), partners)


def _cached_blocks(shape: Shape, settings: Settings, trainer: Allocations) -> Allocations:
    """Return the blocks that PyTorch caches because each layer's experts get a different number of tokens."""
    actor = settings.actor
    if not shape.expert_parameters or actor.backend != "megatron" or actor.megatron.expert == 1:
        return ()
    sizes = [item.size for item in trainer if item.kind.category in (Category.ACTIVATIONS, Category.LOGITS)]
    if not sizes:
        return ()
    return (of_constant(Kind.UNEVEN_CACHE, UNEVEN_CACHE, {"activations and logits": sum(sizes)}),)


@lru_cache(maxsize=256)
def _overhead(engine: bool, groups: int, partners: int) -> Allocations:
    overhead: Allocations = (CUDA_CONTEXT, _ENGINE_CONTEXT) if engine else (CUDA_CONTEXT,)
    if groups:
        overhead += (of_constant(Kind.COMMUNICATORS, COMMUNICATOR, {"groups": groups}),)
    if partners > 0:
        overhead += (of_constant(Kind.EXCHANGE_BUFFERS, ALL_TO_ALL, {"partners": partners}),)
    return overhead


def _fsdp_groups(settings: Settings, actor: Role) -> tuple[int, ...]:
    """Return the sizes of the communicating groups: all GPUs, those of FSDP's mesh, and others."""
    gpus, fsdp, rollout = settings.gpus, actor.fsdp, settings.rollout
    in_process = behaviour(settings.version).engine_in_process and not rollout.separate
    return gpus, fsdp.shard, gpus // fsdp.shard, fsdp.ulysses, rollout.tensor if in_process else 1


def _megatron_groups(settings: Settings, actor: Role) -> tuple[int, ...]:
    """Return the sizes of the communicating groups; Megatron makes them with and without context ranks.

    Source: ``initialize_model_parallel`` in megatron/core/parallel_state.py.
    """
    megatron, gpus = actor.megatron, settings.gpus
    tensor, pipeline, context = megatron.tensor, megatron.pipeline, megatron.context
    replicas = max(1, gpus // (tensor * pipeline * context))
    sizes = (gpus, tensor, replicas, replicas * context, tensor * pipeline, pipeline, context)
    if megatron.expert == 1:
        return sizes
    experts = megatron.expert * megatron.expert_tensor
    return *sizes, megatron.expert, experts, max(1, gpus // (experts * pipeline))
