"""From a request to settings: verl's keys with their defaults, and everything that is wrong with them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, NoAnswerError, Severity, suggest_or
from ..units import GB, GIB
from .checks import problems_of
from .constants import DRIVER_RESERVE, TYPICAL_LENGTH
from .facts import capacity_of
from .reader import Reader
from .roles import (
    ACTOR,
    MODEL,
    REFERENCE,
    ROLLOUT,
    data_parallel,
    micro_batch,
    read_actor,
    read_critic,
    read_fsdp,
)
from .rollout import read_rollout
from .settings import Lengths, MicroBatch, Settings
from .support import misspelt_keys
from .versions import CURRENT, LAST, behaviour, version_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..catalog.models.gpu import Gpu
    from ..diagnostics import Diagnostic
    from .facts import Registries
    from .request import Request
    from .settings import Backend, Fsdp, Role
    from .shape import Shape
    from .versions import Behaviour

_BACKENDS = ("fsdp", "fsdp2", "megatron")
#: Where nothing is said of the card, its memory is only used for the share that the rollout engine takes.
USUAL_CARD = 79.1 * GIB
#: verl's estimators of the advantage; the first needs a critic.
ESTIMATORS = (
    "gae",
    "gdpo",
    "gpg",
    "grpo",
    "grpo_passk",
    "grpo_vectorized",
    "opo",
    "optimal_token_baseline",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "remax",
    "rloo",
    "rloo_vectorized",
    "tir_optimal_token_baseline",
)
#: Backends of verl that no formula is made for.
_OTHER_BACKENDS = ("fsdp_turbo", "veomni", "torchtitan")


def resolve(request: Request, facts: Registries) -> tuple[Shape, Settings, tuple[Diagnostic, ...]]:
    """Shape and settings of a request, and warnings about it.

    Raises:
        NoAnswerError: something is wrong that leaves no estimate.
    """
    shape = facts.shape(request.model)
    read = Reader(_as_verl(request), facts.defaults(request.version))
    if shape is None:
        known = facts.architectures.names
        hint = suggest_or(request.model, known, "add it to architectures.yaml, or give its config.json")
        read.error(
            "model", f"no architecture is recorded for {request.model[:200]!r}", hint, Code.unknown_model
        )
        raise NoAnswerError(*read.diagnostics)
    settings = read_settings(request, facts, read)
    read.diagnostics += problems_of(shape, settings)
    if request.version > LAST:
        newest = version_text(CURRENT)
        message = f"{version_text(request.version)} is newer than the newest verl that is known, {newest}"
        read.warning("version", message, "that one is taken")
    for key, near in misspelt_keys(request, facts):
        read.warning(
            key, "verl has no such key that changes memory", f"did you mean {near!r}?", Code.unknown_key
        )
    if any(problem.severity is Severity.ERROR for problem in read.diagnostics):
        raise NoAnswerError(*read.diagnostics)
    return shape, settings, tuple(dict.fromkeys(read.diagnostics))  # what is read twice is wrong once


def read_settings(request: Request, facts: Registries, read: Reader) -> Settings:
    """The settings; ``read`` collects what is wrong with them."""
    does = behaviour(request.version)
    gpus, nodes = _gpus(request, read)
    backend = _backend(request, read)
    capacity = _capacity(request, facts, read)
    actor = read_actor(read, backend, gpus)
    critic = None
    if _has_critic(request, read):
        strategy = _strategy(read, "critic.strategy") or backend
        critic = read_critic(read, strategy, gpus, request.version)
    ranks = data_parallel(backend, actor.fsdp, actor.megatron, gpus)
    reference = _reference_fsdp(read, gpus)
    entropy = read.number(f"{ACTOR}.entropy_coeff", -1e9, 1e9) != 0 or read.flag(f"{ACTOR}.calculate_entropy")
    return Settings(
        version=request.version,
        gpus=gpus,
        nodes=nodes,
        capacity=capacity if capacity is not None else USUAL_CARD,
        capacity_known=capacity is not None,
        sequences=read.whole("data.train_batch_size") * read.whole(f"{ROLLOUT}.n"),
        lengths=_lengths(request, read),
        unstated=_unstated(request, read, backend) if request.partial else frozenset(),
        actor=actor,
        critic=critic,
        rollout=read_rollout(request, read, gpus),
        reference=_has_reference(request, read, actor),
        reference_fsdp=reference,
        reference_bytes=_reference_bytes(read, reference, does),
        reference_offload=_reference_offload(read, actor),
        old_log_prob=not read.flag("algorithm.rollout_correction.bypass_mode"),
        old_micro_batch=_log_prob(read, ROLLOUT, ranks, actor.micro_batch),
        reference_micro_batch=_log_prob(
            read, REFERENCE, data_parallel(backend, reference, actor.megatron, gpus), actor.micro_batch
        ),
        computes_entropy=not _is_easyr1(request) and (entropy or does.entropy_always),
        entropy_chunk=_entropy_chunk(read, backend),
        entropy_recomputed=_recomputes_entropy(read, backend),
        compiled_entropy=_compiles(read),
        fused_kernels=read.flag(f"{MODEL}.use_fused_kernels"),
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


def _entropy_chunk(read: Reader, backend: Backend) -> int:
    """Tokens of a chunk of the entropy, 0 for all at once; what the engine reads is filled from the actor."""
    engine = f"{ACTOR}.{'megatron' if backend == 'megatron' else 'fsdp_config'}"
    chunked = [read.flag(f"{part}.entropy_from_logits_with_chunking") for part in (ACTOR, engine)]
    sizes = [f"{part}.entropy_from_logits_chunk_size" for part in (engine, ACTOR)]
    found = [read.whole(key) for key in sizes if read.is_set(key)]
    size = found[0] if found else read.whole(sizes[1])
    return size if any(chunked) else 0


def _recomputes_entropy(read: Reader, backend: Backend) -> bool:
    asked = [read.flag(f"{part}.entropy_checkpointing") for part in (ACTOR, f"{ACTOR}.fsdp_config")]
    return any(asked) and backend != "megatron"


def _reference_fsdp(read: Reader, gpus: int) -> Fsdp:
    """The keys of the reference policy, whose Ulysses size follows the older key of the actor."""
    ulysses = f"{REFERENCE}.ulysses_sequence_parallel_size"
    if not read.is_set(ulysses):
        ulysses = f"{ACTOR}.ulysses_sequence_parallel_size"
    return read_fsdp(read, f"{REFERENCE}.fsdp_config", gpus, ulysses)


def _reference_bytes(read: Reader, reference: Fsdp, does: Behaviour) -> int:
    stated = read.is_set(f"{REFERENCE}.fsdp_config.model_dtype")
    return reference.parameter_bytes if stated else does.reference_bytes


def _compiles(read: Reader) -> bool:
    """torch.compile is on unless it is switched off, under its older name or its newer one."""
    keys = (f"{ACTOR}.use_torch_compile", f"{ACTOR}.fsdp_config.use_torch_compile")
    return not any(read.is_set(key) and not read.flag(key) for key in keys)


def _is_easyr1(request: Request) -> bool:
    """EasyR1 computes no entropy, and takes what its engine freed off PyTorch's counter."""
    return request.framework.lower().startswith("easyr1")


def _gpus(request: Request, read: Reader) -> tuple[int, int]:
    """How many GPUs, and on how many nodes."""
    nodes, each = read.whole("trainer.nnodes"), read.whole("trainer.n_gpus_per_node")
    gpus = request.gpus
    if gpus is None:
        return nodes * each, nodes
    if gpus < 1:
        read.error("gpus", f"{gpus} GPUs are none", "name at least one")
        return 1, 1
    stated = [read.is_set(key) for key in ("trainer.nnodes", "trainer.n_gpus_per_node")]
    if nodes * each == gpus:
        return gpus, nodes
    if all(stated):
        message = f"{nodes} × {each} GPUs are not the {gpus} that are named; these are taken"
        read.warning("trainer.n_gpus_per_node", message, "correct one of the two")
    elif stated[0] and not gpus % nodes:
        return gpus, nodes
    elif stated[1] and not gpus % each:
        return gpus, gpus // each
    return gpus, math.ceil(gpus / 8)


def _backend(request: Request, read: Reader) -> Backend:
    """What the actor is trained with: as said by its strategy, the engine, the source, or Megatron's keys."""
    named = _strategy(read, f"{ACTOR}.strategy")
    engine = read.any("model_engine")
    if engine not in (None, "dp", "megatron"):
        message = f"the training backend {str(engine)[:80]!r} is not modelled; FSDP2 is taken"
        read.warning("model_engine", message, "the states are the same, the rest may differ")
        return "fsdp2"
    of_megatron = engine == "megatron" or any(key.startswith(f"{ACTOR}.megatron.") for key in request.config)
    if named:
        return named
    if engine != "megatron" and request.backend in _BACKENDS:
        return request.backend  # type: ignore[return-value]
    return "megatron" if of_megatron else "fsdp"


def _strategy(read: Reader, key: str) -> Backend | None:
    """A backend by name, None where none is set."""
    if not read.is_set(key):
        return None
    if read.any(key) in _OTHER_BACKENDS:
        message = f"the training backend {read.any(key)!r} is not modelled; FSDP2 is taken"
        read.warning(key, message, "the states are the same, the rest may differ")
        return "fsdp2"
    return read.choice(key, _BACKENDS)  # type: ignore[return-value]


def _has_critic(request: Request, read: Reader) -> bool:
    if read.is_set("critic.enable"):
        return read.flag("critic.enable")
    key = "algorithm.adv_estimator"
    if read.is_set(key) or not request.task:
        name = read.any(key)
        if name not in ESTIMATORS:
            hint = suggest_or(str(name), ESTIMATORS, "with gae there is a critic, with others none")
            message = f"{str(name)[:80]!r} is no estimator that is known; no critic is assumed"
            read.warning(key, message, hint, Code.unknown_value)
        return bool(name == "gae")
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


def _capacity(request: Request, facts: Registries, read: Reader) -> float | None:
    """What the card offers; of a size that is only sold as such, the least that a card of it offers."""
    gpu = _card(request, facts)
    if gpu is not None:
        return capacity_of(gpu)
    if request.memory_gb is not None:
        found = [capacity_of(card) for card in facts.gpus if card.memory_gb == request.memory_gb]
        return min(found) if found else max(0.0, request.memory_gb * GB - DRIVER_RESERVE.value)
    if request.gpu is not None:
        hint = suggest_or(request.gpu, facts.gpus.names, "add it to gpus.yaml, or give its memory")
        read.warning("gpus", f"no GPU is recorded as {request.gpu[:200]!r}", hint, Code.unknown_gpu)
    elif not request.partial:
        hint = "name it, as in 8*H100"
        message = (
            "no GPU is named; whether it fits is not known, and the rollout budget is that of an 80 GB card"
        )
        read.warning("gpus", message, hint, Code.missing_key)
    return None


def _card(request: Request, facts: Registries) -> Gpu | None:
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
        "length": [f"{ROLLOUT}.max_model_len"],
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
        lengths = replace(lengths, mean=lengths.longest * TYPICAL_LENGTH.value, known=True)
    if "recompute" in open_ and actor.backend == "megatron":
        actor = replace(actor, megatron=replace(actor.megatron, recompute=True))
    if "offload" in open_:
        fsdp = replace(actor.fsdp, param_offload=True, optimizer_offload=True)
        megatron = replace(actor.megatron, param_offload=True, optimizer_offload=True)
        actor = replace(actor, fsdp=fsdp, megatron=megatron)
    if "padding" in open_:
        actor = replace(actor, remove_padding=True)
    return replace(settings, lengths=lengths, actor=actor)
