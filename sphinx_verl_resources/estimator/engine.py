"""The memory of the rollout engine on one GPU: awake, asleep, and during weight sync."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .allocations import Kind, allocate, fixed, size_of
from .constants import CONTEXT, CUDA_GRAPHS, ENGINE_BUDGET, POOL_OFFSET, Spread
from .versions import behaviour

if TYPE_CHECKING:
    from ..units import Evidence
    from .allocations import Allocation, Allocations
    from .architectures import Architecture
    from .settings import Settings
    from .shape import Shape

EngineState = Literal["awake", "asleep", "taking weights"]

#: Outside the engine's budget, and never freed.
_GRAPHS = (fixed(Kind.CUDA_GRAPHS, "CUDA graphs", CUDA_GRAPHS),)


def engine_allocations(state: EngineState, shape: Shape, settings: Settings, before: float) -> Allocations:
    """Return the allocations of the engine in a state.

    Args:
        state: the engine's state.
        shape: the model's shape.
        settings: the run's settings.
        before: bytes already in use when the engine wakes up; SGLang takes a share of the rest.
    """
    rollout, traits = settings.rollout, behaviour(settings.version)
    if state == "awake":
        return _awake(shape, settings, before)
    if rollout.separate:
        return ()
    graphs = () if rollout.eager else _GRAPHS
    if state == "asleep":
        if not rollout.frees_cache:  # it does not sleep at all
            return _awake(shape, settings, 0.0)
        # With unmerged adapters, SGLang keeps the base model.
        keeps_base = rollout.engine == "sglang" and settings.actor.lora_rank and not rollout.merge_lora
        return (engine_weights(shape, settings), *graphs) if keeps_base else graphs
    # During weight sync, the KV cache may be awake too.
    if traits.cache_awake_in_sync or not rollout.stages_wake_up or not rollout.frees_cache:
        return _awake(shape, settings, 0.0)
    return (engine_weights(shape, settings), *graphs)


def bucket(settings: Settings) -> Allocations:
    """Return the weight transfer bucket, which the training process allocates.

    Source: ``verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py:176`` at 1dda039b9; for SGLang,
    whose bucket holds gathered tensors, ``verl/workers/rollout/sglang_rollout/utils.py``.
    """
    size = settings.rollout.bucket
    return (allocate(Kind.BUCKET, "exact", {"bucket": size}),) if size else ()


def _awake(shape: Shape, settings: Settings, before: float) -> Allocations:
    """Return the whole budget: weights, activations of the profiling run, and a KV cache that fills it.

    If the budget is too small for weights and graphs, the engine does not start; return only these.
    """
    rollout, capacity = settings.rollout, settings.capacity
    weights = engine_weights(shape, settings)
    needed = () if rollout.eager else _GRAPHS
    inside = rollout.engine == "vllm" and behaviour(settings.version).graphs_in_budget
    graphs = () if inside else needed
    utilization = {"utilization": rollout.utilization}
    if rollout.engine == "trtllm":  # its share is for the KV cache alone
        free = {"free memory": max(0.0, capacity - before - weights.size)}
        cache = allocate(Kind.ROLLOUT_CACHE, "assumed", {**free, **utilization}, spread=ENGINE_BUDGET.spread)
        return (weights, cache, *graphs)
    if rollout.engine == "vllm" and not behaviour(settings.version).engine_takes_free_memory:
        whole = {"memory of the GPU": capacity}
        evidence: Evidence = "exact" if settings.capacity_known else "assumed"
        pool = allocate(Kind.ROLLOUT_POOL, evidence, {**whole, **utilization}, spread=ENGINE_BUDGET.spread)
    else:
        free = {"free memory": max(0.0, capacity - before)}
        pool = allocate(Kind.ROLLOUT_POOL, "assumed", {**free, **utilization}, spread=ENGINE_BUDGET.spread)
    return max((pool, *graphs), (weights, *needed), key=size_of)


def sleeping_weights(shape: Shape, settings: Settings) -> Allocations:
    """Return one GPU's share of the weights that the sleeping engine keeps in host memory."""
    rollout = settings.rollout
    if rollout.separate or not rollout.frees_cache:
        return ()
    on_host = _sglang_backs_up(settings) if rollout.engine == "sglang" else _sleeps_lightly(settings)
    if not on_host:
        return ()
    return (engine_weights(shape, settings)._replace(kind=Kind.SLEEPING_WEIGHTS),)


def _sglang_backs_up(settings: Settings) -> bool:
    """Return whether SGLang copies its weights to the host when it releases them.

    Source: ``enable_weights_cpu_backup`` in verl/workers/rollout/sglang_rollout/async_sglang_server.py:374 at
    1dda039b9. With unmerged adapters the weights stay on the GPU.
    """
    rollout, traits, adapted = settings.rollout, behaviour(settings.version), settings.actor.lora_rank > 0
    if adapted and not rollout.merge_lora:
        return False
    return traits.sglang_backup or (adapted and traits.sglang_backup_of_merged) or rollout.speculates


def _sleeps_lightly(settings: Settings) -> bool:
    """Return whether vLLM sleeps at level 1, which keeps the weights in host memory; level 2 drops them.

    Source: ``_resolve_sleep_level`` in verl/workers/rollout/vllm_rollout/vllm_async_server.py:1116 at
    1dda039b9; before v0.7.1 ``vllm_rollout_spmd.py``.
    """
    rollout, traits = settings.rollout, behaviour(settings.version)
    adapters = settings.actor.lora_rank > 0 and not rollout.merge_lora
    return (
        traits.sleep_keeps_weights
        or (rollout.layered_summon and traits.layers_keep_weights)
        or (adapters and traits.adapters_keep_weights)
        or (settings.npu and traits.npu_keeps_weights)
        or (rollout.speculates and traits.speculation_keeps_weights)
    )


def engine_weights(shape: Shape, settings: Settings) -> Allocation:
    """Return one GPU's share of the engine's weights; data-parallel copies divide the experts among them."""
    rollout = settings.rollout
    count = shape.parameters - shape.expert_parameters * (1 - 1 / rollout.data)
    return allocate(
        Kind.ROLLOUT_WEIGHTS, "exact", {"parameters": count}, rollout.element_bytes, rollout.tensor, "TP"
    )


def vllm_pool_in_torch_peak(settings: Settings) -> Allocations:
    """Return the part of vLLM's pool that PyTorch's counter includes, whether the engine sleeps or not."""
    if settings.counter_leaves_pool_out or settings.rollout.engine != "vllm":
        return ()
    budget = settings.capacity * settings.rollout.utilization
    pool = max(0.0, budget - POOL_OFFSET.value)
    if not pool:
        return ()
    spread = Spread(max(0.0, budget - POOL_OFFSET.high) / pool, (budget - POOL_OFFSET.low) / pool)
    return (allocate(Kind.ROLLOUT_POOL, POOL_OFFSET.evidence, {"pool": pool}, spread=spread),)


def cache_tokens(shape: Shape, settings: Settings) -> float:
    """Return the tokens that fit into one engine's KV cache, after weights and one full step.

    A small cache slows a run down; the run only fails if one sequence does not fit.
    """
    rollout = settings.rollout
    room = settings.capacity * rollout.utilization - engine_weights(shape, settings).size
    room -= CONTEXT.value + rollout.batched_tokens * shape.forward / rollout.tensor
    room -= rollout.sequences * shape.vocabulary * 4
    each = kv_cache_bytes_per_token(shape.architecture, rollout.tensor)
    return max(0.0, room) / each if each else float("inf")


def needed_cache_tokens(shape: Shape, settings: Settings) -> float:
    """Return the tokens that vLLM's KV cache must hold for vLLM to start; 0 for other engines."""
    rollout = settings.rollout
    if rollout.engine != "vllm" or rollout.separate or not settings.capacity_known:
        return 0.0
    if rollout.model_length:
        return float(rollout.model_length)
    if not behaviour(settings.version).engine_in_process and "length" not in settings.unstated:
        return float(shape.architecture.max_position_embeddings)  # the engine's default
    return settings.lengths.limit


def kv_cache_bytes_per_token(
    architecture: Architecture, tensor_parallel: int = 1, element_bytes: int = 2
) -> int:
    """Return the bytes of one token in the KV cache of one GPU, over all layers.

    ``tensor_parallel`` GPUs divide the key-value heads, and replicate them if there are more GPUs than heads.
    The compressed cache of multi-head latent attention is not divided. Layers with linear attention have no
    cache. A sliding window limits the number of tokens, not their size.

    Source: shapes; vLLM ``vllm/v1/kv_cache_interface.py``.

    >>> from sphinx_verl_resources.estimator.context import EstimatorContext
    >>> qwen = EstimatorContext().architectures.get("Qwen/Qwen2.5-7B")
    >>> [kv_cache_bytes_per_token(qwen, gpus) for gpus in (1, 2, 4, 8)]
    [57344, 28672, 14336, 14336]
    """
    linear, mla = architecture.linear_attention, architecture.mla
    layers = architecture.num_hidden_layers // (linear.full_attention_interval if linear else 1)
    if mla:
        return layers * (mla.kv_lora_rank + mla.qk_rope_head_dim) * element_bytes
    heads = -(-architecture.num_key_value_heads // max(1, tensor_parallel))
    return 2 * layers * heads * architecture.head_dim * element_bytes
