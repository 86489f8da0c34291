"""All settings that decide memory: each field with verl's keys for it, and rules that need several keys."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..diagnostics import did_you_mean
from ..units import GIB
from . import pools, tokens
from .constants import TYPICAL_LENGTH
from .reader import OF_ACTOR, OF_CRITIC, OF_REFERENCE, Reader, keys_of, read_fields, setting
from .request import ACTOR, DATA_TYPES, MODEL, REFERENCE, ROLLOUT
from .roles import Fsdp, Megatron, Role, Sharding, actor_backend, read_role, strategy
from .tokens import Lengths, MicroBatch, log_prob_micro_batch, tokens_of

if TYPE_CHECKING:
    from .registries import Registries
    from .versions import Version

#: The assumed capacity of an unnamed GPU, which only decides the rollout engine's memory.
USUAL_CAPACITY = 79.1 * GIB
#: The rollout engines that are modelled.
ENGINES = ("vllm", "sglang", "trtllm", "hf")
#: verl's advantage estimators; the first needs a critic.
ESTIMATORS = (
    "gae", "gdpo", "gpg", "grpo", "grpo_passk", "grpo_vectorized", "opo", "optimal_token_baseline",
    "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "rloo", "rloo_vectorized",
    "tir_optimal_token_baseline",
)  # fmt: skip


# -- the rollout engine


def engine_of(reader: Reader, key: str) -> str:
    """Return the rollout engine, from its key, otherwise from the source."""
    name = reader.any(key) if reader.is_set(key) else reader.request.engine or reader.any(key)
    if name is None or name in ENGINES:
        return name or "vllm"
    hint = did_you_mean(str(name), ENGINES, f"use one of {', '.join(ENGINES)}")
    reader.warning(key, f"the rollout engine {str(name)[:80]!r} is not modelled: vLLM is assumed", hint)
    return "vllm"


def _rollout_tensor(reader: Reader, key: str) -> int:
    """Return the TP size; 1 instead of verl's default, 2, if that does not divide the GPUs."""
    tensor = reader.whole(key)
    if reader.rollout_gpus % tensor and not reader.is_set(key):
        return 1
    return reader.divisor(key, tensor, gpus=reader.rollout_gpus)


def _keeps_cache_awake(reader: Reader, key: str, name: str) -> bool:
    """Return whether the KV cache is awake during weight sync; SGLang sleeps in stages only since v0.8.0."""
    staged = reader.flag(key) or reader.traits.sglang_stages or engine_of(reader, name) != "sglang"
    return reader.traits.cache_awake_in_sync or not staged


def _bucket(reader: Reader, key: str, name: str) -> int:
    """Return the bytes of the weight transfer bucket; 0 in versions without one."""
    traits = reader.traits
    size = traits.sglang_bucket if engine_of(reader, name) == "sglang" else traits.vllm_bucket
    return reader.whole(key) * 2**20 if reader.is_set(key) and size else size


def element_bytes(reader: Reader, data_type: str, quantization: str) -> float:
    """Return the bytes per weight; 1 is assumed for quantized weights."""
    name = reader.any(data_type)
    if reader.any(quantization) is not None:
        return 1.0
    return float(DATA_TYPES.get(name, 2) if isinstance(name, str) else 2)


@dataclass(frozen=True)
class Rollout:
    """The rollout engine.

    Attributes:
        utilization: its share of the GPU's memory.
        tensor: the number of GPUs that share one copy of its weights.
        data: the number of data-parallel copies in one engine, which divide the experts among them.
        sequences: the most sequences at a time.
        batched_tokens: the most tokens in one step of the engine.
        model_length: the longest sequence; None for the model's own limit.
        cache_awake_in_sync: whether the KV cache is awake while the weights are updated.
        bucket: bytes of the weight transfer bucket.
        element_bytes: bytes per weight.
        separate: whether it uses no training GPUs.
    """

    engine: str = setting(engine_of, "{rollout}.name")
    utilization: float = setting(Reader.number, "{rollout}.gpu_memory_utilization", low=0, high=1)
    tensor: int = setting(_rollout_tensor, "{rollout}.tensor_model_parallel_size")
    data: int = setting(Reader.whole, "{rollout}.data_parallel_size")
    sequences: int = setting(Reader.whole, "{rollout}.max_num_seqs")
    batched_tokens: int = setting(Reader.whole, "{rollout}.max_num_batched_tokens")
    model_length: int | None = setting(Reader.optional, "{rollout}.max_model_len")
    eager: bool = setting(Reader.flag, "{rollout}.enforce_eager")
    frees_cache: bool = setting(Reader.flag, "{rollout}.free_cache_engine")
    cache_awake_in_sync: bool = setting(_keeps_cache_awake, "{rollout}.multi_stage_wake_up", "{rollout}.name")
    layered_summon: bool = setting(Reader.flag, "{rollout}.layered_summon")
    merge_lora: bool = setting(Reader.flag, "{model}.lora.merge")
    bucket: int = setting(
        _bucket, "{rollout}.checkpoint_engine.update_weights_bucket_megabytes", "{rollout}.name"
    )
    element_bytes: float = setting(element_bytes, "{rollout}.dtype", "{rollout}.quantization")
    separate: bool = setting(
        pools.is_separate,
        "trainer.v1.trainer_mode",
        "async_training.use_trainer_do_validate",
        "async_training.use_dynamic_resource_scheduling",
    )


# -- the run


def has_critic(reader: Reader) -> bool:
    """Return whether there is a critic, from its own key, the advantage estimator, or the task."""
    if reader.is_set("critic.enable"):
        return reader.flag("critic.enable")
    key, task = "algorithm.adv_estimator", reader.request.task
    if task and not reader.is_set(key):
        return task.lower().startswith("ppo")
    name = reader.any(key)
    if name not in ESTIMATORS:
        hint = did_you_mean(str(name), ESTIMATORS, "if it needs a critic, set critic.enable=True")
        message = f"unknown advantage estimator {str(name)[:80]!r}: no critic is assumed"
        reader.warning(key, message, hint, "unknown_value")
    return bool(name == "gae")


def _reference_offload(reader: Reader, *keys: str) -> bool:
    """Return whether the reference policy is offloaded; with Megatron only on request."""
    return reader.backend != "megatron" or reader.flag(reader.first_set(*keys))


def _computes_entropy(reader: Reader, coefficient: str, key: str) -> bool:
    """Return whether the update computes the entropy of the logits."""
    asked = reader.number(coefficient, -1e9, 1e9) != 0 or reader.flag(key)
    return (asked or reader.traits.entropy_always) and not tokens.is_easyr1(reader)


def _entropy_chunk(reader: Reader, own: str, fsdp: str, megatron: str, size: str) -> int:
    """Return the tokens per chunk of the entropy, 0 without chunks, from the actor's or engine's keys."""
    of_engine = megatron if reader.backend == "megatron" else fsdp
    chunked = [reader.flag(own), reader.flag(of_engine)]  # both, so that both are checked
    sizes = (key.replace("with_chunking", size) for key in (of_engine, own))
    return reader.whole(reader.first_set(*sizes)) if any(chunked) else 0


def _recomputes_entropy(reader: Reader, *keys: str) -> bool:
    """Return whether the backward pass recomputes the entropy, which Megatron never does."""
    return any(reader.flag(key) for key in keys) and reader.backend != "megatron"


def _compiles(reader: Reader, *keys: str) -> bool:
    """Return whether torch.compile is on, which its older or newer key can switch off."""
    return not any(reader.is_set(key) and not reader.flag(key) for key in keys)


_CHUNKING, _CHUNK = "entropy_from_logits_with_chunking", "entropy_from_logits_chunk_size"


@dataclass(frozen=True)
class Settings:
    """All settings that the formulas read.

    Attributes:
        gpus: the number of training GPUs.
        other_gpus: the number of GPUs in pools that do not train, if set.
        capacity: the GPU's capacity in bytes; that of an 80 GB GPU if unknown.
        capacity_known: whether the GPU or its memory is known.
        sequences: the sequences of one step.
        unstated: settings that a source leaves open: ``padding``, ``length``, ``recompute``, ``offload``.
        undecided: unknown settings that decide memory, each with a reason; with any, no figure is valid.
        reference: whether there is a reference policy other than the actor itself.
        reference_fsdp: its FSDP settings, with any backend of the actor.
        old_log_prob: whether the actor's log-probs are computed before the update.
        computes_entropy: whether the update computes the entropy of the logits.
        compiled_entropy: whether torch.compile fuses it into one kernel.
        entropy_free: whether this is a fork that never computes the entropy.
        trains_alone: whether there is no rollout engine at all: plain training, expressed in verl's keys.
        counter_leaves_pool_out: whether PyTorch's counter of the training process excludes the rollout pool.
        positions: the model's positions, if the run sets them; None for those of its config.json.
    """

    version: Version
    gpus: int
    other_gpus: int
    nodes: int
    capacity: float
    capacity_known: bool
    actor: Role
    critic: Role | None
    rollout: Rollout
    lengths: Lengths
    reference: bool
    reference_fsdp: Sharding
    old_micro_batch: MicroBatch
    reference_micro_batch: MicroBatch
    unstated: frozenset[str]
    entropy_free: bool
    trains_alone: bool
    counter_leaves_pool_out: bool
    sequences: int = setting(tokens.step_sequences, "data.train_batch_size", "{rollout}.n")
    reference_offload: bool = setting(
        _reference_offload, "{reference}.megatron.param_offload", "{actor}.megatron.param_offload"
    )
    old_log_prob: bool = setting(
        lambda reader, key: not reader.flag(key), "algorithm.rollout_correction.bypass_mode"
    )
    computes_entropy: bool = setting(_computes_entropy, "{actor}.entropy_coeff", "{actor}.calculate_entropy")
    entropy_chunk: int = setting(
        _entropy_chunk,
        f"{{actor}}.{_CHUNKING}",
        f"{{fsdp}}.{_CHUNKING}",
        f"{{megatron}}.{_CHUNKING}",
        size="chunk_size",
    )
    entropy_recomputed: bool = setting(
        _recomputes_entropy, "{actor}.entropy_checkpointing", "{fsdp}.entropy_checkpointing"
    )
    compiled_entropy: bool = setting(_compiles, "{actor}.use_torch_compile", "{fsdp}.use_torch_compile")
    fused_kernels: bool = setting(Reader.flag, "{model}.use_fused_kernels")
    positions: int | None = setting(Reader.optional, "{model}.override_config.max_position_embeddings")
    undecided: tuple[str, ...] = ()


def settings_of(reader: Reader, registries: Registries) -> Settings:
    """Return the settings; ``reader`` collects their problems."""
    request = reader.request
    reader.gpus, nodes = pools.training_gpus(reader)
    reader.rollout_gpus = pools.rollout_gpus(reader) or reader.gpus
    reader.backend = backend = actor_backend(reader)
    capacity = pools.capacity(reader, registries)
    actor, critic = read_role(reader, OF_ACTOR, backend), None
    if has_critic(reader):
        critic = read_role(reader, OF_CRITIC, strategy(reader, "critic.strategy") or backend)
    wanted = [reader.flag(key) for key in (f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")]
    # The actor without its adapters is the reference policy.
    separate = (any(wanted) or reader.traits.reference_resident) and not actor.lora_rank
    reference = read_fields(Sharding, reader, OF_REFERENCE) if separate else actor.fsdp
    ranks = actor.ranks(reader.gpus)
    old = log_prob_micro_batch(reader, ROLLOUT, ranks, actor.micro_batch)
    of_reference = old
    if separate:
        if backend != "megatron":
            ranks = max(1, reader.gpus // reference.ulysses)
        of_reference = log_prob_micro_batch(reader, REFERENCE, ranks, actor.micro_batch)
    return read_fields(
        Settings,
        reader,
        version=request.version,
        gpus=reader.gpus,
        other_gpus=pools.other_gpus(reader),
        nodes=nodes,
        capacity=USUAL_CAPACITY if capacity is None else capacity,
        capacity_known=capacity is not None,
        actor=actor,
        critic=critic,
        rollout=read_fields(Rollout, reader),
        lengths=tokens.lengths(reader, *tokens.LIMITS),
        reference=separate,
        reference_fsdp=reference,
        old_micro_batch=old,
        reference_micro_batch=of_reference,
        unstated=_unstated(reader),
        entropy_free=tokens.is_easyr1(reader),
        trains_alone=pools.trains_alone(reader),
        counter_leaves_pool_out=tokens.is_easyr1(reader) or not reader.traits.engine_in_process,
    )


#: The keys that a formula uses, with any backend.
MODELLED = frozenset({
    *keys_of(Fsdp, Megatron, Role, roles=[OF_ACTOR, OF_CRITIC]), *tokens.KEYS, *pools.KEYS,
    *keys_of(Rollout, Settings, roles=[OF_ACTOR]), *keys_of(Sharding, roles=[OF_REFERENCE]),
    *(f"{role}.optim.{name}" for role in (ACTOR, "critic") for name in (
        "optimizer", "override_optimizer_config.fused", "override_optimizer_config.foreach")),
    *(f"{section}.{_CHUNK}" for section in (ACTOR, OF_ACTOR.fsdp, f"{ACTOR}.megatron")),
    f"{ACTOR}.strategy", "critic.strategy", "critic.enable", "model_engine", "algorithm.adv_estimator",
    f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward", "easyr1.dtype", "easyr1.dynamic_token_limit",
    f"{MODEL}.path", f"{MODEL}.lora_rank", f"{MODEL}.lora.rank", f"{MODEL}.target_modules",
    "critic.model.lora_rank", "actor_rollout_ref.hybrid_engine",
    # With FSDP the reference policy is always on the host; its key has no effect.
    f"{REFERENCE}.fsdp_config.param_offload",
})  # fmt: skip


def _unstated(reader: Reader) -> frozenset[str]:
    """Return the names of settings that a partial source does not quote although scripts often set them."""
    if not reader.request.partial:
        return frozenset()
    part = "megatron" if reader.backend == "megatron" else "fsdp_config"
    keys = {
        "padding": [f"{MODEL}.use_remove_padding"],
        "length": [f"{ROLLOUT}.max_model_len"],
        "recompute": [f"{ACTOR}.megatron.override_transformer_config.recompute_granularity"],
        "offload": [f"{ACTOR}.{part}.{name}_offload" for name in ("param", "optimizer")],
    }
    return frozenset(name for name, of_name in keys.items() if not any(map(reader.is_set, of_name)))


def least(settings: Settings) -> Settings:
    """Return the settings at the low end of the range, with everything unknown at its most favourable value.

    Unknown lengths are the shortest of real data; keys that a source does not quote may have been set.
    """
    lengths, actor, open_ = settings.lengths, settings.actor, settings.unstated
    mean = lengths.mean if lengths.known else lengths.longest * TYPICAL_LENGTH.value
    lengths = replace(lengths, mean=mean, variation=0.0)
    if "recompute" in open_ and actor.backend == "megatron":
        actor = replace(actor, megatron=replace(actor.megatron, recompute=True))
    if "offload" in open_:
        fsdp = replace(actor.fsdp, param_offload=True, optimizer_offload=True)
        megatron = replace(actor.megatron, param_offload=True, optimizer_offload=True)
        actor = replace(actor, fsdp=fsdp, megatron=megatron)
    if "padding" in open_:
        actor = replace(actor, remove_padding=True)
    return replace(settings, lengths=lengths, actor=actor)


# -- what follows from settings


def update_tokens(settings: Settings, role: Role) -> float:
    """Return the tokens on one GPU in the fullest micro-batch of an update."""
    sequences = max(1, min(role.mini_batch, settings.sequences) // role.ranks(settings.gpus))
    sharers, padded = role.sequence_sharers, not role.remove_padding
    return tokens_of(settings.lengths, role.micro_batch, sequences, sharers, padded=padded)


def old_tokens(settings: Settings) -> float:
    """Return the tokens on one GPU in the fullest micro-batch of the old log-prob pass."""
    return _log_prob_tokens(settings, settings.old_micro_batch, settings.actor.fsdp)


def reference_tokens(settings: Settings) -> float:
    """Return the tokens on one GPU in the fullest micro-batch of the reference pass."""
    return _log_prob_tokens(settings, settings.reference_micro_batch, settings.reference_fsdp)


def _log_prob_tokens(settings: Settings, micro: MicroBatch, fsdp: Sharding) -> float:
    """Return the tokens of a log-prob pass, which runs over the whole step."""
    actor = settings.actor
    if actor.backend != "megatron":
        actor = replace(actor, fsdp=replace(actor.fsdp, ulysses=fsdp.ulysses))
    sequences = max(1, settings.sequences // actor.ranks(settings.gpus))
    padded = not actor.remove_padding
    return tokens_of(settings.lengths, micro, sequences, actor.sequence_sharers, padded=padded)


def micro_batches(settings: Settings, role: Role) -> int:
    """Return the number of micro-batches per optimizer step, at least one."""
    sequences = max(1, min(role.mini_batch, settings.sequences) // role.ranks(settings.gpus))
    if not role.micro_batch.dynamic:
        return -(-sequences // max(1, role.micro_batch.sequences or 1))
    mean = settings.lengths.mean if role.remove_padding else settings.lengths.limit
    share = sequences * mean / role.sequence_sharers
    return max(1, math.ceil(share / max(1, role.micro_batch.tokens)))
