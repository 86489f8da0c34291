"""Properties of every estimate, tested with random settings."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.memory.allocations import size_of
from sphinx_verl_resources.memory.phases import phases_of, roles_of
from sphinx_verl_resources.memory.settings import micro_batches
from sphinx_verl_resources.memory.versions import EARLY, RELEASES

FLAG, SIZE = [False, True], [1, 2, 4, 8]
PARAM, OPTIMIZER = "fsdp.param_offload", "fsdp.optimizer_offload"
BATCH, RESPONSE = "actor.ppo_micro_batch_size_per_gpu", "data.max_response_length"
MODELS = ["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3"]
FLAGS = [
    "actor.entropy_checkpointing", "actor.entropy_from_logits_with_chunking", "actor.use_dynamic_bsz",
    "actor.use_kl_loss", "actor.use_torch_compile", "critic.fsdp.param_offload", "fsdp.offload_policy",
    "fsdp.optimizer_offload", "fsdp.param_offload", "fsdp.reshard_after_forward", "megatron.optimizer_offload",
    "megatron.param_offload", "megatron.sequence_parallel", "megatron.use_distributed_optimizer",
    "model.enable_gradient_checkpointing", "model.lora.merge",
    "model.use_fused_kernels", "model.use_remove_padding", "partial", "rollout.enforce_eager",
    "rollout.free_cache_engine", "rollout.layered_summon",
]  # fmt: skip
CHOICES = {
    **dict.fromkeys(FLAGS, FLAG), **{f"megatron.{name}": SIZE for name in ("tp", "pp", "ep")}, "megatron.cp": [1, 2],
    "model": [*MODELS, "Qwen/Qwen2.5-VL-7B-Instruct", "google/gemma-2-9b-it"], "gpus": [1, 2, 8, 16, 64],
    "gpu": ["H100", "A100", None], "version": [EARLY, *(version for _, version in RELEASES)],
    "observed": [{"prompt_length_mean": 200, "response_length_mean": 400}, {"total_num_tokens": 1e6}, {}],
    "actor.strategy": ["fsdp", "fsdp2", "megatron"], "critic.strategy": ["fsdp", "megatron"],
    "algorithm.adv_estimator": ["gae", "grpo"], "actor.ppo_max_token_len_per_gpu": [1, 999, 50_000], BATCH: [1, 3, 64],
    "actor.ppo_mini_batch_size": [8, 64, 256], "actor.entropy_coeff": [0, 0.01], "fsdp.fsdp_size": [-1, 2, 8],
    "fsdp.model_dtype": ["fp32", "bf16"], "fsdp.ulysses_sequence_parallel_size": SIZE, "megatron.etp": [None, 1],
    "transformer.recompute_granularity": [None, "full", "selective"], "model.lora_rank": [0, 16],
    "model.lora.rank": [0, 16], "rollout.name": ["vllm", "sglang", "hf"], "rollout.n": [1, 8],
    "rollout.gpu_memory_utilization": [0.05, 0.5, 1], "rollout.tensor_model_parallel_size": [1, 2, 4],
    "data.max_prompt_length": [1, 8192], RESPONSE: [1, 8192], "trainer.v1.trainer_mode": ["sync", "separate_async"],
}  # fmt: skip
SETTINGS = st.fixed_dictionaries({}, optional={key: st.sampled_from(CHOICES[key]) for key in CHOICES})


def question(ask, settings, **changes):
    """Return the estimate, skipping settings that cannot be estimated."""
    try:
        return ask({**settings, **changes})
    except NoAnswerError:
        assume(False)


@given(SETTINGS)
def test_every_number_fits_the_others(ask, settings):
    result = question(ask, settings)
    assert phases_of(result.shape, result.settings) == result.phases  # nothing is kept back
    assert max(phase.total for phase in result.phases) == result.peak == result.peak_phase.total
    assert 0 <= result.low <= result.peak <= result.high
    low, high = result.torch_peak_range
    assert low <= result.torch_peak <= high
    for phase in result.phases:
        sizes = [part.size for part in phase.allocations]
        assert all(math.isfinite(size) and size >= 0 for size in sizes)
        assert phase.total == pytest.approx(sum(sizes)) == phase.breakdown.total
        assert [part.component.size for part in phase.allocations] == sizes
    assert math.isfinite(result.host.total)


@given(SETTINGS)
def test_more_gpus_never_raise_a_training_state(ask, settings):
    def states(gpus):
        result = question(ask, settings, **{"fsdp.fsdp_size": -1, "gpus": gpus})
        for stages in roles_of(result.shape, result.settings):
            yield max((size_of(role.update(1.0).step) for role in stages), default=0)

    gpus = settings.get("gpus", 8)
    for few, many in zip(states(gpus), states(2 * gpus), strict=True):
        assert many <= few * (1 + 1e-12)


@pytest.mark.parametrize("key", [BATCH, RESPONSE])
@given(settings=SETTINGS, less=st.integers(1, 40), more=st.integers(1, 4000))
def test_more_tokens_never_lower_a_phase(ask, key, settings, less, more):
    # With one pipeline stage, the same one is the fullest.
    common = {BATCH: 4, "actor.use_dynamic_bsz": False, "megatron.pp": 1, "observed": {}}
    few, many = (question(ask, settings, **{**common, key: count}) for count in (less, less + more))
    assume(len({micro_batches(result.settings, result.settings.actor) > 1 for result in (few, many)}) == 1)
    assert all(a.counted <= b.counted * (1 + 1e-9) for a, b in zip(few.phases, many.phases, strict=True))


UPDATE = ("update-forward", "update-backward")
BESIDES = ("rollout", "old-log-prob", "ref-log-prob", "weight-sync")
SAVERS = {
    PARAM: ("rollout", "ref-log-prob", "critic-values", "critic-backward", "critic-optimizer-step"),
    OPTIMIZER: BESIDES, "megatron.param_offload": BESIDES, "rollout.enforce_eager": (*BESIDES, *UPDATE),
    "critic.fsdp.param_offload": (*BESIDES, *UPDATE),
    "model.enable_gradient_checkpointing": UPDATE, "rollout.free_cache_engine": (*BESIDES[1:], *UPDATE),
}  # fmt: skip


@pytest.mark.parametrize("key", SAVERS)
@given(settings=SETTINGS)
def test_what_saves_memory_never_costs_any(ask, key, settings):
    off, on = (question(ask, settings, **{key: value}) for value in FLAG)
    for before, after in zip(off.phases, on.phases, strict=True):
        assert before.name not in SAVERS[key] or after.total <= before.total * (1 + 1e-9), before.name
