"""All settings that decide memory: each field with verl's keys for it, and rules that need several keys."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..registries import Gpu
from ..units import GIB
from .allocations import TYPICAL_LENGTH
from .reader import BYPASS, ENGINE_OPTIONS, OF_ACTOR, OF_REFERENCE, Reader, keys_of, read_fields, setting
from .registries import EstimatorContext, capacity_of, capacity_range, gpu_named, no_gpu
from .request import ACTOR, MODEL, REFERENCE, ROLLOUT, Request
from .roles import (
    LIMITS,
    ROLE_KEYS,
    Lengths,
    MicroBatch,
    Role,
    Sharding,
    read_lengths,
    read_micro_batch,
    read_roles,
)
from .versions import Version

# -- GPUs

TRAINER_GPUS = ("trainer.nnodes", "trainer.n_gpus_per_node")
TRAINER_MODE = "trainer.v1.trainer_mode"
#: Switches that put rollout engines on the training GPUs too.
_HYBRID = ("async_training.use_trainer_do_validate", "async_training.use_dynamic_resource_scheduling")
#: The switches for pools of teachers and of reward models, by the section with their sizes.
_SWITCHES = {
    "distillation": "distillation.enabled",
    "reward.reward_model": "reward.reward_model.enable_resource_pool",
}
#: The keys of the sizes of pools.
POOL_KEYS = frozenset((
    *TRAINER_GPUS, *_SWITCHES.values(),
    *(f"{pool}.{key}" for pool in ("rollout", ROLLOUT, *_SWITCHES) for key in ("nnodes", "n_gpus_per_node")),
))  # fmt: skip


def training_gpus(reader: Reader) -> tuple[int, int]:
    """Return the number of training GPUs, and of their nodes.

    A request gives the number of training GPUs, or of the GPUs in all pools together.
    """
    nodes, each = map(reader.whole, TRAINER_GPUS)
    gpus = reader.request.gpus
    if gpus is not None and gpus < 1:
        reader.error("gpus", f"expected at least one GPU, got {gpus}", "give a number, for example 8*H100")
        return 1, 1
    if gpus is None or nodes * each == gpus or nodes * each + other_gpus(reader) == gpus:
        return nodes * each, nodes
    stated = [reader.is_set(key) for key in TRAINER_GPUS]
    if all(stated):
        message = f"{nodes} nodes × {each} GPUs differ from the {gpus} GPUs given; the estimate uses {gpus}"
        reader.warning(TRAINER_GPUS[1], message, "correct one of the two")
    return gpus, nodes if stated == [True, False] and not gpus % nodes else math.ceil(gpus / each)


class Pools(NamedTuple):
    """The GPUs of a run: all together, training nodes, other GPUs, and the key that leaves a number open."""

    total: int
    nodes: int
    others: int
    open_key: str


def all_gpus(settings: Mapping[str, Any], unread: Container[str], registries: EstimatorContext) -> Pools:
    """Return the GPUs of all pools.

    Args:
        settings: the settings by dotted key; unset keys have verl's defaults.
        unread: the keys that are set to an unknown value.
        registries: the registries.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> teachers = {"distillation.enabled": True, "distillation.nnodes": 1, "distillation.n_gpus_per_node": 4}
    >>> all_gpus(teachers, (), EstimatorContext()).total
    12
    """
    reader = Reader(Request("", settings), registries)
    (gpus, nodes), others = training_gpus(reader), other_gpus(reader)
    wrong = {problem.place.key for problem in reader.diagnostics}
    keys = [*TRAINER_GPUS, *(key for keys in _pools(reader) for key in keys)]
    open_key = next((key for key in keys if key in unread or key in wrong), "")
    return Pools(gpus + others, nodes, others, open_key)


def other_gpus(reader: Reader) -> int:
    """Return the number of GPUs in pools that do not train; an unset size counts as 0."""
    return sum(_size(reader, *keys) for keys in _pools(reader))


def _pools(reader: Reader) -> list[tuple[str, str]]:
    """Return the keys for nodes and GPUs per node of each pool outside the trainer's GPUs.

    These are separate rollout engines, teachers and reward models (trainer/ppo/v1/trainer_base.py:757-791 at
    1dda039b9).
    """
    names = [name for name, switch in _SWITCHES.items() if reader.flag(switch)]
    if reader.has_rollout_pool or reader.any(TRAINER_MODE) == "separate_async":
        # Copied to the keys of the engine (fully_async_main.py:321 at 1dda039b9).
        own = "rollout.nnodes" in reader.config or "rollout.n_gpus_per_node" in reader.config
        names.insert(0, "rollout" if own else ROLLOUT)
    return [(f"{name}.nnodes", f"{name}.n_gpus_per_node") for name in names]


def _size(reader: Reader, nodes: str, each: str) -> int:
    """Return the number of GPUs in a pool; 0 if neither key is set, which leaves the number open."""
    if not (reader.is_set(nodes) or reader.is_set(each)):
        return 0
    keys = [each, TRAINER_GPUS[1]] if nodes.startswith(ROLLOUT) else [each]  # config/rollout/rollout.yaml:14
    return reader.whole(nodes, least=0) * reader.whole(*keys)


def trains_alone(reader: Reader) -> bool:
    """Return whether the settings describe training without a rollout engine.

    V1's mode ``separate_async`` requires ``rollout.nnodes``; settings without it describe training alone.
    """
    return reader.any(TRAINER_MODE) == "separate_async" and not reader.is_set(f"{ROLLOUT}.nnodes")


def _is_separate(reader: Reader, mode: str, *hybrid: str) -> bool:
    """Return whether no rollout engine is on the training GPUs.

    Asynchronous trainers before V1 separate the two, unless a switch also puts engines on the training GPUs
    (fully_async_trainer.py:152 at 1dda039b9). V1's mode ``separate_async`` has both: it starts and validates
    with the engines on the training GPUs (v1/trainer_separate_async.py:165).
    """
    if reader.any(mode) == "separate_async":
        return trains_alone(reader)
    return reader.has_rollout_pool and not any(map(reader.flag, hybrid))


#: The assumed capacity of an unnamed GPU, which only decides the rollout engine's memory.
USUAL_CAPACITY = 79.1 * GIB


def capacity(reader: Reader, registries: EstimatorContext) -> float | None:
    """Return the GPU's capacity; if only its size is given, the least that GPUs of this size have."""
    request, gpu = reader.request, gpu_of(reader.request, registries)
    if gpu is not None:
        return capacity_of(gpu)
    if request.memory_gb is not None:
        alike = [capacity_of(gpu) for gpu in registries.gpus if gpu.memory_gb == request.memory_gb]
        return min(alike, default=max(0.0, capacity_range(request.memory_gb)[0]))
    if request.gpu is not None:
        problem = no_gpu(request.gpu, registries.gpus, "add it to gpus.yaml, or give its memory")
        reader.warning("gpus", problem.message, problem.remedy, problem.code)
    elif not request.partial:
        message = "no GPU is named: the verdict is unknown, and the rollout budget is that of an 80 GB GPU"
        reader.warning("gpus", message, "name one, for example 8*H100", "missing_key")
    return None


def gpu_of(request: Request, registries: EstimatorContext) -> Gpu | None:
    """Return the GPU by its name, or by name and size if it is sold in several sizes."""
    if request.gpu is None:
        return None
    sized = registries.gpus.get(f"{request.gpu}-{request.memory_gb:g}GB") if request.memory_gb else None
    return sized or gpu_named(request.gpu, registries.gpus)


# -- the rollout engine

#: The rollout engines that are modelled.
ENGINES = ("vllm", "sglang")


def _rollout_tensor(reader: Reader, key: str) -> int:
    """Return the TP size; 1 instead of verl's default, 2, if that does not divide the engines' GPUs."""
    own = sum(_size(reader, *keys) for keys in _pools(reader) if "rollout" in keys[0])
    size, gpus = reader.whole(key), own or reader.gpus
    return 1 if gpus % size and not reader.is_set(key) else reader.divisor(key, size, gpus=gpus)


def _keeps_cache_awake(reader: Reader, key: str) -> bool:
    """Return whether the KV cache is awake during weight sync; SGLang sleeps in stages only since v0.8.0."""
    staged = reader.flag(key) or reader.traits.sglang_stages or reader.engine != "sglang"
    return reader.traits.cache_awake_in_sync or not staged


def _bucket(reader: Reader, key: str) -> int:
    """Return the bytes of the weight transfer bucket; 0 in versions without one."""
    size = reader.traits.sglang_bucket if reader.engine == "sglang" else reader.traits.vllm_bucket
    return reader.whole(key) * 2**20 if reader.is_set(key) and size else size


@dataclass(frozen=True)
class Rollout:
    """The rollout engine.

    Attributes:
        engine: its name; another engine than vLLM and SGLang counts as vLLM, but leaves the verdict unknown.
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

    engine: str = setting(lambda reader, _key: reader.engine, f"{ROLLOUT}.name")
    utilization: float = setting(Reader.share, f"{ROLLOUT}.gpu_memory_utilization")
    tensor: int = setting(_rollout_tensor, f"{ROLLOUT}.tensor_model_parallel_size")
    data: int = setting(Reader.whole, f"{ROLLOUT}.data_parallel_size")
    sequences: int = setting(Reader.whole, f"{ROLLOUT}.max_num_seqs")
    batched_tokens: int = setting(Reader.whole, f"{ROLLOUT}.max_num_batched_tokens")
    model_length: int | None = setting(Reader.optional, f"{ROLLOUT}.max_model_len")
    eager: bool = setting(Reader.flag, f"{ROLLOUT}.enforce_eager")
    frees_cache: bool = setting(Reader.flag, f"{ROLLOUT}.free_cache_engine")
    cache_awake_in_sync: bool = setting(_keeps_cache_awake, f"{ROLLOUT}.multi_stage_wake_up")
    layered_summon: bool = setting(Reader.flag, f"{ROLLOUT}.layered_summon")
    merge_lora: bool = setting(Reader.flag, f"{MODEL}.lora.merge")
    bucket: int = setting(_bucket, f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes")
    element_bytes: float = setting(Reader.element_bytes, f"{ROLLOUT}.dtype", f"{ROLLOUT}.quantization")
    separate: bool = setting(_is_separate, TRAINER_MODE, *_HYBRID)


# -- the run


def _entropy(reader: Reader, coefficient: str, key: str) -> bool:
    """Return whether the update computes the entropy of the logits."""
    is_on = reader.flag(key) or reader.any(coefficient) not in (None, 0)
    return (is_on or reader.traits.entropy_always) and not reader.is_easyr1


#: The switches and the sizes for chunks of the entropy: of the training engines, which win, and of the actor.
_CHUNKS = [
    f"{section}.entropy_from_logits_{name}"
    for name in ("with_chunking", "chunk_size")
    for section in (OF_ACTOR.fsdp, OF_ACTOR.megatron, ACTOR)
]


def _entropy_chunk(reader: Reader, *keys: str) -> int:
    """Return the tokens per chunk of the entropy, 0 without chunks."""
    of_other = OF_ACTOR.fsdp if reader.backend == "megatron" else OF_ACTOR.megatron
    own = [key for key in keys if not key.startswith(of_other)]
    return reader.whole(*own[2:]) if any(map(reader.flag, own[:2])) else 0


def _recomputes_entropy(reader: Reader, *keys: str) -> bool:
    """Return whether the backward pass recomputes the entropy, which Megatron never does."""
    return any(map(reader.flag, keys)) and reader.backend != "megatron"


#: Settings that scripts often set, although a partial source may not quote them, with their keys.
_OFTEN_SET = {
    "padding": [f"{MODEL}.use_remove_padding"],
    "length": [f"{ROLLOUT}.max_model_len"],
    "recompute": [f"{OF_ACTOR.megatron}.override_transformer_config.recompute_granularity"],
    "offload": ["{}.param_offload", "{}.optimizer_offload"],  # of the actor's backend
}


def _unstated(reader: Reader) -> frozenset[str]:
    """Return the names of settings that a partial source does not quote."""
    names = _OFTEN_SET if reader.request.partial else ()
    section = OF_ACTOR.megatron if reader.backend == "megatron" else OF_ACTOR.fsdp
    keys = {name: [key.format(section) for key in _OFTEN_SET[name]] for name in names}
    return frozenset(name for name in names if not any(map(reader.is_set, keys[name])))


@dataclass(frozen=True)
class Settings:
    """All settings that the formulas read.

    Attributes:
        gpus: the number of training GPUs.
        capacity: the GPU's capacity in bytes; that of an 80 GB GPU if unknown.
        capacity_known: whether the GPU or its memory is known.
        reference: whether there is a reference policy other than the actor itself.
        reference_fsdp: its FSDP settings, with any backend of the actor.
        undecided: unknown settings that decide memory, each with a reason; with any, no figure is valid.
        other_gpus: the number of GPUs in pools that do not train, if set.
        unstated: settings that a source leaves open: ``padding``, ``length``, ``recompute``, ``offload``.
        entropy_free: whether this is EasyR1, which never computes the entropy.
        trains_alone: whether there is no rollout engine at all: plain training, expressed in verl's keys.
        reference_offload: whether Megatron offloads the reference policy.
        old_log_prob: whether the actor's log-probs are computed before the update.
        computes_entropy: whether the update computes the entropy of the logits.
        compiled_entropy: whether torch.compile fuses it into one kernel.
        positions: the model's positions, if the run sets them; None for those of its config.json.
    """

    version: Version
    gpus: int
    nodes: int
    capacity: float
    capacity_known: bool
    actor: Role
    critic: Role | None
    rollout: Rollout
    reference: bool
    reference_fsdp: Sharding
    old_micro_batch: MicroBatch
    reference_micro_batch: MicroBatch
    undecided: tuple[str, ...] = ()
    lengths: Lengths = setting(read_lengths, *LIMITS)
    other_gpus: int = setting(other_gpus)
    unstated: frozenset[str] = setting(_unstated)
    entropy_free: bool = setting(lambda reader: reader.is_easyr1)
    trains_alone: bool = setting(trains_alone)
    reference_offload: bool = setting(
        Reader.flag, f"{REFERENCE}.megatron.param_offload", "{megatron}.param_offload"
    )
    old_log_prob: bool = setting(lambda reader, key: not reader.flag(key), BYPASS)
    computes_entropy: bool = setting(_entropy, "{role}.entropy_coeff", "{role}.calculate_entropy")
    entropy_chunk: int = setting(_entropy_chunk, *_CHUNKS)
    entropy_recomputed: bool = setting(
        _recomputes_entropy, "{role}.entropy_checkpointing", "{fsdp}.entropy_checkpointing"
    )
    compiled_entropy: bool = setting(
        Reader.is_not_off, "{role}.use_torch_compile", "{fsdp}.use_torch_compile"
    )
    fused_kernels: bool = setting(Reader.flag, "{model}.use_fused_kernels")
    positions: int | None = setting(Reader.optional, "{model}.override_config.max_position_embeddings")


def settings_of(reader: Reader, registries: EstimatorContext) -> Settings:
    """Return the settings; ``reader`` collects their problems."""
    reader.gpus, nodes = training_gpus(reader)
    most = capacity(reader, registries)
    actor, critic = read_roles(reader)
    is_on = any(map(reader.flag, (f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")))
    # The actor without its adapters is the reference policy.
    separate = (is_on or reader.traits.reference_resident) and not actor.lora_rank
    reference = read_fields(Sharding, reader, OF_REFERENCE) if separate else actor.fsdp
    of_reference = REFERENCE if separate else ROLLOUT
    return read_fields(
        Settings,
        reader,
        version=reader.request.version,
        gpus=reader.gpus,
        nodes=nodes,
        capacity=USUAL_CAPACITY if most is None else most,
        capacity_known=most is not None,
        actor=actor,
        critic=critic,
        rollout=read_fields(Rollout, reader),
        reference=separate,
        reference_fsdp=reference,
        old_micro_batch=read_micro_batch(reader, ROLLOUT, actor.fsdp, actor.megatron),
        reference_micro_batch=read_micro_batch(reader, of_reference, reference, actor.megatron),
    )


#: The keys that a formula uses, with any backend.
MODELLED = ROLE_KEYS | POOL_KEYS | {
    *keys_of(OF_ACTOR, Rollout, Settings), *ENGINE_OPTIONS, f"{ACTOR}.use_kl_loss", f"{MODEL}.path",
    "algorithm.use_kl_in_reward", "actor_rollout_ref.hybrid_engine", "easyr1.dtype",
}  # fmt: skip


def least(settings: Settings) -> Settings:
    """Return the settings at the low end of the range, with everything unknown at its most favourable value.

    Unknown lengths are the shortest of real data; keys that a source does not quote may have been set.
    """
    lengths, actor, unstated = settings.lengths, settings.actor, settings.unstated
    mean = lengths.mean if lengths.known else lengths.longest * TYPICAL_LENGTH.value
    on_host = {"param_offload": True, "optimizer_offload": True} if "offload" in unstated else {}
    recompute = actor.megatron.recompute or "recompute" in unstated
    actor = replace(
        actor,
        fsdp=replace(actor.fsdp, **on_host),
        megatron=replace(actor.megatron, **on_host, recompute=recompute),
        remove_padding=actor.remove_padding or "padding" in unstated,
    )
    return replace(settings, lengths=replace(lengths, mean=mean, longest=mean), actor=actor)


# -- what follows from settings


def micro_batches(settings: Settings, role: Role) -> int:
    """Return the number of micro-batches per optimizer step, at least one."""
    micro = role.micro_batch
    if not micro.dynamic:
        return -(-micro.most // (micro.sequences or 1))
    mean = settings.lengths.mean if role.remove_padding else settings.lengths.limit
    return max(1, math.ceil(micro.most * mean / micro.sharers / micro.tokens))
