"""Model types: facts from their modelling code that are missing in config.json.

Source: configuration and modelling files of Hugging Face transformers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .hf_records import HfConfig


#: The names of gate, up and down in an MLP.
MLP_MATRICES = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Convention:
    """The facts of one model type.

    Attributes:
        qkv_bias: whether query, key and value have biases; None if ``attention_bias`` decides.
        norms: the number of norm vectors (of the hidden size) per layer.
        tied: the default of ``tie_word_embeddings``.
        window_switch: whether the sliding window applies only with ``use_sliding_window``.
        experts: the key for the number of routed experts; empty for a dense model.
        expert_width: the key for the width of an expert.
        gated_shared_expert: whether every layer has one shared expert with a gate.
        vision: whether the vision tower can be counted.
        deepstack: whether the vision tower is that of Qwen3-VL, with learned positions.
        biased: whether attention's output projection and the experts have biases, and each head a sink.
        joined: whether query, key and value, and gate and up, are joined in one matrix each.
        joined_linear: whether the projections of linear attention are joined in two matrices.
        expert_matrices: the names of gate, up and down in an expert.
        defaults: the defaults of missing keys.
    """

    qkv_bias: bool | None = False
    qk_norm: bool = False
    norms: int = 2
    tied: bool = False
    window_switch: bool = False
    experts: str = ""
    expert_width: str = "moe_intermediate_size"
    gated_shared_expert: bool = False
    router_bias: bool = False
    mla: bool = False
    linear_attention: bool = False
    output_gate: bool = False
    vision: bool = False
    deepstack: bool = False
    biased: bool = False
    joined: bool = False
    joined_linear: bool = False
    expert_matrices: tuple[str, str, str] = MLP_MATRICES
    defaults: Mapping[str, int] = field(default_factory=dict)


#: A dense decoder with biases as in its config; unknown types are treated as this.
LLAMA = Convention(qkv_bias=None)
_QWEN2 = Convention(qkv_bias=True, window_switch=True)
_QWEN3 = Convention(qkv_bias=None, qk_norm=True, window_switch=True, defaults={"head_dim": 128})
_QWEN3_MOE = replace(_QWEN3, experts="num_experts")
_QWEN3_5 = replace(
    _QWEN3,
    linear_attention=True,
    output_gate=True,
    vision=True,
    deepstack=True,
    defaults={"head_dim": 256},
)
_QWEN3_5_MOE = replace(_QWEN3_5, experts="num_experts", gated_shared_expert=True)
_GEMMA = Convention(qkv_bias=None, tied=True, defaults={"head_dim": 256})
_DEEPSEEK_V2 = Convention(mla=True, experts="n_routed_experts")
_DEEPSEEK_V3 = replace(_DEEPSEEK_V2, router_bias=True, defaults={"first_k_dense_replace": 3})
#: Values missing in Gemma 3 configs.
_GEMMA3_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262_208,
    "max_position_embeddings": 131_072,
}

#: By the ``model_type`` of a whole model or of its text part, whose type may end in ``_text``.
CONVENTIONS: Mapping[str, Convention] = {
    "llama": LLAMA,
    "granite": LLAMA,
    "mistral": Convention(),
    "mixtral": Convention(
        experts="num_local_experts", expert_width="intermediate_size", expert_matrices=("w1", "w3", "w2")
    ),
    "qwen2": _QWEN2,
    "qwen2_moe": replace(_QWEN2, experts="num_experts", gated_shared_expert=True),
    "qwen2_5_vl": replace(_QWEN2, vision=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl": replace(_QWEN3, vision=True, deepstack=True),
    "qwen3_vl_moe": replace(_QWEN3_MOE, vision=True, deepstack=True),
    "qwen3_next": replace(_QWEN3_5_MOE, vision=False, deepstack=False, joined_linear=True),
    "qwen3_5": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5_MOE,
    "gpt_oss": Convention(
        qkv_bias=True,
        experts="num_local_experts",
        expert_width="intermediate_size",
        router_bias=True,
        biased=True,
    ),
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, norms=4),
    "gemma3": replace(_GEMMA, norms=4, qk_norm=True, defaults=_GEMMA3_DEFAULTS),
    "phi3": Convention(joined=True),
    "mimo": _QWEN2,
    "seed_oss": Convention(qkv_bias=True),
    "deepseek_v2": _DEEPSEEK_V2,
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
}
#: Model types whose experts, latent attention or linear attention can be counted.
SPECIAL = [name for name, it in CONVENTIONS.items() if it.experts or it.mla or it.linear_attention]
#: Keys of models with experts, latent or linear attention: an unknown type with one of them is not dense.
NOT_DENSE = ("num_experts", "num_local_experts", "n_routed_experts", "kv_lora_rank", "linear_num_key_heads")


def known_type(model_type: str) -> str | None:
    """Return the key of ``CONVENTIONS`` for a model type; None if the type is unknown."""
    name = model_type.removesuffix("_text")
    return name if name in CONVENTIONS else None


def model_type_of(config: HfConfig) -> str | None:
    """Return the type of the whole model, or that of its language model if only this is given."""
    return config.model_type or (config.text_config.model_type if config.text_config else None)


def convention_of(config: HfConfig) -> tuple[str, Convention]:
    """Return the model type and its convention; an unknown type is treated as a dense decoder."""
    given = model_type_of(config) or ""
    name = known_type(given)
    if name:
        return name, CONVENTIONS[name]
    return given if re.fullmatch(r"(?!TODO\b)\w[\w.-]{0,99}", given) else "unknown", LLAMA
