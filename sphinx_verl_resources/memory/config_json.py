"""Read a model's own config.json as an architecture, and report each problem at its place.

Source: configuration and modelling files of Hugging Face transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..diagnostics import Code, Diagnostic, NoAnswerError, Severity, did_you_mean
from ..records import Record
from ..strict_yaml import Document, Loc, read_yaml
from ..validation import got_instead
from .architectures import Architecture, Moe, Vision
from .shape import Counts, vision_parameters

# -- model types

_QWEN3 = {"use_qk_norm": True, "head_dim": 128}
_QWEN3_5 = {"use_qk_norm": True, "head_dim": 256, "attn_output_gate": True, "linear": True}
_SHARED = {"experts": "num_experts", "shared_expert_intermediate_size": 512}
_MIXTRAL = {"qkv_bias": False, "experts": "num_local_experts", "expert_width": "intermediate_size"}
_DEEPSEEK = {"qkv_bias": False, "mla": True, "experts": "n_routed_experts"}
_GLM = {"experts": "n_routed_experts", "router_bias": True, "first_k_dense_replace": 1}
_GEMMA = {"tie_word_embeddings": True, "head_dim": 256}
_GEMMA3 = {**_GEMMA, "use_qk_norm": True, "norms_per_layer": 4, "max_position_embeddings": 131_072}
_TOWER_KEYS = ("depth", "hidden_size", "intermediate_size", "num_heads", "patch_size", "out_hidden_size")
_TOWER = {"temporal_patch_size": 2, "spatial_merge_size": 2, "in_channels": 3}
_TOWER_3 = {**_TOWER, "num_position_embeddings": 2304}
#: By the types of models or of their text parts, without the ending ``_text``: values of keys that a file
#: lacks, and facts that only the modelling code contains. These are ``norms_per_layer`` and ``router_bias``,
#: as in ``Architecture``; whether attention is latent (``mla``) or mostly ``linear``; the keys for number
#: (``experts``) and width of the routed experts; values that ``vision_config`` lacks, if the tower can be
#: counted. Types with ``shared_expert_intermediate_size`` have one shared expert with a gate.
_FACTS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("llama granite", {}),
    ("mistral phi3", {"qkv_bias": False}),
    ("mixtral", _MIXTRAL),
    ("gpt_oss", {**_MIXTRAL, "qkv_bias": True, "router_bias": True}),
    ("qwen2 qwen2_vl mimo", {"qkv_bias": True}),
    ("qwen2_moe", {"qkv_bias": True, **_SHARED, "shared_expert_intermediate_size": 5632}),
    ("qwen2_5_vl", {"qkv_bias": True, "vision": _TOWER}),
    ("qwen3", _QWEN3),
    ("qwen3_moe", {**_QWEN3, "experts": "num_experts"}),
    ("qwen3_vl", {**_QWEN3, "vision": _TOWER_3}),
    ("qwen3_vl_moe", {**_QWEN3, "experts": "num_experts", "vision": _TOWER_3}),
    ("qwen3_next", {**_QWEN3_5, **_SHARED}),
    ("qwen3_5", {**_QWEN3_5, "vision": _TOWER_3}),
    ("qwen3_5_moe", {**_QWEN3_5, **_SHARED, "vision": _TOWER_3}),
    ("gemma", _GEMMA),
    ("gemma2", {**_GEMMA, "norms_per_layer": 4}),
    ("gemma3", {**_GEMMA3, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262_208}),
    ("seed_oss", {"attention_bias": True}),
    ("deepseek_v2", _DEEPSEEK),
    ("deepseek_v3 kimi_k2", {**_DEEPSEEK, "router_bias": True, "first_k_dense_replace": 3}),
    ("glm4 glm4v", {"attention_bias": True, "norms_per_layer": 4}),
    ("glm4_moe", _GLM),
    ("glm4_moe_lite", {**_DEEPSEEK, **_GLM}),
)
MODEL_TYPES = {name: facts for names, facts in _FACTS for name in names.split()}
#: The keys for the number of routed experts, and those that no dense model has.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
#: The numbers that every config has.
_ALWAYS = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
#: Values with which all layers after the dense ones have experts.
_ALIKE = {"decoder_sparse_step": 1, "moe_layer_freq": 1, "mlp_only_layers": ()}
_NOT_DENSE = (*_EXPERTS, "kv_lora_rank", "linear_num_key_heads")
#: The fields that limit numbers; those of other keys are limited as ``hidden_size`` is.
_LIMITED_BY: Mapping[str, tuple[type[Record], str]] = {
    "num_hidden_layers": (Architecture, "num_hidden_layers"), "n_shared_experts": (Moe, "shared_experts"),
    "first_k_dense_replace": (Moe, "first_dense_layers"),
}  # fmt: skip
_ADD = "add the model to architectures.yaml"
_COPY = "copy the value from the model's config.json on Hugging Face"


# -- the file


def read_config_json(text: str, label: str) -> tuple[Architecture, tuple[Diagnostic, ...]]:
    """Read the architecture that a config.json describes.

    Args:
        text: the content of the file.
        label: its path, for messages.

    Returns:
        The architecture, and warnings about what its parameter count leaves out. Biases of the output
        projection of attention and of the MLP are not counted either: less than 0.1 % of a model.

    Raises:
        NoAnswerError: the file has errors; of missing or wrong numbers it gives the first one.

    >>> model, warnings = read_config_json('''{"model_type": "qwen2", "hidden_size": 896,
    ...   "num_hidden_layers": 24, "intermediate_size": 4864, "num_attention_heads": 14,
    ...   "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768,
    ...   "tie_word_embeddings": true}''', "config.json")
    >>> model.parameters, warnings
    (494032768, ())
    """
    # JSON may be indented with tabs, YAML may not; JSON strings contain no literal tab.
    document = read_yaml(text.replace("\t", " ").encode(errors="replace"), label)
    if not isinstance(data := document.data, dict):
        wrong = document.diagnostic((), "wrong_type", "expected keys and values", "give a config.json")
        raise NoAnswerError(*document.problems or [wrong])
    config = _Config(document, {(): data})
    config.sections = {("text_config",): config.section("text_config") or {}, (): data}
    model_type = (config.read("model_type", str, "a name") or "").removesuffix("_text")
    config.facts = facts = MODEL_TYPES.get(model_type, {})
    remedy = did_you_mean(model_type, MODEL_TYPES, _ADD)
    if not facts and (key := next((key for key in _NOT_DENSE if config.locate(key)[1]), None)):
        message = "experts, latent and linear attention need a known model type"
        raise NoAnswerError(config.problem(key, message, remedy))
    for key, usual in _ALIKE.items():
        if (value := config.locate(key)[1]) not in (None, usual):
            raise NoAnswerError(config.problem(key, f"{value} is not modelled", _ADD))
    # Each value was read as its field needs it, so that none is wrong here.
    kind = model_type if model_type in MODEL_TYPES else "unknown"
    model, warnings = Architecture(**_fields(config), model_type=kind), []
    if model_type != kind:
        message = "unknown; the model is read as a dense decoder like llama"
        warnings.append(config.problem("model_type", message, remedy, "not_modelled"))
    if config.section("vision_config") and "vision" not in facts:
        message, remedy = "the tower of this model type is not counted", "the parameter count is too small"
        warnings.append(config.problem("vision_config", message, remedy, "not_modelled"))
    return model.model_copy(update={"parameters": Counts(model).total}), tuple(warnings)


@dataclass
class _Config:
    """The values of a config.json.

    Attributes:
        document: the file.
        sections: the sections by their places; the first section with a key counts.
        facts: the values of other keys, as in ``MODEL_TYPES``.
    """

    document: Document
    sections: Mapping[Loc, Mapping[str, Any]]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def locate(self, key: str, default: Any = None) -> tuple[Loc, Any]:
        """Return the place of a key (that of its section if it is missing or null) and its value."""
        pairs = (((*loc, key), each[key]) for loc, each in self.sections.items() if each.get(key) is not None)
        return next(pairs, (next(iter(self.sections)), self.facts.get(key, default)))

    def read(self, key: str, kind: type, expected: str, allowed: Any = None, default: Any = None) -> Any:
        """Return a value; if it is missing or null, that of the model type, or the default.

        Raises:
            NoAnswerError: it is of another kind, or not among the allowed values.
        """
        loc, value = self.locate(key, default)
        if value is None or (type(value) is kind and (allowed is None or value in allowed)):
            return value
        message = f"expected {expected}, got {got_instead(value, self.document.source(loc))}"
        raise NoAnswerError(self.problem(key, message, _COPY))

    def flag(self, key: str) -> bool:
        """Return a flag; false if it is missing."""
        return bool(self.read(key, bool, "true or false"))

    def section(self, key: str) -> Any:
        """Return a section; None if it is missing."""
        return self.read(key, dict, "keys and values")

    def number(self, key: str, default: int | None = None, least: int = 1, used: int = 0) -> int:
        """Return a whole number from ``least`` to the limit of its field, of which ``used`` is not left.

        Raises:
            NoAnswerError: it is missing or wrong.
        """
        if self.locate(key, default)[1] is None:
            raise NoAnswerError(self.problem(key, "the key is missing", "add it", "missing_key"))
        record, name = _LIMITED_BY.get(key, (Architecture, "hidden_size"))
        most = next(limit.le for limit in record.model_fields[name].metadata if hasattr(limit, "le")) - used
        allowed = range(least, most + 1)
        return int(self.read(key, int, f"a whole number from {least} to {most}", allowed, default))

    def optional(self, key: str) -> int | None:
        """Return a whole number, None if it is missing."""
        return None if self.locate(key)[1] is None else self.number(key)

    def problem(self, key: str, message: str, remedy: str = "", code: Code = "wrong_value") -> Diagnostic:
        """Return the problem of a value: a warning if it is ``not_modelled``, otherwise an error."""
        severity = Severity.WARNING if code == "not_modelled" else Severity.ERROR
        return self.document.diagnostic(self.locate(key)[0], code, f"{key}: {message}", remedy, severity)


def _fields(config: _Config) -> dict[str, Any]:
    """Return the fields of an ``Architecture``, not yet counted."""
    flag, number, facts = config.flag, config.number, config.facts
    fields: dict[str, Any] = {key: number(key) for key in _ALWAYS}
    heads, moe, mla = fields["num_attention_heads"], _moe(config) if "experts" in facts else None, None
    head_dim = number("head_dim", fields["hidden_size"] // heads)
    if "mla" in facts:
        rotary = number("qk_rope_head_dim")
        plain = number("qk_nope_head_dim", used=rotary)
        sizes = {"qk_nope_head_dim": plain, "qk_rope_head_dim": rotary, "v_head_dim": number("v_head_dim")}
        ranks = {"q_lora_rank": config.optional("q_lora_rank"), "kv_lora_rank": number("kv_lora_rank")}
        mla, head_dim = {**sizes, **ranks}, plain + rotary
    width = config.optional if moe and not moe["first_dense_layers"] else number
    # The top level of the file overrides a nested section.
    outer = replace(config, sections={(): config.sections[()], **config.sections})
    bias = "attention_bias" if config.locate("qkv_bias")[1] is None else "qkv_bias"
    fields |= {"tie_word_embeddings": outer.flag("tie_word_embeddings"), "qkv_bias": flag(bias)}
    fields |= {"qk_norm": flag("use_qk_norm"), "attn_output_gate": flag("attn_output_gate")}
    fields |= {"num_key_value_heads": number("num_key_value_heads", heads), "head_dim": head_dim}
    fields |= {"intermediate_size": width("intermediate_size"), "moe": moe, "mla": mla}
    fields |= {"linear_attention": _linear_attention(config) if "linear" in facts else None}
    fields |= {"vision": _vision(config), "norms_per_layer": facts.get("norms_per_layer", 2)}
    return fields | {"name": "config.json", "hf_id": "config.json", "parameters": 1, "verified": False}


def _moe(config: _Config) -> dict[str, Any]:
    facts, number = config.facts, config.number
    width = number(facts.get("expert_width", "moe_intermediate_size"))
    gate = "shared_expert_intermediate_size" in facts
    shared_width = number("shared_expert_intermediate_size", least=0) if gate else width
    shared = number("n_shared_experts", int(gate and shared_width > 0), 0)
    experts = number(next((key for key in _EXPERTS if config.locate(key)[1]), facts["experts"]))
    fields: dict[str, Any] = {"num_experts": experts, "experts_per_token": number("num_experts_per_tok")}
    fields |= {"moe_intermediate_size": width, "first_dense_layers": number("first_k_dense_replace", 0, 0)}
    fields |= {"shared_experts": shared, "shared_expert_intermediate_size": shared_width if shared else None}
    return fields | {"shared_expert_gate": gate, "router_bias": "router_bias" in facts}


def _linear_attention(config: _Config) -> dict[str, int]:
    names = ("num_key_heads", "key_head_dim", "num_value_heads", "value_head_dim")
    sizes = {name: config.number(f"linear_{name}") for name in names}
    interval, kernel = config.number("full_attention_interval", 4), config.number("linear_conv_kernel_dim")
    return {"full_attention_interval": interval, "conv_kernel": kernel, **sizes}


def _vision(config: _Config) -> Vision | None:
    section, facts = config.section("vision_config"), config.facts.get("vision")
    if section is None or not facts:
        return None
    tower = _Config(config.document, {config.locate("vision_config")[0]: section}, facts)
    sizes = {key: tower.number(key) for key in (*_TOWER_KEYS, *facts)}
    if (indexes := tower.read("deepstack_visual_indexes", tuple, "a list")) is not None:
        sizes["deepstack_layers"] = len(indexes)
    vision = Vision(**sizes, parameters=0)
    return vision.model_copy(update={"parameters": vision_parameters(vision)})
