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

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from .allocations import Allocations, Kind, Update, allocate
from .roles import Megatron, Role
from .settings import Settings, micro_batches
from .shape import LayerCount, Shape, adapter_parameters, bytes_of, layer_sizes
from .versions import behaviour

# -- bytes per token of a layer

#: Tensors that a layer and its experts keep. ``r``: latents; ``u`` and ``v``: the same as ``f`` and ``e`` if
#: activations are not fused, otherwise 0.
_KEPT, _EXPERTS = "8h + 4q + 4k + 4a + 4r + 6f + 4u", "2x + 6e + 6v + 13n"
#: The moments of the backward pass, without experts and with them: bytes on top of the kept ones. ``t``:
#: hidden size of gathered tokens; ``y``: the same as ``x`` if tokens are sent to other GPUs, otherwise
#: the received tokens are the permuted ones.
_BACKWARD: Mapping[bool, tuple[str, ...]] = {
    False: ("2h + 2t + 2f", "2h + 4f"),
    True: ("2h + 4x", "2h + 2x + 2e", "2h + 10e", "2h + 2t + 4f", "6x + 2y"),
}
#: The moments of a pass without gradients; the last two are those of experts.
_FORWARD = ("6h + 2t + 4f", "4h + 6q + 8k", "4h + 6f + 4u", "6h + 6x + 6e + 8v", "6h + 8x + 2y")


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
    architecture, sequence = shape.architecture, _sequence_parallel_size(megatron)
    mla, unfused = architecture.mla, megatron.fused_activation is False
    formula = _KEPT + (" + 2q + 2k + 4a + 4g" if architecture.qk_norm else "")
    if megatron.context > 1 and megatron.all_to_all_attention:
        formula += " + 2q"
    formulas = {}
    for with_experts, whole in layer_sizes(architecture):
        sizes = {"x": 0, "e": 0, "n": 0, "r": (mla.q_lora_rank or 0) + mla.kv_lora_rank if mla else 0} | whole
        for symbol in sizes:
            sizes[symbol] /= sequence if symbol in "hnerx" else megatron.tensor
        sizes["x"] *= megatron.expert_tensor
        sizes["t"] = whole["h"] if sequence > 1 else 0.0
        sizes["u"], sizes["v"] = sizes["f"] * unfused, sizes["e"] * unfused
        sizes["y"] = sizes["x"] * (megatron.expert > 1)
        formulas[with_experts] = LayerBytes(
            bytes_of(f"{formula} + {_EXPERTS}" if with_experts else formula, sizes),
            max(bytes_of(moment, sizes) for moment in _BACKWARD[with_experts]),
            max(bytes_of(moment, sizes) for moment in _FORWARD[: 5 if with_experts else 3]),
        )
    return formulas


def _sequence_parallel_size(megatron: Megatron) -> int:
    """Return the number of GPUs among which sequence parallelism divides a sequence; 1 without it."""
    return megatron.tensor if megatron.sequence_parallel else 1


# -- pipeline stages


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

#: The symbol for the micro-batches whose activations a stage keeps.
_IN_FLIGHT = "micro-batches in flight"


class MegatronRole:
    """The actor or the critic on one pipeline stage; ``FsdpRole`` has the same methods.

    The gradient buffer exists from the start and contains all gradients, nothing is gathered, and the
    optimizer is fused.

    Attributes:
        has_head: whether this GPU computes the vocabulary-wide outputs.
        weights: parameters in 16 bits, adapters included.
        gradients: the gradient buffer.
        optimizer: main parameters and both moments, without the part on the host.
        buffers: memory of TransformerEngine and Megatron that is never freed.
        idle: the allocations that stay on the GPU while other roles work.
        waiting: those that stay between a pass without gradients and the update, which are the same.
    """

    def __init__(
        self,
        shape: Shape,
        settings: Settings,
        role: Role,
        stage: int,
        widths: Mapping[bool, LayerBytes],
        critic: bool,
    ) -> None:
        self.shape, self.settings, self.role, self.critic = shape, settings, role, critic
        megatron, counts, gpus = role.megatron, shape.counts, settings.gpus
        sizes, last = stage_sizes(shape.layers, megatron), stage == megatron.pipeline - 1
        self.has_head = last and not critic
        self._in_flight = min(megatron.pipeline - stage, micro_batches(settings, role))
        every = [layer for layer, count in counts.layers for _ in range(count)]
        layers = every[sum(sizes[:stage]) : sum(sizes[: stage + 1])]
        of_kinds = Counter(layer.experts > 0 for layer in layers)
        self._layers = [(widths[kind], count) for kind, count in of_kinds.items()]
        # The last of several stages has a copy of a tied head.
        head = shape.hidden if critic else counts.lm_head or counts.embedding * (megatron.pipeline > 1)
        dense: float = sum(layer.total - layer.experts for layer in layers)
        dense += (counts.embedding + counts.vision) * (stage == 0) + (head + shape.hidden) * last
        dense /= megatron.tensor
        of_experts = megatron.expert * megatron.expert_tensor
        experts = sum(layer.experts for layer in layers) / of_experts
        self._on_gpu, adapters = dense + experts, 0.0
        if role.lora_rank:
            adapters = adapter_parameters(shape, role.lora_rank, role.targets) / shape.parameters
        trained = adapters if role.lora_rank else 1.0
        self.buffers = self._dummy_gradients(layers)
        self.weights = self._states(Kind.WEIGHTS, self._on_gpu * (1 + adapters), 2)
        self.gradients = self._states(Kind.GRADIENTS, self._on_gpu * trained, megatron.gradient_bytes)
        # All GPUs with the same parameters share the optimizer, those of context parallelism too.
        parts = [
            (Kind.OPTIMIZER, dense * trained, gpus // (megatron.tensor * megatron.pipeline)),
            (Kind.EXPERT_OPTIMIZER, experts * trained, gpus // (of_experts * megatron.pipeline)),
        ]
        if not megatron.distributed_optimizer:
            parts = [(Kind.OPTIMIZER, self._on_gpu * trained, 1)]
        self._optimized = sum(count / sharers for _, count, sharers in parts)
        self.optimizer = self._adam(parts, megatron.optimizer_bytes)
        self._reference = self._states(Kind.REFERENCE, self._on_gpu, 2)
        model = self.weights + self.gradients
        is_aware = megatron.optimizer_bytes < 12 and not megatron.cpu_optimizer
        stays = 2 * (is_aware and behaviour(settings.version).keeps_main_parameters)
        on_host = megatron.optimizer_bytes - stays if megatron.optimizer_offload else 0.0
        self._on_host = self._adam(parts, on_host)
        optimizer = self._adam(parts, megatron.optimizer_bytes - on_host)
        self.idle = self.waiting = self.buffers + (() if megatron.param_offload else model) + optimizer
        self._evaluating = self.idle + (self.weights if megatron.param_offload else ())

    def inference(self, tokens: float) -> tuple[Allocations, Allocations]:
        """Return the allocations in a pass without gradients: at its widest layer, and at the head."""
        return self._evaluating + self._forward(tokens), self._evaluating + self._gather_buffer(tokens)

    def update(self, tokens: float) -> Update:
        """Return the allocations of an update."""
        megatron, hidden = self.role.megatron, self.shape.hidden
        states = self.buffers + self.weights + self.gradients + self.optimizer
        if megatron.recompute:
            layers = sum(count for _, count in self._layers)
            inputs = {"tokens": tokens, "hidden size": hidden, "layers": layers, _IN_FLIGHT: self._in_flight}
            sharers = _sequence_parallel_size(megatron)
            saved = states + self._one(Kind.LAYER_INPUTS, inputs, 2, sharers)
            # The kept inputs include that of the first recomputed layer.
            width = max(layer.backward + layer.saved for layer, _ in self._layers) - 2 * hidden / sharers
        else:
            width = max(layer.backward for layer, _ in self._layers)
            of_all = sum(layer.saved * count for layer, count in self._layers)
            variables = {"tokens": tokens, "bytes that all layers keep": of_all, _IN_FLIGHT: self._in_flight}
            saved = states + self._assumed(Kind.ACTIVATIONS, variables)
        at_loss = saved + self._gather_buffer(tokens)
        return Update(at_loss, at_loss, saved + self._working(tokens, width), states)

    def resident_reference(self) -> Allocations:
        """Return the reference policy's allocations that stay on the GPU in all phases."""
        return () if self.settings.reference_offload else self._reference

    def reference_pass(self, tokens: float, resident: Allocations) -> tuple[Allocations, Allocations]:
        """Return the same as ``inference`` for the reference policy, without its ``resident`` allocations."""
        states = self.idle + (() if resident else self._reference)
        return states + self._forward(tokens), states + self._gather_buffer(tokens)

    def weight_sync(self, bucket: Allocations) -> Allocations:
        """Return the states, the largest tensor and the bucket."""
        # If only adapters are sent, the frozen weights are not loaded.
        adapters = self.role.lora_rank and not self.settings.rollout.merge_lora
        largest = {"vocabulary × hidden": self.shape.vocabulary * self.shape.hidden}
        states = self.idle if adapters else self._evaluating
        return states + self._one(Kind.WEIGHT_COPIES, largest, 2) + bucket

    def offloaded(self) -> Allocations:
        """Return this GPU's states that are in host memory at any time."""
        megatron = self.role.megatron
        states = self.weights if megatron.param_offload else ()
        states += self._on_host
        if megatron.cpu_optimizer:
            # Parameters, gradients and both moments in fp32 (Megatron-Core, HybridDeviceOptimizer).
            count = {"parameters of the rank": self._optimized}
            states += self._one(Kind.HOST_OPTIMIZER, count, 16 * megatron.cpu_optimizer)
        return states

    def offloaded_reference(self) -> Allocations:
        """Return this GPU's share of a reference policy in host memory."""
        return self._reference if self.settings.reference_offload else ()

    # -- pieces

    def _one(
        self, kind: Kind, variables: Mapping[str, float], each: float, sharers: int = 1, name: str = "TP"
    ) -> Allocations:
        return (allocate(kind, variables, each, sharers, name, self.critic),)

    def _states(self, kind: Kind, count: float, each: float, replicas: int = 1) -> Allocations:
        return self._one(kind, {"parameters on the GPU": count}, each, replicas, "replicas")

    def _adam(self, parts: list[tuple[Kind, float, int]], each: float) -> Allocations:
        """Return the optimizer's states, of which several GPUs have a share, with ``each`` bytes."""
        states = [self._states(kind, count, each, sharers) for kind, count, sharers in parts]
        return tuple(item for (item,) in states if item.size)

    def _dummy_gradients(self, layers: list[LayerCount]) -> Allocations:
        """Return TransformerEngine's 16-bit buffer for each distinct shape of a weight matrix.

        Fused accumulation of gradients hands PyTorch these buffers instead of gradients, and keeps them for
        the life of the process: ``get_dummy_wgrad`` in transformer_engine/pytorch/module/base.py; experts
        since TransformerEngine 2.10, the head since Megatron-Core 0.14.
        """
        megatron, counts, moe = self.role.megatron, self.shape.counts, self.shape.architecture.moe
        fused = megatron.fused_gradients
        if fused is None:
            fused = self.settings.trains_alone or behaviour(self.settings.version).fused_gradients
        if not fused or self.role.lora_rank:
            return ()
        experts = moe.num_experts * megatron.expert_tensor if moe else 1
        size = max(
            (layer.total - layer.experts) / megatron.tensor + layer.experts / experts for layer in set(layers)
        )
        if self.has_head:
            size += (counts.lm_head or counts.embedding) / megatron.tensor
        return self._one(Kind.DUMMY_GRADIENTS, {"parameters of distinct matrices": size}, 2)

    def _gather_buffer(self, tokens: float) -> Allocations:
        """Return the buffer in which sequence parallelism gathers the inputs of the head.

        It is not divided: ``get_global_memory_buffer`` in megatron/core/parallel_state.py. A critic gathers
        the outputs of its head: ``LinearForLastLayer`` in verl/models/mcore/bridge.py:33 at 1dda039b9.
        """
        if not self.has_head or _sequence_parallel_size(self.role.megatron) == 1:
            return ()
        return self._one(Kind.GATHER_BUFFER, {"tokens": tokens, "hidden size": self.shape.hidden}, 2)

    def _forward(self, tokens: float) -> Allocations:
        return self._working(tokens, max(layer.forward for layer, _ in self._layers))

    def _working(self, tokens: float, width: float) -> Allocations:
        return self._assumed(Kind.WORKING_SET, {"tokens": tokens, "bytes of a layer": width})

    def _assumed(self, kind: Kind, variables: Mapping[str, float]) -> Allocations:
        return (allocate(kind, variables, critic=self.critic, evidence="assumed"),)


def megatron_roles(shape: Shape, settings: Settings, role: Role, *, critic: bool) -> tuple[MegatronRole, ...]:
    """Return the role on each stage that can be the fullest: the first, the last, the largest other one."""
    sizes, widths = stage_sizes(shape.layers, role.megatron), layer_bytes(shape, role.megatron)
    others = sorted(range(1, len(sizes) - 1), key=lambda stage: -sizes[stage])
    stages = sorted({0, *others[:1], len(sizes) - 1})
    return tuple(MegatronRole(shape, settings, role, stage, widths, critic) for stage in stages)
