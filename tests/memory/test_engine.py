"""The rollout engine in its states, and its KV cache, compared with sums by hand; Qwen2.5-7B on eight GPUs."""

from __future__ import annotations

import pytest
from qwen_7b import APART, EXPERTS, FULL, LORA, MERGE, NEW, OTHERS, ROUTED, V08, P, V

from sphinx_verl_resources.memory import engine
from sphinx_verl_resources.memory.allocations import size_of
from sphinx_verl_resources.units import GIB

GRAPHED = {**FULL, "rollout.enforce_eager": False}
SGLANG = {**FULL, "rollout.name": "sglang"}
AWAKE, TINY = {"rollout.free_cache_engine": False}, {"rollout.gpu_memory_utilization": 0.05}
WITH_ADAPTERS, SYNC = {**LORA, "rollout.name": "sglang"}, "taking weights"
#: The capacity, the weights on one of two GPUs, graphs, and what the trainer already has.
C, W, G, BEFORE = 79.1475 * GIB, 2 * P / 2, 2 * GIB, 10 * GIB
POOL, WEIGHTS, GRAPHS = "rollout-pool", "rollout-weights", "cuda-graphs"

STATES = [
    # Awake: vLLM takes a share of the whole GPU, others of what is free.
    (FULL, V08, "awake", {POOL: C / 2}), (SGLANG, V08, "awake", {POOL: (C - BEFORE) / 2}),
    (FULL, (0, 2, 0), "awake", {POOL: (C - BEFORE) / 2}),
    # CUDA graphs are in vLLM's budget since v0.9.0; others have them on top.
    (GRAPHED, V08, "awake", {POOL: C / 2, GRAPHS: G}), (GRAPHED, NEW, "awake", {POOL: C / 2}),
    ({**SGLANG, "rollout.enforce_eager": False}, NEW, "awake", {POOL: (C - BEFORE) / 2, GRAPHS: G}),
    # A budget that is too small for weights and graphs.
    ({**FULL, **TINY}, V08, "awake", {WEIGHTS: W}), ({**GRAPHED, **TINY}, NEW, "awake", {WEIGHTS: W, GRAPHS: G}),
    (FULL, V08, "asleep", {}), (GRAPHED, NEW, "asleep", {GRAPHS: G}), ({**FULL, **AWAKE}, V08, "asleep", {POOL: C / 2}),
    ({**SGLANG, **AWAKE}, V08, "asleep", {POOL: C / 2}),  # it took its share before
    (WITH_ADAPTERS, V08, "asleep", {WEIGHTS: W}), ({**WITH_ADAPTERS, **MERGE}, V08, "asleep", {}),
    # During weight sync the KV cache sleeps, except in old versions and with SGLang.
    (GRAPHED, NEW, SYNC, {WEIGHTS: W, GRAPHS: G}), (FULL, (0, 3, 0), SYNC, {POOL: C / 2}),
    (SGLANG, (0, 7, 1), SYNC, {POOL: C / 2}), (SGLANG, V08, SYNC, {WEIGHTS: W}),
    ({**SGLANG, "rollout.multi_stage_wake_up": True}, (0, 7, 1), SYNC, {WEIGHTS: W}),
    # With GPUs of its own.
    *(({**GRAPHED, **APART}, V08, state, {}) for state in ("awake", "asleep", SYNC)),
    # Quantized weights; copies of the engine share out the experts.
    ({**FULL, "rollout.quantization": "fp8"}, V08, SYNC, {WEIGHTS: P / 2}),
    ({**FULL, "rollout.data_parallel_size": 4, **EXPERTS}, V08, SYNC, {WEIGHTS: OTHERS + ROUTED / 4}),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "version", "state", "expected"), STATES)
def test_engine(ask, settings, version, state, expected):
    result = ask(settings, version=version)
    pieces = engine.engine_allocations(state, result.shape, result.settings, BEFORE)
    assert {part.key: part.size for part in pieces} == pytest.approx(expected, rel=1e-4)


#: Bytes of weights that a sleeping engine has on the host, of vLLM's pool that PyTorch counts in the training
#: process, and tokens that the KV cache needs for vLLM to start.
ON_HOST, COUNTED, NEEDED = engine.sleeping_weights, engine.vllm_pool_in_torch_peak, engine.needed_cache_tokens
OLD, LATER = (0, 7, 0), (0, 7, 1)
FIGURES = [
    # Sleep level 2 drops the weights; SGLang with adapters leaves them on the GPU.
    (ON_HOST, FULL, (0, 6, 0), 0), (ON_HOST, FULL, (0, 5, 0), W), (ON_HOST, LORA, LATER, W), (ON_HOST, LORA, OLD, 0),
    (ON_HOST, {**LORA, **MERGE}, NEW, 0), (ON_HOST, SGLANG, V08, 0), (ON_HOST, SGLANG, NEW, W),
    *((ON_HOST, {**settings}, NEW, 0) for settings in (WITH_ADAPTERS, {**SGLANG, **AWAKE}, {**SGLANG, **APART})),
    # The pool is in another process since v0.7.1; EasyR1 subtracts it.
    (COUNTED, FULL, OLD, C / 2 - 3 * GIB), (COUNTED, FULL, LATER, 0), (COUNTED, SGLANG, OLD, 0),
    (COUNTED, {**FULL, "framework": "EasyR1"}, OLD, 0), (COUNTED, {**FULL, **APART}, OLD, 0),
    (COUNTED, {**FULL, "rollout.gpu_memory_utilization": 0.01}, OLD, 0),
    # The model's own limit, unless the engine is in the training process or the source may leave a limit out.
    (NEEDED, FULL, NEW, 131_072), (NEEDED, FULL, OLD, 1024), (NEEDED, {**FULL, "partial": True}, NEW, 1024),
    (NEEDED, {**FULL, "rollout.max_model_len": 5000}, OLD, 5000), (NEEDED, SGLANG, NEW, 0),
    (NEEDED, {**FULL, **APART}, NEW, 0), (NEEDED, {**FULL, "gpu": None}, NEW, 0),
]  # fmt: skip


@pytest.mark.parametrize(("function", "settings", "version", "expected"), FIGURES)
def test_figures(ask, function, settings, version, expected):
    result = ask(settings, version=version)
    figure = function(*[result.settings] if function is COUNTED else (result.shape, result.settings))
    assert (figure if function is NEEDED else size_of(figure)) == pytest.approx(expected, rel=1e-4)


def test_tokens_in_the_kv_cache(ask):
    """Beside weights, a context, one full step and the sampler's logits."""
    room = C / 2 - W - GIB - 8192 * (8 * 3584 + 6 * 18_944) / 2 - 256 * V * 4
    result = ask(FULL)
    assert engine.cache_tokens(result.shape, result.settings) == pytest.approx(room / (57_344 / 2), rel=1e-3)
    limit = int(engine.cache_tokens(result.shape, result.settings))
    for longest, count in ((limit, 0), (limit + 1, 1)):
        question = ask({**FULL, "rollout.max_model_len": longest})
        assert len([*engine.cache_problems(question.shape, question.settings)]) == count
    (warning,) = ask({**FULL, **TINY}).warnings
    assert warning.message.endswith("4.0 GiB leave room for 0 tokens, less than one sequence of 131,072")


def test_bytes_per_token_in_the_kv_cache(registries, ask):
    """Key-value heads are copied if there are more GPUs, latents are not divided, linear attention has no cache."""
    dense, latent, linear = "Qwen/Qwen2.5-7B", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3.5-27B"
    sizes = ((dense, 1, 57_344), (dense, 8, 14_336), (latent, 8, 70_272), (linear, 1, 65_536))
    for model, tensor, size in sizes:
        assert engine.kv_cache_bytes_per_token(registries.shape(model).architecture, tensor) == size, model
    short = {"name": "short", "hf_id": "short", "num_hidden_layers": 2}  # none of them has full attention
    data = registries.knowing(registries.shape(linear).architecture.model_copy(update=short))
    assert ask(FULL, model="short", data=data).warnings == ()
