"""The memory of a role trained with Megatron, on one GPU of a pipeline stage.

Source of the states: ``verl/utils/megatron_utils.py`` and ``verl/utils/megatron/optimizer.py`` at 1dda039b9.
Activations: see ``megatron_layers``; these are counted, not measured.
"""

from __future__ import annotations

from functools import lru_cache
from operator import ge
from typing import TYPE_CHECKING, NamedTuple

from .allocations import Kind, Update, allocate
from .constants import EXACT, MEGATRON_WIDTHS, UNUSUAL_WIDTHS
from .megatron_layers import layer_bytes
from .settings import micro_batches
from .shape import adapter_parameters
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..units import Evidence
    from .allocations import Allocations
    from .constants import Spread
    from .megatron_settings import Megatron
    from .parameters import Counts
    from .settings import Role, Settings
    from .shape import Shape


class Stage(NamedTuple):
    """One pipeline stage.

    Attributes:
        number: the stage's index, from 0.
        layers: the number of its layers.
        dense: its parameters on one GPU, without experts.
        outside: the part of ``dense`` outside layers: embedding, head and last norm.
        experts: its experts' parameters on one GPU.
        in_flight: the number of micro-batches whose activations it keeps.
        last: whether it has the output head.
    """

    number: int
    layers: int
    dense: float
    outside: float
    experts: float
    in_flight: int
    last: bool


class MegatronRole:
    """The actor or the critic on one pipeline stage, trained with Megatron.

    ``phases.TrainedRole`` describes the methods. Sizes are bytes per GPU. The gradient buffer exists from the
    start and contains all gradients, nothing is gathered, and the optimizer is fused.

    Attributes:
        on_gpu: parameters on one GPU.
        weights: parameters in 16 bits, and their copies in FP8.
        gradients: the gradient buffer.
        optimizer: main parameters and both moments, without the part on the host.
    """

    def __init__(self, shape: Shape, settings: Settings, role: Role, stage: Stage, *, critic: bool) -> None:
        self.shape, self.settings, self.role, self.stage, self.critic = shape, settings, role, stage, critic
        megatron, gpus = role.megatron, settings.gpus
        self.stage_index, self.has_head = stage.number, stage.last
        self._layer = layer_bytes(shape, megatron)
        # Ranks of context parallelism share the states too.
        self._replicas = max(1, gpus // (megatron.tensor * megatron.pipeline))
        self._expert_replicas = max(1, gpus // (megatron.pipeline * megatron.expert * megatron.expert_tensor))
        self._trained, adapters = 1.0, 0.0
        if role.lora_rank:
            self._trained = adapters = (
                adapter_parameters(shape, role.lora_rank, role.targets) / shape.parameters
            )
        self.on_gpu = stage.dense + stage.experts
        copies = self._fp8_copies()
        self.weights = self._states(Kind.WEIGHTS, self.on_gpu * (1 + adapters), 2) + copies
        self.gradients = self._states(Kind.GRADIENTS, self.on_gpu * self._trained, megatron.gradient_bytes)
        self._matrices = self._muon() if megatron.muon else ()
        self.optimizer = self._matrices + self._adam()
        # verl offloads Adam's states only.
        self._kept_optimizer = self._matrices if megatron.optimizer_offload else self.optimizer
        self.idle = self.weights + self.gradients + self._kept_optimizer
        if megatron.param_offload:
            kept = copies if behaviour(settings.version).fp8_copies_stay else ()
            self.idle = kept + self._kept_optimizer

    @property
    def waiting(self) -> Allocations:
        """The idle allocations, since nothing is gathered."""
        return self.idle

    def inference(self, tokens: float) -> tuple[Allocations, Allocations]:
        """Return the moments of the widest layer and of the head."""
        states = self._evaluating()
        return states + self._at_work(tokens, self._layer.forward), states

    def update(self, tokens: float) -> Update:
        """Return the moments of an update."""
        megatron, layer = self.role.megatron, self._layer
        working = layer.dropped + layer.backward
        if megatron.recompute:  # the kept inputs include that of the first recomputed layer
            layers = min(megatron.recompute_layers, self.stage.layers)
            working += layers * layer.saved - 2 * self.shape.hidden / self._sequence_shards
        states = self.weights + self.gradients + self.optimizer
        saved = states + self._saved_activations(tokens)
        return Update(saved, saved, saved + self._at_work(tokens, working), states)

    def resident_reference(self) -> Allocations:
        """Return the reference policy unless it is offloaded."""
        return () if self.settings.reference_offload else self._reference()

    def reference_pass(self, tokens: float, resident: Allocations) -> tuple[Allocations, Allocations]:
        """Return the moments of the widest layer and of the head, with the reference policy loaded."""
        states = self.idle + (() if resident else self._reference())
        return states + self._at_work(tokens, self._layer.forward), states

    def weight_sync(self, bucket: Allocations) -> Allocations:
        """Return the states, the largest tensor and the bucket."""
        # If only adapters are sent, the frozen weights are not loaded.
        adapters = self.role.lora_rank and not self.settings.rollout.merge_lora
        largest = {"vocabulary × hidden": self.shape.vocabulary * self.shape.hidden}
        states = self.idle if adapters else self._evaluating()
        return states + self._allocate(Kind.LARGEST_TENSOR, "exact", largest, 2) + bucket

    def offloaded(self) -> Allocations:
        """Return the states that Megatron offloads, and those of the optimizer on the host."""
        megatron = self.role.megatron
        states = self.weights[:1] if megatron.param_offload else ()  # copies in FP8 are recreated
        states += self._adam() if megatron.optimizer_offload else ()
        if megatron.cpu_optimizer:
            optimized = self.on_gpu
            if megatron.distributed_optimizer:
                optimized = self.stage.dense / self._replicas + self.stage.experts / self._expert_replicas
            count = {"parameters of the rank": optimized * self._trained}
            # Parameters, gradients and both moments in fp32 (Megatron-Core, HybridDeviceOptimizer).
            size = 16 * megatron.cpu_optimizer
            states += self._allocate(Kind.HOST_OPTIMIZER, "exact", count, size)
        return states

    def offloaded_reference(self) -> Allocations:
        """Return the reference policy if it is offloaded."""
        return self._reference() if self.settings.reference_offload else ()

    def _allocate(
        self,
        kind: Kind,
        evidence: Evidence,
        variables: Mapping[str, float],
        each: float | None,
        sharers: int = 1,
        name_of_sharers: str = "TP",
        spread: Spread = EXACT,
    ) -> Allocations:
        return (
            allocate(
                kind, evidence, variables, each, sharers, name_of_sharers, critic=self.critic, spread=spread
            ),
        )

    def _states(self, kind: Kind, count: float, each: float, replicas: int = 1) -> Allocations:
        count_on_gpu = {"parameters on the GPU": count}
        return self._allocate(kind, "exact", count_on_gpu, each, replicas, "replicas")

    def _fp8_copies(self) -> Allocations:
        """Return the FP8 copies of matrices, by rows and by columns, that TransformerEngine multiplies with.

        Source: ``get_weight_workspace`` in transformer_engine/pytorch/module/base.py, which keeps them.
        """
        if not self.role.megatron.fp8:
            return ()
        count = {"parameters of matrices": self.stage.dense - self.stage.outside + self.stage.experts}
        return self._allocate(Kind.FP8_WEIGHTS, "assumed", count, 2)

    def _reference(self) -> Allocations:
        return self._states(Kind.REFERENCE, self.on_gpu, 2)

    def _evaluating(self) -> Allocations:
        """Return the states during a pass without gradients."""
        gradients = () if self.role.megatron.param_offload else self.gradients
        return self.weights + gradients + self._kept_optimizer

    def _adam(self) -> Allocations:
        """Return the states of Adam. With Muon, Adam trains only parameters outside the layers' matrices."""
        megatron, stage = self.role.megatron, self.stage
        dense, experts = (stage.outside, 0.0) if megatron.muon else (stage.dense, stage.experts)
        size = megatron.moment_bytes * (1 - megatron.cpu_optimizer)
        if megatron.main_on_gpu:
            size += 4 * megatron.cpu_optimizer
        shares = (Kind.OPTIMIZER_STATES, Kind.EXPERT_OPTIMIZER_STATES)
        return self._optimizer(shares, dense, experts, size)

    def _muon(self) -> Allocations:
        """Return the states of Muon: the main parameters of matrices and one moment, in fp32."""
        shares = (Kind.MUON_STATES, Kind.EXPERT_MUON_STATES)
        return self._optimizer(shares, self.stage.dense - self.stage.outside, self.stage.experts, 8)

    def _optimizer(self, kinds: tuple[Kind, Kind], dense: float, experts: float, size: float) -> Allocations:
        """Return an optimizer's states; if they are distributed, fewer GPUs share the experts' states."""
        megatron = self.role.megatron
        shared = megatron.layer_wise if megatron.muon else megatron.distributed_optimizer
        counts = [(kinds[0], dense, self._replicas), (kinds[1], experts, self._expert_replicas)]
        if not shared:
            counts = [(kinds[0], dense + experts, 1)]
        states: Allocations = ()
        for kind, count, replicas in counts:
            if count and size:
                states += self._states(kind, count * self._trained, size, replicas)
        return states

    def _saved_activations(self, tokens: float) -> Allocations:
        """Return the activations that forward passes save for the backward passes of the stage."""
        stage, megatron = self.stage, self.role.megatron
        batches = {"layers": stage.layers, "micro-batches in flight": stage.in_flight}
        if not megatron.recompute:
            kept = {"tokens": tokens, "bytes a layer keeps": self._layer.saved, **batches}
            return self._allocate(Kind.ACTIVATIONS, "assumed", kept, None, spread=self._spread)
        batches["layers"] = -(-stage.layers // megatron.recompute_layers)
        inputs = {"tokens": tokens, "hidden size": self.shape.hidden, **batches}
        return self._allocate(Kind.LAYER_INPUTS, "exact", inputs, 2, self._sequence_shards)

    def _at_work(self, tokens: float, width: float) -> Allocations:
        """Return the activations of the current layer."""
        variables = {"tokens": tokens, "bytes of a layer": width}
        return self._allocate(Kind.WORKING_SET, "assumed", variables, None, spread=self._spread)

    @property
    def _spread(self) -> Spread:
        """Both ends of the bytes of a layer, as factors."""
        return (UNUSUAL_WIDTHS if self.shape.architecture.moe else MEGATRON_WIDTHS).spread

    @property
    def _sequence_shards(self) -> int:
        return self.role.megatron.tensor if self.role.megatron.sequence_parallel else 1


def megatron_roles(shape: Shape, settings: Settings, role: Role, *, critic: bool) -> tuple[MegatronRole, ...]:
    """Return the role on each stage that can be the fullest; a critic's head has one output."""
    return tuple(
        MegatronRole(shape, settings, role, stage, critic=critic)
        for stage in stages(shape, role.megatron, micro_batches(settings, role), critic=critic)
    )


@lru_cache(maxsize=256)
def stages(shape: Shape, megatron: Megatron, batches: int, *, critic: bool) -> tuple[Stage, ...]:
    """Return the stages that can be the fullest: no other stage has as much of everything.

    Cached, since one estimate needs them again for each suggestion.
    """
    counts = shape.counts
    head = shape.hidden if critic else counts.lm_head
    if not head and megatron.pipeline > 1:  # the last stage has a copy of a tied head
        head = counts.embedding
    fullest: list[Stage] = []
    start = 0
    for number, layers in enumerate(stage_sizes(shape.layers, megatron)):
        last = number == megatron.pipeline - 1
        ends = (counts.embedding + counts.vision) * (number == 0) + (head + counts.final_norm) * last
        dense, experts = _parameters(counts, start, layers)
        start += layers
        stage = Stage(
            number=number,
            layers=layers,
            dense=(dense + ends) / megatron.tensor,
            outside=ends / megatron.tensor,
            experts=experts / (megatron.expert * megatron.expert_tensor),
            in_flight=max(1, min(megatron.pipeline - number, batches)),
            last=last,
        )
        if not any(_covers(other, stage) for other in fullest):
            fullest = [other for other in fullest if not _covers(stage, other)] + [stage]
    return tuple(fullest)


def _parameters(counts: Counts, start: int, layers: int) -> tuple[int, int]:
    """Count the parameters of some layers from ``start`` on: those outside experts, and those of experts."""
    dense = experts = position = 0
    for layer, number in counts.layers:
        share = max(0, min(start + layers, position + number) - max(start, position))
        position += number
        dense += share * (layer.total - layer.experts)
        experts += share * layer.experts
    return dense, experts


def _covers(one: Stage, other: Stage) -> bool:
    """Return whether a stage has at least as much of everything as another."""
    (_, *own), (_, *others) = one, other
    return all(map(ge, own, others))


def stage_sizes(layers: int, megatron: Megatron) -> list[int]:
    """Return the number of layers of each stage; the first stages get the remainder of an even split.

    >>> from dataclasses import replace
    >>> from sphinx_verl_resources.estimator.megatron_settings import NO_MEGATRON
    >>> stage_sizes(61, replace(NO_MEGATRON, pipeline=12, last_layers=6))
    [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6]
    """
    if megatron.pipeline == 1:
        return [layers]
    first = [] if megatron.first_layers is None else [megatron.first_layers]
    last = [] if megatron.last_layers is None else [megatron.last_layers]
    between = megatron.pipeline - len(first) - len(last)
    each, rest = divmod(max(0, layers - sum(first + last)), between) if between else (0, 0)
    return [*first, *(each + (index < rest) for index in range(between)), *last]
