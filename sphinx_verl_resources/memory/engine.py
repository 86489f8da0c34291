"""The memory of the rollout engine on one GPU: awake, asleep, and during weight sync."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from ..diagnostics import Diagnostic
from ..units import GIB, Evidence
from .allocations import (
    CONTEXT,
    CUDA_GRAPHS,
    POOL_OFFSET,
    Allocation,
    Allocations,
    Kind,
    allocate,
    fixed,
    size_of,
)
from .architectures import Architecture
from .request import ROLLOUT, warning_at
from .settings import Settings
from .shape import Shape
from .versions import behaviour

EngineState = Literal["not started", "awake", "asleep", "taking weights"]
_GRAPHS = fixed(Kind.CUDA_GRAPHS, CUDA_GRAPHS)


def engine_allocations(state: EngineState, shape: Shape, settings: Settings, before: float) -> Allocations:
    """Return the allocations of the engine in a state.

    Args:
        state: the engine's state.
        shape: the model's shape.
        settings: the run's settings.
        before: bytes already in use when the engine wakes up; SGLang takes a share of the rest.
    """
    rollout, traits = settings.rollout, behaviour(settings.version)
    if rollout.separate or state == "not started":
        return ()
    # Outside the engine's budget, and never freed.
    graphs = () if rollout.eager else _GRAPHS
    keeps_cache = not rollout.frees_cache or (state == "taking weights" and rollout.cache_awake_in_sync)
    sleeps = state != "awake" and not keeps_cache
    # With unmerged adapters, SGLang keeps the base model.
    keeps_base = rollout.engine == "sglang" and settings.actor.lora_rank and not rollout.merge_lora
    if sleeps and state == "asleep" and not keeps_base:
        return graphs
    after_loading = (engine_weights(shape, settings), *graphs)
    if sleeps:
        return after_loading
    # The whole budget: weights, activations of the profiling run, and a KV cache that fills it.
    whole = {"memory of the GPU": settings.capacity}
    evidence: Evidence = "exact" if settings.capacity_known else "assumed"
    if rollout.engine != "vllm" or traits.engine_takes_free_memory:
        share = before if state == "awake" else 0.0  # otherwise it took its share before
        whole, evidence = {"free memory": max(0.0, settings.capacity - share)}, "assumed"
    pool = allocate(Kind.ROLLOUT_POOL, {**whole, "utilization": rollout.utilization}, evidence=evidence)
    if rollout.engine == "vllm" and traits.graphs_in_budget:
        graphs = ()
    # If the budget is too small for weights and graphs, the engine does not start.
    return max((pool, *graphs), after_loading, key=size_of)


def engine_weights(shape: Shape, settings: Settings) -> Allocation:
    """Return one GPU's share of the engine's weights; data-parallel copies divide the experts among them."""
    rollout = settings.rollout
    count = shape.parameters - shape.expert_parameters * (1 - 1 / rollout.data)
    return allocate(Kind.ROLLOUT_WEIGHTS, {"parameters": count}, rollout.element_bytes, rollout.tensor, "TP")


def sleeping_weights(shape: Shape, settings: Settings) -> Allocations:
    """Return one GPU's share of the weights that the sleeping engine keeps in host memory.

    vLLM drops them at sleep level 2: ``_resolve_sleep_level`` in
    verl/workers/rollout/vllm_rollout/vllm_async_server.py:1116 at 1dda039b9. SGLang copies them back:
    ``enable_weights_cpu_backup`` in verl/workers/rollout/sglang_rollout/async_sglang_server.py:374.
    """
    rollout, traits = settings.rollout, behaviour(settings.version)
    adapters = settings.actor.lora_rank > 0 and not rollout.merge_lora
    on_host = traits.sleep_keeps_weights or (adapters and traits.adapters_keep_weights)
    if rollout.engine == "sglang":  # with unmerged adapters the weights stay on the GPU
        on_host = traits.sglang_backup and not adapters
    weights = engine_weights(shape, settings)._replace(kind=Kind.SLEEPING)
    return (weights,) if on_host and rollout.frees_cache and not rollout.separate else ()


def vllm_pool_in_torch_peak(settings: Settings) -> Allocations:
    """Return the part of vLLM's pool that PyTorch's counter includes, whether the engine sleeps or not."""
    rollout, in_process = settings.rollout, behaviour(settings.version).engine_in_process
    # EasyR1 subtracts the freed engine from PyTorch's counter.
    if settings.entropy_free or not in_process or rollout.separate or rollout.engine != "vllm":
        return ()
    pool = max(0.0, settings.capacity * rollout.utilization - POOL_OFFSET.value)
    return (allocate(Kind.ROLLOUT_POOL, {"pool": pool}, evidence="assumed"),) if pool else ()


# -- the KV cache


def cache_tokens(shape: Shape, settings: Settings) -> float:
    """Return the tokens that fit into the KV cache of one engine.

    A small cache slows a run down; the run only fails if one sequence does not fit.
    """
    rollout = settings.rollout
    room = settings.capacity * rollout.utilization - engine_weights(shape, settings).size
    room -= CONTEXT.value + rollout.batched_tokens * shape.forward / rollout.tensor
    room -= rollout.sequences * shape.vocabulary * 4
    each = kv_cache_bytes_per_token(shape.architecture, rollout.tensor)
    return max(0.0, room) / each if each else math.inf  # a test-size model without full attention


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


def kv_cache_bytes_per_token(architecture: Architecture, tensor_parallel: int) -> int:
    """Return the bytes of one token in the KV cache of one GPU, over all layers, in 16 bits.

    ``tensor_parallel`` GPUs divide the key-value heads, and replicate them if there are more GPUs than heads.
    The compressed cache of multi-head latent attention is not divided. Layers with linear attention have no
    cache. A sliding window limits the number of tokens, not their size.

    Source: shapes; vLLM ``vllm/v1/kv_cache_interface.py``.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> qwen = EstimatorContext().architectures.get("Qwen/Qwen2.5-7B")
    >>> [kv_cache_bytes_per_token(qwen, gpus) for gpus in (1, 2, 4, 8)]
    [57344, 28672, 14336, 14336]
    """
    linear, mla = architecture.linear_attention, architecture.mla
    layers = architecture.num_hidden_layers // (linear.full_attention_interval if linear else 1)
    if mla:
        return 2 * layers * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    heads = -(-architecture.num_key_value_heads // tensor_parallel)
    return 2 * layers * 2 * heads * architecture.head_dim  # keys and values


def cache_problems(shape: Shape, settings: Settings) -> Iterator[Diagnostic]:
    """Check that the KV cache holds one sequence; otherwise the engine does not start."""
    rollout = settings.rollout
    room, needed = cache_tokens(shape, settings), needed_cache_tokens(shape, settings)
    if room < needed:
        budget = settings.capacity * rollout.utilization / GIB
        message = (
            f"after loading the weights, the engine's {budget:.1f} GiB leave room for {room:,.0f} tokens, "
            f"less than one sequence of {needed:,.0f}"
        )
        hint = "raise it or rollout.tensor_model_parallel_size, or set rollout.max_model_len"
        yield warning_at(f"{ROLLOUT}.gpu_memory_utilization", message, hint)
