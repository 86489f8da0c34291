"""Settings that estimates read, settings that cannot change memory, and all others, which are reported."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .roles import ACTOR, ADAMS, MODEL, REFERENCE, ROLLOUT
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..catalog.models.registries import ConfigKey
    from .registries import Registries
    from .request import Request
    from .settings import Settings
    from .versions import Version

#: Keys that do not change memory, by section; each name is the beginning of one or more keys.
_HARMLESS = {
    "data": """
        train_files val_files val_batch_size filter truncation seed shuffle prompt_key reward_fn_key
        return_raw gen_batch_size image_key video_key custom_cls trust_remote_code tokenizer dataloader
        apply_chat_template tool_config_path return_full_prompt""",
    "algorithm": "gamma lam kl norm filter_groups",
    "trainer": """
        logger project_name experiment_name save_freq test_freq total val critic_warmup default resume log
        rollout_data_dir device max del esi ray""",
    "reward": "custom reward_manager",
    "reward_model": "reward_manager",
    "actor_rollout_ref": "hybrid_engine nccl_timeout",
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

_FSDP = """
    fsdp_size ulysses_sequence_parallel_size model_dtype param_offload optimizer_offload offload_policy
    reshard_after_forward """
_ENTROPY = "entropy_from_logits_with_chunking entropy_from_logits_chunk_size "
_LOG_PROB = """
    log_prob_use_dynamic_bsz log_prob_max_token_len_per_gpu log_prob_micro_batch_size
    log_prob_micro_batch_size_per_gpu """
_UPDATE = "strategy ppo_mini_batch_size ppo_max_token_len_per_gpu "
_MICRO_BATCH = """
    use_dynamic_bsz ppo_micro_batch_size ppo_micro_batch_size_per_gpu ulysses_sequence_parallel_size """
_MODEL = "enable_gradient_checkpointing enable_activation_offload use_remove_padding lora_rank "
#: Sections that actor and critic have alike.
_ROLE = {
    "megatron": """
        tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size
        expert_model_parallel_size expert_tensor_parallel_size sequence_parallel use_distributed_optimizer
        param_offload optimizer_offload """,
    "megatron.override_transformer_config": """
        recompute_granularity recompute_method recompute_num_layers num_layers_in_first_pipeline_stage
        num_layers_in_last_pipeline_stage""",
    "optim": "optimizer use_precision_aware_optimizer exp_avg_dtype exp_avg_sq_dtype",
    "optim.override_optimizer_config": "foreach fused optimizer_cpu_offload optimizer_offload_fraction",
}
#: Keys that are read, by section.
_MODELLED = {
    **{f"{role}.{section}": names for role in (ACTOR, "critic") for section, names in _ROLE.items()},
    "data": "train_batch_size max_prompt_length max_response_length",
    "algorithm": "adv_estimator use_kl_in_reward rollout_correction.bypass_mode",
    "trainer": "nnodes n_gpus_per_node v1.trainer_mode",
    "easyr1": "dtype",
    MODEL: f"{_MODEL} path target_modules use_fused_kernels lora.rank lora.merge",
    ACTOR: f"""{_UPDATE} {_MICRO_BATCH} {_ENTROPY}
        entropy_coeff calculate_entropy entropy_checkpointing use_kl_loss use_torch_compile""",
    f"{ACTOR}.fsdp_config": f"{_FSDP} {_ENTROPY} entropy_checkpointing use_torch_compile",
    f"{ACTOR}.megatron": _ROLE["megatron"] + _ENTROPY,
    ROLLOUT: f"""{_LOG_PROB}
        name n gpu_memory_utilization tensor_model_parallel_size data_parallel_size max_num_seqs
        max_num_batched_tokens max_model_len enforce_eager free_cache_engine multi_stage_wake_up
        layered_summon dtype quantization checkpoint_engine.update_weights_bucket_megabytes""",
    REFERENCE: f"{_LOG_PROB} ulysses_sequence_parallel_size megatron.param_offload",
    f"{REFERENCE}.fsdp_config": _FSDP,
    "critic": f"enable {_UPDATE}",
    "critic.fsdp": _FSDP,
    "critic.model": _MODEL,
}
_TRANSFORMER = "megatron.override_transformer_config"
#: Keys of which only some values are modelled: these, in small letters, and what is computed for the others.
_PARTLY: Mapping[str, tuple[tuple[str, ...], str]] = {
    **{
        f"{role}.{key}": (("none", *values), instead)
        for role in (ACTOR, "critic")
        for key, values, instead in (
            ("strategy", ("fsdp", "fsdp2", "megatron"), "computed as FSDP2"),
            ("optim.optimizer", ADAMS, "computed as Adam"),
            (f"{_TRANSFORMER}.recompute_granularity", ("full",), "computed as no recomputation"),
            (f"{_TRANSFORMER}.recompute_method", ("uniform",), "computed as no recomputation"),
        )
    },
    "model_engine": (("none", "dp", "megatron"), "computed as FSDP2"),
    "trainer.v1.trainer_mode": (("none", "sync", "separate_async"), "computed as sync"),
    f"{ROLLOUT}.name": (("none", "vllm", "sglang"), "computed as taking a share of the free memory"),
}
#: Ways to load the engine's weights that lead to the same peaks.
_LOADING = frozenset({"auto", "dummy", "dummy_dtensor", "dummy_hf", "dummy_megatron", "hf", "safetensors"})
#: Keys of older versions that change memory, and how.
_OLD: Mapping[str, str] = {"reward_model.enable": "the reward model comes on top"}
#: Keys that follow others: setting them to the same value changes nothing.
_FOLLOWS: Mapping[str, str] = {
    f"{ROLLOUT}.prompt_length": "data.max_prompt_length",
    f"{ROLLOUT}.response_length": "data.max_response_length",
    f"{REFERENCE}.strategy": f"{ACTOR}.strategy",
    "critic.model.path": f"{MODEL}.path",
}


def is_harmless(key: str) -> bool:
    """Tell whether a key is known not to change memory."""
    return key.startswith(HARMLESS)


@lru_cache(maxsize=64)
def modelled_keys(version: Version) -> frozenset[str]:
    """Return the keys that an estimate of a version of verl reads, with any backend."""
    traits = behaviour(version)
    keys = {f"{section}.{name}" for section, names in _MODELLED.items() for name in names.split()}
    keys.add("model_engine")
    if traits.critic_reads_own_keys:
        keys.update(f"critic.{name}" for name in _MICRO_BATCH.split())
    if traits.one_critic_budget:
        keys |= {"trainer.use_v1", "critic.ppo_infer_max_token_len_per_gpu"}
    return frozenset(keys)


def unsupported_keys(request: Request, settings: Settings, registries: Registries) -> tuple[str, ...]:
    """Return the settings that may change memory and that no formula reads, each with a reason.

    A key that verl records as changing memory appears whenever it is set to anything but its default, unless
    the training backend does not read it.
    """
    modelled = modelled_keys(request.version)
    ignored = []
    for key, value in request.config.items():
        if key in modelled:
            values, instead = _PARTLY.get(key, ((), ""))
            if values and str(value).lower() not in values:
                ignored.append(f"{key}: {str(value)[:80]!r} is not modelled; {instead}")
        elif not is_harmless(key):
            known = registries.known_key(key)
            if known is None and key in _OLD:
                if value is not False:
                    ignored.append(f"{key}: not modelled; {_OLD[key]}")
            elif known is None:
                ignored.append(f"{key}: not a key that is known to change memory")
            elif known.status.startswith("no-op") and not _as_usual(key, value, request, registries):
                ignored.append(f"{key}: verl ignores it")
            elif _matters(known, settings) and not _as_usual(key, value, request, registries):
                ignored.append(f"{key}: not modelled")
    return tuple(ignored)


def _matters(key: ConfigKey, settings: Settings) -> bool:
    """Tell whether a key changes memory with the backend of its role."""
    role = settings.critic if key.name.startswith("critic.") else settings.actor
    if key.status.startswith("no-op") or not (key.phases or key.host_memory) or role is None:
        return False
    megatron = role.backend == "megatron"
    if (".fsdp_config." if megatron else ".megatron.") in key.name or (megatron and ".fsdp." in key.name):
        return False
    named = key.backends or (role.backend,)
    return role.backend in named or (role.backend == "fsdp2" and "fsdp" in named)


def _as_usual(key: str, value: Any, request: Request, registries: Registries) -> bool:
    """Tell whether a key is set to its default, or to the value of the key that it follows."""
    defaults = registries.defaults(request.version)
    if key == f"{ROLLOUT}.load_format" and isinstance(value, str) and value in _LOADING:
        return True
    if value == defaults.get(key) or (key == "critic.model.path" and value == request.model):
        return True
    other = _FOLLOWS.get(key)
    if key.startswith(f"{REFERENCE}.megatron."):
        other = ACTOR + key.removeprefix(REFERENCE)
    if other is None:
        return False
    return bool(value == request.config.get(other, defaults.get(other)))


def misspelt_keys(request: Request, registries: Registries) -> tuple[tuple[str, str], ...]:
    """Return unknown keys that look like a known one, and the known one."""
    modelled = modelled_keys(request.version)
    unknown = [
        key
        for key in request.config
        if key not in modelled and key not in registries.config_keys and not is_harmless(str(key))
    ]
    return tuple((key, near) for key in unknown if (near := _nearest_key(key, registries)))


@lru_cache(maxsize=4096)
def _nearest_key(key: str, registries: Registries) -> str | None:
    """Return a key of the same section with a similar name, or the same name in a similar section."""
    parent, _, name = key.rpartition(".")
    known = [item.rpartition(".") for item in registries.config_keys.names]
    names = [other for above, _, other in known if above == parent]
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.85)
    if found:
        return f"{parent}.{found[0]}"
    if names:  # a known section, of which not every key is recorded
        return None
    parents = [above for above, _, other in known if other == name]
    found = difflib.get_close_matches(parent, parents, n=1, cutoff=0.85)
    return f"{found[0]}.{name}" if found else None
