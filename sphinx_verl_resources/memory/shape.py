"""The shape of a model: its parameters, the bytes per token of a decoder layer, and its adapters.

Widths are coefficients of a layer's sizes. They come from traces of transformers 5 with flash attention and
16-bit activations: every live tensor at an operation is matched by its size (``make oracle`` repeats this).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from ..units import Evidence
from .architectures import Architecture, Vision

#: Linear modules: inputs and outputs, by the last part of the name.
Modules = dict[str, tuple[int, int]]
#: Model types whose dense MLP has one matrix for gate and up projection.
_FUSED_MLP = {"phi3", "glm4", "glm4v"}


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


def layer_modules(model: Architecture, kind: LayerKind) -> tuple[Modules, int]:
    """Return the linear modules of one layer, and the number of its other parameters without routed experts.

    Routers and routed experts are bare tensors, no modules.
    """
    hidden, moe = model.hidden_size, model.moe
    modules, others = _attention(model, kind)
    others += model.norms_per_layer * hidden
    if not (kind.experts and moe):
        return modules | _mlp(hidden, model.intermediate_size or 0, model.model_type in _FUSED_MLP), others
    if moe.shared_width:
        modules |= _mlp(hidden, moe.shared_width)
    if moe.shared_expert_gate:
        modules["shared_expert_gate"] = (hidden, 1)
    return modules, others + moe.num_experts * (hidden + moe.router_bias)


def _attention(model: Architecture, kind: LayerKind) -> tuple[Modules, int]:
    """Return attention's linear modules, and the number of its other parameters."""
    hidden, heads = model.hidden_size, model.num_attention_heads
    if kind.linear_attention and (linear := model.linear_attention):
        key, value_heads = linear.num_key_heads * linear.key_head_dim, linear.num_value_heads
        value = value_heads * linear.value_head_dim
        outputs = {"qkv": 2 * key + value, "z": value, "b": value_heads, "a": value_heads}
        if model.model_type == "qwen3_next":
            outputs = {"qkvz": 2 * (key + value), "ba": 2 * value_heads}
        modules = {f"in_proj_{name}": (hidden, output) for name, output in outputs.items()}
        others = (2 * key + value) * linear.conv_kernel + 2 * value_heads + linear.value_head_dim
        return modules | {"out_proj": (value, hidden)}, others
    if mla := model.mla:
        query, rank = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim), mla.q_lora_rank or 0
        latent, value = mla.kv_lora_rank, heads * mla.v_head_dim
        modules = {"q_a_proj": (hidden, rank), "q_b_proj": (rank, query)}
        if not rank:
            modules = {"q_proj": (hidden, query)}
        modules["kv_a_proj_with_mqa"] = (hidden, latent + mla.qk_rope_head_dim)
        modules["kv_b_proj"] = (latent, heads * mla.qk_nope_head_dim + value)
        return modules | {"o_proj": (value, hidden)}, rank + latent  # norms
    output, key = heads * model.head_dim, model.num_key_value_heads * model.head_dim
    query = output * (2 if model.attn_output_gate else 1)
    modules = {"q_proj": (hidden, query), "k_proj": (hidden, key), "v_proj": (hidden, key)}
    if model.model_type == "phi3":
        modules = {"qkv_proj": (hidden, query + 2 * key)}
    others = (query + 2 * key) * model.qkv_bias + 2 * model.head_dim * model.qk_norm
    # A bias of the output projection, and a sink for each head.
    others += (hidden + heads) * (model.model_type == "gpt_oss")
    return modules | {"o_proj": (output, hidden)}, others


def _mlp(hidden: int, width: int, fused: bool = False) -> Modules:
    """Return the modules of a gated MLP."""
    first = {"gate_up_proj": 2 * width} if fused else {"gate_proj": width, "up_proj": width}
    return {name: (hidden, output) for name, output in first.items()} | {"down_proj": (width, hidden)}


def vision_modules(vision: Vision) -> tuple[tuple[Modules, int], tuple[Modules, int]]:
    """Return the linear modules of a block and of a merger of a Qwen vision tower, and how many it has.

    There are two forms: Qwen2.5-VL (no learned positions, gated MLP) and Qwen3-VL (learned positions, plain
    MLP, intermediate outputs called deepstack). The patch embedding is a convolution.
    """
    width, mlp = vision.hidden_size, vision.intermediate_size
    merged, output = width * vision.spatial_merge_size**2, vision.out_hidden_size
    attention = {"qkv": (width, 3 * width), "proj": (width, width)}
    if vision.num_position_embeddings is None:
        merger = {"mlp.0": (merged, merged), "mlp.2": (merged, output)}
        return (attention | _mlp(width, mlp), vision.depth), (merger, 1)
    block = attention | {"linear_fc1": (width, mlp), "linear_fc2": (mlp, width)}
    merger = {"linear_fc1": (merged, merged), "linear_fc2": (merged, output)}
    return (block, vision.depth), (merger, 1 + (vision.deepstack_layers or 0))


def vision_parameters(vision: Vision) -> int:
    """Count the parameters of a vision tower from its shape; ``vision.parameters`` is not used."""
    width, positions, norms = vision.hidden_size, vision.num_position_embeddings, 2 * vision.depth + 1
    biased = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2 * width
    for modules, number in vision_modules(vision):
        biased += number * sum((inputs + 1) * outputs for inputs, outputs in modules.values())
    if positions is None:
        return biased + norms * width
    # The patches and the norms have biases. The norms of further mergers are wider.
    merged = width * vision.spatial_merge_size**2 * (vision.deepstack_layers or 0)
    return biased + (1 + positions + 2 * norms) * width + 2 * merged


class LayerCount:
    """Parameters of one decoder layer of a kind.

    Attributes:
        total: all parameters.
        experts: those of all routed experts.
        active: those that one token passes through.
    """

    def __init__(self, model: Architecture, kind: LayerKind) -> None:
        modules, others = layer_modules(model, kind)
        dense = others + sum(inputs * outputs for inputs, outputs in modules.values())
        self.total, self.experts, self.active = dense, 0, dense
        if kind.experts and (moe := model.moe):
            hidden, width = model.hidden_size, moe.moe_intermediate_size
            expert = 3 * hidden * width + (2 * width + hidden) * (model.model_type == "gpt_oss")  # biases
            self.experts, self.active = moe.num_experts * expert, dense + moe.experts_per_token * expert
            self.total = dense + self.experts


class Counts:
    """Parameters of a model, without layers for multi-token prediction.

    Attributes:
        embedding: the embedding.
        lm_head: the output head; 0 if it is the embedding.
        vision: the vision tower as recorded; 0 without one.
        layers: the kinds of layers and the number of each, in order of first occurrence.
        root: the parameters outside the decoder layers.
        largest_layer: the parameters of the largest decoder layer, the largest unit that FSDP gathers.
        total: all parameters.
        active: those that a text token passes through: without the vision tower and unused experts.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> counts = Counts(EstimatorContext().architectures.get("Qwen/Qwen2.5-7B"))
    >>> counts.total, counts.largest_layer, counts.lm_head
    (7615616512, 233057792, 544997376)
    """

    def __init__(self, model: Architecture) -> None:
        self.embedding = model.vocab_size * model.hidden_size
        self.lm_head = 0 if model.tie_word_embeddings else self.embedding
        self.vision = model.vision.parameters if model.vision else 0
        self.layers = [(LayerCount(model, kind), number) for kind, number in layer_kinds(model).items()]
        self.root = self.embedding + self.lm_head + model.hidden_size + self.vision
        self.largest_layer = max(layer.total for layer, _ in self.layers)
        self.total = self.root + sum(layer.total * number for layer, number in self.layers)
        self.active = self.root - self.vision + sum(layer.active * number for layer, number in self.layers)


#: The modules that get adapters: names as PEFT matches them, or every linear module.
Targets = tuple[str, ...] | Literal["all-linear"]

# -- widths

#: The sizes that coefficients multiply.
SYMBOLS: Mapping[str, str] = {
    "h": "hidden size",
    "f": "width of the MLP, or of the shared experts",
    "q": "width of all queries",
    "k": "width of all keys",
    "a": "attention heads",
    "g": "key-value heads",
    "c": "bytes that attention keeps: 4q + 4k + 4a, or 10q + 10k + 8a + 4g with norms on query and key",
    "l": "bytes that attention with adapters keeps besides: 2q, or -2k with norms on query and key",
    "x": "hidden size, for each expert of a token",
    "e": "width of one expert, for each expert of a token",
    "n": "routed experts",
    "s": "hidden size, if the shared experts have a gate",
}


class Widths(NamedTuple):
    """Bytes per token of a layer, as sums of ``SYMBOLS``, or differences to them.

    Attributes:
        working: the layer is recomputed and differentiated: the larger of two moments.
        saved: it keeps this if it is not recomputed.
        forward: a pass without gradients: the larger of two moments.
    """

    working: tuple[str, str] = ("", "")
    saved: tuple[str] = ("",)
    forward: tuple[str, str] = ("", "")


#: The moments are the MLP and a norm.
DENSE = Widths(("18h + 12f + c", "34h + c"), ("16h + 8f + c",), ("8h + 6f", "14h"))
#: A layer whose experts are one operation: the moments are the gathering of tokens and the activation.
EXPERTS = Widths(
    ("18h + 8f + c + 4n + 4s + 10x + 8e", "18h + 8f + c + 4n + 4s + 2x + 12e"),
    ("16h + 8f + c + 4n + 2s + 4x + 8e",),
    ("8h + 2s + 8x", "8h + 2s + 2x + 8e"),
)
#: The difference of four norms in a layer.
FOUR_NORMS = Widths(("12h", "20h + 8f"), ("20h",))
FULL = (Widths(), Widths())
#: The differences of adapters in fp32, on every module or on attention only, in a dense layer and in one with
#: experts. Matrices without adapters keep no inputs.
LORA = (
    Widths(("10h + 2f + l", "2h + l"), ("2h + l",)),
    Widths(("2h + l + 2s - 2x - 2e", "l + 4s - 2h - 2x"), ("l + 4s - 2h - 2x - 2e",)),
)
LORA_ON_ATTENTION = (
    Widths(("l - 2h", "l - 2h - 2f"), ("l - 2h - 2f",)),
    Widths(("2h + l - 2s - 2f - 2x - 2e", "l - 2h - 2f - 2x"), ("l - 2h - 2f - 2x - 2e",)),
)


def bytes_of(moment: str, sizes: Mapping[str, float]) -> float:
    """Add up the terms of a moment.

    >>> bytes_of("8h + 6f - 2h + q", {"h": 10, "f": 1, "q": 5})
    71
    """
    terms = re.findall(r"(-?) ?(\d*)([a-z])", moment)
    return sum(int(sign + (factor or "1")) * sizes[symbol] for sign, factor, symbol in terms)


def layer_sizes(model: Architecture) -> Iterator[tuple[bool, dict[str, float]]]:
    """Yield the sizes of each kind of layer by ``SYMBOLS``, and whether it has experts.

    For latent attention, queries and keys have the mean width of queries and values. Experts get equal
    numbers of tokens.
    """
    moe, mla, hidden = model.moe, model.mla, model.hidden_size
    heads, groups = model.num_attention_heads, model.num_key_value_heads
    each = (mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim) / 2 if mla else model.head_dim
    query, key = heads * each, (heads if mla else groups) * each
    tensors, adapters = 4 * (query + key + heads), 2 * query
    if model.qk_norm:
        tensors, adapters = 10 * (query + key) + 8 * heads + 4 * groups, -2 * key
    sizes = {"h": hidden, "q": query, "k": key, "a": heads, "g": groups, "c": tensors, "l": adapters}
    if not moe or moe.first_dense_layers:
        yield False, {**sizes, "f": model.intermediate_size or 0}
    if moe:
        tokens, gated = moe.experts_per_token, moe.shared_expert_gate
        sizes |= {"f": moe.shared_width, "n": moe.num_experts, "s": hidden * gated}
        yield True, {**sizes, "x": tokens * hidden, "e": tokens * moe.moe_intermediate_size}


def _widest(model: Architecture, added: tuple[Widths, Widths]) -> list[float]:
    """Return the bytes per token of the widest layer, in the order of ``Widths``."""
    norms, widest = FOUR_NORMS if model.norms_per_layer >= 4 else Widths(), [0.0, 0.0, 0.0]
    for experts, sizes in layer_sizes(model):
        for at, moments in enumerate(zip(EXPERTS if experts else DENSE, norms, added[experts], strict=True)):
            sums = (bytes_of(" + ".join(terms), sizes) for terms in zip(*moments, strict=True))
            widest[at] = max(widest[at], *sums)
    return widest


# -- shapes

#: The matrices of attention, and the modules outside the decoder layers.
_ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"})
_ENDS = ("embed_tokens", "lm_head")


class Shape:
    """The sizes of a model that decide its memory.

    Attributes:
        architecture: the recorded facts about the model.
        counts: its parameters by part.
        parameters: its total parameters.
        critic_parameters: the parameters of the same model with a value head.
        head: the parameters of the output head, or of the embedding that replaces it.
        expert_parameters: the parameters of all routed experts in all layers.
        layers, hidden, heads, vocabulary: the values in config.json.
        modules: the inputs plus the outputs of all linear modules and embeddings, by name as PEFT matches it.
        forward: the live bytes per token in a layer without gradients.
        evidence: the evidence for the widths: measured for dense layers, assumed for others.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> Shape(EstimatorContext().architectures.get("meta-llama/Meta-Llama-3-8B")).backward()
    (266368, 200832)
    """

    def __init__(self, model: Architecture) -> None:
        self.architecture, self.counts = model, (counts := Counts(model))
        self.layers, self.hidden = model.num_hidden_layers, model.hidden_size
        self.heads, self.vocabulary = model.num_attention_heads, model.vocab_size
        self.parameters, self.head = counts.total, counts.lm_head or counts.embedding
        self.critic_parameters = counts.total - counts.lm_head + self.hidden  # a head with one output
        self.expert_parameters = sum(layer.experts * number for layer, number in counts.layers)
        self.modules = Counter(dict.fromkeys(_ENDS, self.hidden + self.vocabulary))
        layers = [(layer_modules(model, kind)[0], number) for kind, number in layer_kinds(model).items()]
        for modules, number in (*layers, *(vision_modules(model.vision) if model.vision else ())):
            self.modules.update({name: sum(sizes) * number for name, sizes in modules.items()})
        self._widths = {added: _widest(model, added) for added in (FULL, LORA, LORA_ON_ATTENTION)}
        self.forward = self._widths[FULL][2]
        unusual = model.moe or model.mla or model.linear_attention or model.vision
        self.evidence: Evidence = "assumed" if unusual else "measured"

    def backward(self, adapted: Targets | None = None) -> tuple[float, float]:
        """Return the bytes per token of a layer during its backward pass, and those that it saves for it.

        Args:
            adapted: the modules with adapters in fp32; None if the whole model is trained.
        """
        added = FULL
        if adapted is not None:
            added = LORA_ON_ATTENTION if adapted != "all-linear" and _ATTENTION.issuperset(adapted) else LORA
        working, saved, _ = self._widths[added]
        return working, saved


def adapter_parameters(shape: Shape, rank: int, targets: Targets = "all-linear") -> int:
    """Count the parameters of all adapters of a rank, which are rank × (inputs + outputs) for each module.

    As in PEFT, ``all-linear`` adapts the linear modules of attention, MLPs, shared experts with their gate,
    and the vision tower, but not the output head. A name adapts every module of that name. Routed experts and
    routers get no adapters: in transformers 5 they are bare tensors, not modules.

    Source: ``_maybe_include_all_linear_layers`` in peft/tuners/tuners_utils.py, PEFT 0.18.1. From 0.20 on,
    PEFT adapts the experts of some model types too, which is not counted.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> qwen = Shape(EstimatorContext().architectures.get("Qwen/Qwen2.5-7B"))
    >>> adapter_parameters(qwen, 32), adapter_parameters(qwen, 16, ("q_proj", "v_proj"))
    (80740352, 5046272)
    """
    adapted = shape.modules.keys() - _ENDS if targets == "all-linear" else shape.modules.keys() & targets
    return rank * sum(shape.modules[name] for name in adapted)
