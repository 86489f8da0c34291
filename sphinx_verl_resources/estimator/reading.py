"""Read the settings of a request from verl's keys; with them, the keys that are read."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, suggest_or
from ..units import GB, GIB
from .constants import DRIVER_RESERVE, TYPICAL_LENGTH
from .registries import capacity_of
from .request import Reader, Request
from .roles import (
    ACTOR,
    MODEL,
    REFERENCE,
    ROLLOUT,
    micro_batch,
    read_actor,
    read_critic,
    read_fsdp,
    read_rollout,
)
from .settings import Lengths, MicroBatch, Settings, data_parallel
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..catalog.models.registries import Gpu
    from .registries import Registries
    from .settings import Backend, Fsdp, Role
    from .versions import Behaviour, Version

_BACKENDS = ("fsdp", "fsdp2", "megatron")
#: The memory of an unnamed GPU, which only decides how much the rollout engine takes.
USUAL_CAPACITY = 79.1 * GIB
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
#: Backends of verl that have no formulas here.
_OTHER_BACKENDS = ("fsdp_turbo", "veomni", "torchtitan")


def settings_of(request: Request, registries: Registries, config: Reader) -> Settings:
    """Return the settings; ``config`` collects what is wrong with them."""
    traits = behaviour(request.version)
    gpus, nodes = _gpus(request, config)
    backend = _backend(request, config)
    capacity = _capacity(request, registries, config)
    actor = read_actor(config, backend, gpus)
    critic = None
    if _has_critic(request, config):
        strategy = _strategy(config, "critic.strategy") or backend
        critic = read_critic(config, strategy, gpus, request.version)
    ranks = data_parallel(backend, actor.fsdp, actor.megatron, gpus)
    reference = _reference_fsdp(config, gpus)
    entropy = config.number(f"{ACTOR}.entropy_coeff", -1e9, 1e9) != 0
    entropy = entropy or config.flag(f"{ACTOR}.calculate_entropy")
    return Settings(
        version=request.version,
        gpus=gpus,
        nodes=nodes,
        capacity=capacity if capacity is not None else USUAL_CAPACITY,
        capacity_known=capacity is not None,
        sequences=config.whole("data.train_batch_size") * config.whole(f"{ROLLOUT}.n"),
        lengths=_lengths(request, config),
        unstated=_unstated(request, config, backend) if request.partial else frozenset(),
        actor=actor,
        critic=critic,
        rollout=read_rollout(request, config, gpus),
        reference=_has_reference(request, config, actor),
        reference_fsdp=reference,
        reference_bytes=_reference_bytes(config, reference, traits),
        reference_offload=_reference_offload(config, actor),
        old_log_prob=not config.flag("algorithm.rollout_correction.bypass_mode"),
        old_micro_batch=_log_prob(config, ROLLOUT, ranks, actor.micro_batch),
        reference_micro_batch=_log_prob(
            config, REFERENCE, data_parallel(backend, reference, actor.megatron, gpus), actor.micro_batch
        ),
        computes_entropy=not _is_easyr1(request) and (entropy or traits.entropy_always),
        entropy_chunk=_entropy_chunk(config, backend),
        entropy_recomputed=_recomputes_entropy(config, backend),
        compiled_entropy=_compiles(config),
        fused_kernels=config.flag(f"{MODEL}.use_fused_kernels"),
        entropy_free=_is_easyr1(request),
        counter_leaves_pool_out=_is_easyr1(request) or not traits.engine_in_process,
    )


def _entropy_chunk(config: Reader, backend: Backend) -> int:
    """Return the tokens of a chunk of the entropy, 0 for all at once; the engine's keys follow the actor."""
    engine = f"{ACTOR}.{'megatron' if backend == 'megatron' else 'fsdp_config'}"
    chunked = [config.flag(f"{part}.entropy_from_logits_with_chunking") for part in (ACTOR, engine)]
    sizes = (f"{part}.entropy_from_logits_chunk_size" for part in (engine, ACTOR))
    size = config.whole(config.first_set(*sizes))
    return size if any(chunked) else 0


def _recomputes_entropy(config: Reader, backend: Backend) -> bool:
    asked = [config.flag(f"{part}.entropy_checkpointing") for part in (ACTOR, f"{ACTOR}.fsdp_config")]
    return any(asked) and backend != "megatron"


def _reference_fsdp(config: Reader, gpus: int) -> Fsdp:
    """Read the reference policy's keys; its Ulysses size defaults to the older key of the actor."""
    ulysses = config.first_set(*(f"{role}.ulysses_sequence_parallel_size" for role in (REFERENCE, ACTOR)))
    return read_fsdp(config, f"{REFERENCE}.fsdp_config", gpus, ulysses)


def _reference_bytes(config: Reader, reference: Fsdp, traits: Behaviour) -> int:
    stated = config.is_set(f"{REFERENCE}.fsdp_config.model_dtype")
    return reference.parameter_bytes if stated else traits.reference_bytes


def _compiles(config: Reader) -> bool:
    """Tell whether torch.compile is on: unless its older or newer key switches it off."""
    keys = (f"{ACTOR}.use_torch_compile", f"{ACTOR}.fsdp_config.use_torch_compile")
    return not any(config.is_set(key) and not config.flag(key) for key in keys)


def _is_easyr1(request: Request) -> bool:
    """Recognise EasyR1, which computes no entropy and subtracts the freed engine from PyTorch's counter."""
    return request.framework.lower().startswith("easyr1")


def _gpus(request: Request, config: Reader) -> tuple[int, int]:
    """Return the number of GPUs and of nodes."""
    nodes, each = config.whole("trainer.nnodes"), config.whole("trainer.n_gpus_per_node")
    gpus = request.gpus
    if gpus is None:
        return nodes * each, nodes
    if gpus < 1:
        config.error("gpus", f"{gpus} GPUs are none", "name at least one")
        return 1, 1
    stated = [config.is_set(key) for key in ("trainer.nnodes", "trainer.n_gpus_per_node")]
    if nodes * each == gpus:
        return gpus, nodes
    if all(stated):
        message = f"{nodes} × {each} GPUs are not the {gpus} that are named; these are taken"
        config.warning("trainer.n_gpus_per_node", message, "correct one of the two")
    elif stated[0] and not gpus % nodes:
        return gpus, nodes
    elif stated[1] and not gpus % each:
        return gpus, gpus // each
    return gpus, math.ceil(gpus / 8)


def _backend(request: Request, config: Reader) -> Backend:
    """Return the training backend: by the strategy, the engine, the source, or keys of Megatron."""
    named = _strategy(config, f"{ACTOR}.strategy")
    engine = config.any("model_engine")
    if engine not in (None, "dp", "megatron"):
        return _other_backend(config, "model_engine")
    of_megatron = engine == "megatron" or any(key.startswith(f"{ACTOR}.megatron.") for key in request.config)
    if named:
        return named
    if engine != "megatron" and request.backend in _BACKENDS:
        return request.backend  # type: ignore[return-value]
    return "megatron" if of_megatron else "fsdp"


def _strategy(config: Reader, key: str) -> Backend | None:
    """Return the backend that a key names; None where it is not set."""
    if not config.is_set(key):
        return None
    if config.any(key) in _OTHER_BACKENDS:
        return _other_backend(config, key)
    return config.choice(key, _BACKENDS)  # type: ignore[return-value]


def _other_backend(config: Reader, key: str) -> Backend:
    """Warn that the backend is not modelled, and return the one that is nearest to most others."""
    message = f"the training backend {str(config.any(key))[:80]!r} is not modelled; FSDP2 is taken"
    config.warning(key, message, "the states are the same, the rest may differ")
    return "fsdp2"


def _has_critic(request: Request, config: Reader) -> bool:
    if config.is_set("critic.enable"):
        return config.flag("critic.enable")
    key = "algorithm.adv_estimator"
    if config.is_set(key) or not request.task:
        name = config.any(key)
        if name not in ESTIMATORS:
            hint = suggest_or(str(name), ESTIMATORS, "with gae there is a critic, with others none")
            message = f"{str(name)[:80]!r} is no estimator that is known; no critic is assumed"
            config.warning(key, message, hint, Code.unknown_value)
        return bool(name == "gae")
    return request.task.lower().startswith("ppo")


def _has_reference(request: Request, config: Reader, actor: Role) -> bool:
    """Tell whether a reference policy is loaded; with LoRA the actor without its adapters serves as one."""
    asked = [config.flag(f"{ACTOR}.use_kl_loss"), config.flag("algorithm.use_kl_in_reward")]
    return (any(asked) or behaviour(request.version).reference_resident) and not actor.lora_rank


def _reference_offload(config: Reader, actor: Role) -> bool:
    if actor.backend != "megatron":
        return True
    key = f"{REFERENCE}.megatron.param_offload"
    return config.flag(key) if config.is_set(key) else actor.megatron.param_offload


def _log_prob(config: Reader, prefix: str, ranks: int, otherwise: MicroBatch) -> MicroBatch:
    """Return how a log-prob pass is cut; unset keys follow the actor."""
    key = f"{prefix}.log_prob_use_dynamic_bsz"
    dynamic = config.flag(key) if config.is_set(key) else otherwise.dynamic
    budget_key = f"{prefix}.log_prob_max_token_len_per_gpu"
    budget = config.whole(budget_key) if config.is_set(budget_key) else otherwise.tokens
    found = micro_batch(config, prefix, "log_prob_micro_batch_size", ranks, dynamic, budget)
    return found if found.sequences else MicroBatch(otherwise.sequences, dynamic, budget)


def _capacity(request: Request, registries: Registries, config: Reader) -> float | None:
    """Return what the GPU offers; for a nominal size alone, the least that any GPU of that size offers."""
    gpu = _gpu_of(request, registries)
    if gpu is not None:
        return capacity_of(gpu)
    if request.memory_gb is not None:
        alike = [capacity_of(gpu) for gpu in registries.gpus if gpu.memory_gb == request.memory_gb]
        return min(alike) if alike else max(0.0, request.memory_gb * GB - DRIVER_RESERVE.value)
    if request.gpu is not None:
        hint = suggest_or(request.gpu, registries.gpus.names, "add it to gpus.yaml, or give its memory")
        config.warning("gpus", f"no GPU is recorded as {request.gpu[:200]!r}", hint, Code.unknown_gpu)
    elif not request.partial:
        hint = "name it, as in 8*H100"
        message = (
            "no GPU is named; whether it fits is not known, and the rollout budget is that of an 80 GB card"
        )
        config.warning("gpus", message, hint, Code.missing_key)
    return None


def _gpu_of(request: Request, registries: Registries) -> Gpu | None:
    """Return the GPU by its name; one sold in several sizes, by name and size."""
    if request.gpu is None:
        return None
    sized = registries.gpus.get(f"{request.gpu}-{request.memory_gb:g}GB") if request.memory_gb else None
    return sized or registries.gpus.get(request.gpu)


def _lengths(request: Request, config: Reader) -> Lengths:
    longest = float(config.whole("data.max_prompt_length") + config.whole("data.max_response_length"))
    seen = request.observed
    prompts, responses = seen.get("prompt_length_mean"), seen.get("response_length_mean")
    sequences = config.whole("data.train_batch_size") * config.whole(f"{ROLLOUT}.n")
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


def _unstated(request: Request, config: Reader, backend: Backend) -> frozenset[str]:
    """Return what the quoted settings leave out and scripts often set."""
    part = "megatron" if backend == "megatron" else "fsdp_config"
    keys = {
        "padding": [f"{MODEL}.use_remove_padding"],
        "length": [f"{ROLLOUT}.max_model_len"],
        "recompute": [f"{ACTOR}.megatron.override_transformer_config.recompute_granularity"],
        "offload": [f"{ACTOR}.{part}.{name}_offload" for name in ("param", "optimizer")],
    }
    return frozenset(name for name, found in keys.items() if not any(config.is_set(key) for key in found))


def least(settings: Settings) -> Settings:
    """Return the settings at the low end of the range: the unknown is taken as favourably as possible.

    Unknown lengths are the shortest of real data; a key that a source does not quote may have been set.
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


class _KeyLog(dict[str, Any]):
    """Settings that note which keys are looked up: the reader asks if a key is set before it reads it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.looked_up: set[str] = set()

    def __contains__(self, key: object) -> bool:
        self.looked_up.add(str(key))
        return super().__contains__(key)


@lru_cache(maxsize=64)
def modelled_keys(version: Version, registries: Registries) -> frozenset[str]:
    """Return the keys that an estimate of a version of verl reads, with any backend.

    Some keys are read with one backend only, or where another key is set: settings are read more than once.
    """
    keys = {f"{MODEL}.path", "easyr1.dtype"}
    for backend, critic, use_v1 in (("fsdp", True, True), ("megatron", True, False), ("fsdp", None, True)):
        config = _KeyLog({f"{ACTOR}.strategy": backend, "critic.enable": critic, "trainer.use_v1": use_v1})
        config[f"{ACTOR}.entropy_coeff"] = 0
        for role in (ACTOR, "critic"):
            config[f"{role}.optim.use_precision_aware_optimizer"] = True
            config[f"{role}.optim.override_optimizer_config.optimizer_cpu_offload"] = True
        request = Request("", config, gpus=8, version=version, partial=True)
        settings_of(request, registries, Reader(config, registries.defaults(version)))
        keys |= config.looked_up
    return frozenset(keys)
