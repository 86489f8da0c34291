"""The weight matrices of a model, from which counts, adapters and widths all follow.

Shapes and names are those of the modelling code in Hugging Face transformers. All sizes count elements.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.models.architecture import Architecture, Mla, Moe, Vision

Part = Literal["attention", "mlp", "experts", "router", "shared_experts", "vision"]

#: Model types whose modules hold query, key and value, or gate and up, as one matrix.
_FUSED = frozenset({"phi3"})
#: What a model type calls gate, up and down of an expert, where it is not that.
_EXPERT_NAMES = {"mixtral": ("w1", "w3", "w2")}
_MLP_NAMES = ("gate_proj", "up_proj", "down_proj")


class Matrix(NamedTuple):
    """One linear map of a layer or of a vision tower.

    Attributes:
        part: of the layer; the gate of shared experts belongs to them.
        copies: how many of them the layer or the tower has.
        used: how many of those a token passes through.
    """

    name: str
    inputs: int
    outputs: int
    part: Part
    copies: int = 1
    used: int = 1

    @property
    def size(self) -> int:
        """Elements of one copy."""
        return self.inputs * self.outputs


class LayerKind(NamedTuple):
    """A kind of layer: with linear or full attention, with experts or an MLP."""

    linear_attention: bool
    experts: bool


def layer_kinds(architecture: Architecture) -> tuple[tuple[LayerKind, int], ...]:
    """Return the kinds of layers and their numbers, in the order in which they first occur.

    Layers with full attention are every n-th, the n-th being the first of them.
    """
    layers = architecture.num_hidden_layers
    moe = architecture.moe
    dense = min(moe.first_dense_layers, layers) if moe else layers
    counts = chain(_split(architecture, 0, dense, False), _split(architecture, dense, layers, True))
    return tuple((kind, number) for kind, number in counts if number)


def _split(
    architecture: Architecture, start: int, end: int, experts: bool
) -> tuple[tuple[LayerKind, int], ...]:
    """Count the layers from ``start`` to before ``end`` by attention, in constant time."""
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


def _attention(architecture: Architecture) -> Iterator[Matrix]:
    hidden = architecture.hidden_size
    heads = architecture.num_attention_heads * architecture.head_dim
    query = heads * (2 if architecture.attn_output_gate else 1)
    key = architecture.num_key_value_heads * architecture.head_dim
    if architecture.model_type in _FUSED:
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
    if architecture.model_type == "qwen3_next":
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
        if architecture.model_type in _FUSED:
            yield Matrix("gate_up_proj", hidden, 2 * width, "mlp")
            yield Matrix("down_proj", width, hidden, "mlp")
        else:
            yield from _gated(_MLP_NAMES, hidden, width, "mlp", 1, 1)
        return
    names = _EXPERT_NAMES.get(architecture.model_type, _MLP_NAMES)
    used = min(moe.experts_per_token, moe.num_experts)
    yield Matrix("gate", hidden, moe.num_experts, "router")
    yield from _gated(names, hidden, moe.moe_intermediate_size, "experts", moe.num_experts, used)
    if shared := shared_width(moe):
        yield from _gated(_MLP_NAMES, hidden, shared, "shared_experts", 1, 1)
    if moe.shared_expert_gate:
        yield Matrix("shared_expert_gate", hidden, 1, "shared_experts")


def shared_width(moe: Moe) -> int:
    """Return the width of all shared experts together, which are one MLP in the modelling code."""
    return moe.shared_experts * (moe.shared_expert_intermediate_size or moe.moe_intermediate_size)


def _gated(
    names: tuple[str, str, str], hidden: int, width: int, part: Part, copies: int, used: int
) -> Iterator[Matrix]:
    gate, up, down = names
    yield Matrix(gate, hidden, width, part, copies, used)
    yield Matrix(up, hidden, width, part, copies, used)
    yield Matrix(down, width, hidden, part, copies, used)


def vision_matrices(vision: Vision) -> Iterator[Matrix]:
    """Yield every linear map of a vision tower of Qwen; its patch embedding is a convolution.

    Two forms are known: Qwen2.5-VL (no learned positions, gated MLP) and Qwen3-VL (learned positions, plain
    MLP, intermediate outputs called deepstack).
    """
    width, depth, mlp = vision.hidden_size, vision.depth, vision.intermediate_size
    merged = width * vision.spatial_merge_size**2
    yield Matrix("qkv", width, 3 * width, "vision", depth)
    yield Matrix("proj", width, width, "vision", depth)
    if has_learned_positions(vision):
        mergers = 1 + (vision.deepstack_layers or 0)
        yield Matrix("linear_fc1", width, mlp, "vision", depth)
        yield Matrix("linear_fc2", mlp, width, "vision", depth)
        yield Matrix("linear_fc1", merged, merged, "vision", mergers)
        yield Matrix("linear_fc2", merged, vision.out_hidden_size, "vision", mergers)
    else:
        yield from _gated(_MLP_NAMES, width, mlp, "vision", depth, 1)
        yield Matrix("mlp.0", merged, merged, "vision")
        yield Matrix("mlp.2", merged, vision.out_hidden_size, "vision")


def has_learned_positions(vision: Vision) -> bool:
    """Tell whether the tower has the form of Qwen3-VL."""
    return vision.num_position_embeddings is not None


def model_matrices(architecture: Architecture) -> Iterator[tuple[Matrix, int]]:
    """Yield every linear map of the layers and of the vision tower, with its number in the whole model."""
    for kind, number in layer_kinds(architecture):
        for matrix in layer_matrices(architecture, kind):
            yield matrix, matrix.copies * number
    if architecture.vision:
        for matrix in vision_matrices(architecture.vision):
            yield matrix, matrix.copies
