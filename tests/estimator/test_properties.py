"""Properties of every estimate, tested with random settings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sphinx_verl_resources.answer.layouts import Layout
from sphinx_verl_resources.diagnostics import Location, NoAnswerError
from sphinx_verl_resources.estimator.allocations import size_of
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.estimator.estimate import estimate, host_memory
from sphinx_verl_resources.estimator.export import result_of
from sphinx_verl_resources.estimator.phases import phases_of, roles_of
from sphinx_verl_resources.estimator.registries import capacity_of
from sphinx_verl_resources.estimator.request import Request
from sphinx_verl_resources.estimator.settings import micro_batches
from sphinx_verl_resources.estimator.versions import CURRENT, RELEASES
from sphinx_verl_resources.settings.overrides import read_overrides

REGISTRIES = EstimatorContext().registries
A, M, R = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
REF = "actor_rollout_ref.ref"
TRANSFORMER = f"{A}.megatron.override_transformer_config"
MODELS = (
    "Qwen/Qwen2.5-7B",
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/DeepSeek-V3",
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "google/gemma-2-9b-it",
)

flag = st.booleans()
size = st.sampled_from([1, 2, 4, 8])
values = {
    f"{A}.strategy": st.sampled_from(["fsdp", "fsdp2", "megatron"]),
    "algorithm.adv_estimator": st.sampled_from(["gae", "grpo"]),
    f"{A}.use_kl_loss": flag,
    f"{A}.use_dynamic_bsz": flag,
    f"{A}.ppo_micro_batch_size_per_gpu": st.integers(1, 64),
    f"{A}.ppo_max_token_len_per_gpu": st.integers(1, 50_000),
    f"{A}.ppo_mini_batch_size": st.sampled_from([8, 64, 256]),
    f"{A}.entropy_coeff": st.sampled_from([0, 0.01]),
    f"{A}.entropy_from_logits_with_chunking": flag,
    f"{A}.entropy_checkpointing": flag,
    f"{A}.use_torch_compile": flag,
    f"{A}.fsdp_config.param_offload": flag,
    f"{A}.fsdp_config.optimizer_offload": flag,
    f"{A}.fsdp_config.offload_policy": flag,
    f"{A}.fsdp_config.reshard_after_forward": flag,
    f"{A}.fsdp_config.fsdp_size": st.sampled_from([-1, 2, 8]),
    f"{A}.fsdp_config.model_dtype": st.sampled_from(["fp32", "bf16"]),
    f"{A}.fsdp_config.ulysses_sequence_parallel_size": st.sampled_from([1, 2, 4]),
    f"{A}.megatron.tensor_model_parallel_size": size,
    f"{A}.megatron.pipeline_model_parallel_size": size,
    f"{A}.megatron.context_parallel_size": st.sampled_from([1, 2]),
    f"{A}.megatron.expert_model_parallel_size": size,
    f"{A}.megatron.expert_tensor_parallel_size": st.sampled_from([None, 1]),
    f"{A}.megatron.sequence_parallel": flag,
    f"{A}.megatron.use_distributed_optimizer": flag,
    f"{A}.megatron.param_offload": flag,
    f"{A}.megatron.optimizer_offload": flag,
    f"{TRANSFORMER}.recompute_granularity": st.sampled_from([None, "full", "selective"]),
    f"{TRANSFORMER}.recompute_num_layers": st.integers(1, 40),
    f"{A}.optim.override_optimizer_config.optimizer_cpu_offload": flag,
    "critic.strategy": st.sampled_from(["fsdp", "megatron"]),
    "critic.megatron.pipeline_model_parallel_size": size,
    "critic.fsdp.param_offload": flag,
    "critic.fsdp.optimizer_offload": flag,
    f"{M}.lora_rank": st.sampled_from([0, 16]),
    f"{M}.lora.rank": st.sampled_from([0, 16]),
    f"{M}.lora.merge": flag,
    f"{M}.enable_gradient_checkpointing": flag,
    f"{M}.enable_activation_offload": flag,
    f"{M}.use_fused_kernels": flag,
    f"{M}.use_remove_padding": flag,
    f"{R}.name": st.sampled_from(["vllm", "sglang", "trtllm", "hf"]),
    f"{R}.n": st.sampled_from([1, 8]),
    f"{R}.gpu_memory_utilization": st.floats(0.05, 1),
    f"{R}.tensor_model_parallel_size": st.sampled_from([1, 2, 4]),
    f"{R}.data_parallel_size": size,
    f"{R}.free_cache_engine": flag,
    f"{R}.layered_summon": flag,
    f"{R}.enforce_eager": flag,
    f"{R}.log_prob_micro_batch_size_per_gpu": st.integers(1, 64),
    "data.max_prompt_length": st.integers(1, 8192),
    "data.max_response_length": st.integers(1, 8192),
    "data.train_batch_size": st.sampled_from([16, 512]),
    "trainer.v1.trainer_mode": st.sampled_from(["sync", "separate_async"]),
}
configs = st.fixed_dictionaries({}, optional=values)
versions = st.sampled_from([version for _, version in RELEASES] + [(0, 2, 0)])
observed = st.fixed_dictionaries(
    {},
    optional={
        "prompt_length_mean": st.floats(1, 4000),
        "response_length_mean": st.floats(1, 4000),
        "prompt_length_max": st.floats(1, 8000),
        "response_length_max": st.floats(1, 8000),
        "total_num_tokens": st.floats(1, 1e7),
    },
)


@st.composite
def requests(draw, **fixed):
    return Request(
        model=fixed.get("model") or draw(st.sampled_from(MODELS)),
        config={**draw(configs), **fixed.get("config", {})},
        gpus=draw(st.sampled_from([1, 2, 8, 16, 64])),
        gpu=draw(st.sampled_from(["H100", "A100", None])),
        version=draw(versions),
        observed=draw(observed),
        partial=draw(flag),
    )


def asked(request):
    """Return the estimate, skipping settings that cannot be estimated."""
    try:
        return estimate(request, REGISTRIES)
    except NoAnswerError:
        assume(False)


def by_name(found):
    return {phase.name: phase.total for phase in found.phases}


@given(requests())
def test_every_number_fits_the_others(request):
    found = asked(request)
    totals = [phase.total for phase in found.phases]
    assert all(math.isfinite(total) and total > 0 for total in totals)
    assert found.peak == max(totals) == found.peak_phase.total
    assert 0 <= found.low <= found.peak <= found.high
    low, high = found.torch_peak_range
    assert low <= found.torch_peak <= high
    for phase in found.phases:
        sizes = [part.size for part in phase.breakdown.components]
        assert all(math.isfinite(size) and size >= 0 for size in sizes)
        assert phase.total == pytest.approx(sum(sizes))
        assert phase.counted <= phase.total
        assert found.torch_peak >= phase.counted
        assert all(part.component.size == part.size for part in phase.allocations)
        keys = [part.key for part in phase.breakdown.components]
        assert len(set(keys)) == len(keys)
    assert found.host.total == pytest.approx(sum(part.size for part in found.host.components))
    assert all(text for text in found.unsupported)
    assert result_of("x", found)["peak_gib"] == round(found.peak / 2**30, 3)


@given(requests())
def test_more_gpus_never_raise_a_training_state(request):
    config = {**request.config, f"{A}.fsdp_config.fsdp_size": -1}
    few, many = (
        asked(replace(request, gpus=gpus, config=config)) for gpus in (request.gpus, 2 * request.gpus)
    )
    for before, after in zip(states_of(few), states_of(many), strict=True):
        assert after <= before * (1 + 1e-12)


def states_of(found):
    """Return the most bytes of states of the actor and the critic on any stage, in the optimizer step."""
    for stages in roles_of(found.shape, found.settings):
        yield max((size_of(role.update(tokens=1.0).step) for role in stages), default=0)


def trained(found):
    """Return the bytes of the training process by phase."""
    return {phase.name: phase.counted for phase in found.phases}


def accumulates(found):
    """Return whether an update has more than one micro-batch, and so gradients of earlier ones."""
    return micro_batches(found.settings, found.settings.actor) > 1


@given(requests(), st.integers(1, 32), st.integers(1, 32))
def test_larger_micro_batches_never_lower_a_phase(request, small, more):
    key = f"{A}.ppo_micro_batch_size_per_gpu"
    config = {
        **request.config,
        f"{A}.use_dynamic_bsz": False,
        f"{A}.megatron.pipeline_model_parallel_size": 1,
    }
    one, other = (asked(replace(request, config={**config, key: count})) for count in (small, small + more))
    assume(accumulates(one) == accumulates(other))
    after = trained(other)
    for name, total in trained(one).items():
        assert total <= after[name] * (1 + 1e-9), name


@given(requests(), st.integers(1, 4096), st.integers(1, 4096))
def test_longer_sequences_never_lower_a_phase(request, short, more):
    config = {**request.config, f"{A}.use_dynamic_bsz": False, f"{A}.ppo_micro_batch_size_per_gpu": 4}
    # Another pipeline stage may then be the fullest.
    config |= {f"{role}.megatron.pipeline_model_parallel_size": 1 for role in (A, "critic")}
    key = "data.max_response_length"
    one, other = (
        trained(asked(replace(request, observed={}, config={**config, key: length})))
        for length in (short, short + more)
    )
    for name, total in one.items():
        assert total <= other[name] * (1 + 1e-9), name


FOR = {
    f"{A}.fsdp_config.param_offload": {
        "rollout",
        "ref-log-prob",
        "critic-values",
        "critic-forward",
        "critic-backward",
        "critic-optimizer-step",
    },
    f"{A}.fsdp_config.optimizer_offload": {"rollout", "old-log-prob", "ref-log-prob", "weight-sync"},
    f"{A}.megatron.param_offload": {"rollout", "ref-log-prob", "old-log-prob", "weight-sync"},
    f"{A}.megatron.optimizer_offload": {"rollout", "old-log-prob", "ref-log-prob", "weight-sync"},
    "critic.fsdp.param_offload": {
        "rollout",
        "old-log-prob",
        "update-forward",
        "update-backward",
        "optimizer-step",
    },
    "critic.fsdp.optimizer_offload": {
        "rollout",
        "old-log-prob",
        "update-forward",
        "update-backward",
        "optimizer-step",
    },
    f"{M}.enable_activation_offload": {"update-forward", "update-backward"},
    f"{M}.enable_gradient_checkpointing": {"update-forward", "update-backward"},
    f"{M}.use_fused_kernels": set(),
    f"{R}.enforce_eager": {"rollout", "update-forward", "weight-sync"},
    f"{R}.free_cache_engine": {"update-forward", "old-log-prob", "weight-sync"},
}


@pytest.mark.parametrize("key", FOR)
@given(request=requests())
def test_what_saves_memory_never_costs_any(key, request):
    off, on = (asked(replace(request, config={**request.config, key: value})) for value in (False, True))
    before, after = by_name(off), by_name(on)
    assert before.keys() == after.keys()
    for name in FOR[key]:
        if name in before:
            assert after[name] <= before[name] * (1 + 1e-9), name
    assert on.peak <= off.peak * (1 + 1e-9) or on.peak_phase.name not in FOR[key]


@given(requests(config={f"{R}.free_cache_engine": True}))
def test_a_suggestion_keeps_its_promise(request):
    """Every change, written into the settings, gives at most the promised peak."""
    found = asked(request)
    for suggestion in found.suggestions:
        assert 0 < suggestion.saves <= found.peak
        assert suggestion.peak == pytest.approx(found.peak - suggestion.saves)
        changed = read_overrides(suggestion.setting.split(), Location("relief")).values
        after = asked(replace(request, config={**request.config, **changed}))
        assert after.peak <= suggestion.peak * (1 + 1e-9), suggestion.setting
    best = found.suggestion
    assert best is None or best.saves == max(suggestion.saves for suggestion in found.suggestions)


anything = (
    st.none() | flag | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers(), max_size=2)
)
KEYS = sorted({*values, *(key.name for key in REGISTRIES.config_keys)})


@pytest.mark.slow
@given(
    st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=30), anything | configs, max_size=8),
    st.sampled_from(MODELS),
    st.none() | st.integers(-2, 10**6),
    versions,
    st.sampled_from(["verl", "EasyR1", "", "TinyZero"]),
)
def test_no_settings_are_too_odd(config, model, gpus, version, framework):
    request = Request(model, config, gpus=gpus, version=version, framework=framework, memory_gb=80)
    found, told = tried(request)
    assert all(problem.message for problem in told)
    if found is None:
        assert told
    else:
        assert math.isfinite(found.peak)
        assert math.isfinite(found.host.total)
        assert found.suggestion is None or found.suggestion.saves > 0


def tried(request):
    """Return the estimate or None, and the problems."""
    try:
        found = estimate(request, REGISTRIES)
    except NoAnswerError as error:
        return None, error.diagnostics
    return found, found.warnings


@given(requests())
def test_an_estimate_keeps_nothing_back(request):
    """Computing it again from its settings gives the same result."""
    found = asked(request)
    assert phases_of(found.shape, found.settings) == found.phases
    assert host_memory(found.shape, found.settings) == found.host


#: Requests with the same training process on any GPU.
apart = requests(config={f"{R}.name": "vllm", "trainer.v1.trainer_mode": "sync"}).map(
    lambda request: replace(request, gpu="H100", version=CURRENT)
)


@given(
    apart,
    st.sampled_from(["RTX-4090", "H100", "B200", "Ascend-A2"]),
    st.sampled_from([1, 2, 4]),
    st.floats(0.05, 1),
)
def test_on_another_gpu_an_estimate_is_what_its_request_gives(request, gpu, tensor, share):
    first = asked(request)
    assert first.trains_apart
    keys = {f"{R}.tensor_model_parallel_size": tensor, f"{R}.gpu_memory_utilization": share}
    there = replace(first.request.having(keys), gpu=gpu)
    expected = asked(there)
    found = first.on_gpu(there, REGISTRIES.gpus.get(gpu), tensor=tensor, utilization=share)
    assert found == expected
    assert found.phases == expected.phases
    assert (found.low, found.high, found.host) == (expected.low, expected.high, expected.host)
    assert (found.fits, set(found.warnings)) == (expected.fits, set(expected.warnings))


@given(apart, st.lists(st.sampled_from(sorted(REGISTRIES.gpus.names)), min_size=2, max_size=2))
def test_what_fits_on_a_gpu_fits_on_one_with_more_memory(request, gpus):
    first = asked(request)
    assert first.trains_apart
    less, more = sorted(map(REGISTRIES.known_gpu, gpus), key=capacity_of)
    on = [Layout(request, first.on_gpu(replace(first.request, gpu=gpu.name), gpu)) for gpu in (less, more)]
    assert on[0].fits <= on[1].fits
