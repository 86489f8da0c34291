"""Turn a request into settings, checked against the model, each other, and the keys that estimates read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from .keys import FINE_TUNING, key_warnings
from .pools import TRAINER_GPUS
from .reader import Reader
from .request import ACTOR, MODEL, REFERENCE, ROLLOUT, Request, error_at, warning_at
from .roles import ADAMS, BACKENDS
from .settings import ENGINES, MODELLED, settings_of
from .tokens import CRITIC_SIZES
from .versions import CURRENT, LAST, version_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..diagnostics import Diagnostic
    from ..registries import ConfigKey
    from .registries import Registries
    from .roles import Megatron, Role
    from .settings import Settings
    from .shape import Shape

#: Keys that do not change memory, by section; each name is the prefix of one or more keys.
_HARMLESS = {
    "data": """
        train_files val_files val_batch_size filter truncation seed shuffle prompt_key reward_fn_key
        return_raw gen_batch_size image_key video_key custom_cls trust_remote_code tokenizer dataloader
        apply_chat_template tool_config_path return_full_prompt""",
    "algorithm": "gamma lam kl norm filter_groups rollout_correction.rollout_",
    "trainer": """
        logger project_name experiment_name save_freq test_freq total val critic_warmup default resume log
        rollout_data_dir device max del esi ray
        v1.colocate_async v1.sampler v1.separate_async.hybrid_rollout v1.separate_async.num_warmup""",
    "reward": "custom reward_kwargs reward_manager",
    "reward_model": "reward_kwargs reward_manager",
    "distillation": """
        teacher_key distillation_loss.use_task distillation_loss.distillation distillation_loss.loss_max
        distillation_loss.log_prob distillation_loss.use_policy distillation_loss.policy
        distillation_loss.clip""",
    "transfer_queue": "metrics",
    "actor_rollout_ref": "nccl_timeout",
    "rollout": "total test_freq",
    "async_training": "staleness trigger partial_rollout dynamic_schedule concurrent_samples",
    ACTOR: "clip kl_loss loss policy_loss grad_clip shuffle profiler tis data_loader_seed",
    f"{ACTOR}.optim": "lr weight_decay warmup clip_grad total min_lr betas num_cycles",
    ROLLOUT: """
        temperature top do_sample val_kwargs ignore_eos seed multi_turn agent disable_log_stats
        over_sample_rate profiler trace""",
    REFERENCE: "profiler",
    MODEL: "lora_alpha trust_remote_code custom_chat external_lib tokenizer hf_config_path",
    "critic": "cliprange grad_clip optim.lr model.tokenizer",
}
HARMLESS = (
    *(f"{section}.{name}" for section, names in _HARMLESS.items() for name in names.split()),
    "reward_manager", "custom_reward_function", "ray_kwargs", "ray_init", "global_profiler",
)  # fmt: skip
#: Keys that decide memory, and their modelled values in lower case: with other values, no figure is valid.
_DECISIVE: Mapping[str, tuple[str, ...]] = {
    f"{ACTOR}.strategy": ("none", *BACKENDS),
    "critic.strategy": ("none", *BACKENDS),
    "model_engine": ("none", "dp", "megatron"),
    f"{ROLLOUT}.name": ("none", *ENGINES),
    f"{ACTOR}.megatron.use_megatron_fsdp": ("none", "false"),
    "critic.megatron.use_megatron_fsdp": ("none", "false"),
}
_TRANSFORMER = "megatron.override_transformer_config"
#: Keys for which only some values are modelled: these values in lower case, and the treatment of others.
_PARTLY: Mapping[str, tuple[tuple[str, ...], str]] = {
    **{
        f"{role}.{key}": (("none", *values), instead)
        for role in (ACTOR, "critic")
        for key, values, instead in (
            ("optim.optimizer", ADAMS, "computed as Adam"),
            (f"{_TRANSFORMER}.recompute_granularity", ("full",), "computed as no recomputation"),
            (f"{_TRANSFORMER}.recompute_method", ("uniform",), "computed as no recomputation"),
            (f"{_TRANSFORMER}.recompute_num_layers", ("1",), "computed as 1"),
        )
    },
    f"{MODEL}.mtp.enable": (("none", "false"), "computed without the additional layers"),
    "trainer.v1.trainer_mode": (("none", "sync", "separate_async"), "computed as sync"),
    f"{ROLLOUT}.name": (("none", "vllm", "sglang"), "computed as a share of the free memory"),
}
#: Sections of settings that belong to another program, with its name: verl does not read them.
_FOREIGN: Mapping[str, str] = {
    **dict.fromkeys((name.rstrip(".") for name in FINE_TUNING), "verl's trainer for supervised fine-tuning"),
    "worker": "EasyR1",
}
#: Ways to load the engine's weights that lead to the same peaks.
_LOADING = frozenset({"auto", "dummy", "dummy_dtensor", "dummy_hf", "dummy_megatron", "hf", "safetensors"})
#: Switches for models other than the actor and the critic, and where their memory goes.
_OTHER_MODELS: Mapping[str, str] = {
    "reward_model.enable": "the reward model's memory comes on top",
    "reward.reward_model.enable": "the reward model alternates with other phases, or has separate GPUs",
    "distillation.enabled": "the teachers have separate GPUs; a top-k loss needs more memory in the update",
}
#: Keys that follow others: setting them to the same value changes nothing.
_FOLLOWS: Mapping[str, str] = {
    f"{ROLLOUT}.prompt_length": "data.max_prompt_length",
    f"{ROLLOUT}.response_length": "data.max_response_length",
    f"{REFERENCE}.strategy": f"{ACTOR}.strategy",
    "critic.model.path": f"{MODEL}.path",
}


def resolve(
    request: Request, registries: Registries
) -> tuple[Shape, Settings, tuple[Diagnostic, ...], tuple[str, ...]]:
    """Return the shape and the settings of a request, warnings about it, and the ignored settings.

    The warnings do not include those about keys, see ``key_warnings``.

    Raises:
        NoAnswerError: the request cannot be estimated.
    """
    shape = registries.known_shape(request.model)
    reader = Reader(request, registries)
    settings = settings_of(reader, registries)
    reader.diagnostics += (*problems_of(shape, settings), *_positions(request.model, shape, settings))
    if request.version > LAST:
        newest = version_text(CURRENT)
        message = f"{version_text(request.version)} is newer than {newest}, the newest supported release"
        remedy = f"the estimate is for {newest} with later changes on the main branch"
        reader.warning("version", message, remedy)
    if undecided := _undecided(reader, settings, registries):
        settings = replace(settings, undecided=undecided)
    if any(problem.is_error for problem in reader.diagnostics):
        raise NoAnswerError(*reader.diagnostics, *key_warnings(request, registries, reader.diagnostics))
    warnings = tuple(dict.fromkeys(reader.diagnostics))  # keys that are read twice warn once
    return shape, settings, warnings, unsupported_keys(reader, settings, registries)


def _undecided(reader: Reader, settings: Settings, registries: Registries) -> tuple[str, ...]:
    """Return settings that decide memory but are unknown or not modelled, each with a reason."""
    request, reasons = reader.request, {}
    for key, value in reader.config.items():
        section = key.partition(".")[0]
        if key in _DECISIVE:
            if str(value).lower() not in _DECISIVE[key] and _is_of_backend(key, settings):
                reasons[key] = f"{str(value)[:80]!r} is not modelled"
        elif section in _FOREIGN:
            reasons[section] = f"settings of {_FOREIGN[section]}, which are not modelled"
    if request.task == "PRIME":
        reasons["reward_model"] = "PRIME also trains a reward model, which is not modelled"
    for problem in reader.diagnostics:
        if problem.code == "unresolved":
            reasons[problem.place.key] = problem.message
    unread = {registries.renamed.get(key, key) for key in request.unread}
    reasons |= dict.fromkeys(sorted(unread & MODELLED - {f"{MODEL}.path"}), "its value is unknown")
    if request.gpus is not None:  # the request gives the number of GPUs
        reasons = {key: reason for key, reason in reasons.items() if key not in TRAINER_GPUS}
    return (*(f"{key}: {reason}" for key, reason in reasons.items()), *request.incomplete)


def _is_of_backend(key: str, settings: Settings) -> bool:
    """Return whether the role of a key exists and its backend reads the key."""
    role = settings.critic if key.startswith("critic.") else settings.actor
    return role is not None and (".megatron." not in key or role.backend == "megatron")


# -- conflicts


def problems_of(shape: Shape, settings: Settings) -> Iterator[Diagnostic]:
    """Yield conflicts between a model and its settings."""
    actor, critic = settings.actor, settings.critic
    yield from _heads(shape, settings)
    for name, role in ((ACTOR, actor), ("critic", critic)):
        if role and role.backend == "megatron":
            yield from _stages_and_experts(shape, role.megatron, f"{name}.megatron")
    yield from _micro_batch(settings, actor)
    targets = actor.targets if actor.lora_rank and actor.targets != "all-linear" else ()
    for target in targets:
        if target not in shape.modules:
            message = f"the model has no module {target[:80]!r}: no adapter is added"
            remedy = f"its modules are {', '.join(shape.modules)}"
            yield warning_at(f"{MODEL}.target_modules", message, remedy)


def _positions(model: str, shape: Shape, settings: Settings) -> Iterator[Diagnostic]:
    """Check that the model has a position for every token of the longest sequence.

    verl rejects a longer ``max_model_len``: verl/workers/rollout/vllm_rollout/vllm_async_server.py:998 at
    1dda039b9.
    """
    length = settings.rollout.model_length or int(settings.lengths.limit)
    most = settings.positions or shape.architecture.positions_of(model)
    if length > most:
        message = f"sequences have up to {length:,} tokens, but the model only has {most:,} positions"
        yield warning_at("data.max_response_length", f"{message}: verl rejects them", "shorten them")


def _heads(shape: Shape, settings: Settings) -> Iterator[Diagnostic]:
    """Check the sizes that must divide the attention heads."""
    ulysses = "fsdp_config.ulysses_sequence_parallel_size"
    sizes = {
        f"{ROLLOUT}.tensor_model_parallel_size": settings.rollout.tensor,
        f"{ACTOR}.megatron.tensor_model_parallel_size": settings.actor.megatron.tensor,
        f"{ACTOR}.{ulysses}": settings.actor.fsdp.ulysses,
        f"{REFERENCE}.{ulysses}": settings.reference_fsdp.ulysses if settings.reference else 1,
    }
    if settings.critic:
        sizes["critic.megatron.tensor_model_parallel_size"] = settings.critic.megatron.tensor
        sizes["critic.fsdp.ulysses_sequence_parallel_size"] = settings.critic.fsdp.ulysses
    for key, size in sizes.items():
        if shape.heads % size:
            message = f"{size} does not divide the model's {shape.heads} attention heads"
            yield error_at(key, message, "choose a divisor")


def _stages_and_experts(shape: Shape, megatron: Megatron, prefix: str) -> Iterator[Diagnostic]:
    """Check that every pipeline stage gets layers, and that the experts can be divided."""
    first, last = megatron.first_layers or 0, megatron.last_layers or 0
    between = megatron.pipeline - bool(first) - bool(last)
    left = shape.layers - first - last
    if megatron.pipeline > 1 and (left < between or (not between and left)):
        message = f"{shape.layers} layers cannot be divided this way among {megatron.pipeline} stages"
        yield error_at(f"{prefix}.pipeline_model_parallel_size", message, "use fewer stages")
    moe = shape.architecture.moe
    if moe and moe.num_experts % megatron.expert:
        message = f"{megatron.expert} does not divide the model's {moe.num_experts} experts"
        yield error_at(f"{prefix}.expert_model_parallel_size", message, "choose a divisor")


def _micro_batch(settings: Settings, actor: Role) -> Iterator[Diagnostic]:
    """Check that there is a micro-batch, not larger than the mini-batch."""
    micro, key = actor.micro_batch, f"{ACTOR}.ppo_micro_batch_size_per_gpu"
    per_rank = max(1, actor.mini_batch // actor.ranks(settings.gpus))
    if micro.dynamic:
        return
    if micro.sequences is None:
        message = "no micro-batch size is set: one sequence is assumed"
        yield warning_at(key, message, "set it, or actor.use_dynamic_bsz", "missing_key")
    elif micro.sequences > per_rank:
        what = f"the micro-batch of {micro.sequences} sequences"
        message = f"{what} is larger than a GPU's mini-batch of {per_rank}, which is used"
        yield warning_at(key, message, "lower it")


# -- settings that no formula reads


def is_harmless(key: str) -> bool:
    """Return whether a key does not change memory."""
    return key.startswith(HARMLESS)


def unsupported_keys(reader: Reader, settings: Settings, registries: Registries) -> tuple[str, ...]:
    """Return the ignored settings that may change memory, each with a reason.

    A key that is recorded as changing memory appears if its value differs from the default and the training
    backend reads it.
    """
    ignored: dict[str, str | None] = {}
    for key, value in reader.config.items():
        shown = str(value).lower()
        if key in _OTHER_MODELS:
            ignored[key] = f"not modelled; {_OTHER_MODELS[key]}" if value is True else None
        elif key in _PARTLY:
            modelled, instead = _PARTLY[key]
            if shown not in modelled and (key not in _DECISIVE or shown in _DECISIVE[key]):
                ignored[key] = f"{str(value)[:80]!r} is not modelled; {instead}"
        elif key in CRITIC_SIZES and not reader.traits.critic_reads_own_keys:
            ignored[key] = "verl ignores it"
        elif key not in MODELLED and not is_harmless(key) and key not in _DECISIVE:
            ignored[key] = _why_ignored(key, value, reader, settings, registries)
        if key in _DECISIVE and shown not in _DECISIVE[key] and _is_of_backend(key, settings):
            ignored[key] = f"{str(value)[:80]!r} is not modelled"
    return tuple(f"{key}: {reason}" for key, reason in ignored.items() if reason)


def _why_ignored(
    key: str, value: Any, reader: Reader, settings: Settings, registries: Registries
) -> str | None:
    recorded = registries.known_key(key)
    if recorded is None and key.startswith(f"{REFERENCE}."):  # its sections are those of the actor
        recorded = registries.known_key(ACTOR + key.removeprefix(REFERENCE))
    if recorded is None:
        return "its effect on memory is unknown"
    no_effect = recorded.status.startswith("no-op")
    if not (no_effect or _matters(recorded, settings)) or _is_usual(key, value, reader):
        return None
    return "verl ignores it" if no_effect else "not modelled"


def _matters(key: ConfigKey, settings: Settings) -> bool:
    """Return whether a key changes memory with its role's backend."""
    role = settings.critic if key.name.startswith("critic.") else settings.actor
    if not (key.phases or key.host_memory) or role is None:
        return False
    megatron = role.backend == "megatron"
    if (".fsdp_config." if megatron else ".megatron.") in key.name or (megatron and ".fsdp." in key.name):
        return False
    named = key.backends or (role.backend,)
    return role.backend in named or (role.backend == "fsdp2" and "fsdp" in named)


def _is_usual(key: str, value: Any, reader: Reader) -> bool:
    """Return whether a key has its default, or the value of the key that it follows."""
    if key == f"{ROLLOUT}.load_format" and isinstance(value, str) and value in _LOADING:
        return True
    if value == reader.defaults.get(key) or (key == "critic.model.path" and value == reader.request.model):
        return True
    other = _FOLLOWS.get(key)
    if key.startswith(f"{REFERENCE}.megatron."):
        other = ACTOR + key.removeprefix(REFERENCE)
    return other is not None and bool(value == reader.config.get(other, reader.defaults.get(other)))
