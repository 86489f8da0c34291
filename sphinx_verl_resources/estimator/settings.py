"""All settings that decide memory, each field with verl's keys for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..units import GIB
from . import pools, reading, tokens
from .constants import LENGTH_SPREAD, TYPICAL_LENGTH
from .megatron_settings import NO_MEGATRON, Megatron
from .reader import OF_ACTOR, OF_CRITIC, OF_REFERENCE, Reader, read_fields, setting
from .request import ACTOR, MODEL, REFERENCE, ROLLOUT, changed
from .tokens import Lengths, MicroBatch, log_prob_micro_batch, padded_up, tokens_of, update_micro_batch

if TYPE_CHECKING:
    from .reader import Sections
    from .registries import Registries
    from .request import Backend
    from .shape import Targets
    from .versions import Version

#: The assumed capacity of an unnamed GPU, which only decides the rollout engine's memory.
USUAL_CAPACITY = 79.1 * GIB


@dataclass(frozen=True)
class Sharding:
    """FSDP's settings for any model, including the reference policy.

    Attributes:
        shard: the number of GPUs that share one copy of the states.
        ulysses: the number of GPUs that share a sequence.
        reshards_root: whether a pass without gradients reshards the root at its end.
        pad_bucket: the tokens of a packed micro-batch, over all GPUs that share a sequence, are padded up to
            a multiple of this; 1 for no padding.
    """

    shard: int = setting(reading.shard_size, "{fsdp}.fsdp_size")
    reshards_root: bool = setting(reading.is_divided, "{fsdp}.fsdp_size")
    ulysses: int = setting(
        reading.ulysses_size, "{fsdp}.ulysses_sequence_parallel_size", "{role}.ulysses_sequence_parallel_size"
    )
    pad_bucket: int = setting(reading.pad_bucket, "{fsdp}.pad_to_length_bucket", "{fsdp}.pad_to_length")


@dataclass(frozen=True)
class Fsdp(Sharding):
    """FSDP's settings for a role.

    Attributes:
        parameter_bytes: bytes per stored parameter, gradient and moment.
        defers_sync: whether gradients are sharded only after the last micro-batch.
    """

    parameter_bytes: int = setting(Reader.data_type, "{fsdp}.model_dtype")
    param_offload: bool = setting(Reader.flag, "{fsdp}.param_offload")
    optimizer_offload: bool = setting(Reader.flag, "{fsdp}.optimizer_offload")
    offload_policy: bool = setting(Reader.flag, "{fsdp}.offload_policy")
    reshard: bool = setting(reading.unless_false, "{fsdp}.reshard_after_forward")
    defers_sync: bool = setting(reading.defers_sync, "{fsdp}.use_no_sync_for_gradient_accumulation")


@dataclass(frozen=True)
class Role:
    """A trained model: the actor or the critic.

    Attributes:
        backend: the backend, which decides whether ``fsdp`` or ``megatron`` applies.
        mini_batch: the sequences of a mini-batch, over all ranks.
        remove_padding: whether padding is removed before the computation.
        checkpointing: whether every layer is recomputed in the backward pass (FSDP).
        lora_rank: the rank of the adapters; 0 for full fine-tuning.
        step_copies: the number of parameter-sized buffers in the optimizer step.
        moments: bytes of the optimizer's states per trained parameter.
    """

    backend: Backend
    fsdp: Fsdp
    megatron: Megatron
    micro_batch: MicroBatch
    lora_rank: int
    targets: Targets
    step_copies: int
    moments: float
    mini_batch: int = setting(tokens.mini_batch, "{role}.ppo_mini_batch_size", "{actor}.ppo_mini_batch_size")
    remove_padding: bool = setting(Reader.flag, "{model}.use_remove_padding")
    checkpointing: bool = setting(Reader.flag, "{model}.enable_gradient_checkpointing")
    activation_offload: bool = setting(Reader.flag, "{model}.enable_activation_offload")


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
        stages_wake_up: whether weights wake up before the KV cache.
        bucket: bytes of the weight transfer bucket.
        element_bytes: bytes per weight.
        separate: whether it uses no training GPUs.
        speculates: whether layers for multi-token prediction propose tokens.
    """

    engine: str = setting(reading.engine, "{rollout}.name")
    utilization: float = setting(Reader.number, "{rollout}.gpu_memory_utilization", low=0, high=1)
    tensor: int = setting(reading.rollout_tensor, "{rollout}.tensor_model_parallel_size")
    data: int = setting(Reader.whole, "{rollout}.data_parallel_size")
    sequences: int = setting(Reader.whole, "{rollout}.max_num_seqs")
    batched_tokens: int = setting(Reader.whole, "{rollout}.max_num_batched_tokens")
    model_length: int | None = setting(Reader.optional, "{rollout}.max_model_len")
    eager: bool = setting(Reader.flag, "{rollout}.enforce_eager")
    frees_cache: bool = setting(Reader.flag, "{rollout}.free_cache_engine")
    stages_wake_up: bool = setting(reading.stages_wake_up, "{rollout}.multi_stage_wake_up", "{rollout}.name")
    layered_summon: bool = setting(Reader.flag, "{rollout}.layered_summon")
    merge_lora: bool = setting(Reader.flag, "{model}.lora.merge")
    bucket: int = setting(
        reading.bucket, "{rollout}.checkpoint_engine.update_weights_bucket_megabytes", "{rollout}.name"
    )
    element_bytes: float = setting(reading.element_bytes, "{rollout}.dtype", "{rollout}.quantization")
    separate: bool = setting(
        pools.is_separate,
        "trainer.v1.trainer_mode",
        "async_training.use_trainer_do_validate",
        "async_training.use_dynamic_resource_scheduling",
    )
    speculates: bool = setting(reading.all_on, "{model}.mtp.enable", "{model}.mtp.enable_rollout")


@dataclass(frozen=True)
class Settings:
    """All settings that the formulas read.

    Attributes:
        gpus: the number of training GPUs.
        other_gpus: the number of GPUs in pools that do not train, if set.
        capacity: the GPU's capacity in bytes; that of an 80 GB GPU if unknown.
        capacity_known: whether the GPU or its memory is known.
        npu: whether the GPU is a Huawei NPU.
        sequences: the sequences of one step.
        unstated: settings that a source leaves open: ``padding``, ``length``, ``recompute``, ``offload``.
        undecided: unknown settings that decide memory, each with a reason; with any, no figure is valid.
        reference: whether there is a reference policy other than the actor itself.
        reference_fsdp: its FSDP settings, with any backend of the actor.
        reference_bytes: bytes per parameter of the reference policy in host memory.
        old_log_prob: whether the actor's log-probs are computed before the update.
        computes_entropy: whether the update computes the entropy of the logits.
        compiled_entropy: whether torch.compile fuses it into one kernel.
        entropy_free: whether this is a fork that never computes the entropy.
        balance_batch: whether the tokens of a step are divided evenly among the ranks.
        counter_leaves_pool_out: whether PyTorch's counter of the training process excludes the rollout pool.
        positions: the model's positions, if the run sets them; None for those of its config.json.
    """

    version: Version
    gpus: int
    other_gpus: int
    nodes: int
    capacity: float
    capacity_known: bool
    npu: bool
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
    counter_leaves_pool_out: bool
    sequences: int = setting(tokens.step_sequences, "data.train_batch_size", "{rollout}.n")
    balance_batch: bool = setting(Reader.flag, "trainer.balance_batch")
    reference_bytes: int = setting(reading.reference_bytes, "{reference}.fsdp_config.model_dtype")
    reference_offload: bool = setting(
        reading.reference_offload, "{reference}.megatron.param_offload", "{actor}.megatron.param_offload"
    )
    old_log_prob: bool = setting(reading.unless_on, "algorithm.rollout_correction.bypass_mode")
    computes_entropy: bool = setting(
        reading.computes_entropy, "{actor}.entropy_coeff", "{actor}.calculate_entropy"
    )
    entropy_chunk: int = setting(
        reading.entropy_chunk, "entropy_from_logits_with_chunking", "entropy_from_logits_chunk_size"
    )
    entropy_recomputed: bool = setting(
        reading.recomputes_entropy,
        "{actor}.entropy_checkpointing",
        "{fsdp}.entropy_checkpointing",
    )
    compiled_entropy: bool = setting(
        reading.compiles, "{actor}.use_torch_compile", "{fsdp}.use_torch_compile"
    )
    fused_kernels: bool = setting(Reader.flag, "{model}.use_fused_kernels")
    positions: int | None = setting(Reader.optional, "{model}.override_config.max_position_embeddings")
    undecided: tuple[str, ...] = ()


def settings_of(reader: Reader, registries: Registries) -> Settings:
    """Return the settings; ``reader`` collects their problems."""
    reader.gpus, nodes = pools.training_gpus(reader)
    reader.rollout_gpus = pools.rollout_gpus(reader) or reader.gpus
    reader.backend = backend = reading.actor_backend(reader)
    capacity = pools.capacity(reader, registries)
    actor = _role(reader, OF_ACTOR, backend)
    critic = None
    if reading.has_critic(reader):
        critic = _role(reader, OF_CRITIC, reading.strategy(reader, "critic.strategy") or backend)
    asked = reading.has_reference(reader, f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")
    asked = asked and not actor.lora_rank  # the actor without its adapters is the reference policy
    reference = read_fields(Sharding, reader, OF_REFERENCE) if asked else actor.fsdp
    of_actor = data_parallel(backend, actor.fsdp, actor.megatron, reader.gpus)
    old = log_prob_micro_batch(reader, ROLLOUT, of_actor, actor.micro_batch)
    of_reference = old
    if asked:
        ranks = data_parallel(backend, reference, actor.megatron, reader.gpus)
        of_reference = log_prob_micro_batch(reader, REFERENCE, ranks, actor.micro_batch)
    return read_fields(
        Settings,
        reader,
        version=reader.request.version,
        gpus=reader.gpus,
        other_gpus=pools.other_gpus(reader),
        nodes=nodes,
        capacity=capacity if capacity is not None else USUAL_CAPACITY,
        capacity_known=capacity is not None,
        npu=pools.is_npu(pools.gpu_of(reader.request, registries)),
        actor=actor,
        critic=critic,
        rollout=read_fields(Rollout, reader),
        lengths=tokens.lengths(reader, "data.max_prompt_length", "data.max_response_length"),
        reference=asked,
        reference_fsdp=reference,
        old_micro_batch=old,
        reference_micro_batch=of_reference,
        unstated=reading.unstated(reader),
        entropy_free=reading.is_easyr1(reader),
        counter_leaves_pool_out=reading.is_easyr1(reader) or not reader.traits.engine_in_process,
    )


def _role(reader: Reader, of: Sections, backend: Backend) -> Role:
    """Read the settings of the actor or the critic."""
    fsdp = read_fields(Fsdp, reader, of)
    megatron = NO_MEGATRON
    if backend == "megatron":
        megatron = checked_megatron(read_fields(Megatron, reader, of), reader, of)
    ranks = data_parallel(backend, fsdp, megatron, reader.gpus)
    micro = update_micro_batch(reader, of, ranks)
    targets: Targets = "all-linear"
    if of is OF_CRITIC:
        rank = reader.whole("critic.model.lora_rank", 0)
    else:
        rank = reading.lora_rank(reader, backend)
        targets = reading.targets(reader, f"{MODEL}.target_modules")
    copies, moments = reading.optimizer(reader, f"{of.role}.optim", backend, fsdp.parameter_bytes)
    return read_fields(
        Role,
        reader,
        of,
        backend=backend,
        fsdp=fsdp,
        megatron=megatron,
        micro_batch=micro,
        lora_rank=rank,
        targets=targets,
        step_copies=copies,
        moments=moments,
    )


def checked_megatron(found: Megatron, reader: Reader, of: Sections) -> Megatron:
    """Return Megatron's settings with the TP of experts filled in; check that the sizes divide the GPUs."""
    tensor, pipeline, expert = found.tensor, found.pipeline, found.expert
    prefix = f"{of.role}.megatron"
    reader.must_divide(
        f"{prefix}.tensor_model_parallel_size", tensor * pipeline * found.context, "TP × PP × CP"
    )
    if found.expert_tensor is None:  # Megatron uses TP; if that is impossible, the run must have set 1
        possible = not reader.gpus % (expert * tensor * pipeline)
        found = replace(found, expert_tensor=tensor if possible else 1)
    reader.must_divide(
        f"{prefix}.expert_model_parallel_size", expert * found.expert_tensor * pipeline, "EP × ETP × PP"
    )
    return found


def least(settings: Settings) -> Settings:
    """Return the settings at the low end of the range, with everything unknown at its most favourable value.

    Unknown lengths are the shortest of real data; keys that a source does not quote may have been set.
    """
    lengths, actor, open_ = settings.lengths, settings.actor, settings.unstated
    mean = lengths.mean if lengths.known else lengths.longest * TYPICAL_LENGTH.value
    lengths = changed(lengths, mean=mean, variation=LENGTH_SPREAD.low)
    if "recompute" in open_ and actor.backend == "megatron":
        actor = replace(actor, megatron=replace(actor.megatron, recompute=True))
    if "offload" in open_:
        fsdp = replace(actor.fsdp, param_offload=True, optimizer_offload=True)
        megatron = replace(actor.megatron, param_offload=True, optimizer_offload=True)
        actor = replace(actor, fsdp=fsdp, megatron=megatron)
    if "padding" in open_:
        actor = replace(actor, remove_padding=True)
    return changed(settings, lengths=lengths, actor=actor)


def most(settings: Settings) -> Settings:
    """Return the settings at the high end of the range; unknown lengths are at their limits already."""
    lengths = settings.lengths
    if not lengths.known:
        return settings
    return replace(settings, lengths=replace(lengths, variation=LENGTH_SPREAD.high))


# -- what follows from settings


def data_parallel(backend: Backend, fsdp: Sharding, megatron: Megatron, gpus: int) -> int:
    """Return the number of data-parallel ranks."""
    if backend == "megatron":
        return max(1, gpus // (megatron.tensor * megatron.pipeline * megatron.context))
    return max(1, gpus // fsdp.ulysses)


def ranks_of(role: Role, gpus: int) -> int:
    """Return the number of a role's data-parallel ranks."""
    return data_parallel(role.backend, role.fsdp, role.megatron, gpus)


def sequence_divisor(role: Role) -> int:
    """Return the number of GPUs that share a sequence, by Ulysses or context parallelism."""
    return role.megatron.context if role.backend == "megatron" else role.fsdp.ulysses


def update_tokens(settings: Settings, role: Role) -> float:
    """Return the tokens on one GPU in the fullest micro-batch of an update."""
    most = max(1, min(role.mini_batch, settings.sequences) // ranks_of(role, settings.gpus))
    divide = sequence_divisor(role)
    found = tokens_of(settings.lengths, role.micro_batch, most, divide, padded=not role.remove_padding)
    return padded_up(found, divide, _pad_bucket(role, role.fsdp))


def old_tokens(settings: Settings) -> float:
    """Return the tokens on one GPU in the fullest micro-batch of the old log-prob pass."""
    return _log_prob_tokens(settings, settings.old_micro_batch, settings.actor.fsdp)


def reference_tokens(settings: Settings) -> float:
    """Return the tokens on one GPU in the fullest micro-batch of the reference pass."""
    return _log_prob_tokens(settings, settings.reference_micro_batch, settings.reference_fsdp)


def _log_prob_tokens(settings: Settings, micro: MicroBatch, fsdp: Sharding) -> float:
    """Return the tokens of a log-prob pass, which runs over the whole step."""
    actor, divide, ranks = settings.actor, fsdp.ulysses, settings.gpus // fsdp.ulysses
    if actor.backend == "megatron":
        divide, ranks = sequence_divisor(actor), ranks_of(actor, settings.gpus)
    most = max(1, settings.sequences // max(1, ranks))
    lengths = settings.lengths
    if (
        lengths.known and micro.dynamic and settings.balance_batch
    ):  # each rank gets the same share of the tokens
        lengths = replace(lengths, variation=0.0)
    found = tokens_of(lengths, micro, most, divide, padded=not actor.remove_padding)
    return padded_up(found, divide, _pad_bucket(actor, fsdp))


def _pad_bucket(role: Role, fsdp: Sharding) -> int:
    """Return the multiple that packed micro-batches are padded up to; 1 for others."""
    bucket = role.megatron.pad_bucket if role.backend == "megatron" else fsdp.pad_bucket
    return bucket if role.remove_padding else 1


def micro_batches(settings: Settings, role: Role) -> int:
    """Return the number of micro-batches per optimizer step, at least one."""
    most = max(1, min(role.mini_batch, settings.sequences) // ranks_of(role, settings.gpus))
    if not role.micro_batch.dynamic:
        return -(-most // max(1, role.micro_batch.sequences or 1))
    divide = sequence_divisor(role)
    mean = settings.lengths.mean if role.remove_padding else settings.lengths.limit
    return max(1, math.ceil(most * mean / divide / max(1, role.micro_batch.tokens)))
