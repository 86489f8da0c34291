"""Changes that make a run fit: single levers, the cheapest combination, more GPUs, LoRA."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sphinx_verl_resources.fit.answer import Answers, answer
from sphinx_verl_resources.fit.changes import ADAPTERS_ONLY, changes_for
from sphinx_verl_resources.fit.fewest import verdict_on
from sphinx_verl_resources.fit.levers import ROUNDS, UPDATES_ON_CPU
from sphinx_verl_resources.fit.question import TASKS, Question
from sphinx_verl_resources.fit.search import COUNTS, Layout
from sphinx_verl_resources.memory.estimate import Estimate, attempt, estimate
from sphinx_verl_resources.memory.recorded import fitted, request_of_run
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request

DATA = EstimatorContext()
A, M, R = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
FSDP, BUDGET, SHARE = f"{A}.fsdp_config", f"{A}.ppo_max_token_len_per_gpu", f"{R}.gpu_memory_utilization"
GPUS = ("trainer.nnodes", "trainer.n_gpus_per_node")
SAVING = {
    f"{M}.use_remove_padding": True, f"{A}.use_dynamic_bsz": True,
    **{f"{role}.{part}_offload": True for role in (FSDP, "critic.fsdp") for part in ("param", "optimizer")},
}  # fmt: skip
ON_GPU = {f"{FSDP}.param_offload": False, f"{FSDP}.optimizer_offload": False}
GRPO = {"algorithm.adv_estimator": "grpo"}
#: A public run of Agent-R1: its author measured that ``param_offload`` did nothing, and switched to FSDP2.
AGENT = {
    **GRPO, f"{M}.lora_rank": 16, f"{M}.use_remove_padding": True, f"{FSDP}.model_dtype": "bfloat16",
    f"{A}.ppo_micro_batch_size_per_gpu": 2, "data.max_prompt_length": 2048, "data.max_response_length": 384,
    f"{R}.load_format": "safetensors", f"{R}.layered_summon": True, f"{R}.tensor_model_parallel_size": 1,
    SHARE: 0.6, f"{R}.max_model_len": 3072, f"{R}.enforce_eager": True, f"{R}.max_num_batched_tokens": 2048,
}  # fmt: skip


def request_of(model="Qwen/Qwen2.5-32B", gpus=8, gpu="H100", task="GRPO", more=None, **others):
    return fitted(Request(model, {**SAVING, **TASKS[task], **(more or {})}, gpus, gpu, **others), DATA)


def changes(request, limit=None):
    return changes_for(Layout(request, estimate(request, DATA), limit))


def after(request, overrides):
    gpus = None if GPUS[0] in overrides else request.gpus
    return attempt(replace(request.having(overrides), gpus=gpus), DATA)


#: Questions, and the settings of their first changes.
CASES = {
    "fits": (request_of("Qwen/Qwen2.5-0.5B"), []),
    "no GPU": (request_of(gpu=None), []),
    "no bfloat16": (request_of("Qwen/Qwen2.5-0.5B", gpu="T4"), []),
    # Adam on the CPU is slow, but keeps the results; bfloat16 may not.
    "results last": (request_of("Qwen/Qwen2.5-7B", 2, "A100-80GB"), [
        {f"{A}.strategy": "fsdp2", f"{FSDP}.offload_policy": True}, {f"{FSDP}.model_dtype": "bfloat16"}]),
    "cheapest first": (request_of("Qwen/Qwen2.5-7B", 2, "H200", more={**ON_GPU, SHARE: 0.6}), [
        {f"{FSDP}.optimizer_offload": True}, {f"{FSDP}.param_offload": True}, {SHARE: 0.5},
        {f"{A}.strategy": "fsdp2", f"{FSDP}.offload_policy": True}, {f"{FSDP}.model_dtype": "bfloat16"}]),
    "weakest step": (request_of("Qwen/Qwen2.5-0.5B", more={BUDGET: 200_000, "data.max_response_length": 8192, f"{A}.ppo_mini_batch_size": 8}), [
        {f"{M}.use_fused_kernels": True}, {BUDGET: 100_000}]),
    "measured": (Request("Qwen/Qwen3-4B", AGENT, 1, "RTX-4090", version=(0, 7, 0)), [
        {f"{A}.strategy": "fsdp2", f"{FSDP}.offload_policy": True}]),
    "combination": (Request("Qwen/Qwen2.5-32B", {}, 16, "H100"), [
        {f"{A}.use_dynamic_bsz": True, f"{FSDP}.optimizer_offload": True, "critic.fsdp.optimizer_offload": True, f"{R}.max_model_len": 1024}]),
    "lengths": (request_of("Qwen/Qwen2.5-7B", more={"data.max_response_length": 60_000}), [
        {BUDGET: 30_256, **{f"actor_rollout_ref.{role}.ulysses_sequence_parallel_size": 2 for role in ("actor.fsdp_config", "ref.fsdp_config")}}]),
    "more GPUs": (request_of("Qwen/Qwen2.5-72B"), [
        {GPUS[0]: 12, GPUS[1]: 8, BUDGET: 13_312}, {**{key: TASKS["GRPO-LoRA"][key] for key in TASKS["GRPO-LoRA"] if key not in TASKS["GRPO"]}}]),
    "engine starts": (Request("Qwen/Qwen2.5-7B", {**GRPO, f"{A}.use_dynamic_bsz": True, SHARE: 0.1}, 64, "H100"), [
        {f"{R}.max_model_len": 1024, SHARE: 0.2}]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_to_try_first(name):
    request, first = CASES[name]
    result = changes(request)
    assert [change.overrides for change in result[: len(first)]] == first
    assert {change.verdict for change in result} <= {"fits"}
    assert bool(result) == bool(first)


def test_costs_and_sentences():
    slow, rounded = changes(CASES["results last"][0])
    assert (slow.cost, slow.sentences) == ("much", (UPDATES_ON_CPU,))
    assert (rounded.cost, rounded.sentences) == ("none", (ROUNDS,))
    assert changes(CASES["more GPUs"][0])[-1].sentences[0] == ADAPTERS_ONLY


def test_less_offloading_where_the_host_is_full():
    [change] = changes(request_of("Qwen/Qwen2.5-7B", 8, "H200"), limit=60 * 2**30)
    assert change.overrides == ON_GPU


def test_where_nothing_suffices_the_nearest_is_returned():
    request = request_of("Qwen/Qwen2.5-72B", 8, "RTX-4090", more={"data.max_response_length": 200_000})
    [result] = changes(request)
    assert result.verdict == "does-not-fit"
    assert result.high < estimate(request, DATA).high


PLANS = [
    Question("deepseek-ai/DeepSeek-V3", 16, "H200"), Question("Qwen/Qwen2.5-14B", 2, "A100-40GB"),
    # The layout on more GPUs lacks settings of the one on fewer.
    Question("Qwen/Qwen2.5-7B", 1, "L20", response=16_384), Question("Qwen/Qwen2.5-14B", 2, "RTX-4090", task="DAPO"),
    # The layouts on more GPUs have stages of unequal size.
    Question("Qwen/Qwen2.5-7B", 2, "RTX-4090"), Question("deepseek-ai/DeepSeek-V3", 64, "H800"),
]  # fmt: skip


@pytest.mark.parametrize("question", PLANS, ids=str)
def test_a_plan_needs_as_many_gpus_as_the_table_says(question):
    """And it proposes LoRA, as the form does."""
    result = answer(question, DATA)
    more = next(change for change in result.changes if GPUS[0] in change.overrides)
    answers = Answers(question, DATA)
    fewest = next(count for count in COUNTS if verdict_on(answers, count, question.gpu) == "fits")
    assert more.overrides[GPUS[0]] * more.overrides[GPUS[1]] == fewest
    assert any(key.endswith(("lora.rank", "lora_rank")) for key in result.changes[-1].overrides)
    for change in result.changes:
        same = replace(result.best, estimate=after(result.best.request, change.overrides))
        assert (same.verdict, same.estimate.peak) == ("fits", change.peak)
        actor = same.estimate.settings.actor.megatron
        ends = [size for size in (actor.first_layers, actor.last_layers) if size]
        assert (same.estimate.shape.layers - sum(ends)) % max(1, actor.pipeline - len(ends)) == 0


def test_a_change_of_the_backend_changes_the_configuration_of_verl():
    result = answer(Question("Qwen/Qwen2.5-14B", 8, "RTX-5090", prompt=8000, response=8000), DATA)
    other = next(change for change in result.changes if change.overrides.get("model_engine"))
    assert (result.best.is_megatron, other.overrides["model_engine"]) == (True, "dp")
    assert "model_engine=dp" in other.arguments


def keeps_its_promise(request):
    """Every change leads to its verdict and peak, needs all its levers, and does not change the question."""
    result = attempt(request, DATA)
    if not isinstance(result, Estimate):
        return
    wanted = ("data.", "algorithm.", f"{M}.path", f"{A}.use_kl_loss", f"{A}.ppo_mini_batch")
    for change in changes_for(Layout(request, result)):
        same = after(request, change.overrides)
        verdict = Layout(replace(request, config=same.request.config), same).verdict
        assert (change.peak, change.high, change.verdict) == (same.peak, same.high, verdict)
        assert change.verdict == "fits" or change.high <= result.high
        assert not [
            key for key in change.overrides if key.startswith(wanted) or "ref.fsdp_config.param" in key
        ]
        assert change.overrides.keys().isdisjoint(request.unread)


@pytest.mark.parametrize("run", [run for run in DATA.runs.values() if run.settings], ids=lambda run: run.id)
def test_changes_of_recorded_runs(run):
    keeps_its_promise(request_of_run(run, DATA))


flag, size = st.booleans(), st.sampled_from([1, 2, 4, 8])
configs = st.fixed_dictionaries({}, optional={
    f"{A}.strategy": st.sampled_from(["fsdp", "fsdp2", "megatron"]), f"{A}.use_kl_loss": flag,
    "algorithm.adv_estimator": st.sampled_from(["gae", "grpo"]), f"{A}.use_dynamic_bsz": flag,
    f"{A}.ppo_micro_batch_size_per_gpu": st.integers(1, 64), BUDGET: st.integers(1, 50_000),
    f"{FSDP}.param_offload": flag, f"{FSDP}.fsdp_size": st.sampled_from([-1, 2, 8]),
    f"{A}.megatron.tensor_model_parallel_size": size, f"{A}.megatron.pipeline_model_parallel_size": size,
    f"{M}.lora_rank": st.sampled_from([0, 16]), f"{M}.use_remove_padding": flag, SHARE: st.floats(0.05, 1),
    f"{R}.name": st.sampled_from(["vllm", "sglang"]), f"{R}.free_cache_engine": flag,
    "data.max_prompt_length": st.integers(1, 8192), "data.max_response_length": st.integers(1, 8192),
})  # fmt: skip
models = st.sampled_from(["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-72B", "Qwen/Qwen3-30B-A3B"])
gpus = st.sampled_from(["H100", "RTX-4090", "Ascend-A2"])
versions = st.sampled_from([(0, 5, 0), (0, 8, 0), (0, 9, 0)])
unread = st.sampled_from([frozenset(), frozenset({f"{FSDP}.optimizer_offload"})])
requests = st.builds(Request, models, configs, size, gpus, version=versions, unread=unread)


@settings(max_examples=12)
@given(requests)
def test_changes_of_any_run(request):
    keeps_its_promise(request)
