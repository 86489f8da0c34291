"""What a role that is trained with Megatron holds on the GPU of one pipeline stage, moment by moment.

Source of the states: ``verl/utils/megatron_utils.py`` at 1dda039b9. Activations are those of the layers of
transformers, divided as Megatron divides them; its fused kernels keep less. No measurement confirms them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ..lazy import lazy
from . import kinds
from .allocations import allocate
from .constants import EXPERT_IMBALANCE
from .fsdp import adapter_count
from .shape import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .allocations import Allocation, Allocations
    from .kinds import Kind
    from .parameters import Counts
    from .settings import Megatron, Role
    from .shape import Shape


@dataclass(frozen=True)
class Stage:
    """One pipeline stage.

    Attributes:
        index: counted from 0.
        layers: how many it has.
        dense: its parameters on one GPU, without experts.
        experts: its experts' parameters on one GPU.
        in_flight: micro-batches whose activations it keeps.
        last: it has the output head.
    """

    index: int
    layers: int
    dense: float
    experts: float
    in_flight: int
    last: bool


@dataclass(frozen=True)
class MegatronRole:
    """One role on one stage, ready for formulas.

    Attributes:
        shape: of the model.
        role: its settings.
        stage: where it is.
        replicas: GPUs that the main parameters and moments of dense weights are divided among.
        expert_replicas: the same for experts.
        trained: share of the parameters that is trained: 1, or that of the adapters.
        prefix: before the keys of components, empty for the actor.
    """

    shape: Shape
    role: Role
    stage: Stage
    replicas: int
    expert_replicas: int
    trained: float
    prefix: str = ""

    @property
    def critic(self) -> bool:
        """True for a critic."""
        return bool(self.prefix)

    @property
    def on_gpu(self) -> float:
        """Parameters on one GPU."""
        return self.stage.dense + self.stage.experts

    @property
    def optimized(self) -> float:
        """Parameters whose main copy and moments this GPU has."""
        if not self.role.megatron.distributed_optimizer:
            return self.on_gpu * self.trained
        dense = self.stage.dense / self.replicas
        return (dense + self.stage.experts / self.expert_replicas) * self.trained

    @lazy
    def idle(self) -> Allocations:
        """What stays on the GPU while the role does nothing, gradients included."""
        megatron = self.role.megatron
        kept = () if megatron.param_offload else self.weights + self.buffer
        return kept + (() if megatron.optimizer_offload else self.optimizer)

    def evaluating(self) -> Allocations:
        """The states during a pass without gradients."""
        megatron = self.role.megatron
        gradients = () if megatron.param_offload else self.buffer
        return self.weights + gradients + (() if megatron.optimizer_offload else self.optimizer)

    def updating(self) -> Allocations:
        """The states during an update: the gradient buffer is there from the start."""
        return self.weights + self.buffer + self.optimizer

    @lazy
    def weights(self) -> Allocations:
        """Parameters in 16 bits."""
        count = self.on_gpu * (1 + (self.trained if self.role.lora_rank else 0))
        return (self._states(kinds.WEIGHTS, count, 2),)

    @lazy
    def buffer(self) -> Allocations:
        """Gradients in fp32, for which there is room all the time."""
        return (self._states(kinds.GRADIENTS, self.on_gpu * self.trained, 4),)

    @lazy
    def optimizer(self) -> Allocations:
        """Main parameters and both moments; what a host optimizer keeps there is left out."""
        megatron = self.role.megatron
        size = megatron.moment_bytes * (1 - megatron.cpu_optimizer)
        if not size:
            return ()
        if not megatron.distributed_optimizer:
            return (self._states(kinds.OPTIMIZER_STATES, self.on_gpu * self.trained, size),)
        found = []
        for kind, count, replicas in (
            (kinds.OPTIMIZER_STATES, self.stage.dense, self.replicas),
            (
                kinds.EXPERT_OPTIMIZER_STATES,
                self.stage.experts,
                self.expert_replicas,
            ),
        ):
            if count:
                found.append(
                    allocate(
                        kind[self.critic],
                        "exact",
                        (("parameters on the GPU", count * self.trained),),
                        size,
                        "bytes",
                        replicas,
                        "replicas",
                    )
                )
        return tuple(found)

    def step_buffer(self) -> Allocations:
        """Its optimizers are fused."""
        return ()

    @property
    def gradients(self) -> Allocations:
        """Their buffer is counted among the states already."""
        return ()

    def accumulated_gradients(self, *, whole: bool) -> Allocations:
        """Gradients that earlier micro-batches leave behind: in the buffer."""
        return ()

    @property
    def root(self) -> Allocations:
        """Nothing is gathered."""
        return ()

    @property
    def layer(self) -> Allocations:
        """Nothing is gathered."""
        return ()

    @property
    def whole_layers(self) -> Allocations:
        """Nothing is gathered."""
        return ()

    @property
    def stage_index(self) -> int:
        """Which stage it is."""
        return self.stage.index

    @property
    def has_head(self) -> bool:
        """Whether the vocabulary-wide outputs come out on this stage."""
        return self.stage.last

    def head_gradient(self) -> Allocations:
        """It goes into the gradient buffer."""
        return ()

    def kept(self, tokens: float) -> Allocations:
        """What forward passes keep for the backward passes of the stage."""
        shape, stage, megatron = self.shape, self.stage, self.role.megatron
        flying = ("micro-batches in flight", float(stage.in_flight))
        if megatron.recompute:
            groups = -(-stage.layers // megatron.recompute_layers)
            variables = (
                ("tokens", tokens),
                ("hidden size", float(shape.hidden)),
                ("layers", float(groups)),
                flying,
            )
            size, kind = 2, kinds.LAYER_INPUTS
        else:
            variables = (
                ("tokens", tokens),
                ("bytes a layer keeps", shape.saved),
                ("layers", float(stage.layers)),
                flying,
            )
            size, kind = 1, kinds.ACTIVATIONS
        return (
            allocate(
                kind[self.critic],
                "assumed",
                variables,
                size,
                "bytes" if size > 1 else "",
                self._sharing,
                "TP",
            ),
        )

    def remaining_activations(self, tokens: float, kept: Allocations) -> Allocations:
        """What is left of it while the last layer is at work."""
        return kept

    def working(self, tokens: float) -> Allocations:
        """What the layer at work in the backward pass has alive."""
        width = self.shape.working if self.role.megatron.recompute else self.shape.working - self.shape.saved
        if self.role.megatron.recompute:
            width *= min(self.role.megatron.recompute_layers, self.stage.layers)
        return self._layer(tokens, width)

    def forward(self, tokens: float) -> Allocations:
        """What the layer at work has alive without gradients."""
        return self._layer(tokens, self.shape.forward)

    def _layer(self, tokens: float, width: float) -> Allocations:
        variables = (("tokens", tokens), ("bytes of a layer", width))
        return (allocate(kinds.WORKING_SET[self.critic], "assumed", variables, 1, "", self._sharing, "TP"),)

    @property
    def _sharing(self) -> int:
        return self.role.megatron.tensor if self.role.megatron.sequence_parallel else 1

    def _states(self, kind: tuple[Kind, Kind], count: float, size: float) -> Allocation:
        symbol = "parameters on the GPU"
        return allocate(kind[self.critic], "exact", ((symbol, count),), size)


def megatron_roles(
    shape: Shape, role: Role, gpus: int, batches: int, prefix: str = ""
) -> tuple[MegatronRole, ...]:
    """The role on each stage that can be the fullest.

    Args:
        shape: of the model.
        role: its settings.
        gpus: how many.
        batches: micro-batches per optimizer step: no stage has more of them in flight.
        prefix: before the keys of components; a critic has one, and a head that gives one number.
    """
    megatron = role.megatron
    if megatron.expert > 1:
        shape = _uneven(shape)
    replicas = max(1, gpus // (megatron.tensor * megatron.pipeline))  # context ranks share the states too
    expert_replicas = max(1, gpus // (megatron.pipeline * megatron.expert * megatron.expert_tensor))
    trained = adapter_count(shape, role.lora_rank, role.targets) / shape.parameters if role.lora_rank else 1.0
    return tuple(
        MegatronRole(shape, role, stage, replicas, expert_replicas, trained, prefix)
        for stage in stages(shape, megatron, batches, critic=bool(prefix))
    )


@lru_cache(maxsize=64)
def _uneven(shape: Shape) -> Shape:
    """The same model where experts are on different GPUs, of which one gets more tokens than the mean."""
    return shape_of(shape.architecture, EXPERT_IMBALANCE.value)


def stages(shape: Shape, megatron: Megatron, batches: int, *, critic: bool) -> tuple[Stage, ...]:
    """The stages that can be the fullest: none of the others has as much of everything."""
    counts = shape.counts
    head = shape.hidden if critic else counts.lm_head
    if not head and megatron.pipeline > 1:  # a tied head on another stage is a copy of the embedding
        head = counts.embedding
    found: list[Stage] = []
    start = 0
    for index, layers in enumerate(stage_sizes(shape.layers, megatron)):
        last = index == megatron.pipeline - 1
        ends = (counts.embedding + counts.vision) * (index == 0) + (head + counts.final_norm) * last
        dense, experts = _parameters(counts, start, layers)
        start += layers
        stage = Stage(
            index=index,
            layers=layers,
            dense=(dense + ends) / megatron.tensor,
            experts=experts / (megatron.expert * megatron.expert_tensor),
            in_flight=max(1, min(megatron.pipeline - index, batches)),
            last=last,
        )
        if not any(_covers(other, stage) for other in found):
            found = [other for other in found if not _covers(stage, other)] + [stage]
    return tuple(found)


def _parameters(counts: Counts, start: int, layers: int) -> tuple[int, int]:
    """Parameters of some layers from ``start`` on: without their experts, and of those."""
    dense = experts = position = 0
    for layer, number in counts.layers:
        share = max(0, min(start + layers, position + number) - max(start, position))
        position += number
        dense += share * (layer.total - layer.experts)
        experts += share * layer.experts
    return dense, experts


def _covers(one: Stage, other: Stage) -> bool:
    """Whether a stage has at least as much of everything as another."""
    return (
        one.layers >= other.layers
        and one.dense >= other.dense
        and one.experts >= other.experts
        and one.in_flight >= other.in_flight
        and one.last >= other.last
    )


def stage_sizes(layers: int, megatron: Megatron) -> list[int]:
    """Layers of each stage; what is not set is shared out evenly, the rest to the first ones.

    >>> from dataclasses import replace
    >>> from sphinx_verl_resources.estimator.roles import NO_MEGATRON
    >>> stage_sizes(61, replace(NO_MEGATRON, pipeline=12, last_layers=6))
    [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6]
    """
    first, last = megatron.first_layers, megatron.last_layers
    stages = megatron.pipeline
    if stages == 1:
        return [layers]
    between = stages - (first is not None) - (last is not None)
    left = max(0, layers - (first or 0) - (last or 0))
    middle = list(_shared(left, between))
    return [*([first] if first is not None else []), *middle, *([last] if last is not None else [])]


def _shared(layers: int, stages: int) -> Iterator[int]:
    each, rest = divmod(layers, stages) if stages else (0, 0)
    for index in range(stages):
        yield each + (index < rest)
