"""Read a user's own config.json as an architecture, and report each problem at its place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, Diagnostic, Severity, did_you_mean
from ..strict_yaml import read_yaml
from ..validation import validated
from .architectures import Architecture, LinearAttention, Mla, Moe, Vision
from .hf_records import HfConfig, HfText
from .model_types import (
    CONVENTIONS,
    LLAMA,
    NOT_DENSE,
    SPECIAL,
    Convention,
    convention_of,
    known_type,
    model_type_of,
)  # fmt: skip
from .parameters import count_parameters, mtp_parameters, vision_parameters

if TYPE_CHECKING:
    from ..records import Record
    from ..strict_yaml import Document, Loc

_CLOSE = "the parameter count is approximate"


def read_config_json(text: str, shown: str) -> tuple[Architecture | None, tuple[Diagnostic, ...]]:
    """Read the architecture that a config.json describes.

    Args:
        text: the content of the file.
        shown: its path, for messages.

    Returns:
        The architecture with its exact parameter count, or None if there is any error; and all problems.
        Warnings report what the count leaves out.

    Source: configuration and modelling files of Hugging Face transformers.

    >>> model, problems = read_config_json('''{"model_type": "qwen2", "hidden_size": 896,
    ...   "num_hidden_layers": 24, "intermediate_size": 4864, "num_attention_heads": 14,
    ...   "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768,
    ...   "tie_word_embeddings": true}''', "config.json")
    >>> model.parameters, problems
    (494032768, ())
    >>> print(*read_config_json('{"model_type": "qwen2", "hidden_size": 0}', "config.json")[1])
    config.json:1:40: ERROR: hidden_size: Input should be greater than or equal to 1, got 0 [verl.wrong_value]
    """
    # JSON may be indented with tabs, YAML may not; JSON strings contain no literal tab.
    content = text.removeprefix("\ufeff").replace("\t", " ")
    document = read_yaml(content.encode(errors="replace"), shown)
    config, found = validated(document, HfConfig)
    if config is None:
        return None, tuple(found)
    source = _Source(document, config, *convention_of(config))
    architecture = _architecture(source, _name(config, shown))
    return architecture, tuple(sorted((*found, *source.problems)))


def _name(config: HfConfig, shown: str) -> str:
    """Return the checkpoint's name from the file, otherwise the file's path, if they can be printed safely.

    A name that begins with TODO is ignored.
    """
    for name in (config.name_or_path, shown):
        if isinstance(name, str) and re.fullmatch(r"(?!TODO\b)\w[\w./-]{0,199}", name):
            return name
    return "config.json"


@dataclass
class _Source:
    """A config.json of the right form, with the convention of its model type and its problems."""

    document: Document
    config: HfConfig
    model_type: str
    convention: Convention
    problems: list[Diagnostic] = field(default_factory=list)

    @property
    def text(self) -> tuple[HfText, Loc]:
        """The section of the language model, and its place."""
        nested = self.config.text_config
        return (nested, ("text_config",)) if nested else (self.config, ())

    def find(self, name: str) -> Any:
        """Look up a key in the language model's section, the whole file, and the model type's defaults."""
        for section in (self.text[0], self.config):
            value = getattr(section, name)
            if value is not None:
                return value
        return self.convention.defaults.get(name)

    def need(self, name: str) -> int:
        """Return the value of a required key; without one, report it and return 1."""
        value: int | None = self.find(name)
        if value is None:
            self.missing(*self.text, name)
        return 1 if value is None else value

    def missing(self, section: Record, loc: Loc, name: str) -> None:
        """Report a key that is missing or null."""
        description = (type(section).model_fields[name].description or "").rstrip(".")
        if name in section.model_fields_set:
            message = f"{name}: expected a value, got nothing"
            self.note((*loc, name), message, description, "wrong_type", Severity.ERROR)
        else:
            where = f" in {loc[-1]!r}" if loc else ""
            message = f"the key {name!r} is missing{where}"
            self.note(loc, message, f"add it: {description}", "missing_key", Severity.ERROR)

    def error(self, key: str, message: str, remedy: str) -> None:
        """Report a value that makes the file unusable."""
        self.note(self._loc(key), f"{key}: {message}", remedy, "wrong_value", Severity.ERROR)

    def warn(self, key: str, message: str) -> None:
        """Report a value that the parameter count ignores."""
        self.note(self._loc(key), f"{key}: {message}", _CLOSE, "not_modelled")

    def _loc(self, key: str) -> Loc:
        section, loc = self.text
        return (*loc, key) if getattr(section, key) is not None else (key,)

    def note(
        self, loc: Loc, message: str, remedy: str, code: Code, severity: Severity = Severity.WARNING
    ) -> None:
        """Report a problem at a place."""
        self.problems.append(self.document.diagnostic(loc, code, message, remedy, severity))

    @property
    def failed(self) -> bool:
        """True once an error is reported."""
        return any(problem.is_error for problem in self.problems)


def _architecture(source: _Source, name: str) -> Architecture | None:
    """Return the architecture; None if there is any error."""
    _check_type(source)
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    sizes: dict[str, Any] = {name: source.need(name) for name in (*names, "max_position_embeddings")}
    layers, hidden, heads, *_ = sizes.values()
    moe, mla = _moe(source, layers), _mla(source)
    linear, vision = _linear_attention(source, layers), _vision(source)
    dense = moe is None or moe.first_dense_layers
    width = source.need("intermediate_size") if dense else source.find("intermediate_size")
    key_value_heads = source.find("num_key_value_heads") or heads
    if source.failed:
        return None
    _check_biases(source, hidden * layers)
    head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim if mla else _head_dim(source, hidden, heads)
    if not mla and heads % key_value_heads:
        message = f"{key_value_heads} does not divide num_attention_heads, {heads}"
        remedy = "each key-value head serves the same number of query heads"
        source.error("num_key_value_heads", message, remedy)
    if source.failed:
        return None
    convention, gate = source.convention, source.find("attn_output_gate")
    architecture = Architecture(
        name=name,
        hf_id=name,
        model_type=source.model_type,
        **sizes,
        intermediate_size=width,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        tie_word_embeddings=_tied(source),
        qkv_bias=_qkv_bias(source),
        qk_norm=convention.qk_norm,
        norms_per_layer=convention.norms,
        attn_output_gate=bool(convention.output_gate if gate is None else gate),
        sliding_window=_sliding_window(source),
        moe=moe,
        mla=mla,
        linear_attention=linear,
        vision=vision,
        parameters=1,
        verified=False,
        notes=("Read from a config.json.",),
    )
    return _counted(source, architecture)


def _counted(source: _Source, architecture: Architecture) -> Architecture:
    """Return the architecture with its count."""
    counts = count_parameters(architecture)
    extra = source.find("num_nextn_predict_layers") or source.find("mtp_num_hidden_layers")
    update = {
        "parameters": counts.total,
        "parameters_active": counts.active if architecture.moe else None,
        "mtp_parameters": extra * mtp_parameters(architecture) if extra else None,
    }
    return architecture.model_copy(update=update)


def _check_type(source: _Source) -> None:
    """Report the assumptions about an unknown type, and the parts of a known type that are not counted."""
    given = model_type_of(source.config)
    taken = "assumed to be a dense decoder like llama"
    if source.find("tie_word_embeddings") is None:
        taken += ", with a separate output head"
    if given is None:
        message = f"the key 'model_type' is missing; {taken}"
        source.note((), message, "write the model's type, for example qwen2", "missing_key")
    elif not known_type(given):
        remedy = did_you_mean(given[:80], CONVENTIONS, "compare the parameter count with the published one")
        message = f"unknown model type {given[:80]!r}; {taken}"
        source.note(("model_type",), message, remedy, "unknown_value")
    if source.convention is LLAMA and (key := next((key for key in NOT_DENSE if source.find(key)), None)):
        remedy = f"known model types with experts or latent attention: {', '.join(SPECIAL)}"
        source.error(key, "cannot be counted for an unknown model type", remedy)
    if source.config.vision_config and not source.convention.vision:
        message = "the vision tower of this model type is not counted"
        source.note(("vision_config",), message, _CLOSE, "not_modelled")


def _check_biases(source: _Source, rows: int) -> None:
    """Report biases for which ``Architecture`` has no field."""
    if source.find("attention_bias"):
        if source.convention.qkv_bias is None:
            message = f"the biases of the output projections, {rows} parameters, are not counted"
            source.warn("attention_bias", message)
        if source.convention.mla:
            source.warn("attention_bias", "the biases of attention are not counted")
    if source.find("mlp_bias"):
        source.warn("mlp_bias", "the biases of the MLP are not counted")


def _head_dim(source: _Source, hidden: int, heads: int) -> int:
    given: int | None = source.find("head_dim")
    if given is None and hidden % heads:
        message = f"{heads} does not divide hidden_size, {hidden}"
        source.error("num_attention_heads", message, "correct one of them, or write head_dim")
    return given or max(1, hidden // heads)


def _tied(source: _Source) -> bool:
    """Return whether the head is the embedding; the top level of the file overrides a nested section."""
    given: bool | None = source.config.tie_word_embeddings
    if given is None:
        given = source.find("tie_word_embeddings")
    return source.convention.tied if given is None else given


def _qkv_bias(source: _Source) -> bool:
    fixed = source.convention.qkv_bias
    if fixed is None:
        return bool(source.find("attention_bias") or source.find("qkv_bias"))
    # Qwen2's mixture of experts has a key to switch the bias off.
    return fixed and source.find("qkv_bias") is not False


def _sliding_window(source: _Source) -> int | None:
    switch = source.find("use_sliding_window")
    used = switch if switch is not None else not source.convention.window_switch
    return source.find("sliding_window") or None if used else None


def _moe(source: _Source, layers: int) -> Moe | None:
    convention = source.convention
    if not convention.experts:
        return None
    keys = ("num_experts", "num_local_experts", "n_routed_experts")
    experts = next((value for key in keys if (value := source.find(key))), None)
    experts = experts or source.need(convention.experts)
    used = source.need("num_experts_per_tok")
    if not source.failed and used > experts:
        message = f"{used} is more than the {experts} experts of a layer"
        source.error("num_experts_per_tok", message, "correct one of them")
    width = source.need(convention.expert_width)
    gated = convention.gated_shared_expert
    shared = 1 if gated else source.find("n_shared_experts") or 0
    shared_width = source.need("shared_expert_intermediate_size") if gated else width
    return Moe(
        num_experts=experts,
        experts_per_token=used,
        moe_intermediate_size=width,
        shared_experts=shared,
        shared_expert_intermediate_size=shared_width if shared else None,
        first_dense_layers=layers - _layers_with_experts(source, layers),
        shared_expert_gate=gated,
        router_bias=convention.router_bias,
    )


def _layers_with_experts(source: _Source, layers: int) -> int:
    """Count the layers with experts; their order does not matter."""
    first = min(source.find("first_k_dense_replace") or 0, layers)
    every = source.find("moe_layer_freq") or 1
    step = source.find("decoder_sparse_step") or 1
    dense = set(source.find("mlp_only_layers") or ())
    return sum(
        1
        for layer in range(first, layers)
        if layer % every == 0 and (layer + 1) % step == 0 and layer not in dense
    )


def _mla(source: _Source) -> Mla | None:
    if not source.convention.mla:
        return None
    section, loc = source.text
    if "q_lora_rank" not in section.model_fields_set:
        source.missing(section, loc, "q_lora_rank")
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return Mla(q_lora_rank=source.find("q_lora_rank"), **{name: source.need(name) for name in names})


def _linear_attention(source: _Source, layers: int) -> LinearAttention | None:
    if not source.convention.linear_attention:
        return None
    types = source.find("layer_types")
    full = [kind == "full_attention" for kind in types or ()]
    interval = source.find("full_attention_interval") or ((*full, True).index(True) + 1 if full else 4)
    if types and full != [(layer + 1) % interval == 0 for layer in range(layers)]:
        source.warn("layer_types", f"treated as full attention in layers {interval}, {2 * interval}, …")
    names = ("num_key_heads", "key_head_dim", "num_value_heads", "value_head_dim")
    sizes = {name: source.need(f"linear_{name}") for name in names}
    kernel = source.need("linear_conv_kernel_dim")
    return LinearAttention(full_attention_interval=interval, conv_kernel=kernel, **sizes)


def _vision(source: _Source) -> Vision | None:
    tower, deepstack = source.config.vision_config, source.convention.deepstack
    if not tower or not source.convention.vision:
        return None
    names = ["depth", "hidden_size", "intermediate_size", "num_heads", "patch_size", "out_hidden_size"]
    if deepstack:
        names.append("num_position_embeddings")
    sizes = {name: getattr(tower, name) for name in names}
    for name, value in sizes.items():
        if value is None:
            source.missing(tower, ("vision_config",), name)
    vision = Vision(
        **{name: value or 1 for name, value in sizes.items()},
        temporal_patch_size=tower.temporal_patch_size or 2,
        spatial_merge_size=tower.spatial_merge_size or 2,
        in_channels=tower.in_channels or 3,
        deepstack_layers=len(tower.deepstack_visual_indexes or ()) if deepstack else None,
        parameters=0,
    )
    return vision.model_copy(update={"parameters": vision_parameters(vision)})
