"""The memory of a role trained with Megatron, on one GPU of a pipeline stage. Sizes are bytes.

Source of the states: ``verl/utils/megatron_utils.py`` and ``verl/utils/megatron/optimizer.py`` at 1dda039b9.
Activations are counted, not traced: the tensors that the autograd functions of Megatron-Core (core_v0.15.0)
and TransformerEngine (v2.8) save for the backward pass, and those that variables of a forward pass keep
alive; a peer's measurements of plain training agree within 3 % beyond the states.

- ``LayerNormLinear`` (queries, keys and values; first matrix of a dense MLP) saves its input and the output
  of the norm: ``transformer_engine/pytorch/module/layernorm_linear.py``. Norms are fused, nothing is in fp32.
- ``get_qkv_layout`` copies the values, so the joint output of the projection can be freed:
  ``transformer_engine/pytorch/attention/dot_product_attention/utils.py``.
- Norms of queries and keys save copies of their inputs. Flash attention saves queries, keys, values, 4 bytes
  per head, and its output (the output matrix's input). Latent attention also saves its latents, twice.
- A fused activation saves its input; the next matrix saves its output. An unfused one also saves both factors
  of the gate and, in an expert, their product, which is multiplied by the router's probability in fp32:
  ``megatron/core/transformer/mlp.py``, ``moe/experts.py``.
- Experts save the received tokens, sorted: ``moe/token_dispatcher.py``. Until it returns,
  ``MoELayer.forward`` keeps the permuted and the received tokens, and those before and after the last two
  steps.
- The router saves probabilities in fp32 and maps: 13 bytes per expert.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .allocations import Kind, Update, allocate
from .settings import micro_batches
from .shape import adapter_parameters, bytes_of, layer_sizes
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..units import Evidence
    from .allocations import Allocations
    from .roles import Megatron, Role
    from .settings import Settings
    from .shape import Shape

# -- bytes per token of a layer

_ATTENTION, _QK_NORM = "8h + 4q + 4k + 4a + 4r", "2q + 2k + 4a + 4g"
#: Tensors that a layer keeps of its MLP and of its experts, with a fused activation and without.
_MLP = {True: "6f", False: "10f"}
_EXPERTS = {True: "2x + 6e + 13n", False: "2x + 12e + 13n"}
#: The moments of the backward pass: bytes on top of the kept ones. ``t``: hidden size of gathered tokens.
_DENSE_BACKWARD: tuple[str, ...] = ("2h + 2t + 2f", "2h + 4f")
_EXPERTS_BACKWARD = ("2h + 4x", "2h + 2x + 2e", "2h + 10e", "2h + 2t + 4f")
#: The moments of a pass without gradients.
_BEFORE_ATTENTION = ("6h + 2t + 4f", "4h + 6q + 8k")
_DENSE_FORWARD = {True: "4h + 6f", False: "4h + 10f"}
_EXPERTS_FORWARD = {True: "6h + 6x + 6e", False: "6h + 6x + 14e"}


class LayerBytes(NamedTuple):
    """Bytes per token of one GPU's part of a layer.

    Attributes:
        saved: bytes kept for the backward pass.
        backward: bytes needed on top in the layer's backward pass.
        forward: bytes in a pass without gradients.
    """

    saved: float
    backward: float
    forward: float


def layer_bytes(shape: Shape, megatron: Megatron) -> Mapping[bool, LayerBytes]:
    """Return the bytes per token of a dense layer and of one with experts, by whether it has experts.

    Tensor parallelism divides matrices, and sequence parallelism divides tokens. Experts receive as many
    tokens from other GPUs as their GPU sends.
    """
    architecture, fused = shape.architecture, megatron.fused_activation is not False
    mla = architecture.mla
    latents = (mla.q_lora_rank or 0) + mla.kv_lora_rank if mla else 0
    kept = _ATTENTION + f" + {_MLP[fused]}" + (f" + {_QK_NORM}" if architecture.qk_norm else "")
    if megatron.context > 1 and megatron.all_to_all_attention:
        kept += " + 2q"
    sent = megatron.expert > 1  # on one GPU the received tokens are the permuted ones
    found = {}
    for with_experts, whole in layer_sizes(architecture, 1.0):
        sizes = _divided({**whole, "r": latents}, megatron)
        saved, backward = kept, _DENSE_BACKWARD
        forward: tuple[str, ...] = (_DENSE_FORWARD[fused],)
        if with_experts:
            saved += f" + {_EXPERTS[fused]}"
            backward = (*_EXPERTS_BACKWARD, "8x" if sent else "6x")
            forward = (_EXPERTS_FORWARD[fused], "6h + 10x" if sent else "6h + 8x")
        moments = (backward, (*forward, *_BEFORE_ATTENTION))
        widest = (max(bytes_of(moment, sizes) for moment in of_pass) for of_pass in moments)
        found[with_experts] = LayerBytes(bytes_of(saved, sizes), *widest)
    return found


def _divided(sizes: Mapping[str, float], megatron: Megatron) -> dict[str, float]:
    """Return the sizes on one GPU, with ``t`` for tokens gathered from the GPUs that share a sequence."""
    tensor, sequence = megatron.tensor, _sequence_sharers(megatron)
    shares = {"h": sequence, "n": sequence, "e": sequence, "r": sequence}
    divided = {symbol: size / shares.get(symbol, tensor) for symbol, size in sizes.items()}
    divided["x"] = sizes["x"] / sequence * (megatron.expert_tensor or 1) if "x" in sizes else 0.0
    divided["t"] = sizes["h"] if sequence > 1 else 0.0
    return divided


def _sequence_sharers(megatron: Megatron) -> int:
    return megatron.tensor if megatron.sequence_parallel else 1


# -- pipeline stages


class Stage(NamedTuple):
    """One pipeline stage.

    Attributes:
        number: the stage's index, from 0.
        layers: the number of its layers without experts, and with experts.
        dense: its parameters on one GPU, without experts.
        experts: its experts' parameters on one GPU.
        in_flight: the number of micro-batches whose activations it keeps.
        last: whether it has the output head.
    """

    number: int
    layers: Mapping[bool, int]
    dense: float
    experts: float
    in_flight: int
    last: bool


def stages(shape: Shape, megatron: Megatron, batches: int, *, critic: bool) -> Iterator[Stage]:
    """Yield the stages that can be the fullest: the first, the last, and the largest of the others."""
    counts = shape.counts
    head = shape.hidden if critic else counts.lm_head
    if not head and megatron.pipeline > 1:  # the last stage has a copy of a tied head
        head = counts.embedding
    sizes, start = stage_sizes(shape.layers, megatron), 0
    largest = max(sizes[1:-1], default=0)
    shown = {0, len(sizes) - 1, *([sizes.index(largest, 1)] if largest else [])}
    for number, layers in enumerate(sizes):
        if number in shown:
            last = number == megatron.pipeline - 1
            ends = (counts.embedding + counts.vision) * (number == 0) + (head + shape.hidden) * last
            of_kinds, dense, experts, position = {False: 0, True: 0}, 0, 0, 0
            for layer, count in counts.layers:
                share = max(0, min(start + layers, position + count) - max(start, position))
                position += count
                of_kinds[layer.experts > 0] += share
                dense += share * (layer.total - layer.experts)
                experts += share * layer.experts
            yield Stage(
                number=number,
                layers=of_kinds,
                dense=(dense + ends) / megatron.tensor,
                experts=experts / (megatron.expert * (megatron.expert_tensor or 1)),
                in_flight=max(1, min(megatron.pipeline - number, batches)),
                last=last,
            )
        start += layers


def stage_sizes(layers: int, megatron: Megatron) -> list[int]:
    """Return the number of layers of each stage; the first stages get the remainder of an even split.

    >>> from dataclasses import replace
    >>> from sphinx_verl_resources.memory.roles import NO_MEGATRON
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


# -- the role


class MegatronRole:
    """The actor or the critic on one pipeline stage; ``phases.TrainedRole`` describes the methods.

    The gradient buffer exists from the start and contains all gradients, nothing is gathered, and the
    optimizer is fused.

    Attributes:
        on_gpu: parameters on one GPU.
        weights: parameters in 16 bits.
        gradients: the gradient buffer.
        optimizer: main parameters and both moments, without the part on the host.
        buffers: memory of TransformerEngine and Megatron that is never freed.
    """

    def __init__(self, shape: Shape, settings: Settings, role: Role, stage: Stage, *, critic: bool) -> None:
        self.shape, self.settings, self.role, self.stage, self.critic = shape, settings, role, stage, critic
        megatron, gpus = role.megatron, settings.gpus
        self.has_head = stage.last
        self._layers = layer_bytes(shape, megatron)
        # Ranks of context parallelism share the states too.
        self._replicas = max(1, gpus // (megatron.tensor * megatron.pipeline))
        sharers = megatron.pipeline * megatron.expert * (megatron.expert_tensor or 1)
        self._expert_replicas = max(1, gpus // sharers)
        self._trained, adapters = 1.0, 0.0
        if role.lora_rank:
            of_all = adapter_parameters(shape, role.lora_rank, role.targets)
            self._trained = adapters = of_all / shape.parameters
        self.on_gpu = stage.dense + stage.experts
        self.buffers = self._dummy_gradients()
        self.weights = self._states(Kind.WEIGHTS, self.on_gpu * (1 + adapters), 2)
        self.gradients = self._states(Kind.GRADIENTS, self.on_gpu * self._trained, megatron.gradient_bytes)
        self.optimizer = self._adam()
        self._kept_optimizer = () if megatron.optimizer_offload else self.optimizer
        kept = () if megatron.param_offload else self.weights + self.gradients
        self.idle = self.buffers + kept + self._kept_optimizer

    @property
    def waiting(self) -> Allocations:
        """The idle allocations, since nothing is gathered."""
        return self.idle

    def inference(self, tokens: float) -> tuple[Allocations, Allocations]:
        """Return the moments of the widest layer and of the head."""
        states = self._evaluating()
        return states + self._working(tokens, self._forward), states + self._gather_buffer(tokens)

    def update(self, tokens: float) -> Update:
        """Return the moments of an update."""
        present = [self._layers[kind] for kind, count in self.stage.layers.items() if count]
        working = max(layer.backward for layer in present)
        if self.role.megatron.recompute:  # the kept inputs include that of the first recomputed layer
            inputs = 2 * self.shape.hidden / _sequence_sharers(self.role.megatron)
            working = max(layer.backward + layer.saved - inputs for layer in present)
        states = self.buffers + self.weights + self.gradients + self.optimizer
        saved = states + self._saved(tokens)
        at_loss = saved + self._gather_buffer(tokens)
        return Update(at_loss, at_loss, saved + self._working(tokens, working), states)

    def resident_reference(self) -> Allocations:
        """Return the reference policy unless it is offloaded."""
        return () if self.settings.reference_offload else self._reference()

    def reference_pass(self, tokens: float, resident: Allocations) -> tuple[Allocations, Allocations]:
        """Return the moments of the widest layer and of the head, with the reference policy loaded."""
        states = self.idle + (() if resident else self._reference())
        return states + self._working(tokens, self._forward), states + self._gather_buffer(tokens)

    def weight_sync(self, bucket: Allocations) -> Allocations:
        """Return the states, the largest tensor and the bucket."""
        # If only adapters are sent, the frozen weights are not loaded.
        adapters = self.role.lora_rank and not self.settings.rollout.merge_lora
        largest = {"vocabulary × hidden": self.shape.vocabulary * self.shape.hidden}
        states = self.idle if adapters else self._evaluating()
        return states + self._one(Kind.WEIGHT_COPIES, largest, 2) + bucket

    def offloaded(self) -> Allocations:
        """Return the states that Megatron offloads, and those of the optimizer on the host."""
        megatron, stage = self.role.megatron, self.stage
        states = self.weights if megatron.param_offload else ()
        states += self.optimizer if megatron.optimizer_offload else ()
        if megatron.cpu_optimizer:
            optimized = self.on_gpu
            if megatron.distributed_optimizer:
                optimized = stage.dense / self._replicas + stage.experts / self._expert_replicas
            # Parameters, gradients and both moments in fp32 (Megatron-Core, HybridDeviceOptimizer).
            count = {"parameters of the rank": optimized * self._trained}
            states += self._one(Kind.HOST_OPTIMIZER, count, 16 * megatron.cpu_optimizer)
        return states

    def offloaded_reference(self) -> Allocations:
        """Return the reference policy if it is offloaded."""
        return self._reference() if self.settings.reference_offload else ()

    # -- pieces

    def _one(
        self,
        kind: Kind,
        variables: Mapping[str, float],
        each: float | None,
        sharers: int = 1,
        name_of_sharers: str = "TP",
        evidence: Evidence = "exact",
    ) -> Allocations:
        return (allocate(kind, variables, each, sharers, name_of_sharers, self.critic, evidence),)

    def _states(self, kind: Kind, count: float, each: float, replicas: int = 1) -> Allocations:
        return self._one(kind, {"parameters on the GPU": count}, each, replicas, "replicas")

    def _reference(self) -> Allocations:
        return self._states(Kind.REFERENCE, self.on_gpu, 2)

    def _evaluating(self) -> Allocations:
        """Return the states during a pass without gradients."""
        gradients = () if self.role.megatron.param_offload else self.gradients
        return self.buffers + self.weights + gradients + self._kept_optimizer

    def _adam(self) -> Allocations:
        """Return the states of Adam; if they are distributed, fewer GPUs share the experts' states."""
        megatron, stage = self.role.megatron, self.stage
        counts = [
            (Kind.OPTIMIZER, stage.dense, self._replicas),
            (Kind.EXPERT_OPTIMIZER, stage.experts, self._expert_replicas),
        ]
        if not megatron.distributed_optimizer:
            counts = [(Kind.OPTIMIZER, stage.dense + stage.experts, 1)]
        states: Allocations = ()
        for kind, count, replicas in counts:
            if count and megatron.optimizer_bytes:
                states += self._states(kind, count * self._trained, megatron.optimizer_bytes, replicas)
        return states

    def _dummy_gradients(self) -> Allocations:
        """Return TransformerEngine's 16-bit buffer for each distinct shape of a weight matrix.

        Fused accumulation of gradients hands PyTorch these buffers instead of gradients, and keeps them for
        the life of the process: ``get_dummy_wgrad`` in transformer_engine/pytorch/module/base.py; experts
        since TransformerEngine 2.10, the head since Megatron-Core 0.14.
        """
        megatron, counts = self.role.megatron, self.shape.counts
        fused = megatron.fused_gradients
        if fused is None:
            fused = self.settings.trains_alone or behaviour(self.settings.version).fused_gradients
        if not fused or self.role.lora_rank:
            return ()
        moe = self.shape.architecture.moe
        of_kinds: dict[bool, float] = {}
        for layer, _count in counts.layers:
            if self.stage.layers[layer.experts > 0]:
                one = layer.experts / moe.num_experts / (megatron.expert_tensor or 1) if moe else 0.0
                of_kinds[layer.experts > 0] = (layer.total - layer.experts) / megatron.tensor + one
        size = max(of_kinds.values(), default=0.0)
        size += (
            (counts.lm_head or counts.embedding) / megatron.tensor
            if self.stage.last and not self.critic
            else 0
        )
        return self._one(Kind.DUMMY_GRADIENTS, {"parameters of distinct matrices": size}, 2)

    def _gather_buffer(self, tokens: float) -> Allocations:
        """Return the buffer in which sequence parallelism gathers the inputs of the head.

        It is not divided: ``get_global_memory_buffer`` in megatron/core/parallel_state.py.
        """
        if not self.has_head or _sequence_sharers(self.role.megatron) == 1:
            return ()
        return self._one(Kind.GATHER_BUFFER, {"tokens": tokens, "hidden size": self.shape.hidden}, 2)

    def _saved(self, tokens: float) -> Allocations:
        """Return the activations that forward passes save for the backward passes of the stage."""
        stage, megatron = self.stage, self.role.megatron
        count = sum(stage.layers.values())
        if megatron.recompute:
            inputs = {"tokens": tokens, "hidden size": self.shape.hidden, "layers": count}
            inputs["micro-batches in flight"] = stage.in_flight
            return self._one(Kind.LAYER_INPUTS, inputs, 2, _sequence_sharers(megatron))
        saved = sum(self._layers[kind].saved * layers for kind, layers in stage.layers.items() if layers)
        kept = {
            "tokens": tokens,
            "bytes that all layers keep": saved,
            "micro-batches in flight": stage.in_flight,
        }
        return self._one(Kind.ACTIVATIONS, kept, None, evidence="assumed")

    @property
    def _forward(self) -> float:
        return max(self._layers[kind].forward for kind, count in self.stage.layers.items() if count)

    def _working(self, tokens: float, width: float) -> Allocations:
        """Return the activations of the current layer."""
        variables = {"tokens": tokens, "bytes of a layer": width}
        return self._one(Kind.WORKING_SET, variables, None, evidence="assumed")


def megatron_roles(shape: Shape, settings: Settings, role: Role, *, critic: bool) -> tuple[MegatronRole, ...]:
    """Return the role on each stage that can be the fullest; a critic's head has one output."""
    batches = micro_batches(settings, role)
    return tuple(
        MegatronRole(shape, settings, role, stage, critic=critic)
        for stage in stages(shape, role.megatron, batches, critic=critic)
    )
