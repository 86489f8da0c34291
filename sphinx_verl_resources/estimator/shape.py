"""The shape of a model: its parameters, and the bytes per token of a decoder layer.

Widths are coefficients of a layer's sizes. They come from traces of transformers 5 with flash attention and
16-bit activations: every live tensor at an operation is matched by its size (``make oracle`` repeats this).
A width is the largest of the moments listed for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal

from .constants import UNUSUAL_WIDTHS, WIDTHS
from .parameters import count_parameters, layer_kinds, model_matrices, shared_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..units import Evidence
    from .architectures import Architecture
    from .constants import Spread
    from .parameters import Counts, Matrix

#: The matrices of attention, as PEFT names them.
_ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"})


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
        widths: bytes per token of the widest layer, by the names of ``DENSE``.
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

    @cached_property
    def spread(self) -> Spread:
        """Both ends of the widths, as factors."""
        return (WIDTHS if self.evidence == "measured" else UNUSUAL_WIDTHS).spread

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


def shape_of(architecture: Architecture, imbalance: float = 1.0) -> Shape:
    """Compute the shape of a model.

    Args:
        architecture: the recorded facts about the model.
        imbalance: tokens of the fullest group of experts, relative to the mean.

    >>> from sphinx_verl_resources.estimator.context import EstimatorContext
    >>> shape_of(EstimatorContext().architectures.get("meta-llama/Meta-Llama-3-8B")).backward()
    (266368, 200832)
    """
    counts = count_parameters(architecture)
    unusual = architecture.moe or architecture.mla or architecture.linear_attention or architecture.vision
    return Shape(
        architecture=architecture,
        counts=counts,
        parameters=counts.total,
        critic_parameters=counts.critic,
        head=counts.lm_head or counts.embedding,
        expert_parameters=sum(layer.experts * number for layer, number in counts.layers),
        layers=architecture.num_hidden_layers,
        hidden=architecture.hidden_size,
        heads=architecture.num_attention_heads,
        vocabulary=architecture.vocab_size,
        widths=_widths(architecture, imbalance),
        evidence="assumed" if unusual else "measured",
    )


@lru_cache(maxsize=1024)
def adapter_parameters(shape: Shape, rank: int, targets: Targets) -> int:
    """Count the parameters of the adapters; cached, since this takes longer than the rest of an estimate."""
    return lora_parameters(shape.architecture, rank, targets)


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
    "s": "hidden size, if the shared experts have a gate",
}

#: Widths by name. Each is the largest of some moments, given as operation and live bytes. ``working``: one
#: layer is recomputed and differentiated. ``saved``: kept by a layer that is not recomputed. ``forward``: a
#: pass without gradients. ``lora_``: with adapters in fp32 on every matrix; ``lora_attention_``: only on the
#: matrices of attention.
Widths = dict[str, dict[str, str]]

_KEPT = "4q + 4k + 4a"
_KEPT_QK = "10q + 10k + 8a + 4g"
_KEPT_LORA = "6q + 4k + 4a"
_KEPT_QK_LORA = "10q + 8k + 8a + 4g"

DENSE: Widths = {
    "working": {
        "MLP": f"18h + 12f + {_KEPT}",
        "norm": f"34h + {_KEPT}",
        "attention": "10h + 16q + 8k + 8a",
    },
    "saved": {"forward": f"16h + 8f + {_KEPT}"},
    "lora_working": {"MLP": f"28h + 14f + {_KEPT_LORA}"},
    "lora_saved": {"forward": f"18h + 8f + {_KEPT_LORA}"},
    "lora_attention_working": {"MLP": f"16h + 12f + {_KEPT_LORA}"},
    "lora_attention_saved": {"forward": f"14h + 6f + {_KEPT_LORA}"},
    "forward": {"MLP": "8h + 6f", "norm": "14h", "attention": "6h + 8q + 4k"},
}
QK_NORM: Widths = {
    "working": {
        "MLP": f"18h + 12f + {_KEPT_QK}",
        "norm": f"34h + {_KEPT_QK}",
        "attention": "10h + 22q + 14k + 12a + 4g",
        "query norm": "12h + 24q",
    },
    "saved": {"forward": f"16h + 8f + {_KEPT_QK}"},
    "lora_working": {"MLP": f"28h + 14f + {_KEPT_QK_LORA}"},
    "lora_saved": {"forward": f"18h + 8f + {_KEPT_QK_LORA}"},
    "lora_attention_working": {"MLP": f"16h + 12f + {_KEPT_QK_LORA}"},
    "lora_attention_saved": {"forward": f"14h + 6f + {_KEPT_QK_LORA}"},
    "forward": {"MLP": "8h + 6f", "norm": "14h", "attention": "6h + 10q"},
}
FOUR_NORMS: Widths = {
    **DENSE,
    "working": {"norm": f"54h + 8f + {_KEPT}", "MLP": f"30h + 12f + {_KEPT}"},
    "saved": {"forward": f"36h + 8f + {_KEPT}"},
}


def _with_experts(kept: str, kept_lora: str) -> Widths:
    """Return the widths of a layer whose experts are one operation; ``kept`` are attention's saved bytes.

    Among the experts, only the shared ones get adapters.
    """
    of_all, of_lora = f"8f + {kept} + 4n", f"{kept_lora} + 4n"
    return {
        "working": {
            "gather": f"18h + 4s + 10x + 8e + {of_all}",
            "activation": f"18h + 4s + 2x + 12e + {of_all}",
        },
        "saved": {"forward": f"16h + 2s + 4x + 8e + {of_all}"},
        "lora_working": {
            "gather": f"20h + 6s + 8x + 6e + 8f + {of_lora}",
            "activation": f"16h + 8s + 12e + 8f + {of_lora}",
        },
        "lora_saved": {"forward": f"14h + 6s + 2x + 6e + 8f + {of_lora}"},
        "lora_attention_working": {
            "gather": f"20h + 2s + 8x + 6e + 6f + {of_lora}",
            "activation": f"16h + 4s + 12e + 6f + {of_lora}",
        },
        "lora_attention_saved": {"forward": f"14h + 2s + 2x + 6e + 6f + {of_lora}"},
        "forward": {
            "gather": "8h + 2s + 8x",
            "experts": "8h + 2s + 2x + 8e",
            "shared experts": "10h + 6f",
        },
    }


EXPERTS = _with_experts(_KEPT, _KEPT_LORA)
EXPERTS_QK_NORM = _with_experts(_KEPT_QK, _KEPT_QK_LORA)

_TERM = re.compile(r"(\d+)([a-z])")


def _widths(architecture: Architecture, imbalance: float) -> Mapping[str, float]:
    """Return the bytes per token of the widest layer."""
    dense = QK_NORM if architecture.qk_norm else DENSE
    if architecture.norms_per_layer >= 4:
        dense = FOUR_NORMS
    experts = EXPERTS_QK_NORM if architecture.qk_norm else EXPERTS
    layers = [
        (experts if of_experts else dense, sizes)
        for of_experts, sizes in layer_sizes(architecture, imbalance)
    ]
    return {
        name: max(bytes_of(moment, sizes) for widths, sizes in layers for moment in widths[name].values())
        for name in DENSE
    }


def layer_sizes(architecture: Architecture, imbalance: float) -> Iterator[tuple[bool, dict[str, float]]]:
    """Yield the sizes of each kind of layer by ``SYMBOLS``, and whether it has experts.

    Shared experts are the MLP of a layer with experts.
    """
    moe, sizes = architecture.moe, _attention_sizes(architecture)
    if not all(kind.experts for kind, _ in layer_kinds(architecture)):
        yield False, {**sizes, "f": architecture.intermediate_size or 0}
    if moe:
        fullest = moe.experts_per_token * imbalance
        yield (
            True,
            {
                **sizes,
                "f": shared_width(moe),
                "x": fullest * architecture.hidden_size,
                "e": fullest * moe.moe_intermediate_size,
                "n": moe.num_experts,
                "s": architecture.hidden_size if moe.shared_expert_gate else 0,
            },
        )


def bytes_of(moment: str, sizes: Mapping[str, float]) -> float:
    """Add up the terms of a moment, such as ``8h + 6f``."""
    return sum(int(factor) * sizes[symbol] for factor, symbol in _TERM.findall(moment))


def _attention_sizes(architecture: Architecture) -> dict[str, float]:
    """Return the sizes of a layer without its MLP; for latent attention, the mean of both widths."""
    heads, key_heads, mla = (
        architecture.num_attention_heads,
        architecture.num_key_value_heads,
        architecture.mla,
    )
    query: float = heads * architecture.head_dim
    key: float = key_heads * architecture.head_dim
    if mla:
        query = key = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim) / 2
    return {"h": architecture.hidden_size, "q": query, "k": key, "a": heads, "g": key_heads}


# -- adapters

#: The modules that get adapters: names as PEFT matches them, or every linear layer.
Targets = tuple[str, ...] | Literal["all-linear"]

#: Modules outside the decoder layers; ``all-linear`` excludes them.
_ENDS = ("embed_tokens", "lm_head")


def lora_parameters(architecture: Architecture, rank: int, targets: Targets = "all-linear") -> int:
    """Count the parameters of all adapters of a rank.

    An adapter of rank r on a matrix from ``in`` to ``out`` has r × (in + out) parameters. As in PEFT,
    ``all-linear`` includes the vision tower and excludes the output head. Routers are left out, since only
    some versions have them as linear modules. Experts count, although PEFT cannot adapt those stored as bare
    tensors (transformers 5 and a few earlier models).

    >>> from sphinx_verl_resources.estimator.context import EstimatorContext
    >>> qwen = EstimatorContext().architectures.get("Qwen/Qwen2.5-7B")
    >>> lora_parameters(qwen, 32)
    80740352
    >>> lora_parameters(qwen, 16, ("q_proj", "v_proj"))
    5046272
    """
    size = sum(
        (matrix.inputs + matrix.outputs) * number
        for matrix, number in model_matrices(architecture)
        if _is_target(matrix, targets)
    )
    ends = 0 if targets == "all-linear" else len(set(targets).intersection(_ENDS))
    return rank * (size + ends * (architecture.hidden_size + architecture.vocab_size))


def target_names(architecture: Architecture) -> tuple[str, ...]:
    """Return the names of the modules that can get adapters, without duplicates.

    >>> from sphinx_verl_resources.estimator.context import EstimatorContext
    >>> target_names(EstimatorContext().architectures.get("microsoft/phi-4"))
    ('qkv_proj', 'o_proj', 'gate_up_proj', 'down_proj', 'embed_tokens', 'lm_head')
    """
    names = [matrix.name for matrix, _ in model_matrices(architecture)]
    return tuple(dict.fromkeys([*names, *_ENDS]))


def unknown_targets(architecture: Architecture, targets: Targets) -> tuple[str, ...]:
    """Return the targets that match no module of the model; ``lora_parameters`` ignores them."""
    if targets == "all-linear":
        return ()
    return tuple(name for name in targets if name not in target_names(architecture))


def _is_target(matrix: Matrix, targets: Targets) -> bool:
    if targets == "all-linear":
        return matrix.part != "router" and matrix.name != "shared_expert_gate"
    return matrix.name in targets
