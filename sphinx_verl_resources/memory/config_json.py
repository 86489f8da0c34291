"""Read a model's own config.json as an architecture, and report each problem at its place.

Source: configuration and modelling files of Hugging Face transformers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import Diagnostic, NoAnswerError, did_you_mean, warning
from ..strict_yaml import read_yaml
from ..validation import explained, got_instead, try_model
from .architectures import Architecture, Vision
from .parameters import count_parameters, mtp_parameters, vision_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..diagnostics import Code
    from ..strict_yaml import Document, Loc

# -- model types


@dataclass(frozen=True)
class ModelType:
    """Facts from the modelling code of a model type that are missing in config.json.

    Attributes:
        qk_norm: whether queries and keys have norms.
        norms: the number of norm vectors (of the hidden size) per layer.
        experts: the key for the number of routed experts; empty for a dense model.
        expert_width: the key for the width of an expert.
        shared_gate: whether every layer has one shared expert with a gate.
        router_bias: whether the router has a bias.
        mla: whether attention is latent.
        linear: whether most layers have linear attention.
        vision: the keys of the vision tower; empty if it cannot be counted.
        defaults: values of missing keys.
    """

    qk_norm: bool = False
    norms: int = 2
    experts: str = ""
    expert_width: str = "moe_intermediate_size"
    shared_gate: bool = False
    router_bias: bool = False
    mla: bool = False
    linear: bool = False
    vision: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)


_TOWER = "depth hidden_size intermediate_size num_heads patch_size out_hidden_size"
_TOWER_3 = f"{_TOWER} num_position_embeddings"
#: A dense decoder with biases as in its config; unknown types are read as this one.
LLAMA = ModelType()
_MISTRAL = ModelType(defaults={"qkv_bias": False})
_MIXTRAL = replace(_MISTRAL, experts="num_local_experts", expert_width="intermediate_size")
_QWEN2 = ModelType(defaults={"qkv_bias": True, "use_sliding_window": False})
_QWEN3 = ModelType(qk_norm=True, defaults={"use_sliding_window": False, "head_dim": 128})
_QWEN3_MOE = replace(_QWEN3, experts="num_experts")
_GATED = {"use_sliding_window": False, "head_dim": 256, "attn_output_gate": True}
_QWEN3_5 = replace(_QWEN3, linear=True, vision=_TOWER_3, defaults=_GATED)
_QWEN3_5_MOE = replace(_QWEN3_5, experts="num_experts", shared_gate=True)
_DEEPSEEK = replace(_MISTRAL, mla=True, experts="n_routed_experts")
_DEEPSEEK_V3 = replace(_DEEPSEEK, router_bias=True, defaults={"qkv_bias": False, "first_k_dense_replace": 3})
_GEMMA = ModelType(defaults={"tie_word_embeddings": True, "head_dim": 256})
_OF_GEMMA3 = {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262_208}
_GEMMA3 = {**_GEMMA.defaults, **_OF_GEMMA3, "max_position_embeddings": 131_072}

#: By the ``model_type`` of a whole model or of its text part, whose type may end in ``_text``.
MODEL_TYPES: Mapping[str, ModelType] = {
    "llama": LLAMA,
    "granite": LLAMA,
    "mistral": _MISTRAL,
    "mixtral": _MIXTRAL,
    "qwen2": _QWEN2,
    "qwen2_moe": replace(_QWEN2, experts="num_experts", shared_gate=True),
    "qwen2_5_vl": replace(_QWEN2, vision=_TOWER),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl": replace(_QWEN3, vision=_TOWER_3),
    "qwen3_vl_moe": replace(_QWEN3_MOE, vision=_TOWER_3),
    "qwen3_next": replace(_QWEN3_5_MOE, vision=""),
    "qwen3_5": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5_MOE,
    "gpt_oss": replace(_MIXTRAL, router_bias=True, defaults={"qkv_bias": True}),
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, norms=4),
    "gemma3": ModelType(qk_norm=True, norms=4, defaults=_GEMMA3),
    "phi3": _MISTRAL,
    "mimo": _QWEN2,
    "seed_oss": ModelType(defaults={"qkv_bias": True}),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
}
#: The keys for the number of routed experts, and those that no dense model has.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_NOT_DENSE = (*_EXPERTS, "kv_lora_rank", "linear_num_key_heads")
#: The largest value of a size: far above any real one.
_MOST = 10**8


# -- the file


def read_config_json(text: str, shown: str) -> tuple[Architecture | None, tuple[Diagnostic, ...]]:
    """Read the architecture that a config.json describes.

    Args:
        text: the content of the file.
        shown: its path, for messages.

    Returns:
        The architecture with its exact parameter count, and warnings about what the count leaves out; or None
        and the errors, of missing or wrong numbers the first one.

    >>> model, problems = read_config_json('''{"model_type": "qwen2", "hidden_size": 896,
    ...   "num_hidden_layers": 24, "intermediate_size": 4864, "num_attention_heads": 14,
    ...   "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768,
    ...   "tie_word_embeddings": true}''', "config.json")
    >>> model.parameters, problems
    (494032768, ())
    >>> print(*read_config_json('{"num_hidden_layers": 0}', "my.json")[1])
    my.json:1:23: ERROR: num_hidden_layers: expected a whole number from 1 to 10000, got 0 [verl.wrong_value]
    """
    # JSON may be indented with tabs, YAML may not; JSON strings contain no literal tab.
    document = read_yaml(text.replace("\t", " ").encode(errors="replace"), shown)
    data = document.data
    if not isinstance(data, dict):
        remedy = "give the config.json of a model from Hugging Face"
        wrong = document.diagnostic((), "wrong_type", "expected keys and values", remedy)
        return None, tuple(document.problems) or (wrong,)
    inner = data.get("text_config")
    nested: dict[Loc, Any] = {("text_config",): inner} if isinstance(inner, dict) else {}
    config = _Config(document, {**nested, (): data})
    config.model_type = str(config.find("model_type") or "").removesuffix("_text")
    config.facts = MODEL_TYPES.get(config.model_type, LLAMA)
    try:
        fields = _fields(config)
        further = config.number("num_nextn_predict_layers", config.number("mtp_num_hidden_layers", 0, 0), 0)
    except NoAnswerError as refused:
        return None, refused.diagnostics
    model, errors = try_model(fields, Architecture)
    if model is None:
        return None, tuple(explained(document, Architecture, errors))
    counts, mtp = count_parameters(model), further * mtp_parameters(model) or None
    active = counts.active if model.moe else None
    update = {"parameters": counts.total, "parameters_active": active, "mtp_parameters": mtp}
    return model.model_copy(update=update), tuple(sorted(_warnings(config)))


@dataclass
class _Config:
    """The values of a config.json, and the facts of its model type.

    Attributes:
        sections: the parts of the file where keys are looked up, in this order.
    """

    document: Document
    sections: Mapping[Loc, Mapping[str, Any]]
    model_type: str = ""
    facts: ModelType = LLAMA

    def locate(self, key: str) -> tuple[Loc, Any]:
        """Return the place of a key (that of its section if it is missing or null) and its value."""
        for loc, section in self.sections.items():
            if section.get(key) is not None:
                return (*loc, key), section[key]
        return next(iter(self.sections)), self.facts.defaults.get(key)

    def find(self, key: str) -> Any:
        """Return a value; if it is missing or null, the default of the model type, or None."""
        return self.locate(key)[1]

    def items(self, key: str) -> tuple[Any, ...]:
        """Return the items of a list; none if the value is another."""
        value = self.find(key)
        return value if isinstance(value, tuple) else ()

    def number(self, key: str, default: int | None = None, least: int = 1, most: int = _MOST) -> int:
        """Return a whole number.

        Raises:
            NoAnswerError: it is missing, or not from ``least`` to ``most``.
        """
        loc, given = self.locate(key)
        value = default if given is None else given
        if type(value) is int and least <= value <= most:
            return value
        if value is None:
            raise self.refusal(key, "the key is missing", "add it", "missing_key")
        got = got_instead(value, self.document.source(loc))
        raise self.refusal(key, f"expected a whole number from {least} to {most}, got {got}")

    def refusal(self, key: str, message: str, remedy: str = "", code: Code = "wrong_value") -> NoAnswerError:
        """Return the error of a value that makes the file unusable."""
        place = self.locate(key)[0]
        return NoAnswerError(self.document.diagnostic(place, code, f"{key}: {message}", remedy))


def _fields(config: _Config) -> dict[str, Any]:
    """Return the fields of an ``Architecture``, not yet counted."""
    facts, find, number, name = config.facts, config.find, config.number, _name(config)
    if facts is LLAMA and (key := next(filter(find, _NOT_DENSE), None)):
        remedy = did_you_mean(config.model_type, MODEL_TYPES, "add the model to architectures.yaml")
        raise config.refusal(key, "experts, latent and linear attention need a known model type", remedy)
    layers, heads = number("num_hidden_layers", most=10_000), number("num_attention_heads")
    hidden, groups = number("hidden_size"), number("num_key_value_heads", heads)
    moe, mla = _moe(config, layers), _mla(config) if facts.mla else None
    if heads % groups:
        message = f"{groups} does not divide num_attention_heads, {heads}"
        raise config.refusal("num_key_value_heads", message, "correct one of them")
    # The top level of the file overrides a nested section.
    tied, bias = config.document.data.get("tie_word_embeddings"), find("qkv_bias")
    window = find("use_sliding_window") is not False and find("sliding_window")
    fields: dict[str, Any] = {"name": name, "hf_id": name, "model_type": config.model_type or "unknown"}
    fields |= {key: number(key) for key in ("vocab_size", "max_position_embeddings")}
    fields |= {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    fields |= {"num_key_value_heads": groups, "norms_per_layer": facts.norms, "qk_norm": facts.qk_norm}
    if mla:
        fields["head_dim"] = mla["qk_nope_head_dim"] + mla["qk_rope_head_dim"]
    else:
        fields["head_dim"] = number("head_dim", None if hidden % heads else hidden // heads)
    dense = not moe or moe["first_dense_layers"]
    return {
        **fields,
        "intermediate_size": number("intermediate_size") if dense else find("intermediate_size"),
        "tie_word_embeddings": find("tie_word_embeddings") or False if tied is None else tied,
        "qkv_bias": find("attention_bias") or False if bias is None else bias,
        "attn_output_gate": find("attn_output_gate") or False,
        "sliding_window": window or None,
        "moe": moe,
        "mla": mla,
        "linear_attention": _linear_attention(config) if facts.linear else None,
        "vision": _vision(config),
        "parameters": 1,
        "verified": False,
    }


def _name(config: _Config) -> str:
    """Return the checkpoint's name from the file, otherwise the file's path, if they can be printed."""
    for name in (config.document.data.get("_name_or_path"), config.document.shown):
        if isinstance(name, str) and re.fullmatch(r"(?!TODO\b)\w[\w./-]{0,199}", name):
            return name
    return "config.json"


def _moe(config: _Config, layers: int) -> dict[str, Any] | None:
    facts, number = config.facts, config.number
    if not facts.experts:
        return None
    experts = number(next(filter(config.find, _EXPERTS), facts.experts))
    width, shared = number(facts.expert_width), number("n_shared_experts", 0, 0)
    shared_width = width if shared else None
    if facts.shared_gate:
        shared, shared_width = 1, number("shared_expert_intermediate_size")
    first, every = number("first_k_dense_replace", 0, 0), number("moe_layer_freq", 1)
    step, dense = number("decoder_sparse_step", 1), config.items("mlp_only_layers")
    sparse = [at for at in range(first, layers) if not (at % every or (at + 1) % step or at in dense)]
    return {
        "num_experts": experts,
        "experts_per_token": number("num_experts_per_tok", most=experts),
        "moe_intermediate_size": width,
        "shared_experts": shared,
        "shared_expert_intermediate_size": shared_width,
        "first_dense_layers": layers - len(sparse),  # their order does not matter
        "shared_expert_gate": facts.shared_gate,
        "router_bias": facts.router_bias,
    }


def _mla(config: _Config) -> dict[str, Any]:
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return {"q_lora_rank": config.find("q_lora_rank"), **{name: config.number(name) for name in names}}


def _linear_attention(config: _Config) -> dict[str, int]:
    names = ("num_key_heads", "key_head_dim", "num_value_heads", "value_head_dim")
    sizes = {name: config.number(f"linear_{name}") for name in names}
    types = config.items("layer_types")
    first = types.index("full_attention") + 1 if "full_attention" in types else 4
    sizes["full_attention_interval"] = config.number("full_attention_interval", first)
    return {**sizes, "conv_kernel": config.number("linear_conv_kernel_dim")}


def _vision(config: _Config) -> dict[str, Any] | None:
    section, keys = config.document.data.get("vision_config"), config.facts.vision.split()
    if not keys or not isinstance(section, dict):
        return None
    tower = _Config(config.document, {("vision_config",): section})
    sizes = {key: tower.number(key) for key in keys}
    defaults = {"temporal_patch_size": 2, "spatial_merge_size": 2, "in_channels": 3}
    sizes |= {key: tower.number(key, default) for key, default in defaults.items()}
    if "num_position_embeddings" in sizes:
        sizes["deepstack_layers"] = len(tower.items("deepstack_visual_indexes"))
    return {**sizes, "parameters": vision_parameters(Vision(**sizes, parameters=0))}


def _warnings(config: _Config) -> Iterator[Diagnostic]:
    """Yield what is assumed of an unknown model type, and what the count leaves out."""

    def warn(key: str, message: str, remedy: str = "the parameter count is too small") -> Diagnostic:
        place = config.document.place(config.locate(key)[0])
        return warning(place, "not_modelled", f"{key}: {message}", remedy)

    if config.model_type not in MODEL_TYPES:
        remedy = did_you_mean(config.model_type, MODEL_TYPES, "compare the count with the published one")
        yield warn("model_type", "unknown; the model is read as a dense decoder like llama", remedy)
    if config.find("attention_bias") and (config.facts.mla or config.find("qkv_bias") is None):
        yield warn("attention_bias", "not every bias of attention is counted")
    if config.find("mlp_bias"):
        yield warn("mlp_bias", "the biases of the MLP are not counted")
    if config.find("vision_config") and not config.facts.vision:
        yield warn("vision_config", "the vision tower of this model type is not counted")
