"""The shape of a model: its parameters, the bytes per token of a decoder layer, and its adapters.

Widths are coefficients of a layer's sizes. They come from traces of transformers 5 with flash attention and
16-bit activations: every live tensor at an operation is matched by its size (``make oracle`` repeats this).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from .parameters import Counts, count_parameters, layer_kinds, layer_modules, vision_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..units import Evidence
    from .architectures import Architecture

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
#: What c and l stand for, without norms on query and key and with them.
_KEPT = {False: ("4q + 4k + 4a", "2q"), True: ("10q + 10k + 8a + 4g", "-2k")}


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
_ADAPTED = {"": (Widths(), Widths()), "lora_": LORA, "lora_attention_": LORA_ON_ATTENTION}
_TERM = re.compile(r"(-?) ?(\d*)([a-z])")


def bytes_of(moment: str, sizes: Mapping[str, float]) -> float:
    """Add up the terms of a moment.

    >>> bytes_of("8h + 6f - 2h + q", {"h": 10, "f": 1, "q": 5})
    71
    """
    return sum(int(sign + (factor or "1")) * sizes[symbol] for sign, factor, symbol in _TERM.findall(moment))


def layer_sizes(model: Architecture, imbalance: float) -> Iterator[tuple[bool, dict[str, float]]]:
    """Yield the sizes of each kind of layer by ``SYMBOLS``, and whether it has experts.

    For latent attention, queries and keys have the mean width of queries and values.
    """
    moe, mla, heads, groups = model.moe, model.mla, model.num_attention_heads, model.num_key_value_heads
    sizes: dict[str, float] = {"h": model.hidden_size, "a": heads, "g": groups}
    sizes |= {"q": heads * model.head_dim, "k": groups * model.head_dim}
    if mla:
        sizes["q"] = sizes["k"] = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim) / 2
    sizes["c"], sizes["l"] = (bytes_of(kept, sizes) for kept in _KEPT[model.qk_norm])
    if not moe or moe.first_dense_layers:
        yield False, {**sizes, "f": model.intermediate_size or 0}
    if moe:
        fullest = moe.experts_per_token * imbalance
        sizes |= {"f": moe.shared_width, "n": moe.num_experts}
        sizes |= {"x": fullest * model.hidden_size, "e": fullest * moe.moe_intermediate_size}
        yield True, {**sizes, "s": model.hidden_size if moe.shared_expert_gate else 0}


def _widths(model: Architecture, imbalance: float) -> Mapping[str, float]:
    """Return the bytes per token of the widest layer."""
    norms = FOUR_NORMS if model.norms_per_layer >= 4 else Widths()
    widths: dict[str, float] = {}
    for experts, sizes in layer_sizes(model, imbalance):
        layer = EXPERTS if experts else DENSE
        for prefix, adapters in _ADAPTED.items():
            for name, *moments in zip(Widths._fields, layer, norms, adapters[experts], strict=True):
                sums = [bytes_of(" + ".join(terms), sizes) for terms in zip(*moments, strict=True)]
                widths[prefix + name] = max(*sums, widths.get(prefix + name, 0.0))
    return widths


# -- shapes


@dataclass(frozen=True, eq=False)
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
        widths: bytes per token of the widest layer, by the names in ``Widths``; with adapters after
            ``lora_`` or ``lora_attention_``.
        evidence: the evidence for the widths: measured for dense layers, assumed for others.
    """

    architecture: Architecture
    counts: Counts
    parameters: int
    critic_parameters: int
    head: int
    expert_parameters: int
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    widths: Mapping[str, float]
    evidence: Evidence

    @property
    def forward(self) -> float:
        """The live bytes per token in a layer without gradients."""
        return self.widths["forward"]

    def backward(self, adapted: Targets | None = None) -> tuple[float, float]:
        """Return the bytes per token of a layer during its backward pass, and those that it saves for it.

        Args:
            adapted: the modules with adapters in fp32; None if the whole model is trained.
        """
        prefix = ""
        if adapted is not None:
            on_attention = adapted != "all-linear" and _ATTENTION.issuperset(adapted)
            prefix = "lora_attention_" if on_attention else "lora_"
        return self.widths[f"{prefix}working"], self.widths[f"{prefix}saved"]

    @cached_property
    def modules(self) -> Mapping[str, int]:
        """The inputs plus the outputs of all linear modules and embeddings, by name as PEFT matches it."""
        model, vision = self.architecture, self.architecture.vision
        kinds = layer_kinds(model).items()
        modules = [(module, number) for kind, number in kinds for module in layer_modules(model, kind)]
        modules += [(module, 1) for module in vision_modules(vision)] if vision else []
        sizes = Counter(dict.fromkeys(_ENDS, self.hidden + self.vocabulary))
        for module, number in modules:
            sizes[module.name] += (module.inputs + module.outputs) * number
        return sizes


def shape_of(architecture: Architecture, imbalance: float = 1.0) -> Shape:
    """Compute the shape of a model.

    Args:
        architecture: the recorded facts about the model.
        imbalance: tokens of the fullest group of experts, relative to the mean.

    >>> from sphinx_verl_resources.memory.context import EstimatorContext
    >>> shape_of(EstimatorContext().architectures.get("meta-llama/Meta-Llama-3-8B")).backward()
    (266368, 200832)
    """
    counts = count_parameters(architecture)
    unusual = architecture.moe or architecture.mla or architecture.linear_attention or architecture.vision
    return Shape(
        architecture=architecture,
        counts=counts,
        parameters=counts.total,
        critic_parameters=counts.total - counts.lm_head + architecture.hidden_size,  # a head with one output
        head=counts.lm_head or counts.embedding,
        expert_parameters=sum(layer.experts * number for layer, number in counts.layers),
        layers=architecture.num_hidden_layers,
        hidden=architecture.hidden_size,
        heads=architecture.num_attention_heads,
        vocabulary=architecture.vocab_size,
        widths=_widths(architecture, imbalance),
        evidence="assumed" if unusual else "measured",
    )


# -- adapters

#: The matrices of attention, and the modules outside the decoder layers.
_ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"})
_ENDS = ("embed_tokens", "lm_head")


def adapter_parameters(shape: Shape, rank: int, targets: Targets = "all-linear") -> int:
    """Count the parameters of all adapters of a rank, which are rank × (inputs + outputs) for each module.

    As in PEFT, ``all-linear`` adapts the linear modules of attention, MLPs, shared experts with their gate,
    and the vision tower, but not the output head. A name adapts every module of that name. Routed experts and
    routers get no adapters: in transformers 5 they are bare tensors, not modules.

    Source: ``_maybe_include_all_linear_layers`` in peft/tuners/tuners_utils.py, PEFT 0.18.1. From 0.20 on,
    PEFT adapts the experts of some model types too, which is not counted.

    >>> from sphinx_verl_resources.memory.context import EstimatorContext
    >>> qwen = shape_of(EstimatorContext().architectures.get("Qwen/Qwen2.5-7B"))
    >>> adapter_parameters(qwen, 32), adapter_parameters(qwen, 16, ("q_proj", "v_proj"))
    (80740352, 5046272)
    """
    adapted = shape.modules.keys() - _ENDS if targets == "all-linear" else shape.modules.keys() & targets
    return rank * sum(shape.modules[name] for name in adapted)
