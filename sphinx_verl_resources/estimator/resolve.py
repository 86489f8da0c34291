"""Turn a request into settings, checked against the model, each other, and the keys that estimates read."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from ..units import GIB
from .engine import cache_tokens, needed_cache_tokens
from .keys import FINE_TUNING, key_warnings
from .pools import TRAINER_GPUS
from .reader import Reader
from .reading import ADAMS, BACKENDS, ENGINES
from .request import ACTOR, MODEL, REFERENCE, ROLLOUT, Request, error_at, warning_at
from .settings import ranks_of, settings_of
from .shape import target_names, unknown_targets
from .versions import CURRENT, LAST, version_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..diagnostics import Diagnostic
    from ..registries import ConfigKey
    from .megatron_settings import Megatron
    from .registries import Registries
    from .settings import Role, Settings
    from .shape import Shape
    from .versions import Version

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
    "reward_manager",
    "custom_reward_function",
    "ray_kwargs",
    "ray_init",
    "global_profiler",
)

_TRANSFORMER = "megatron.override_transformer_config"
#: Keys for which only some values are modelled: these values in lower case, and the treatment of others.
_PARTLY: Mapping[str, tuple[tuple[str, ...], str]] = {
    **{
        f"{role}.{key}": (("none", *values), instead)
        for role in (ACTOR, "critic")
        for key, values, instead in (
            ("optim.optimizer", (*ADAMS, "muon"), "computed as Adam"),
            (f"{_TRANSFORMER}.recompute_granularity", ("full", "selective"), "computed as no recomputation"),
            (f"{_TRANSFORMER}.recompute_method", ("uniform",), "computed as no recomputation"),
        )
    },
    f"{MODEL}.mtp.enable": (("none", "false"), "computed without the additional layers"),
    "trainer.v1.trainer_mode": (("none", "sync", "separate_async"), "computed as sync"),
    f"{ROLLOUT}.name": (("none", "vllm", "sglang"), "computed as a share of the free memory"),
}
#: Keys that decide memory, and their modelled values: with other values, no figure is valid.
_DECISIVE: Mapping[str, tuple[str, ...]] = {
    f"{ACTOR}.strategy": ("none", *BACKENDS),
    "critic.strategy": ("none", *BACKENDS),
    "model_engine": ("none", "dp", "megatron"),
    f"{ROLLOUT}.name": ("none", *ENGINES),
    f"{ACTOR}.megatron.use_megatron_fsdp": ("none", "false"),
    "critic.megatron.use_megatron_fsdp": ("none", "false"),
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

    The warnings do not include ``cache_problems`` and ``key_warnings``.

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
        reader.warning(
            "version", message, f"the estimate is for {newest} with later changes on the main branch"
        )
    if undecided := _undecided(reader, settings, registries):
        settings = replace(settings, undecided=undecided)
    unread = _unread(reader, registries)
    if any(problem.is_error for problem in reader.diagnostics):
        raise NoAnswerError(*reader.diagnostics, *key_warnings(request, registries, reader.diagnostics))
    warnings = tuple(dict.fromkeys(reader.diagnostics))  # keys that are read twice warn once
    return shape, settings, warnings, unsupported_keys(reader, unread, settings, registries)


def _undecided(reader: Reader, settings: Settings, registries: Registries) -> tuple[str, ...]:
    """Return settings that decide memory but are unknown or not modelled, each with a reason."""
    found = {}
    for key, value in reader.config.items():
        if key in _DECISIVE:
            if str(value).lower() not in _DECISIVE[key] and _is_of_backend(key, settings):
                found[key] = f"{str(value)[:80]!r} is not modelled"
        elif key.startswith(FINE_TUNING):
            section = key.partition(".")[0]
            found[section] = "settings of verl's trainer for supervised fine-tuning are not modelled"
    if reader.request.task == "PRIME":
        found["reward_model"] = "PRIME also trains a reward model, which is not modelled"
    for problem in reader.diagnostics:
        if problem.code == "unresolved":
            found[problem.place.key] = problem.message
    if reader.request.unread:
        modelled = modelled_keys(reader.request.version, registries) - {f"{MODEL}.path"}
        unread = {registries.renamed.get(key, key) for key in reader.request.unread}
        found |= dict.fromkeys(sorted(unread & modelled), "its value is unknown")
    if reader.request.gpus is not None:  # the request gives the number of GPUs
        found = {key: reason for key, reason in found.items() if key not in TRAINER_GPUS}
    return (*(f"{key}: {reason}" for key, reason in found.items()), *reader.request.incomplete)


def _is_of_backend(key: str, settings: Settings) -> bool:
    """Return whether the role of a key exists and its backend reads the key."""
    role = settings.critic if key.startswith("critic.") else settings.actor
    return role is not None and (".megatron." not in key or role.backend == "megatron")


def problems_of(shape: Shape, settings: Settings) -> Iterator[Diagnostic]:
    """Yield conflicts between a model and its settings."""
    actor, critic = settings.actor, settings.critic
    yield from _heads(shape, settings)
    for name, role in ((ACTOR, actor), ("critic", critic)):
        if role and role.backend == "megatron":
            yield from _stages(shape, role.megatron, f"{name}.megatron")
            yield from _experts(shape, role.megatron, f"{name}.megatron")
    yield from _micro_batch(settings, actor)
    if actor.lora_rank and actor.targets != "all-linear":
        yield from _targets(shape, actor)


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


def _stages(shape: Shape, megatron: Megatron, prefix: str) -> Iterator[Diagnostic]:
    """Check that every pipeline stage gets layers, and every layer a stage."""
    first, last = megatron.first_layers or 0, megatron.last_layers or 0
    between = megatron.pipeline - bool(first) - bool(last)
    left = shape.layers - first - last
    if megatron.pipeline > 1 and (left < between or (not between and left)):
        message = f"{shape.layers} layers cannot be divided this way among {megatron.pipeline} stages"
        yield error_at(f"{prefix}.pipeline_model_parallel_size", message, "use fewer stages")


def _experts(shape: Shape, megatron: Megatron, prefix: str) -> Iterator[Diagnostic]:
    moe = shape.architecture.moe
    if moe and moe.num_experts % megatron.expert:
        message = f"{megatron.expert} does not divide the model's {moe.num_experts} experts"
        yield error_at(f"{prefix}.expert_model_parallel_size", message, "choose a divisor")


def _targets(shape: Shape, actor: Role) -> Iterator[Diagnostic]:
    """Check that the model has the target modules of the adapters."""
    for name in unknown_targets(shape.architecture, actor.targets):
        message = f"the model has no module {name[:80]!r}: no adapter is added"
        known = ", ".join(target_names(shape.architecture))
        yield warning_at(f"{MODEL}.target_modules", message, f"its modules are {known}")


def _micro_batch(settings: Settings, actor: Role) -> Iterator[Diagnostic]:
    micro, key = actor.micro_batch, f"{ACTOR}.ppo_micro_batch_size_per_gpu"
    per_rank = max(1, actor.mini_batch // ranks_of(actor, settings.gpus))
    if micro.dynamic:
        return
    if micro.sequences is None:
        message = "no micro-batch size is set: one sequence is assumed"
        yield warning_at(key, message, "set it, or actor.use_dynamic_bsz", "missing_key")
    elif micro.sequences > per_rank:
        what = f"the micro-batch of {micro.sequences} sequences"
        message = f"{what} is larger than a GPU's mini-batch of {per_rank}, which is used"
        yield warning_at(key, message, "lower it")


def cache_problems(shape: Shape, settings: Settings) -> Iterator[Diagnostic]:
    """Check that the KV cache holds one sequence; otherwise the engine does not start."""
    rollout = settings.rollout
    room, needed = cache_tokens(shape, settings), needed_cache_tokens(shape, settings)
    if room < needed:
        budget = settings.capacity * rollout.utilization / GIB
        message = (
            f"after loading the weights, the engine's {budget:.1f} GiB leave room for {room:,.0f} tokens, "
            f"less than one sequence of {needed:,.0f}"
        )
        hint = "raise it or rollout.tensor_model_parallel_size, or set rollout.max_model_len"
        yield warning_at(f"{ROLLOUT}.gpu_memory_utilization", message, hint)


# -- settings that no formula reads


def is_harmless(key: str) -> bool:
    """Return whether a key does not change memory."""
    return key.startswith(HARMLESS)


class _KeyLog(dict[str, Any]):
    """Settings that record lookups: the reader checks whether a key is set before it reads it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.looked_up: set[str] = set()

    def __contains__(self, key: object) -> bool:
        self.looked_up.add(str(key))
        return super().__contains__(key)


@lru_cache(maxsize=64)
def modelled_keys(version: Version, registries: Registries) -> frozenset[str]:
    """Return the keys that an estimate of a version of verl reads, with any backend.

    Some keys are read only with one backend, or if another key is set, so this reads settings several times.
    """
    # With FSDP the reference policy is always on the host; its key has no effect.
    keys = {f"{MODEL}.path", "easyr1.dtype", f"{REFERENCE}.fsdp_config.param_offload"}
    for backend, critic, use_v1 in (("fsdp", True, True), ("megatron", True, False), ("fsdp", None, True)):
        config = _KeyLog({f"{ACTOR}.strategy": backend, "critic.enable": critic, "trainer.use_v1": use_v1})
        config[f"{ACTOR}.entropy_coeff"], config[f"{ACTOR}.use_kl_loss"] = 0, True
        config[f"{ACTOR}.pad_to_length"] = config[f"{ROLLOUT}.log_prob_use_dynamic_bsz"] = True
        config["distillation.enabled"] = config["reward.reward_model.enable_resource_pool"] = True
        config["data.train_batch_size"] = 0 if critic is None else 1024
        for role in (ACTOR, "critic"):
            config[f"{role}.optim.use_precision_aware_optimizer"] = True
            config[f"{role}.optim.override_optimizer_config.optimizer_cpu_offload"] = True
        request = Request("", config, gpus=8, version=version, partial=True)
        settings_of(Reader(request, registries), registries)
        keys |= config.looked_up
    return frozenset(keys)


def _unread(reader: Reader, registries: Registries) -> frozenset[str]:
    """Return the settings that no formula reads and that may change memory."""
    modelled = modelled_keys(reader.request.version, registries)
    return frozenset(key for key in reader.config if key not in modelled and not is_harmless(key))


def unsupported_keys(
    reader: Reader, unread: frozenset[str], settings: Settings, registries: Registries
) -> tuple[str, ...]:
    """Return the ignored settings that may change memory, each with a reason.

    A key that is recorded as changing memory appears if its value differs from the default and the training
    backend reads it.
    """
    ignored: dict[str, str | None] = {}
    for key, value in reader.config.items():
        if key in _OTHER_MODELS:
            if value is True:
                ignored[key] = f"not modelled; {_OTHER_MODELS[key]}"
        elif key in unread:
            ignored[key] = _why_ignored(key, value, reader, settings, registries)
        elif key in _DECISIVE and str(value).lower() not in _DECISIVE[key]:
            if _is_of_backend(key, settings):
                ignored[key] = f"{str(value)[:80]!r} is not modelled"
        elif key in _PARTLY and str(value).lower() not in _PARTLY[key][0]:
            ignored[key] = f"{str(value)[:80]!r} is not modelled; {_PARTLY[key][1]}"
    return tuple(f"{key}: {reason}" for key, reason in ignored.items() if reason)


def _why_ignored(
    key: str, value: Any, reader: Reader, settings: Settings, registries: Registries
) -> str | None:
    known = registries.known_key(key)
    if known is None and key.startswith(f"{REFERENCE}."):  # its sections are those of the actor
        known = registries.known_key(ACTOR + key.removeprefix(REFERENCE))
    if known is None:
        return "its effect on memory is unknown"
    no_effect = known.status.startswith("no-op")
    if not (no_effect or _matters(known, settings)) or _is_usual(key, value, reader):
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
