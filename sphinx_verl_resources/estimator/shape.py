"""The shape of a model: its parameters, and the bytes a token that a decoder layer takes.

Widths are coefficients of a layer's sizes, read off traces of the layers of transformers 5 with flash
attention and 16-bit activations: every tensor that is alive at an operation, matched by its size
(``make oracle`` repeats it). A width is the largest of the moments listed for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .matrices import layer_kinds, shared_width
from .parameters import count_parameters, critic_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..breakdown import Evidence
    from ..catalog.models.architecture import Architecture, Moe
    from .parameters import Counts, Targets

#: The matrices of attention, as PEFT names them.
_ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"})


@dataclass(frozen=True, eq=False)
class Shape:
    """Counts are parameters, widths are bytes a token with 16-bit activations.

    Attributes:
        architecture: the facts that it follows from.
        counts: its parameters by part.
        parameters: all of them.
        critic_parameters: of the same model with a value head.
        unit: of the largest decoder layer, the largest unit that FSDP gathers.
        root: outside the decoder layers: embedding, head, last norm, vision tower.
        head: of the output head, or of the embedding that replaces it.
        expert_parameters: all routed experts of all layers.
        layers, hidden, heads, vocabulary: as in config.json.
        working: live while one layer is recomputed and differentiated.
        saved: kept by a layer that is not recomputed.
        lora_working: live likewise with adapters in fp32 on every matrix.
        lora_saved: kept likewise.
        lora_attention_working, lora_attention_saved: with adapters on the matrices of attention alone.
        forward: live in a layer without gradients.
        evidence: of these widths: dense layers were measured, of others they are assumed.
    """

    architecture: Architecture
    counts: Counts
    parameters: int
    critic_parameters: int
    unit: int
    root: int
    head: int
    expert_parameters: int
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    working: float
    saved: float
    lora_working: float
    lora_saved: float
    lora_attention_working: float
    lora_attention_saved: float
    forward: float
    evidence: Evidence

    def adapted(self, targets: Targets) -> tuple[float, float]:
        """Return the working and the saved width with adapters on attention alone, or on the MLP too."""
        if targets == "all-linear" or not _ATTENTION.issuperset(targets):
            return self.lora_working, self.lora_saved
        return self.lora_attention_working, self.lora_attention_saved


def shape_of(architecture: Architecture, imbalance: float = 1.0) -> Shape:
    """Compute the shape of a model.

    Args:
        architecture: its facts.
        imbalance: tokens of the fullest group of experts over the mean.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> shape_of(load_paths([]).architectures.get("Qwen/Qwen2.5-7B")).unit
    233057792
    """
    counts = count_parameters(architecture)
    unusual = architecture.moe or architecture.mla or architecture.linear_attention or architecture.vision
    return Shape(
        architecture=architecture,
        counts=counts,
        parameters=counts.total,
        critic_parameters=critic_parameters(architecture),
        unit=counts.largest_layer,
        root=counts.root,
        head=counts.lm_head or counts.embedding,
        expert_parameters=sum(layer.experts * number for layer, number in counts.layers),
        layers=architecture.num_hidden_layers,
        hidden=architecture.hidden_size,
        heads=architecture.num_attention_heads,
        vocabulary=architecture.vocab_size,
        evidence="assumed" if unusual else "measured",
        **layer_widths(architecture, imbalance),
    )


#: The sizes that coefficients multiply.
SYMBOLS: Mapping[str, str] = {
    "h": "hidden size",
    "f": "width of the MLP",
    "q": "width of all queries",
    "k": "width of all keys",
    "a": "attention heads",
    "g": "key-value heads",
    "x": "hidden size, for each expert of a token",
    "e": "width of one expert, for each expert of a token",
    "n": "routed experts",
}

Coefficients = dict[str, float]


@dataclass(frozen=True)
class Width:
    """Bytes a token: the largest of some moments.

    Attributes:
        moments: the operation, and the coefficients of what is alive during it.
    """

    moments: tuple[tuple[str, Coefficients], ...]

    def value(self, sizes: Mapping[str, float]) -> float:
        """Return the bytes a token."""
        return max(
            sum(factor * sizes[symbol] for symbol, factor in parts.items()) for _, parts in self.moments
        )

    def text(self) -> str:
        """Write the formula: ``max(18h + 12f, 34h)``."""
        sums = [
            " + ".join(f"{factor:g}{symbol}" for symbol, factor in parts.items()) for _, parts in self.moments
        ]
        return sums[0] if len(sums) == 1 else f"max({', '.join(sums)})"


_SAVED: Coefficients = {"q": 4, "k": 4, "a": 4}
_SAVED_QK: Coefficients = {"q": 10, "k": 10, "a": 8, "g": 4}

DENSE = {
    "working": Width(
        (
            ("MLP", {"h": 18, "f": 12, **_SAVED}),
            ("norm", {"h": 34, **_SAVED}),
            ("attention", {"h": 10, "q": 16, "k": 8, "a": 8}),
        )
    ),
    "saved": Width((("forward", {"h": 16, "f": 8, **_SAVED}),)),
    "lora_working": Width((("MLP", {"h": 28, "f": 14, "q": 6, "k": 4}),)),
    "lora_saved": Width((("forward", {"h": 16, "f": 8, "q": 6, "k": 4}),)),
    "lora_attention_working": Width((("MLP", {"h": 16, "f": 12, "q": 6, "k": 4}),)),
    "lora_attention_saved": Width((("forward", {"h": 12, "f": 6, "q": 6, "k": 4}),)),
    "forward": Width(
        (
            ("MLP", {"h": 8, "f": 6}),
            ("norm", {"h": 14}),
            ("attention", {"h": 6, "q": 8, "k": 4}),
        )
    ),
}
QK_NORM = {
    **DENSE,
    "working": Width(
        (
            ("MLP", {"h": 18, "f": 12, **_SAVED_QK}),
            ("norm", {"h": 34, **_SAVED_QK}),
            ("attention", {"h": 10, "q": 22, "k": 14, "a": 12, "g": 4}),
            ("query norm", {"h": 12, "q": 24}),
        )
    ),
    "saved": Width((("forward", {"h": 16, "f": 8, **_SAVED_QK}),)),
    "lora_working": Width((("MLP", {"h": 28, "f": 14, "q": 12, "k": 10, "a": 8, "g": 4}),)),
    "lora_saved": Width((("forward", {"h": 16, "f": 8, "q": 12, "k": 10, "a": 8, "g": 4}),)),
    "lora_attention_working": Width((("MLP", {"h": 16, "f": 12, "q": 12, "k": 10, "a": 8, "g": 4}),)),
    "lora_attention_saved": Width((("forward", {"h": 12, "f": 6, "q": 12, "k": 10, "a": 8, "g": 4}),)),
    "forward": Width(
        (
            ("MLP", {"h": 8, "f": 6}),
            ("norm", {"h": 14}),
            ("attention", {"h": 6, "q": 10}),
        )
    ),
}
FOUR_NORMS = {
    **DENSE,
    "working": Width((("norm", {"h": 54, "f": 8, **_SAVED}), ("MLP", {"h": 30, "f": 12, **_SAVED}))),
    "saved": Width((("forward", {"h": 36, "f": 8, **_SAVED}),)),
}
_ROUTED: Coefficients = {**_SAVED, "n": 12}
_ROUTED_QK: Coefficients = {**_SAVED_QK, "n": 12}


def _with_experts(dense: Mapping[str, Width], kept: Coefficients) -> dict[str, Width]:
    """Return the widths of a layer whose experts are one operation and whose rest is as in ``dense``."""
    saved = Width((("forward", {"h": 16, "x": 4, "e": 8, "f": 8, **kept}),))
    return {
        **dense,
        "working": Width(
            (
                ("gather", {"h": 18, "x": 10, "e": 8, "f": 8, **kept}),
                ("experts", {"h": 18, "x": 4, "e": 14, "f": 12, **kept}),
                ("activation", {"h": 18, "x": 2, "e": 16, "f": 12, **kept}),
            )
        ),
        "saved": saved,
        "lora_working": Width((("experts", {"h": 28, "x": 10, "e": 14, "f": 14, **kept}),)),
        "lora_saved": saved,
        "lora_attention_working": Width((("experts", {"h": 18, "x": 10, "e": 14, "f": 12, **kept}),)),
        "lora_attention_saved": saved,
        "forward": Width(
            (("gather", {"h": 8, "x": 8, "f": 6}), ("experts", {"h": 8, "x": 2, "e": 8, "f": 6}))
        ),
    }


EXPERTS = _with_experts(DENSE, _ROUTED)
EXPERTS_QK_NORM = _with_experts(QK_NORM, _ROUTED_QK)


def layer_widths(architecture: Architecture, imbalance: float = 1.0) -> Mapping[str, float]:
    """Return the bytes a token of the widest layer, by the names of ``DENSE``.

    Args:
        architecture: of the model.
        imbalance: tokens of the fullest group of experts over the mean.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> widths = layer_widths(load_paths([]).architectures.get("meta-llama/Meta-Llama-3-8B"))
    >>> widths["working"], widths["saved"]
    (266368, 200832)
    """
    dense = FOUR_NORMS if architecture.norms_per_layer >= 4 else QK_NORM if architecture.qk_norm else DENSE
    choices = [(dense, layer_sizes(architecture))] if _has_dense(architecture) else []
    if architecture.moe:
        experts = EXPERTS_QK_NORM if architecture.qk_norm else EXPERTS
        choices.append((experts, _expert_sizes(architecture, architecture.moe, imbalance)))
    return {name: max(widths[name].value(sizes) for widths, sizes in choices) for name in DENSE}


def layer_sizes(architecture: Architecture) -> Mapping[str, float]:
    """Return the sizes behind the symbols in the dense layers of one model."""
    query, key = _attention_widths(architecture)
    return {
        "h": architecture.hidden_size,
        "f": architecture.intermediate_size or 0,
        "q": query,
        "k": key,
        "a": architecture.num_attention_heads,
        "g": architecture.num_key_value_heads,
        "x": 0,
        "e": 0,
        "n": 0,
    }


def _expert_sizes(architecture: Architecture, moe: Moe, imbalance: float) -> Mapping[str, float]:
    """Return the same for layers with experts, whose shared experts are the MLP."""
    fullest = moe.experts_per_token * imbalance
    return {
        **layer_sizes(architecture),
        "f": shared_width(moe),
        "x": fullest * architecture.hidden_size,
        "e": fullest * moe.moe_intermediate_size,
        "n": moe.num_experts,
    }


def _has_dense(architecture: Architecture) -> bool:
    return any(not kind.experts for kind, _ in layer_kinds(architecture))


def _attention_widths(architecture: Architecture) -> tuple[float, float]:
    """Return the elements of queries and of keys; of latent attention the mean of both widths."""
    mla = architecture.mla
    if mla:
        both = mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim
        return architecture.num_attention_heads * both / 2, architecture.num_attention_heads * both / 2
    return (
        architecture.num_attention_heads * architecture.head_dim,
        architecture.num_key_value_heads * architecture.head_dim,
    )
