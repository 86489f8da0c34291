"""What a role that is trained with Megatron holds on the GPU of one pipeline stage, moment by moment.

Source of the states: ``verl/utils/megatron_utils.py`` at 1dda039b9. Activations follow Megatron-LM's own
formulas; no measurement confirms them here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .fsdp import adapter_count
from .parameters import count_parameters
from .parts import part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..memory.breakdown import Component
    from .settings import Megatron, Role
    from .shape import Shape

Parts = tuple["Component", ...]


@dataclass(frozen=True)
class Stage:
    """One pipeline stage.

    Attributes:
        layers: how many it has.
        dense: its parameters on one GPU, without experts.
        experts: its experts' parameters on one GPU.
        in_flight: micro-batches whose activations it keeps.
        last: it has the output head.
    """

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
        label: before their labels.
    """

    shape: Shape
    role: Role
    stage: Stage
    replicas: int
    expert_replicas: int
    trained: float
    prefix: str = ""
    label: str = ""

    @property
    def on_gpu(self) -> float:
        """Parameters on one GPU."""
        return self.stage.dense + self.stage.experts

    def idle(self) -> Parts:
        """What stays on the GPU while the role does nothing, gradients included."""
        megatron = self.role.megatron
        kept = () if megatron.param_offload else self.weights() + self.gradients()
        return kept + (() if megatron.optimizer_offload else self.optimizer())

    def evaluating(self) -> Parts:
        """The states during a pass without gradients."""
        megatron = self.role.megatron
        gradients = () if megatron.param_offload else self.gradients()
        return self.weights() + gradients + (() if megatron.optimizer_offload else self.optimizer())

    def updating(self) -> Parts:
        """The states during an update: the gradient buffer is there from the start."""
        return self.weights() + self.gradients() + self.optimizer()

    def weights(self) -> Parts:
        """Parameters in 16 bits."""
        count = self.on_gpu * (1 + (self.trained if self.role.lora_rank else 0))
        return (self._states("weights", "weights", count, 2),)

    def gradients(self) -> Parts:
        """Gradients in fp32."""
        return (self._states("gradients", "gradients", self.on_gpu * self.trained, 4),)

    def optimizer(self) -> Parts:
        """Main parameters and both moments; what a host optimizer keeps there is left out."""
        megatron = self.role.megatron
        size = megatron.moment_bytes * (1 - megatron.cpu_optimizer)
        if not size:
            return ()
        if not megatron.distributed_optimizer:
            return (self._states("optimizer-states", "optimizer states", self.on_gpu * self.trained, size),)
        found = []
        for key, label, count, replicas in (
            ("optimizer-states", "optimizer states", self.stage.dense, self.replicas),
            (
                "optimizer-states-experts",
                "optimizer states of experts",
                self.stage.experts,
                self.expert_replicas,
            ),
        ):
            if count:
                found.append(
                    part(
                        self.prefix + key,
                        self._label(label),
                        "exact",
                        (("parameters on the GPU", count * self.trained),),
                        size,
                        "bytes",
                        replicas,
                        "replicas",
                    )
                )
        return tuple(found)

    def step_buffer(self) -> Parts:
        """Its optimizers are fused."""
        return ()

    def whole_gradients(self, element_bytes: int) -> Parts:
        """Its gradient buffer is counted already."""
        return ()

    def root(self) -> Parts:
        """Nothing is gathered."""
        return ()

    def layer(self) -> Parts:
        """Nothing is gathered."""
        return ()

    def head_gradient(self) -> Parts:
        """It goes into the gradient buffer."""
        return ()

    def kept(self, tokens: float) -> Parts:
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
            size, key, label = 2, "layer-inputs", "layer inputs"
        else:
            variables = (
                ("tokens", tokens),
                ("bytes a layer keeps", shape.saved),
                ("layers", float(stage.layers)),
                flying,
            )
            size, key, label = 1, "activations", "activations"
        return (
            part(
                self.prefix + key,
                self._label(label),
                "assumed",
                variables,
                size,
                "bytes" if size > 1 else "",
                self._sharing,
                "TP",
            ),
        )

    def working(self, tokens: float) -> Parts:
        """What the layer at work in the backward pass has alive."""
        width = self.shape.working if self.role.megatron.recompute else self.shape.working - self.shape.saved
        width *= self.role.megatron.recompute_layers if self.role.megatron.recompute else 1
        return self._layer(tokens, width)

    def forward(self, tokens: float) -> Parts:
        """What the layer at work has alive without gradients."""
        return self._layer(tokens, self.shape.forward)

    def _layer(self, tokens: float, width: float) -> Parts:
        label = self._label("layer at work, activations")
        variables = (("tokens", tokens), ("bytes of a layer", width))
        key = self.prefix + "working-set"
        return (part(key, label, "assumed", variables, 1, "", self._sharing, "TP"),)

    @property
    def _sharing(self) -> int:
        return self.role.megatron.tensor if self.role.megatron.sequence_parallel else 1

    def _states(self, key: str, label: str, count: float, size: float) -> Component:
        symbol = "parameters on the GPU"
        return part(self.prefix + key, self._label(label), "exact", ((symbol, count),), size)

    def _label(self, text: str) -> str:
        return f"{self.label} {text}" if self.label else text[0].upper() + text[1:]


def megatron_roles(
    shape: Shape, role: Role, gpus: int, prefix: str = "", label: str = ""
) -> tuple[MegatronRole, ...]:
    """The role on each stage that can be the fullest."""
    megatron = role.megatron
    replicas = max(1, gpus // (megatron.tensor * megatron.pipeline))  # context ranks share the states too
    expert_replicas = max(1, gpus // (megatron.pipeline * megatron.expert * megatron.expert_tensor))
    trained = adapter_count(shape, role.lora_rank, role.targets) / shape.parameters if role.lora_rank else 1.0
    return tuple(
        MegatronRole(shape, role, stage, replicas, expert_replicas, trained, prefix, label)
        for stage in stages(shape, megatron)
    )


def stages(shape: Shape, megatron: Megatron) -> tuple[Stage, ...]:
    """The first stage, the last, and the largest between them."""
    sizes = stage_sizes(shape.layers, megatron)
    found = []
    start = 0
    for index, layers in enumerate(sizes):
        if index in {0, 1, len(sizes) - 2, len(sizes) - 1}:
            found.append(_stage(shape, megatron, index, start, layers))
        start += layers
    return tuple(found)


def _stage(shape: Shape, megatron: Megatron, index: int, start: int, layers: int) -> Stage:
    counts = count_parameters(shape.architecture)
    dense = experts = 0
    position = 0
    for layer, number in counts.layers:
        share = max(0, min(start + layers, position + number) - max(start, position))
        position += number
        dense += share * (layer.total - layer.experts)
        experts += share * layer.experts
    last = index == megatron.pipeline - 1
    ends = counts.embedding + counts.vision if index == 0 else 0
    if last:  # a tied head is a copy of the embedding where the two lie on different stages
        ends += counts.lm_head or (counts.embedding if index else 0)
    return Stage(
        layers=layers,
        dense=(dense + ends) / megatron.tensor,
        experts=experts / (megatron.expert * megatron.expert_tensor),
        in_flight=max(1, megatron.pipeline - index),
        last=last,
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
