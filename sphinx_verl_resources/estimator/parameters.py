"""The weight matrices of a model, and exact parameter counts of models and critics.

Shapes and names follow the modelling code of Hugging Face transformers. Counts are elements, not bytes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from .model_types import CONVENTIONS, LLAMA, MLP_MATRICES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .architectures import Architecture, Mla, Moe, Vision
    from .model_types import Convention

Part = Literal["attention", "mlp", "experts", "router", "shared_experts", "vision"]


class Matrix(NamedTuple):
    """One linear map of a layer or of a vision tower.

    Attributes:
        part: its part of the layer; the gate of shared experts belongs to the shared experts.
        copies: the number of copies in the layer or the tower.
    """

    name: str
    inputs: int
    outputs: int
    part: Part
    copies: int = 1

    @property
    def size(self) -> int:
        """The number of elements of one copy."""
        return self.inputs * self.outputs


class LayerKind(NamedTuple):
    """A kind of layer: with linear or full attention, with experts or an MLP."""

    linear_attention: bool
    experts: bool


def layer_kinds(architecture: Architecture) -> tuple[tuple[LayerKind, int], ...]:
    """Return the kinds of layers and the number of each, in order of first occurrence.

    Every n-th layer has full attention, beginning with the n-th.
    """
    layers, moe = architecture.num_hidden_layers, architecture.moe
    dense = min(moe.first_dense_layers, layers) if moe else layers
    counts = _by_attention(architecture, 0, dense, False) + _by_attention(architecture, dense, layers, True)
    return tuple((kind, number) for kind, number in counts if number)


def _by_attention(
    architecture: Architecture, start: int, end: int, experts: bool
) -> tuple[tuple[LayerKind, int], ...]:
    """Count the layers from ``start`` up to ``end`` (exclusive) by kind of attention, in constant time."""
    linear = architecture.linear_attention
    interval = linear.full_attention_interval if linear else 1
    full = end // interval - start // interval
    counts = (LayerKind(True, experts), end - start - full), (LayerKind(False, experts), full)
    begins_full = (start + 1) % interval == 0
    return counts[::-1] if begins_full else counts


def layer_matrices(architecture: Architecture, kind: LayerKind) -> tuple[Matrix, ...]:
    """Return every linear map of one layer of a kind."""
    attention = _linear_attention if kind.linear_attention else _mla if architecture.mla else _attention
    return (*attention(architecture), *_feed_forward(architecture, kind))


def _convention(architecture: Architecture) -> Convention:
    return CONVENTIONS.get(architecture.model_type, LLAMA)


def _attention(architecture: Architecture) -> Iterator[Matrix]:
    hidden = architecture.hidden_size
    heads = architecture.num_attention_heads * architecture.head_dim
    query = heads * (2 if architecture.attn_output_gate else 1)
    key = architecture.num_key_value_heads * architecture.head_dim
    if _convention(architecture).joined:
        yield Matrix("qkv_proj", hidden, query + 2 * key, "attention")
    else:
        yield Matrix("q_proj", hidden, query, "attention")
        yield Matrix("k_proj", hidden, key, "attention")
        yield Matrix("v_proj", hidden, key, "attention")
    yield Matrix("o_proj", heads, hidden, "attention")


def _mla(architecture: Architecture) -> Iterator[Matrix]:
    mla: Mla | None = architecture.mla
    assert mla
    hidden, heads = architecture.hidden_size, architecture.num_attention_heads
    query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    if mla.q_lora_rank:
        yield Matrix("q_a_proj", hidden, mla.q_lora_rank, "attention")
        yield Matrix("q_b_proj", mla.q_lora_rank, query, "attention")
    else:
        yield Matrix("q_proj", hidden, query, "attention")
    yield Matrix("kv_a_proj_with_mqa", hidden, mla.kv_lora_rank + mla.qk_rope_head_dim, "attention")
    key_value = heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    yield Matrix("kv_b_proj", mla.kv_lora_rank, key_value, "attention")
    yield Matrix("o_proj", heads * mla.v_head_dim, hidden, "attention")


def _linear_attention(architecture: Architecture) -> Iterator[Matrix]:
    linear = architecture.linear_attention
    assert linear
    hidden, heads = architecture.hidden_size, linear.num_value_heads
    key = linear.num_key_heads * linear.key_head_dim
    value = heads * linear.value_head_dim
    if _convention(architecture).joined_linear:
        yield Matrix("in_proj_qkvz", hidden, 2 * key + 2 * value, "attention")
        yield Matrix("in_proj_ba", hidden, 2 * heads, "attention")
    else:
        yield Matrix("in_proj_qkv", hidden, 2 * key + value, "attention")
        yield Matrix("in_proj_z", hidden, value, "attention")
        yield Matrix("in_proj_b", hidden, heads, "attention")
        yield Matrix("in_proj_a", hidden, heads, "attention")
    yield Matrix("out_proj", value, hidden, "attention")


def _feed_forward(architecture: Architecture, kind: LayerKind) -> Iterator[Matrix]:
    hidden, moe = architecture.hidden_size, architecture.moe
    if not kind.experts or not moe:
        width = architecture.intermediate_size or 0
        if _convention(architecture).joined:
            yield Matrix("gate_up_proj", hidden, 2 * width, "mlp")
            yield Matrix("down_proj", width, hidden, "mlp")
        else:
            yield from _gated(MLP_MATRICES, hidden, width, "mlp")
        return
    names = _convention(architecture).expert_matrices
    yield Matrix("gate", hidden, moe.num_experts, "router")
    yield from _gated(names, hidden, moe.moe_intermediate_size, "experts", moe.num_experts)
    if shared := shared_width(moe):
        yield from _gated(MLP_MATRICES, hidden, shared, "shared_experts")
    if moe.shared_expert_gate:
        yield Matrix("shared_expert_gate", hidden, 1, "shared_experts")


def shared_width(moe: Moe) -> int:
    """Return the total width of the shared experts, which are one MLP in the modelling code."""
    return moe.shared_experts * (moe.shared_expert_intermediate_size or moe.moe_intermediate_size)


def _gated(
    names: tuple[str, str, str], hidden: int, width: int, part: Part, copies: int = 1
) -> Iterator[Matrix]:
    gate, up, down = names
    yield Matrix(gate, hidden, width, part, copies)
    yield Matrix(up, hidden, width, part, copies)
    yield Matrix(down, width, hidden, part, copies)


def vision_matrices(vision: Vision) -> Iterator[Matrix]:
    """Yield every linear map of a Qwen vision tower; its patch embedding is a convolution.

    There are two forms: Qwen2.5-VL (no learned positions, gated MLP) and Qwen3-VL (learned positions, plain
    MLP, intermediate outputs called deepstack).
    """
    width, depth, mlp = vision.hidden_size, vision.depth, vision.intermediate_size
    merged = width * vision.spatial_merge_size**2
    yield Matrix("qkv", width, 3 * width, "vision", depth)
    yield Matrix("proj", width, width, "vision", depth)
    if vision.num_position_embeddings is not None:
        mergers = 1 + (vision.deepstack_layers or 0)
        yield Matrix("linear_fc1", width, mlp, "vision", depth)
        yield Matrix("linear_fc2", mlp, width, "vision", depth)
        yield Matrix("linear_fc1", merged, merged, "vision", mergers)
        yield Matrix("linear_fc2", merged, vision.out_hidden_size, "vision", mergers)
    else:
        yield from _gated(MLP_MATRICES, width, mlp, "vision", depth)
        yield Matrix("mlp.0", merged, merged, "vision")
        yield Matrix("mlp.2", merged, vision.out_hidden_size, "vision")


def model_matrices(architecture: Architecture) -> Iterator[tuple[Matrix, int]]:
    """Yield every linear map of the layers and the vision tower, with its number of copies in the model."""
    for kind, number in layer_kinds(architecture):
        for matrix in layer_matrices(architecture, kind):
            yield matrix, matrix.copies * number
    if architecture.vision:
        for matrix in vision_matrices(architecture.vision):
            yield matrix, matrix.copies


@dataclass(frozen=True)
class LayerCount:
    """Parameters of one decoder layer.

    Attributes:
        parts: parameters by part; biases, norms on query and key, and the convolution belong to attention.
            ``norms`` are vectors of the hidden size.
        experts_used: the parameters of the routed experts that one token passes through.
    """

    parts: Mapping[str, int]
    experts_used: int

    @cached_property
    def total(self) -> int:
        """The total parameters of the layer."""
        return sum(self.parts.values())

    @property
    def experts(self) -> int:
        """The parameters of all routed experts."""
        return self.parts["experts"]

    @property
    def active(self) -> int:
        """The parameters that one token passes through."""
        return self.total - self.experts + self.experts_used


@dataclass(frozen=True)
class Counts:
    """Parameters of a model.

    Attributes:
        lm_head: the output head; 0 if it is the embedding.
        vision: the vision tower; 0 without one.
        layers: the kinds of layers and the number of each, in order of first occurrence.
    """

    embedding: int
    lm_head: int
    final_norm: int
    vision: int
    layers: tuple[tuple[LayerCount, int], ...]

    @cached_property
    def total(self) -> int:
        """The total parameters, without layers for multi-token prediction."""
        return self.root + sum(layer.total * number for layer, number in self.layers)

    @property
    def critic(self) -> int:
        """The total parameters of a critic, whose head has one output, without the head's bias."""
        return self.total - self.lm_head + self.final_norm  # the head has the size of the norm

    @property
    def active(self) -> int:
        """The parameters that a text token passes through: without the vision tower and unused experts."""
        return self.root - self.vision + sum(layer.active * number for layer, number in self.layers)

    @cached_property
    def largest_layer(self) -> int:
        """The parameters of the largest decoder layer, the largest unit that FSDP gathers."""
        return max((layer.total for layer, _ in self.layers), default=0)

    @cached_property
    def root(self) -> int:
        """The parameters outside the decoder layers: embedding, head, last norm and vision tower."""
        return self.embedding + self.lm_head + self.final_norm + self.vision


def count_parameters(architecture: Architecture) -> Counts:
    """Count all parameters of a model, without layers for multi-token prediction.

    For a vision tower, the recorded number of parameters is used.

    >>> from sphinx_verl_resources.estimator.context import EstimatorContext
    >>> qwen = EstimatorContext().architectures.get("Qwen/Qwen2.5-7B")
    >>> counts = count_parameters(qwen)
    >>> counts.total, counts.largest_layer, counts.lm_head
    (7615616512, 233057792, 544997376)
    """
    matrix = architecture.vocab_size * architecture.hidden_size
    return Counts(
        embedding=matrix,
        lm_head=0 if architecture.tie_word_embeddings else matrix,
        final_norm=architecture.hidden_size,
        vision=architecture.vision.parameters if architecture.vision else 0,
        layers=tuple(
            (_count_layer(architecture, kind), number) for kind, number in layer_kinds(architecture)
        ),
    )


def _count_layer(architecture: Architecture, kind: LayerKind) -> LayerCount:
    moe = architecture.moe if kind.experts else None
    parts: Counter[str] = Counter(norms=architecture.norms_per_layer * architecture.hidden_size)
    for matrix in layer_matrices(architecture, kind):
        parts[matrix.part] += matrix.size * matrix.copies
    parts["attention"] += _attention_vectors(architecture, kind)
    if _convention(architecture).biased:
        parts["attention"] += architecture.hidden_size + architecture.num_attention_heads
    if moe and moe.router_bias:
        parts["router"] += moe.num_experts
    if moe and _convention(architecture).biased:
        parts["experts"] += moe.num_experts * (2 * moe.moe_intermediate_size + architecture.hidden_size)
    used = parts["experts"] // moe.num_experts * min(moe.experts_per_token, moe.num_experts) if moe else 0
    return LayerCount(parts, used)


def _attention_vectors(architecture: Architecture, kind: LayerKind) -> int:
    """Count attention's parameters outside matrices: biases, norms, and the short convolution."""
    linear, mla = architecture.linear_attention, architecture.mla
    if kind.linear_attention and linear:
        key = linear.num_key_heads * linear.key_head_dim
        value = linear.num_value_heads * linear.value_head_dim
        return (2 * key + value) * linear.conv_kernel + 2 * linear.num_value_heads + linear.value_head_dim
    if mla:
        return (mla.q_lora_rank or 0) + mla.kv_lora_rank
    heads = architecture.num_attention_heads * (2 if architecture.attn_output_gate else 1)
    bias = (heads + 2 * architecture.num_key_value_heads) * architecture.head_dim
    norms = 2 * architecture.head_dim
    return bias * architecture.qkv_bias + norms * architecture.qk_norm


def mtp_parameters(architecture: Architecture) -> int:
    """Count one layer for multi-token prediction: a last layer, a projection and three norms.

    verl loads it for training only if ``model.mtp.enable`` is set.
    """
    hidden = architecture.hidden_size
    layer = _count_layer(architecture, LayerKind(False, architecture.moe is not None))
    return layer.total + 2 * hidden * hidden + 3 * hidden


def vision_parameters(vision: Vision) -> int:
    """Count the parameters of a vision tower from its shape; ``vision.parameters`` is not used."""
    width, depth, mlp = vision.hidden_size, vision.depth, vision.intermediate_size
    merged = width * vision.spatial_merge_size**2
    matrices = sum(matrix.size * matrix.copies for matrix in vision_matrices(vision))
    patch = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2 * width
    merger_biases = merged + vision.out_hidden_size
    if vision.num_position_embeddings is None:
        # Biases of query, key, value, output and the gated MLP, and two norms without bias.
        vectors = depth * (4 * width + 2 * mlp + width + 2 * width) + merger_biases + width
        return patch + matrices + vectors
    deepstack = vision.deepstack_layers or 0
    positions = vision.num_position_embeddings * width
    # Norms have biases here; the norm of a deepstack merger has the width of merged patches.
    vectors = depth * (4 * width + mlp + width + 4 * width)
    vectors += merger_biases * (1 + deepstack) + 2 * width + 2 * merged * deepstack
    return patch + width + positions + matrices + vectors
