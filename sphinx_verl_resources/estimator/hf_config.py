"""A user's own config.json as an architecture, with a message at the place of everything wrong with it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..catalog.files import DataFile
from ..catalog.models.architecture import Architecture, HfConfig, LinearAttention, Mla, Moe, Vision
from ..catalog.validation import load
from ..diagnostics import Code, Diagnostic, Location, suggest_or
from .config_source import ConfigSource
from .conventions import CONVENTIONS, LLAMA, NOT_DENSE, known_type
from .parameters import count_parameters, mtp_parameters, vision_parameters

if TYPE_CHECKING:
    from .conventions import Convention

#: More than any model has, and as many as an architecture may have.
_MOST_PARAMETERS = 10**15
_CLOSE = "the count is close, not exact"


def read_config_json(text: str, shown: str) -> tuple[Architecture | None, tuple[Diagnostic, ...]]:
    """The architecture that a config.json describes, and what is wrong with the file.

    Args:
        text: what the file holds.
        shown: its path, for messages.

    Returns:
        The architecture with its exact count, None if there is any error; and all problems. Warnings name
        what the count leaves out.

    Source: configuration and modelling files of Hugging Face transformers.

    >>> model, problems = read_config_json('''{"model_type": "qwen2", "hidden_size": 896,
    ...   "num_hidden_layers": 24, "intermediate_size": 4864, "num_attention_heads": 14,
    ...   "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768,
    ...   "tie_word_embeddings": true}''', "config.json")
    >>> model.parameters, problems
    (494032768, ())
    >>> print(*read_config_json('{"model_type": "qwen2", "hidden_size": 0}', "config.json")[1])
    config.json:1:40: ERROR: hidden_size: must be at least 1, got '0' [verl.wrong_value]
    """
    # A tab can indent JSON and not YAML; inside a text of JSON there is none.
    content = text.removeprefix("\ufeff").replace("\t", " ")
    file = DataFile(Path(shown), shown, content.encode(errors="replace"))
    config, document, found = load(file, HfConfig)
    found = [_in_words_of_json(problem, content) for problem in found]
    if config is None:
        return None, tuple(found)
    source = ConfigSource(file, document, config, *_convention(config))
    architecture = _architecture(source)
    return architecture, tuple(sorted((*found, *source.problems), key=lambda problem: problem.sort_key))


def _in_words_of_json(problem: Diagnostic, text: str) -> Diagnostic:
    """A problem of syntax as JSON sees it, whose places are nearer to the mistake."""
    if problem.code is not Code.yaml_syntax:
        return problem
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        location = Location(problem.place.path, error.lineno, error.colno)
        hint = "JSON has quotes around each key and text, and a comma between entries"
        return Diagnostic(location, problem.code, f"not valid JSON: {error.msg.lower()}", hint)
    except (ValueError, RecursionError):
        pass
    return problem


def _model_type(config: HfConfig) -> str | None:
    """That of the whole model, or of its language model where only this has one."""
    return config.model_type or (config.text_config.model_type if config.text_config else None)


def _convention(config: HfConfig) -> tuple[str, Convention]:
    """The model type, and what it takes for granted."""
    given = _model_type(config) or ""
    name = known_type(given)
    if name:
        return name, CONVENTIONS[name]
    return given if re.fullmatch(r"(?!TODO\b)\w[\w.-]{0,99}", given) else "unknown", LLAMA


def _architecture(source: ConfigSource) -> Architecture | None:
    """The architecture, None if there is any error."""
    _check_type(source)
    layers, hidden = source.need("num_hidden_layers"), source.need("hidden_size")
    heads, vocabulary = source.need("num_attention_heads"), source.need("vocab_size")
    positions = source.need("max_position_embeddings")
    moe, mla = _moe(source, layers), _mla(source)
    linear, vision = _linear_attention(source, layers), _vision(source)
    dense = moe is None or moe.first_dense_layers
    width = source.need("intermediate_size") if dense else source.find("intermediate_size")
    source.warn_of_misspellings()
    key_value_heads = source.find("num_key_value_heads") or heads
    if source.failed:
        return None
    _check_biases(source, hidden * layers)
    head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim if mla else _head_dim(source, hidden, heads)
    if not mla and heads % key_value_heads:
        message = f"num_key_value_heads: {key_value_heads} does not divide num_attention_heads, {heads}"
        hint = "each key-value head serves the same number of query heads"
        source.error(source.place("num_key_value_heads"), message, hint)
    if source.failed:
        return None
    name = _name(source)
    architecture = Architecture(
        name=name,
        hf_id=name,
        model_type=source.model_type,
        hidden_size=hidden,
        num_hidden_layers=layers,
        intermediate_size=width,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        vocab_size=vocabulary,
        tie_word_embeddings=_tied(source),
        qkv_bias=_qkv_bias(source),
        qk_norm=source.convention.qk_norm,
        norms_per_layer=source.convention.norms,
        attn_output_gate=_output_gate(source),
        sliding_window=_sliding_window(source),
        max_position_embeddings=positions,
        moe=moe,
        mla=mla,
        linear_attention=linear,
        vision=vision,
        parameters=1,
        verified=False,
        notes=("Read from a config.json.",),
    )
    return _counted(source, architecture)


def _counted(source: ConfigSource, architecture: Architecture) -> Architecture | None:
    """The architecture with its count; None if no model can have so many parameters."""
    counts = count_parameters(architecture)
    if counts.total > _MOST_PARAMETERS:
        message = f"these sizes give {counts.total:.1e} parameters, more than any model has"
        source.error(source.text[1], message, "check the sizes, hidden_size first")
        return None
    extra = source.find("num_nextn_predict_layers") or source.find("mtp_num_hidden_layers")
    update = {
        "parameters": counts.total,
        "parameters_active": counts.active if architecture.moe else None,
        "mtp_parameters": extra * mtp_parameters(architecture) if extra else None,
    }
    return architecture.model_copy(update=update)


def _check_type(source: ConfigSource) -> None:
    """Say what is assumed of a type that is not known, and what is left out of any."""
    given = _model_type(source.config)
    taken = "taken for a dense decoder like llama"
    if source.find("tie_word_embeddings") is None:
        taken += ", with an output head of its own"
    if given is None:
        hint = "write the model's type, for example qwen2"
        source.warn((), f"the key 'model_type' is missing; {taken}", hint, Code.missing_key)
    elif not known_type(given):
        hint = suggest_or(given[:80], CONVENTIONS, "compare the count with the one published")
        source.warn(("model_type",), f"unknown model type {given[:80]!r}; {taken}", hint, Code.unknown_value)
    if source.convention is LLAMA and (key := next((key for key in NOT_DENSE if source.find(key)), None)):
        message = f"{key}: only for a known model type can this be counted"
        hint = f"known with experts or latent attention: {', '.join(_SPECIAL)}"
        source.error(source.place(key), message, hint)
    if source.config.vision_config and not source.convention.vision:
        source.warn(("vision_config",), "the vision tower of this model type is not counted", _CLOSE)


_SPECIAL = [name for name, item in CONVENTIONS.items() if item.experts or item.mla or item.linear_attention]


def _check_biases(source: ConfigSource, rows: int) -> None:
    """Name the biases that an architecture has no field for."""
    if source.find("attention_bias") and source.convention.qkv_bias is None:
        message = f"attention_bias: those of the output projections, {rows} parameters, are not counted"
        source.warn(source.place("attention_bias"), message, _CLOSE)
    if source.find("attention_bias") and source.convention.mla:
        message = "attention_bias: the biases of attention are not counted"
        source.warn(source.place("attention_bias"), message, _CLOSE)
    if source.find("mlp_bias"):
        source.warn(source.place("mlp_bias"), "mlp_bias: the biases of the MLP are not counted", _CLOSE)


def _head_dim(source: ConfigSource, hidden: int, heads: int) -> int:
    given: int | None = source.find("head_dim")
    if given is None and hidden % heads:
        message = f"num_attention_heads: {heads} does not divide hidden_size, {hidden}"
        hint = "correct one of them, or write head_dim"
        source.error(source.place("num_attention_heads"), message, hint)
    return given or max(1, hidden // heads)


def _tied(source: ConfigSource) -> bool:
    """Whether the head is the embedding; of a model with a nested part, the whole file says so."""
    given: bool | None = source.config.tie_word_embeddings
    if given is None:
        given = source.find("tie_word_embeddings")
    return source.convention.tied if given is None else given


def _qkv_bias(source: ConfigSource) -> bool:
    fixed = source.convention.qkv_bias
    given = source.find("qkv_bias")
    if fixed is None:
        return bool(source.find("attention_bias") or given)
    # Qwen2's mixture of experts has a key to switch it off.
    return fixed and given is not False


def _output_gate(source: ConfigSource) -> bool:
    given = source.find("attn_output_gate")
    return source.convention.output_gate if given is None else bool(given)


def _sliding_window(source: ConfigSource) -> int | None:
    switch = source.find("use_sliding_window")
    used = switch if switch is not None else not source.convention.window_switch
    return source.find("sliding_window") or None if used else None


def _moe(source: ConfigSource, layers: int) -> Moe | None:
    convention = source.convention
    if not convention.experts:
        return None
    experts = next((value for key in _EXPERTS if (value := source.find(key))), None)
    experts = experts or source.need(convention.experts)
    used = source.need("num_experts_per_tok")
    if not source.failed and used > experts:
        message = f"num_experts_per_tok: {used} is more than the {experts} experts of a layer"
        source.error(source.place("num_experts_per_tok"), message, "correct one of them")
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


_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


def _layers_with_experts(source: ConfigSource, layers: int) -> int:
    """How many layers have experts. Where in the model they stand makes no difference to any count."""
    first = min(source.find("first_k_dense_replace") or 0, layers)
    every = source.find("moe_layer_freq") or 1
    step = source.find("decoder_sparse_step") or 1
    dense = set(source.find("mlp_only_layers") or ())
    return sum(
        1
        for layer in range(first, layers)
        if layer % every == 0 and (layer + 1) % step == 0 and layer not in dense
    )


def _mla(source: ConfigSource) -> Mla | None:
    if not source.convention.mla:
        return None
    record, loc = source.text
    if "q_lora_rank" not in record.model_fields_set:
        source.missing(record, loc, "q_lora_rank")
    return Mla(
        q_lora_rank=source.find("q_lora_rank"),
        kv_lora_rank=source.need("kv_lora_rank"),
        qk_nope_head_dim=source.need("qk_nope_head_dim"),
        qk_rope_head_dim=source.need("qk_rope_head_dim"),
        v_head_dim=source.need("v_head_dim"),
    )


def _linear_attention(source: ConfigSource, layers: int) -> LinearAttention | None:
    if not source.convention.linear_attention:
        return None
    types = source.find("layer_types")
    full = [kind == "full_attention" for kind in types or ()]
    interval = source.find("full_attention_interval") or ((*full, True).index(True) + 1 if full else 4)
    if types and full != [(layer + 1) % interval == 0 for layer in range(layers)]:
        message = f"layer_types: taken as if layers {interval}, {2 * interval}, … had full attention"
        source.warn(source.place("layer_types"), message, _CLOSE)
    return LinearAttention(
        full_attention_interval=interval,
        num_key_heads=source.need("linear_num_key_heads"),
        key_head_dim=source.need("linear_key_head_dim"),
        num_value_heads=source.need("linear_num_value_heads"),
        value_head_dim=source.need("linear_value_head_dim"),
        conv_kernel=source.need("linear_conv_kernel_dim"),
    )


def _vision(source: ConfigSource) -> Vision | None:
    tower = source.config.vision_config
    if not tower or not source.convention.vision:
        return None

    def need(name: str) -> int:
        value: int | None = getattr(tower, name)
        if value is None:
            source.missing(tower, ("vision_config",), name)
        return value or 1

    deepstack = source.convention.deepstack
    vision = Vision(
        depth=need("depth"),
        hidden_size=need("hidden_size"),
        intermediate_size=need("intermediate_size"),
        num_heads=need("num_heads"),
        patch_size=need("patch_size"),
        temporal_patch_size=tower.temporal_patch_size or 2,
        spatial_merge_size=tower.spatial_merge_size or 2,
        in_channels=tower.in_channels or 3,
        out_hidden_size=need("out_hidden_size"),
        num_position_embeddings=need("num_position_embeddings") if deepstack else None,
        deepstack_layers=len(tower.deepstack_visual_indexes or ()) if deepstack else None,
        parameters=0,
    )
    return vision.model_copy(update={"parameters": vision_parameters(vision)})


def _name(source: ConfigSource) -> str:
    """The checkpoint if the file names one, else the file; both only where they can stand in a message."""
    names = (source.config.name_or_path, source.file.shown)
    usable = (name for name in names if isinstance(name, str) and re.fullmatch(_NAME, name))
    return next(usable, "config.json")


#: A checkpoint or a relative path, and not a mark that something is still to be filled in.
_NAME = r"(?!TODO\b)\w[\w./-]{0,199}"
