"""Read the settings of actor, critic and rollout engine from verl's keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, suggest_or
from .settings import Fsdp, Megatron, MicroBatch, Role, Rollout, data_parallel
from .versions import behaviour

if TYPE_CHECKING:
    from .parameters import Targets
    from .request import Reader, Request
    from .settings import Backend
    from .versions import Behaviour, Version

ROOT = "actor_rollout_ref"
ACTOR = f"{ROOT}.actor"
REFERENCE = f"{ROOT}.ref"
ROLLOUT = f"{ROOT}.rollout"
MODEL = f"{ROOT}.model"

#: The rollout engines that are modelled.
ENGINES = ("vllm", "sglang", "trtllm", "hf")
#: Optimizers with two moments, in small letters: those of 8 bits, and those that add a buffer after Kahan.
EIGHT_BIT = ("adam8bit", "adamw8bit", "pagedadamw8bit")
KAHAN = ("adamw_bf16", "anyprecisionadamw")
ADAMS = ("adam", "adamw", *EIGHT_BIT, *KAHAN)

#: Bytes of a number, by the names that verl takes.
DATA_TYPES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "half": 2}


def read_actor(config: Reader, backend: Backend, gpus: int) -> Role:
    """Read the settings of the actor."""
    fsdp = read_fsdp(config, f"{ACTOR}.fsdp_config", gpus, f"{ACTOR}.ulysses_sequence_parallel_size")
    megatron = read_megatron(config, ACTOR, gpus) if backend == "megatron" else NO_MEGATRON
    ranks = data_parallel(backend, fsdp, megatron, gpus)
    dynamic = config.flag(f"{ACTOR}.use_dynamic_bsz")
    budget = config.whole(f"{ACTOR}.ppo_max_token_len_per_gpu")
    micro = micro_batch(config, ACTOR, "ppo_micro_batch_size", ranks, dynamic, budget)
    lora = _lora(config, backend)
    mini = f"{ACTOR}.ppo_mini_batch_size"
    return _role(config, (ACTOR, MODEL), backend, (fsdp, megatron), micro, mini, lora)


def read_critic(config: Reader, backend: Backend, gpus: int, version: Version) -> Role:
    """Read the settings of the critic. Since v0.8.0 its micro-batch and Ulysses keys have no effect."""
    traits = behaviour(version)
    old_ulysses = "critic.ulysses_sequence_parallel_size" if traits.critic_reads_own_keys else None
    fsdp = read_fsdp(config, "critic.fsdp", gpus, old_ulysses)
    megatron = read_megatron(config, "critic", gpus) if backend == "megatron" else NO_MEGATRON
    ranks = data_parallel(backend, fsdp, megatron, gpus)
    budget_key = "critic.ppo_max_token_len_per_gpu"
    if traits.one_critic_budget and config.flag("trainer.use_v1"):
        budget_key = "critic.ppo_infer_max_token_len_per_gpu"
    micro = MicroBatch(None, True, config.whole(budget_key))
    if traits.critic_reads_own_keys:
        fixed = any(config.is_set(f"critic.ppo_micro_batch_size{end}") for end in ("", "_per_gpu"))
        dynamic = config.flag("critic.use_dynamic_bsz") or not fixed
        micro = micro_batch(config, "critic", "ppo_micro_batch_size", ranks, dynamic, micro.tokens)
    lora: tuple[int, Targets] = (config.whole("critic.model.lora_rank", 0), "all-linear")
    mini = "critic.ppo_mini_batch_size"
    mini = mini if config.is_set(mini) else f"{ACTOR}.ppo_mini_batch_size"
    return _role(config, ("critic", "critic.model"), backend, (fsdp, megatron), micro, mini, lora)


def _role(
    config: Reader,
    prefixes: tuple[str, str],
    backend: Backend,
    parallel: tuple[Fsdp, Megatron],
    micro: MicroBatch,
    mini_key: str,
    lora: tuple[int, Targets],
) -> Role:
    """Read the settings that both roles have, under the prefixes of the role and of its model."""
    prefix, model = prefixes
    fsdp, megatron = parallel
    recomputes = config.flag(f"{model}.enable_gradient_checkpointing")
    copies, moments = _optimizer(config, f"{prefix}.optim", backend, fsdp.parameter_bytes)
    return Role(
        backend=backend,
        fsdp=fsdp,
        megatron=megatron,
        micro_batch=micro,
        mini_batch=config.whole(mini_key) * config.whole(f"{ROLLOUT}.n"),
        remove_padding=config.flag(f"{model}.use_remove_padding"),
        checkpointing=megatron.recompute if backend == "megatron" else recomputes,
        activation_offload=config.flag(f"{model}.enable_activation_offload"),
        lora_rank=lora[0],
        targets=lora[1],
        step_copies=copies,
        moments=moments,
    )


def read_fsdp(config: Reader, prefix: str, gpus: int, old_ulysses: str | None) -> Fsdp:
    """Read the FSDP keys under a prefix. An older key for Ulysses, where there is one, counts above 1."""
    size = config.optional(f"{prefix}.fsdp_size", -1)
    shard = size if size and 0 < size < gpus else gpus
    if gpus % shard:
        _must_divide(config, f"{prefix}.fsdp_size", shard, f"the {gpus} GPUs")
        shard = gpus
    key = f"{prefix}.ulysses_sequence_parallel_size"
    if old_ulysses and config.whole(old_ulysses) > 1:
        key = old_ulysses
    ulysses = config.whole(key)
    if gpus % ulysses:
        _must_divide(config, key, ulysses, f"the {gpus} GPUs")
        ulysses = 1
    return Fsdp(
        shard=shard,
        ulysses=ulysses,
        parameter_bytes=_data_type(config, f"{prefix}.model_dtype", 4),
        param_offload=config.flag(f"{prefix}.param_offload"),
        optimizer_offload=config.flag(f"{prefix}.optimizer_offload"),
        offload_policy=config.flag(f"{prefix}.offload_policy"),
        reshard=config.any(f"{prefix}.reshard_after_forward") is not False,
    )


def _data_type(config: Reader, key: str, otherwise: int) -> int:
    value = config.choice(key, tuple(DATA_TYPES))
    return DATA_TYPES.get(value or "", otherwise)


#: For backends without these keys.
NO_MEGATRON = Megatron(1, 1, 1, 1, 1, True, False, False, 0.0, 12.0, None, False, 1, None, None, True)


def read_megatron(config: Reader, role: str, gpus: int) -> Megatron:
    """Read the Megatron keys of a role."""
    prefix = f"{role}.megatron"
    tensor, pipeline, context, expert = (
        config.whole(f"{prefix}.{name}_parallel_size")
        for name in ("tensor_model", "pipeline_model", "context", "expert_model")
    )
    if gpus % (tensor * pipeline * context):
        what = f"the {gpus} GPUs"
        _must_divide(
            config, f"{prefix}.tensor_model_parallel_size", tensor * pipeline * context, what, "TP × PP × CP"
        )
    expert_tensor = config.optional(f"{prefix}.expert_tensor_parallel_size")
    if expert_tensor is None:  # Megatron takes TP; where that is impossible, the run must have set 1
        expert_tensor = 1 if gpus % (expert * tensor * pipeline) else tensor
    if gpus % (expert * expert_tensor * pipeline):
        what = f"the {gpus} GPUs"
        key = f"{prefix}.expert_model_parallel_size"
        _must_divide(config, key, expert * expert_tensor * pipeline, what, "EP × ETP × PP")
    transformer = f"{prefix}.override_transformer_config"
    optimizer = f"{role}.optim.override_optimizer_config"
    fraction = 0.0
    if config.flag(f"{optimizer}.optimizer_cpu_offload"):
        key = f"{optimizer}.optimizer_offload_fraction"  # Megatron's own default is 0
        fraction = config.number(key, -1, 1) if config.is_set(key) else 0.0
    granularity = config.choice(f"{transformer}.recompute_granularity", ("full", "selective"))
    method = config.choice(f"{transformer}.recompute_method", ("uniform", "block"))
    return Megatron(
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        expert=expert,
        expert_tensor=expert_tensor,
        distributed_optimizer=config.flag(f"{prefix}.use_distributed_optimizer"),
        param_offload=config.flag(f"{prefix}.param_offload"),
        optimizer_offload=config.flag(f"{prefix}.optimizer_offload"),
        cpu_optimizer=max(0.0, fraction),
        moment_bytes=_moment_bytes(config, f"{role}.optim"),
        granularity=granularity,
        recompute=granularity == "full" and method != "block",
        recompute_layers=config.whole(f"{transformer}.recompute_num_layers"),
        first_layers=config.optional(f"{transformer}.num_layers_in_first_pipeline_stage"),
        last_layers=config.optional(f"{transformer}.num_layers_in_last_pipeline_stage"),
        sequence_parallel=config.flag(f"{prefix}.sequence_parallel"),
    )


def _moment_bytes(config: Reader, prefix: str) -> float:
    """Return the bytes of a main parameter and both moments, for the precision-aware optimizer."""
    if not config.flag(f"{prefix}.use_precision_aware_optimizer"):
        return 12.0
    moments = (_data_type(config, f"{prefix}.{name}", 4) for name in ("exp_avg_dtype", "exp_avg_sq_dtype"))
    return 4.0 + sum(moments)


def _must_divide(config: Reader, key: str, size: int, what: str, product: str = "it") -> None:
    message = f"{product} is {size}, which does not divide {what}"
    config.error(key, message, "choose a divisor")


def micro_batch(config: Reader, prefix: str, name: str, ranks: int, dynamic: bool, budget: int) -> MicroBatch:
    """Read the micro-batches of a pass. A size without ``_per_gpu`` counts the sequences of all ranks."""
    own, total = config.optional(f"{prefix}.{name}_per_gpu"), config.optional(f"{prefix}.{name}")
    if own is None and total is not None:
        own = total // ranks
        if not own:
            message = f"{total} sequences of all ranks leave none for each of {ranks}"
            hint = f"set {prefix}.{name}_per_gpu"
            config.error(f"{prefix}.{name}", message, hint)
            own = 1
    return MicroBatch(own, dynamic, budget)


def _lora(config: Reader, backend: Backend) -> tuple[int, Targets]:
    rank = config.whole(f"{MODEL}.lora_rank", 0)
    if backend == "megatron":
        others, rank = rank, config.whole(f"{MODEL}.lora.rank", 0)
        if others and not rank:
            message = "Megatron does not read it, so that the whole model is trained"
            config.warning(f"{MODEL}.lora_rank", message, f"set {MODEL}.lora.rank")
    key = f"{MODEL}.target_modules"
    targets = config.any(key)
    if not rank and config.is_set(key):
        rank_key = "lora.rank" if backend == "megatron" else "lora_rank"
        hint = f"set {MODEL}.{rank_key}, or leave the targets out"
        config.warning(key, "the LoRA rank is 0, so that no adapter is made", hint)
    return rank, _targets(config, key, targets)


def _targets(config: Reader, key: str, value: Any) -> Targets:
    if isinstance(value, str):
        return "all-linear" if value == "all-linear" else (value,)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if value is not None:
        config.error(key, "expected 'all-linear' or a list of module names", code=Code.wrong_type)
    return "all-linear"


def _optimizer(config: Reader, prefix: str, backend: Backend, parameter_bytes: int) -> tuple[int, float]:
    """Return the parameter-sized buffers of the step, and the bytes of the states per parameter."""
    name = str(config.any(f"{prefix}.optimizer") or "AdamW").lower()
    fused = config.flag(f"{prefix}.override_optimizer_config.fused")
    one_by_one = config.any(f"{prefix}.override_optimizer_config.foreach") is False
    copies = 0 if fused or one_by_one or backend != "fsdp" else 1
    if name in EIGHT_BIT:
        return copies, 2.0
    return copies, parameter_bytes * (3.0 if name in KAHAN else 2.0)


def read_rollout(request: Request, config: Reader, gpus: int) -> Rollout:
    """Read the settings of the rollout engine."""
    traits, engine = behaviour(request.version), _engine(request, config)
    stages = config.flag(f"{ROLLOUT}.multi_stage_wake_up")
    return Rollout(
        engine=engine,
        utilization=config.number(f"{ROLLOUT}.gpu_memory_utilization", 0, 1),
        tensor=_tensor(config, gpus),
        data=config.whole(f"{ROLLOUT}.data_parallel_size"),
        sequences=config.whole(f"{ROLLOUT}.max_num_seqs"),
        batched_tokens=config.whole(f"{ROLLOUT}.max_num_batched_tokens"),
        model_length=config.optional(f"{ROLLOUT}.max_model_len"),
        eager=config.flag(f"{ROLLOUT}.enforce_eager"),
        frees_cache=config.flag(f"{ROLLOUT}.free_cache_engine"),
        stages_wake_up=stages or engine != "sglang" or traits.sglang_stages,
        layered_summon=config.flag(f"{ROLLOUT}.layered_summon"),
        merge_lora=config.flag(f"{MODEL}.lora.merge"),
        bucket=_bucket(config, engine, traits),
        element_bytes=_element_bytes(config),
        separate=config.any("trainer.v1.trainer_mode") == "separate_async",
    )


def _engine(request: Request, config: Reader) -> str:
    key = f"{ROLLOUT}.name"
    name = config.any(key) if config.is_set(key) else request.engine or config.any(key)
    if name is None or name in ENGINES:
        return name or "vllm"
    hint = suggest_or(str(name), ENGINES, "see verl's rollout.name")
    config.warning(key, f"the engine {str(name)[:80]!r} is not modelled; vLLM is taken", hint)
    return "vllm"


def _tensor(config: Reader, gpus: int) -> int:
    """Read the TP size; verl's default, 2, only where there are GPUs for it."""
    key = f"{ROLLOUT}.tensor_model_parallel_size"
    tensor = config.whole(key)
    if not gpus % tensor:
        return tensor
    if config.is_set(key):
        _must_divide(config, key, tensor, f"the {gpus} GPUs")
    return 1


def _bucket(config: Reader, engine: str, traits: Behaviour) -> int:
    """Return the bytes of the bucket for weights, in versions that have one."""
    bucket = traits.sglang_bucket if engine == "sglang" else traits.vllm_bucket
    key = f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
    return config.whole(key) * 2**20 if config.is_set(key) and bucket else bucket


def _element_bytes(config: Reader) -> float:
    """Return the bytes of a weight; a quantized one is assumed to have one."""
    data_type = config.any(f"{ROLLOUT}.dtype")
    if config.any(f"{ROLLOUT}.quantization") is not None:
        return 1.0
    return float(DATA_TYPES.get(data_type, 2) if isinstance(data_type, str) else 2)
