"""The memory of the rollout engine on one GPU: awake, asleep, and while it takes new weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from . import kinds
from .allocations import allocate, fixed
from .constants import CONTEXT, CUDA_GRAPHS, POOL_OFFSET
from .versions import behaviour

if TYPE_CHECKING:
    from ..breakdown import Evidence
    from ..catalog.models.architecture import Architecture
    from .allocations import Allocation, Allocations
    from .settings import Settings
    from .shape import Shape

EngineState = Literal["awake", "asleep", "taking weights"]

_GRAPHS = (fixed(kinds.CUDA_GRAPHS, CUDA_GRAPHS.evidence, CUDA_GRAPHS.value, "CUDA graphs"),)


def engine_allocations(state: EngineState, shape: Shape, settings: Settings, before: float) -> Allocations:
    """Return the allocations of the engine in a state.

    Args:
        state: of the engine.
        shape: of the model.
        settings: of the run.
        before: bytes of others when the engine wakes up; SGLang takes a share of the rest.
    """
    if state == "awake":
        return _awake(shape, settings, before)
    return _asleep(shape, settings) if state == "asleep" else _taking_weights(shape, settings)


def _awake(shape: Shape, settings: Settings, before: float) -> Allocations:
    """Return the whole budget: weights, activations of the profiling run, and KV cache for the rest.

    An engine whose budget is smaller than its weights does not start; it is shown with what it would need.
    """
    rollout, capacity = settings.rollout, settings.capacity
    weights = engine_weights(shape, settings)
    utilization = ("utilization", rollout.utilization)
    free = ("free memory", max(0.0, capacity - before))
    evidence: Evidence = "assumed"
    if rollout.engine == "trtllm":  # its share is that of the KV cache alone
        left = ("free memory", max(0.0, capacity - before - weights.size))
        return (
            weights,
            allocate(kinds.ROLLOUT_CACHE, evidence, (left, utilization), unit=""),
            *_graphs(settings),
        )
    if rollout.engine == "vllm" and not behaviour(settings.version).engine_takes_free_memory:
        free = ("memory of the GPU", capacity)
        evidence = "exact" if settings.capacity_known else "assumed"
    pool = allocate(kinds.ROLLOUT_POOL, evidence, (free, utilization), unit="")
    return (pool if pool.size >= weights.size else weights), *_graphs(settings)


def _asleep(shape: Shape, settings: Settings) -> Allocations:
    """Return what stays while others work: graphs, and everything if the engine does not sleep at all."""
    rollout = settings.rollout
    if rollout.separate:
        return ()
    if not rollout.frees_cache:
        return _awake(shape, settings, 0.0)
    if rollout.engine == "sglang" and settings.actor.lora_rank and not rollout.merge_lora:
        return engine_weights(shape, settings), *_graphs(settings)  # the base model stays below the adapters
    return _graphs(settings)


def _taking_weights(shape: Shape, settings: Settings) -> Allocations:
    """Return what the engine holds while it takes the weights, and the bucket that they are sent in."""
    rollout, traits = settings.rollout, behaviour(settings.version)
    if rollout.separate:
        held: Allocations = ()
    elif traits.cache_awake_in_sync or not rollout.stages_wake_up or not rollout.frees_cache:
        held = _awake(shape, settings, 0.0)
    else:
        held = (engine_weights(shape, settings), *_graphs(settings))
    if rollout.bucket:
        held += (fixed(kinds.BUCKET, "exact", rollout.bucket, "bucket"),)
    return held


def sleeping_weights(shape: Shape, settings: Settings) -> Allocations:
    """Return the weights that the sleeping engine keeps in host memory, for one GPU."""
    rollout = settings.rollout
    if rollout.separate or not rollout.frees_cache:
        return ()
    adapters = bool(settings.actor.lora_rank) and not rollout.merge_lora
    on_host = not adapters if rollout.engine == "sglang" else adapters
    if not on_host and not behaviour(settings.version).sleep_keeps_weights:
        return ()
    return (engine_weights(shape, settings)._replace(kind=kinds.SLEEPING_WEIGHTS),)


def _graphs(settings: Settings) -> Allocations:
    """Return the CUDA graphs, which are outside the budget and never freed."""
    return () if settings.rollout.eager else _GRAPHS


def engine_weights(shape: Shape, settings: Settings) -> Allocation:
    """Return one share of the engine's copy of the weights; its copies share out the experts."""
    rollout = settings.rollout
    count = shape.parameters - shape.expert_parameters * (1 - 1 / rollout.data)
    parameters = (("parameters", count),)
    kind = kinds.ROLLOUT_WEIGHTS
    return allocate(kind, "exact", parameters, rollout.element_bytes, "bytes", rollout.tensor, "TP")


def vllm_pool_in_torch_peak(settings: Settings) -> float:
    """Return the bytes of vLLM's pool that PyTorch's counter includes, asleep or not."""
    if settings.counter_leaves_pool_out or settings.rollout.engine != "vllm":
        return 0.0
    return max(0.0, settings.capacity * settings.rollout.utilization - POOL_OFFSET.value)


def cache_tokens(shape: Shape, settings: Settings) -> float:
    """Return the tokens that fit into one engine's KV cache, beside weights and a first, full step.

    Few tokens slow a run down; the run only fails if one sequence needs more.
    """
    rollout = settings.rollout
    room = settings.capacity * rollout.utilization - engine_weights(shape, settings).size
    room -= CONTEXT.value + rollout.batched_tokens * shape.forward / rollout.tensor
    room -= rollout.sequences * shape.vocabulary * 4
    each = kv_cache_bytes_per_token(shape.architecture, rollout.tensor)
    return max(0.0, room) / each if each else float("inf")


def kv_cache_bytes_per_token(
    architecture: Architecture, tensor_parallel: int = 1, element_bytes: int = 2
) -> int:
    """Return the bytes that one more token takes in the KV cache of one GPU, over all layers.

    Key-value heads are shared out over ``tensor_parallel`` GPUs, and replicated once there are more GPUs than
    heads. The compressed cache of multi-head latent attention is not shared out. Layers with linear attention
    have none. A sliding window limits how many tokens are kept, not this.

    Source: shapes; vLLM ``vllm/v1/kv_cache_interface.py``.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> qwen = load_paths([]).architectures.get("Qwen/Qwen2.5-7B")
    >>> [kv_cache_bytes_per_token(qwen, gpus) for gpus in (1, 2, 4, 8)]
    [57344, 28672, 14336, 14336]
    """
    linear, mla = architecture.linear_attention, architecture.mla
    layers = architecture.num_hidden_layers // (linear.full_attention_interval if linear else 1)
    if mla:
        return layers * (mla.kv_lora_rank + mla.qk_rope_head_dim) * element_bytes
    heads = -(-architecture.num_key_value_heads // max(1, tensor_parallel))
    return 2 * layers * heads * architecture.head_dim * element_bytes
