"""The settings of a model that is trained, actor or critic, read from verl's keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..diagnostics import Code
from .settings import Fsdp, Megatron, MicroBatch, Role
from .versions import behaviour

if TYPE_CHECKING:
    from .parameters import Targets
    from .reader import Reader
    from .settings import Backend
    from .versions import Version

ROOT = "actor_rollout_ref"
ACTOR = f"{ROOT}.actor"
REFERENCE = f"{ROOT}.ref"
ROLLOUT = f"{ROOT}.rollout"
MODEL = f"{ROOT}.model"

#: Optimizers with two moments, in small letters: those of 8 bits, and those that add a buffer after Kahan.
EIGHT_BIT = ("adam8bit", "adamw8bit", "pagedadamw8bit")
KAHAN = ("adamw_bf16", "anyprecisionadamw")
ADAMS = ("adam", "adamw", *EIGHT_BIT, *KAHAN)

#: Bytes of a number, by the names that verl takes.
DATA_TYPES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "half": 2}


def read_actor(read: Reader, backend: Backend, gpus: int) -> Role:
    """The actor."""
    fsdp = read_fsdp(read, f"{ACTOR}.fsdp_config", gpus, f"{ACTOR}.ulysses_sequence_parallel_size")
    megatron = read_megatron(read, ACTOR, gpus) if backend == "megatron" else NO_MEGATRON
    ranks = data_parallel(backend, fsdp, megatron, gpus)
    dynamic = read.flag(f"{ACTOR}.use_dynamic_bsz")
    micro = micro_batch(
        read, ACTOR, "ppo_micro_batch_size", ranks, dynamic, read.whole(f"{ACTOR}.ppo_max_token_len_per_gpu")
    )
    rank, targets = _lora(read, backend)
    if backend == "megatron":
        checkpointing = megatron.recompute
        read.flag(f"{MODEL}.enable_gradient_checkpointing")
    else:
        checkpointing = read.flag(f"{MODEL}.enable_gradient_checkpointing")
    copies, moments = _optimizer(read, f"{ACTOR}.optim", backend, fsdp.parameter_bytes)
    return Role(
        backend=backend,
        fsdp=fsdp,
        megatron=megatron,
        micro_batch=micro,
        mini_batch=read.whole(f"{ACTOR}.ppo_mini_batch_size") * read.whole(f"{ROLLOUT}.n"),
        remove_padding=read.flag(f"{MODEL}.use_remove_padding"),
        checkpointing=checkpointing,
        activation_offload=read.flag(f"{MODEL}.enable_activation_offload"),
        lora_rank=rank,
        targets=targets,
        step_copies=copies,
        moments=moments,
    )


def read_critic(read: Reader, backend: Backend, gpus: int, version: Version) -> Role:
    """The critic, whose micro-batch and Ulysses keys have not reached its engine since v0.8.0."""
    does = behaviour(version)
    old_ulysses = "critic.ulysses_sequence_parallel_size" if does.critic_reads_own_keys else None
    fsdp = read_fsdp(read, "critic.fsdp", gpus, old_ulysses)
    megatron = read_megatron(read, "critic", gpus) if backend == "megatron" else NO_MEGATRON
    ranks = data_parallel(backend, fsdp, megatron, gpus)
    budget_key = "critic.ppo_max_token_len_per_gpu"
    if does.one_critic_budget and read.flag("trainer.use_v1"):
        budget_key = "critic.ppo_infer_max_token_len_per_gpu"
    micro = MicroBatch(None, True, read.whole(budget_key))
    if does.critic_reads_own_keys:
        fixed = any(read.is_set(f"critic.ppo_micro_batch_size{end}") for end in ("", "_per_gpu"))
        dynamic = read.flag("critic.use_dynamic_bsz") or not fixed
        micro = micro_batch(read, "critic", "ppo_micro_batch_size", ranks, dynamic, micro.tokens)
    mini = "critic.ppo_mini_batch_size"
    copies, moments = _optimizer(read, "critic.optim", backend, fsdp.parameter_bytes)
    return Role(
        backend=backend,
        fsdp=fsdp,
        megatron=megatron,
        micro_batch=micro,
        mini_batch=read.whole(mini if read.is_set(mini) else f"{ACTOR}.ppo_mini_batch_size")
        * read.whole(f"{ROLLOUT}.n"),
        remove_padding=read.flag("critic.model.use_remove_padding"),
        checkpointing=megatron.recompute
        if backend == "megatron"
        else read.flag("critic.model.enable_gradient_checkpointing"),
        activation_offload=read.flag("critic.model.enable_activation_offload"),
        lora_rank=read.whole("critic.model.lora_rank", 0),
        targets="all-linear",
        step_copies=copies,
        moments=moments,
    )


def read_fsdp(read: Reader, prefix: str, gpus: int, old_ulysses: str | None) -> Fsdp:
    """FSDP keys under a prefix; Ulysses may stand under an older name, which counts above 1."""
    size = read.optional(f"{prefix}.fsdp_size", -1)
    shard = size if size and 0 < size < gpus else gpus
    if gpus % shard:
        _must_divide(read, f"{prefix}.fsdp_size", shard, f"the {gpus} GPUs")
        shard = gpus
    key = f"{prefix}.ulysses_sequence_parallel_size"
    if old_ulysses and read.whole(old_ulysses) > 1:
        key = old_ulysses
    ulysses = read.whole(key)
    if gpus % ulysses:
        _must_divide(read, key, ulysses, f"the {gpus} GPUs")
        ulysses = 1
    return Fsdp(
        shard=shard,
        ulysses=ulysses,
        parameter_bytes=_data_type(read, f"{prefix}.model_dtype", 4),
        param_offload=read.flag(f"{prefix}.param_offload"),
        optimizer_offload=read.flag(f"{prefix}.optimizer_offload"),
        offload_policy=read.flag(f"{prefix}.offload_policy"),
        reshard=read.any(f"{prefix}.reshard_after_forward") is not False,
    )


def _data_type(read: Reader, key: str, otherwise: int) -> int:
    value = read.choice(key, tuple(DATA_TYPES))
    return DATA_TYPES.get(value or "", otherwise)


#: Stands for the keys that another backend does not read.
NO_MEGATRON = Megatron(1, 1, 1, 1, 1, True, False, False, 0.0, 12.0, None, False, 1, None, None, True)


def read_megatron(read: Reader, role: str, gpus: int) -> Megatron:
    """Megatron keys of a role."""
    prefix = f"{role}.megatron"
    tensor, pipeline, context, expert = (
        read.whole(f"{prefix}.{name}_parallel_size")
        for name in ("tensor_model", "pipeline_model", "context", "expert_model")
    )
    if gpus % (tensor * pipeline * context):
        what = f"the {gpus} GPUs"
        _must_divide(
            read, f"{prefix}.tensor_model_parallel_size", tensor * pipeline * context, what, "TP × PP × CP"
        )
    expert_tensor = read.optional(f"{prefix}.expert_tensor_parallel_size")
    if expert_tensor is None:  # Megatron takes TP; where that cannot be, whoever ran it has set 1
        expert_tensor = 1 if gpus % (expert * tensor * pipeline) else tensor
    if gpus % (expert * expert_tensor * pipeline):
        what = f"the {gpus} GPUs"
        key = f"{prefix}.expert_model_parallel_size"
        _must_divide(read, key, expert * expert_tensor * pipeline, what, "EP × ETP × PP")
    transformer = f"{prefix}.override_transformer_config"
    optimizer = f"{role}.optim.override_optimizer_config"
    fraction = 0.0
    if read.flag(f"{optimizer}.optimizer_cpu_offload"):
        key = f"{optimizer}.optimizer_offload_fraction"  # Megatron's own default is 0
        fraction = read.number(key, -1, 1) if read.is_set(key) else 0.0
    granularity = read.choice(f"{transformer}.recompute_granularity", ("full", "selective"))
    method = read.choice(f"{transformer}.recompute_method", ("uniform", "block"))
    return Megatron(
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        expert=expert,
        expert_tensor=expert_tensor,
        distributed_optimizer=read.flag(f"{prefix}.use_distributed_optimizer"),
        param_offload=read.flag(f"{prefix}.param_offload"),
        optimizer_offload=read.flag(f"{prefix}.optimizer_offload"),
        cpu_optimizer=max(0.0, fraction),
        moment_bytes=_moment_bytes(read, f"{role}.optim"),
        granularity=granularity,
        recompute=granularity == "full" and method != "block",
        recompute_layers=read.whole(f"{transformer}.recompute_num_layers"),
        first_layers=read.optional(f"{transformer}.num_layers_in_first_pipeline_stage"),
        last_layers=read.optional(f"{transformer}.num_layers_in_last_pipeline_stage"),
        sequence_parallel=read.flag(f"{prefix}.sequence_parallel"),
    )


def _moment_bytes(read: Reader, prefix: str) -> float:
    """Main parameter and both moments, as the precision-aware optimizer keeps them."""
    if not read.flag(f"{prefix}.use_precision_aware_optimizer"):
        return 12.0
    moments = (_data_type(read, f"{prefix}.{name}", 4) for name in ("exp_avg_dtype", "exp_avg_sq_dtype"))
    return 4.0 + sum(moments)


def _must_divide(read: Reader, key: str, size: int, what: str, product: str = "it") -> None:
    message = f"{product} is {size}, which does not divide {what}"
    read.error(key, message, "choose a divisor")


def data_parallel(backend: Backend, fsdp: Fsdp, megatron: Megatron, gpus: int) -> int:
    """Ranks that sequences are divided among."""
    if backend == "megatron":
        return max(1, gpus // (megatron.tensor * megatron.pipeline * megatron.context))
    return max(1, gpus // fsdp.ulysses)


def micro_batch(read: Reader, prefix: str, name: str, ranks: int, dynamic: bool, budget: int) -> MicroBatch:
    """How a pass is cut. A size without ``_per_gpu`` counts the sequences of all ranks."""
    own, total = read.optional(f"{prefix}.{name}_per_gpu"), read.optional(f"{prefix}.{name}")
    if own is None and total is not None:
        own = total // ranks
        if not own:
            message = f"{total} sequences of all ranks leave none for each of {ranks}"
            hint = f"set {prefix}.{name}_per_gpu"
            read.error(f"{prefix}.{name}", message, hint)
            own = 1
    return MicroBatch(own, dynamic, budget)


def _lora(read: Reader, backend: Backend) -> tuple[int, Targets]:
    rank = read.whole(f"{MODEL}.lora_rank", 0)
    if backend == "megatron":
        others, rank = rank, read.whole(f"{MODEL}.lora.rank", 0)
        if others and not rank:
            message = "Megatron does not read it, so that the whole model is trained"
            read.warning(f"{MODEL}.lora_rank", message, f"set {MODEL}.lora.rank")
    key = f"{MODEL}.target_modules"
    targets = read.any(key)
    if not rank and read.is_set(key):
        rank_key = "lora.rank" if backend == "megatron" else "lora_rank"
        hint = f"set {MODEL}.{rank_key}, or leave the targets out"
        read.warning(key, "the LoRA rank is 0, so that no adapter is made", hint)
    return rank, _targets(read, key, targets)


def _targets(read: Reader, key: str, value: Any) -> Targets:
    if isinstance(value, str):
        return "all-linear" if value == "all-linear" else (value,)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if value is not None:
        read.error(key, "expected 'all-linear' or a list of module names", code=Code.wrong_type)
    return "all-linear"


def _optimizer(read: Reader, prefix: str, backend: Backend, parameter_bytes: int) -> tuple[int, float]:
    """Parameter-sized buffers of the step, and bytes of the optimizer's states per parameter."""
    name = str(read.any(f"{prefix}.optimizer") or "AdamW").lower()
    fused = read.flag(f"{prefix}.override_optimizer_config.fused")
    one_by_one = read.any(f"{prefix}.override_optimizer_config.foreach") is False
    copies = 0 if fused or one_by_one or backend != "fsdp" else 1
    if name in EIGHT_BIT:
        return copies, 2.0
    return copies, parameter_bytes * (3.0 if name in KAHAN else 2.0)
