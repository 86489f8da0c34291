"""Exact counts of a model's parameters, and its linear modules, which adapters can be added to.

Shapes and names follow the modelling code of Hugging Face transformers 5. Counts are elements, not bytes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .architectures import Architecture, Vision


class Linear(NamedTuple):
    """A linear module, by the last part of its name."""

    name: str
    inputs: int
    outputs: int


class LayerKind(NamedTuple):
    """A kind of layer: with linear or full attention, with experts or an MLP."""

    linear_attention: bool
    experts: bool


def layer_kinds(model: Architecture) -> Counter[LayerKind]:
    """Count the layers of each kind, in order of first occurrence.

    Every n-th layer has full attention, beginning with the n-th.
    """
    layers, linear = model.num_hidden_layers, model.linear_attention
    interval = linear.full_attention_interval if linear else 1
    dense = model.moe.first_dense_layers if model.moe else layers
    return Counter(LayerKind((layer + 1) % interval != 0, layer >= dense) for layer in range(layers))


def layer_modules(model: Architecture, kind: LayerKind) -> list[Linear]:
    """Return the linear modules of one layer; routed experts and routers are bare tensors, no modules."""
    return _attention(model, kind)[0] + _feed_forward(model, kind)


def _attention(model: Architecture, kind: LayerKind) -> tuple[list[Linear], int]:
    """Return attention's linear modules, and the number of its other parameters."""
    hidden, heads, mla = model.hidden_size, model.num_attention_heads, model.mla
    if kind.linear_attention and (linear := model.linear_attention):
        key, value_heads = linear.num_key_heads * linear.key_head_dim, linear.num_value_heads
        value = value_heads * linear.value_head_dim
        widths = {"qkv": 2 * key + value, "z": value, "b": value_heads, "a": value_heads}
        if model.model_type == "qwen3_next":
            widths = {"qkvz": 2 * (key + value), "ba": 2 * value_heads}
        sizes = {f"in_proj_{name}": (hidden, width) for name, width in widths.items()}
        sizes["out_proj"] = (value, hidden)
        others = (2 * key + value) * linear.conv_kernel + 2 * value_heads + linear.value_head_dim
    elif mla:
        query, rank = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim), mla.q_lora_rank or 0
        key_value = heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        sizes = (
            {"q_a_proj": (hidden, rank), "q_b_proj": (rank, query)} if rank else {"q_proj": (hidden, query)}
        )
        sizes["kv_a_proj_with_mqa"] = (hidden, mla.kv_lora_rank + mla.qk_rope_head_dim)
        sizes |= {"kv_b_proj": (mla.kv_lora_rank, key_value), "o_proj": (heads * mla.v_head_dim, hidden)}
        others = rank + mla.kv_lora_rank  # norms
    else:
        output, key = heads * model.head_dim, model.num_key_value_heads * model.head_dim
        query = output * (2 if model.attn_output_gate else 1)
        sizes = {"q_proj": (hidden, query), "k_proj": (hidden, key), "v_proj": (hidden, key)}
        if model.model_type == "phi3":
            sizes = {"qkv_proj": (hidden, query + 2 * key)}
        sizes["o_proj"] = (output, hidden)
        others = (query + 2 * key) * model.qkv_bias + 2 * model.head_dim * model.qk_norm
        if model.model_type == "gpt_oss":
            others += hidden + heads  # the bias of the output projection, and a sink for each head
    return [Linear(name, *size) for name, size in sizes.items()], others


def _feed_forward(model: Architecture, kind: LayerKind) -> list[Linear]:
    hidden, moe = model.hidden_size, model.moe
    if not kind.experts or not moe:
        width = model.intermediate_size or 0
        if model.model_type == "phi3":
            return [Linear("gate_up_proj", hidden, 2 * width), Linear("down_proj", width, hidden)]
        return _mlp(hidden, width)
    gate = [Linear("shared_expert_gate", hidden, 1)] if moe.shared_expert_gate else []
    return (_mlp(hidden, moe.shared_width) if moe.shared_experts else []) + gate


def _mlp(hidden: int, width: int) -> list[Linear]:
    """Return the modules of a gated MLP."""
    gate, up = (Linear(name, hidden, width) for name in ("gate_proj", "up_proj"))
    return [gate, up, Linear("down_proj", width, hidden)]


def vision_modules(vision: Vision) -> list[Linear]:
    """Return the linear modules of a Qwen vision tower; its patch embedding is a convolution.

    There are two forms: Qwen2.5-VL (no learned positions, gated MLP) and Qwen3-VL (learned positions, plain
    MLP, intermediate outputs called deepstack).
    """
    width, mlp = vision.hidden_size, vision.intermediate_size
    merged, output = width * vision.spatial_merge_size**2, vision.out_hidden_size
    attention = [Linear("qkv", width, 3 * width), Linear("proj", width, width)]
    if vision.num_position_embeddings is None:
        merger = [Linear("mlp.0", merged, merged), Linear("mlp.2", merged, output)]
        return (attention + _mlp(width, mlp)) * vision.depth + merger
    block = [*attention, Linear("linear_fc1", width, mlp), Linear("linear_fc2", mlp, width)]
    merger = [Linear("linear_fc1", merged, merged), Linear("linear_fc2", merged, output)]
    return block * vision.depth + merger * (1 + (vision.deepstack_layers or 0))


def vision_parameters(vision: Vision) -> int:
    """Count the parameters of a vision tower from its shape; ``vision.parameters`` is not used."""
    width, positions, norms = vision.hidden_size, vision.num_position_embeddings, 2 * vision.depth + 1
    patch = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2 * width
    biased = patch + sum((module.inputs + 1) * module.outputs for module in vision_modules(vision))
    if positions is None:
        return biased + norms * width
    # The patches and the norms have biases. The norms of further mergers are wider.
    merged = width * vision.spatial_merge_size**2 * (vision.deepstack_layers or 0)
    return biased + (1 + positions + 2 * norms) * width + 2 * merged


class LayerCount(NamedTuple):
    """Parameters of one decoder layer.

    Attributes:
        total: all parameters.
        experts: those of all routed experts.
        active: those that one token passes through.
    """

    total: int
    experts: int
    active: int


@dataclass(frozen=True)
class Counts:
    """Parameters of a model, without layers for multi-token prediction.

    Attributes:
        lm_head: the output head; 0 if it is the embedding.
        vision: the vision tower as recorded; 0 without one.
        layers: the kinds of layers and the number of each, in order of first occurrence.
        root: the parameters outside the decoder layers.
        largest_layer: the parameters of the largest decoder layer, the largest unit that FSDP gathers.
        total: all parameters.
        active: those that a text token passes through: without the vision tower and unused experts.
    """

    embedding: int
    lm_head: int
    vision: int
    layers: tuple[tuple[LayerCount, int], ...]
    root: int
    largest_layer: int
    total: int
    active: int


def count_parameters(model: Architecture) -> Counts:
    """Count all parameters of a model.

    >>> from sphinx_verl_resources.memory.context import EstimatorContext
    >>> qwen = EstimatorContext().architectures.get("Qwen/Qwen2.5-7B")
    >>> counts = count_parameters(qwen)
    >>> counts.total, counts.largest_layer, counts.lm_head
    (7615616512, 233057792, 544997376)
    """
    embedding, hidden = model.vocab_size * model.hidden_size, model.hidden_size
    head = 0 if model.tie_word_embeddings else embedding
    vision = model.vision.parameters if model.vision else 0
    layers = tuple((count_layer(model, kind), number) for kind, number in layer_kinds(model).items())
    root = embedding + head + hidden + vision
    return Counts(
        embedding=embedding,
        lm_head=head,
        vision=vision,
        layers=layers,
        root=root,
        largest_layer=max(layer.total for layer, _ in layers),
        total=root + sum(layer.total * number for layer, number in layers),
        active=root - vision + sum(layer.active * number for layer, number in layers),
    )


def count_layer(model: Architecture, kind: LayerKind) -> LayerCount:
    """Count the parameters of one layer of a kind."""
    hidden, moe = model.hidden_size, model.moe if kind.experts else None
    total = sum(module.inputs * module.outputs for module in layer_modules(model, kind))
    total += _attention(model, kind)[1] + model.norms_per_layer * hidden
    if not moe:
        return LayerCount(total, 0, total)
    width, number = moe.moe_intermediate_size, moe.num_experts
    expert = 3 * hidden * width + (2 * width + hidden) * (model.model_type == "gpt_oss")  # biases
    total += number * (hidden + moe.router_bias + expert)
    unused = max(0, number - moe.experts_per_token)
    return LayerCount(total, number * expert, total - unused * expert)


def mtp_parameters(model: Architecture) -> int:
    """Count one layer for multi-token prediction: a last layer, a projection and three norms.

    verl loads it for training only if ``model.mtp.enable`` is set.
    """
    hidden = model.hidden_size
    layer = count_layer(model, LayerKind(False, model.moe is not None))
    return layer.total + 2 * hidden * hidden + 3 * hidden
