"""What the rollout engine holds on a GPU while it is awake, and what stays of it while it sleeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import kinds
from .allocations import allocate, fixed
from .constants import CONTEXT, CUDA_GRAPHS, POOL_OFFSET
from .kv_cache import kv_cache_bytes_per_token
from .versions import behaviour

if TYPE_CHECKING:
    from ..breakdown import Evidence
    from .allocations import Allocation, Allocations
    from .settings import Settings
    from .shape import Shape


_GRAPHS = (
    fixed(
        kinds.CUDA_GRAPHS,
        CUDA_GRAPHS.evidence,
        CUDA_GRAPHS.value,
        "CUDA graphs",
    ),
)


def awake(shape: Shape, settings: Settings, before: float) -> Allocations:
    """The whole budget: weights, activations of its profiling run, and KV cache for the rest.

    An engine whose budget is smaller than its weights does not start; it is shown with what it would need.

    Args:
        shape: of the model.
        settings: of the run.
        before: bytes that others hold when the engine starts; SGLang's share is one of what is left.
    """
    rollout, capacity = settings.rollout, settings.capacity
    if rollout.engine == "trtllm":  # its share is that of the KV cache alone
        weights = engine_weights(shape, settings)
        free = max(0.0, capacity - before - weights.size)
        variables = (("free memory", free), ("utilization", rollout.utilization))
        cache = allocate(kinds.ROLLOUT_CACHE, "assumed", variables, unit="")
        return weights, cache, *graphs(settings)
    if rollout.engine == "vllm" and not behaviour(settings.version).engine_takes_free_memory:
        variables = (("memory of the GPU", capacity), ("utilization", rollout.utilization))
        evidence: Evidence = "exact" if settings.capacity_known else "assumed"
        pool = allocate(kinds.ROLLOUT_POOL, evidence, variables, unit="")
    else:
        variables = (("free memory", max(0.0, capacity - before)), ("utilization", rollout.utilization))
        pool = allocate(kinds.ROLLOUT_POOL, "assumed", variables, unit="")
    starts = pool.size >= weight_bytes(shape, settings)
    return (pool if starts else engine_weights(shape, settings)), *graphs(settings)


def graphs(settings: Settings) -> Allocations:
    """CUDA graphs, which lie outside the budget and never leave."""
    if settings.rollout.eager:
        return ()
    return _GRAPHS


def asleep(shape: Shape, settings: Settings) -> Allocations:
    """What stays while others work: graphs, and everything if the engine does not sleep at all."""
    rollout = settings.rollout
    if rollout.separate:
        return ()
    if not rollout.frees_cache:
        return awake(shape, settings, 0.0)
    if rollout.engine == "sglang" and settings.actor.lora_rank and not rollout.merge_lora:
        return engine_weights(shape, settings), *graphs(settings)  # the base model stays below the adapters
    return graphs(settings)


def engine_weights(shape: Shape, settings: Settings) -> Allocation:
    """One share of the engine's copy of the weights; its copies share out the experts."""
    rollout = settings.rollout
    variables = (("parameters", _parameters(shape, settings)),)
    return allocate(
        kinds.ROLLOUT_WEIGHTS, "exact", variables, rollout.element_bytes, "bytes", rollout.tensor, "TP"
    )


def weight_bytes(shape: Shape, settings: Settings) -> float:
    """The size of ``engine_weights``."""
    return _parameters(shape, settings) * settings.rollout.element_bytes / settings.rollout.tensor


def _parameters(shape: Shape, settings: Settings) -> float:
    return shape.parameters - shape.expert_parameters * (1 - 1 / settings.rollout.data)


def vllm_pool_in_torch_peak(settings: Settings) -> float:
    """Bytes of the engine that PyTorch's counter of the training process includes, asleep or not."""
    if settings.counter_leaves_pool_out or settings.rollout.engine != "vllm":
        return 0.0
    return max(0.0, settings.capacity * settings.rollout.utilization - POOL_OFFSET.value)


def cache_tokens(shape: Shape, settings: Settings) -> float:
    """Tokens that the KV cache of one engine has room for, beside weights and what a first, full step takes.

    Too few slow a run down; only fewer than one sequence needs stop it.
    """
    rollout = settings.rollout
    room = settings.capacity * rollout.utilization - weight_bytes(shape, settings)
    room -= CONTEXT.value + rollout.batched_tokens * shape.forward / rollout.tensor
    room -= rollout.sequences * shape.vocabulary * 4
    each = kv_cache_bytes_per_token(shape.architecture, rollout.tensor)
    return max(0.0, room) / each if each else float("inf")
