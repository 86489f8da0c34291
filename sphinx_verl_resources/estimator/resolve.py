"""From a request to settings: verl's keys with their defaults, and everything that is wrong with them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, suggest_or
from ..units import GB, GIB
from .constants import DRIVER_RESERVE, TYPICAL_LENGTH
from .facts import capacity_of
from .reader import Reader
from .request import EstimateError, Issue, warning
from .roles import (
    ACTOR,
    MODEL,
    REFERENCE,
    ROLLOUT,
    data_parallel,
    is_error,
    micro_batch,
    read_actor,
    read_critic,
    read_fsdp,
)
from .settings import Lengths, MicroBatch, Rollout, Settings
from .support import misspelt_keys
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..catalog.models.gpu import Gpu
    from .facts import Facts
    from .request import Request
    from .settings import Backend, Role
    from .shape import Shape

_BACKENDS = ("fsdp", "fsdp2", "megatron")
#: Where nothing is said of the card, its memory is only used for the share that the rollout engine takes.
USUAL_CARD = 79.1 * GIB
_ENGINES = ("vllm", "sglang", "trtllm", "hf")


def resolve(request: Request, facts: Facts) -> tuple[Shape, Settings, tuple[Issue, ...]]:
    """Shape and settings of a request, and warnings about it.

    Raises:
        EstimateError: something is wrong that leaves no estimate.
    """
    shape = facts.shape(request.model)
    read = Reader(_as_verl(request), facts.defaults(request.version))
    if shape is None:
        known = facts.architectures.names
        hint = suggest_or(request.model, known, "add it to architectures.yaml, or give its config.json")
        read.issues.append(
            Issue(
                "model", Code.unknown_model, f"no architecture is recorded for {request.model[:200]!r}", hint
            )
        )
        raise EstimateError(tuple(read.issues))
    settings = read_settings(request, facts, read)
    check_shape(shape, settings, read)
    for key, near in misspelt_keys(request, facts):
        read.issues.append(
            warning(
                key, "verl has no such key that changes memory", f"did you mean {near!r}?", Code.unknown_key
            )
        )
    if any(is_error(issue) for issue in read.issues):
        raise EstimateError(tuple(read.issues))
    return shape, settings, tuple(read.issues)


def read_settings(request: Request, facts: Facts, read: Reader) -> Settings:
    """The settings; ``read`` collects what is wrong with them."""
    does = behaviour(request.version)
    gpus, nodes = _gpus(request, read)
    backend = _backend(request, read)
    capacity = _capacity(request, facts, read)
    actor = read_actor(read, backend, gpus)
    critic = read_critic(read, _critic_backend(read, backend), gpus) if _has_critic(request, read) else None
    ranks = data_parallel(backend, actor.fsdp, actor.megatron, gpus)
    old = _log_prob(read, ROLLOUT, ranks, actor.micro_batch)
    entropy = read.number(f"{ACTOR}.entropy_coeff", -1e9, 1e9) != 0 or read.flag(f"{ACTOR}.calculate_entropy")
    chunked = read.flag(f"{ACTOR}.entropy_from_logits_with_chunking")
    chunked |= read.flag(f"{ACTOR}.fsdp_config.entropy_from_logits_with_chunking")
    recomputed = read.flag(f"{ACTOR}.entropy_checkpointing")
    recomputed |= read.flag(f"{ACTOR}.fsdp_config.entropy_checkpointing")
    return Settings(
        version=request.version,
        gpus=gpus,
        nodes=nodes,
        capacity=capacity if capacity is not None else USUAL_CARD,
        capacity_known=capacity is not None,
        sequences=read.whole("data.train_batch_size") * read.whole(f"{ROLLOUT}.n"),
        lengths=_lengths(request, read),
        remove_padding=read.flag(f"{MODEL}.use_remove_padding"),
        unstated=_unstated(request, read, backend) if request.partial else frozenset(),
        actor=actor,
        critic=critic,
        rollout=_rollout(request, read, gpus),
        reference=_has_reference(request, read, actor),
        reference_shard=read_fsdp(
            read, f"{REFERENCE}.fsdp_config", gpus, f"{REFERENCE}.ulysses_sequence_parallel_size"
        ).shard,
        reference_offload=_reference_offload(read, actor),
        old_log_prob=not read.flag("algorithm.rollout_correction.bypass_mode"),
        old_micro_batch=old,
        reference_micro_batch=_log_prob(read, REFERENCE, ranks, old),
        computes_entropy=not _is_easyr1(request) and (entropy or does.entropy_always),
        entropy_chunk=read.whole(f"{ACTOR}.entropy_from_logits_chunk_size") if chunked else 0,
        entropy_recomputed=recomputed,
        compiled_entropy=_compiles(read),
        fused_kernels=read.flag(f"{MODEL}.use_fused_kernels") or read.flag(f"{MODEL}.use_liger"),
        entropy_free=_is_easyr1(request),
        counter_leaves_pool_out=_is_easyr1(request) or not does.engine_in_process,
    )


def _as_verl(request: Request) -> Mapping[str, Any]:
    """The settings in verl's keys, where a fork has a mode of its own for what they say."""
    mode = str(request.config.get("easyr1.dtype", ""))
    if not mode.startswith("bf16"):
        return request.config
    optimizer = {f"{ACTOR}.optim.optimizer": "adamw_bf16"} if "adamw_bf16" in mode else {}
    return {**request.config, f"{ACTOR}.fsdp_config.model_dtype": "bf16", **optimizer}


def _compiles(read: Reader) -> bool:
    """torch.compile is on unless it is switched off, under its older name or its newer one."""
    keys = (f"{ACTOR}.use_torch_compile", f"{ACTOR}.fsdp_config.use_torch_compile")
    return not any(read.is_set(key) and not read.flag(key) for key in keys)


def _is_easyr1(request: Request) -> bool:
    """EasyR1 computes no entropy, and takes what its engine freed off PyTorch's counter."""
    return request.framework.lower().startswith("easyr1")


def _gpus(request: Request, read: Reader) -> tuple[int, int]:
    nodes, each = read.whole("trainer.nnodes"), read.whole("trainer.n_gpus_per_node")
    if request.gpus is None:
        return nodes * each, nodes
    if read.is_set("trainer.nnodes") and read.is_set("trainer.n_gpus_per_node"):
        if nodes * each != request.gpus:
            message = f"{nodes} × {each} GPUs are not the {request.gpus} that are named; these are taken"
            read.issues.append(warning("trainer.n_gpus_per_node", message, "correct one of the two"))
        else:
            return request.gpus, nodes
    return request.gpus, math.ceil(request.gpus / 8)


def _backend(request: Request, read: Reader) -> Backend:
    strategy = read.choice(f"{ACTOR}.strategy", _BACKENDS) if read.is_set(f"{ACTOR}.strategy") else None
    engine = read.any("model_engine")
    if strategy is None and engine == "megatron":
        strategy = "megatron"
    if strategy is None and request.backend in _BACKENDS:
        strategy = request.backend
    if strategy is None and any(key.startswith(f"{ACTOR}.megatron.") for key in request.config):
        strategy = "megatron"
    if engine not in {None, "dp", "megatron"}:
        message = f"the training backend {str(engine)[:80]!r} is not modelled; FSDP2 is taken"
        read.issues.append(warning("model_engine", message, "the states are the same, the rest may differ"))
        return "fsdp2"
    return strategy if strategy in _BACKENDS else "fsdp"  # type: ignore[return-value]


def _critic_backend(read: Reader, backend: Backend) -> Backend:
    if not read.is_set("critic.strategy"):
        return backend
    return read.choice("critic.strategy", _BACKENDS) or backend  # type: ignore[return-value]


def _has_critic(request: Request, read: Reader) -> bool:
    enabled = read.any("critic.enable")
    if isinstance(enabled, bool):
        return enabled
    if read.is_set("algorithm.adv_estimator") or not request.task:
        return bool(read.any("algorithm.adv_estimator") == "gae")
    return request.task.lower().startswith("ppo")


def _has_reference(request: Request, read: Reader, actor: Role) -> bool:
    """With LoRA the actor itself, with its adapters switched off, is the reference."""
    asked = [read.flag(f"{ACTOR}.use_kl_loss"), read.flag("algorithm.use_kl_in_reward")]
    return (any(asked) or behaviour(request.version).reference_resident) and not actor.lora_rank


def _reference_offload(read: Reader, actor: Role) -> bool:
    if actor.backend != "megatron":
        read.flag(f"{REFERENCE}.fsdp_config.param_offload")
        return True
    key = f"{REFERENCE}.megatron.param_offload"
    return read.flag(key) if read.is_set(key) else actor.megatron.param_offload


def _log_prob(read: Reader, prefix: str, ranks: int, otherwise: MicroBatch) -> MicroBatch:
    """How a log-prob pass is cut; what is not set follows the actor."""
    key = f"{prefix}.log_prob_use_dynamic_bsz"
    dynamic = read.flag(key) if read.is_set(key) else otherwise.dynamic
    budget_key = f"{prefix}.log_prob_max_token_len_per_gpu"
    budget = read.whole(budget_key) if read.is_set(budget_key) else otherwise.tokens
    found = micro_batch(read, prefix, "log_prob_micro_batch_size", ranks, dynamic, budget)
    return found if found.sequences else MicroBatch(otherwise.sequences, dynamic, budget)


def _rollout(request: Request, read: Reader, gpus: int) -> Rollout:
    does = behaviour(request.version)
    key = f"{ROLLOUT}.name"
    name = read.any(key) if read.is_set(key) else request.engine or read.any(key)
    if name not in {None, *_ENGINES}:
        hint = suggest_or(str(name), _ENGINES, "see verl's rollout.name")
        read.issues.append(
            warning(key, f"the engine {str(name)[:80]!r} is not modelled; vLLM is taken", hint)
        )
    name = name if name in _ENGINES else "vllm"
    tensor = read.whole(f"{ROLLOUT}.tensor_model_parallel_size")
    if gpus % tensor:
        if read.is_set(f"{ROLLOUT}.tensor_model_parallel_size"):
            message = f"it is {tensor}, which does not divide the {gpus} GPUs"
            read.issues.append(
                Issue(f"{ROLLOUT}.tensor_model_parallel_size", Code.wrong_value, message, "choose a divisor")
            )
        tensor = 1
    bucket_key = f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
    bucket = does.sglang_bucket if name == "sglang" else does.vllm_bucket
    if bucket and read.is_set(bucket_key):
        bucket = read.whole(bucket_key) * 2**20
    quantized = read.any(f"{ROLLOUT}.quantization") is not None
    frees = read.flag(f"{ROLLOUT}.free_cache_engine")
    return Rollout(
        engine=name,
        utilization=read.number(f"{ROLLOUT}.gpu_memory_utilization", 0, 1),
        tensor=tensor,
        data=read.whole(f"{ROLLOUT}.data_parallel_size"),
        sequences=read.whole(f"{ROLLOUT}.max_num_seqs"),
        batched_tokens=read.whole(f"{ROLLOUT}.max_num_batched_tokens"),
        model_length=read.optional(f"{ROLLOUT}.max_model_len"),
        eager=read.flag(f"{ROLLOUT}.enforce_eager"),
        frees_cache=frees,
        layered_summon=read.flag(f"{ROLLOUT}.layered_summon"),
        merge_lora=read.flag(f"{MODEL}.lora.merge"),
        bucket=bucket,
        element_bytes=1.0 if quantized else 2.0,
        separate=read.any("trainer.v1.trainer_mode") == "separate_async",
    )


def _capacity(request: Request, facts: Facts, read: Reader) -> float | None:
    """What the card offers; of a size that is only sold as such, the least that a card of it offers."""
    gpu = _card(request, facts)
    if gpu is not None:
        return capacity_of(gpu)
    if request.memory_gb is not None:
        found = [capacity_of(card) for card in facts.gpus if card.memory_gb == request.memory_gb]
        return min(found) if found else request.memory_gb * GB - DRIVER_RESERVE.value
    if request.gpu is not None:
        hint = suggest_or(request.gpu, facts.gpus.names, "add it to gpus.yaml, or give its memory")
        read.issues.append(
            warning("gpus", f"no GPU is recorded as {request.gpu[:200]!r}", hint, Code.unknown_gpu)
        )
    return None


def _card(request: Request, facts: Facts) -> Gpu | None:
    """The card by its name; where it is sold in several sizes, that of the size stated."""
    if request.gpu is None:
        return None
    sized = facts.gpus.get(f"{request.gpu}-{request.memory_gb:g}GB") if request.memory_gb else None
    return sized or facts.gpus.get(request.gpu)


def _lengths(request: Request, read: Reader) -> Lengths:
    longest = float(read.whole("data.max_prompt_length") + read.whole("data.max_response_length"))
    seen = request.observed
    prompts, responses = seen.get("prompt_length_mean"), seen.get("response_length_mean")
    sequences = read.whole("data.train_batch_size") * read.whole(f"{ROLLOUT}.n")
    mean = None
    if seen.get("total_num_tokens"):
        mean = seen["total_num_tokens"] / sequences
    if prompts is not None and responses is not None:
        # Where the two disagree, the counts belong to another number of sequences than the settings say.
        mean = prompts + responses
    if not mean or not math.isfinite(mean) or mean <= 0:
        return Lengths(longest, longest, longest, known=False)
    most = [seen.get("prompt_length_max"), seen.get("response_length_max")]
    top = sum(item for item in most if item) if all(most) else longest
    return Lengths(mean, max(mean, min(top, longest)), longest, known=True)


def _unstated(request: Request, read: Reader, backend: Backend) -> frozenset[str]:
    """What the quoted settings say nothing about, and scripts often set."""
    part = "megatron" if backend == "megatron" else "fsdp_config"
    keys = {
        "padding": [f"{MODEL}.use_remove_padding"],
        "recompute": [f"{ACTOR}.megatron.override_transformer_config.recompute_granularity"],
        "offload": [f"{ACTOR}.{part}.{name}_offload" for name in ("param", "optimizer")],
    }
    return frozenset(name for name, found in keys.items() if not any(read.is_set(key) for key in found))


def least(settings: Settings) -> Settings:
    """The settings at the lower end of the range: what is not known is as favourable as it may be.

    Lengths that are not known are the shortest of real data; what a source does not quote may have been set.
    """
    lengths, actor, open_ = settings.lengths, settings.actor, settings.unstated
    if not lengths.known:
        lengths = replace(lengths, mean=lengths.longest * TYPICAL_LENGTH.low, known=True)
    if "recompute" in open_ and actor.backend == "megatron":
        actor = replace(actor, megatron=replace(actor.megatron, recompute=True))
    if "offload" in open_:
        offload = {"param_offload": True, "optimizer_offload": True}
        if actor.backend == "megatron":
            actor = replace(actor, megatron=replace(actor.megatron, **offload))
        else:
            actor = replace(actor, fsdp=replace(actor.fsdp, **offload))
    remove_padding = settings.remove_padding or "padding" in open_
    return replace(settings, lengths=lengths, actor=actor, remove_padding=remove_padding)


def check_shape(shape: Shape, settings: Settings, read: Reader) -> None:
    """What does not go with the model."""
    actor = settings.actor
    parallel = [
        (f"{ROLLOUT}.tensor_model_parallel_size", settings.rollout.tensor),
        (f"{ACTOR}.megatron.tensor_model_parallel_size", actor.megatron.tensor),
        (f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size", actor.fsdp.ulysses),
    ]
    for key, size in parallel:
        if shape.heads % size:
            message = f"it is {size}, which does not divide the model's {shape.heads} attention heads"
            read.issues.append(Issue(key, Code.wrong_value, message, "choose a divisor"))
    micro, ranks = actor.micro_batch, data_parallel(actor.backend, actor.fsdp, actor.megatron, settings.gpus)
    per_rank = max(1, actor.mini_batch // ranks)
    if micro.sequences and not micro.dynamic and micro.sequences > per_rank:
        key = f"{ACTOR}.ppo_micro_batch_size_per_gpu"
        message = (
            f"a micro-batch of {micro.sequences} sequences is larger than the mini-batch of a GPU, {per_rank}"
        )
        read.issues.append(warning(key, message, "the mini-batch is taken"))
    if micro.sequences is None and not micro.dynamic:
        key = f"{ACTOR}.ppo_micro_batch_size_per_gpu"
        hint = "set it, or actor.use_dynamic_bsz"
        read.issues.append(
            warning(key, "nothing sets the micro-batch; one sequence is taken", hint, Code.missing_key)
        )
