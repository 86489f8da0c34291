"""Changes that make a run fit: single settings, the cheapest combination, more GPUs."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sphinx_verl_resources.answer.answer import answer, answer_settings
from sphinx_verl_resources.answer.changes import changes_for, with_change
from sphinx_verl_resources.answer.layouts import COUNTS, Layout
from sphinx_verl_resources.answer.question import SAVING, TASKS, Question
from sphinx_verl_resources.answer.suggestions import ROUNDS
from sphinx_verl_resources.answer.suggestions import reliefs as reliefs_of
from sphinx_verl_resources.memory.estimate import Estimate, attempt, estimate
from sphinx_verl_resources.memory.recorded import fitted, request_of_run
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request
from sphinx_verl_resources.memory.versions import CURRENT

DATA = EstimatorContext()
REGISTRIES = DATA
A, M, R = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
BF16 = f"{A}.fsdp_config.model_dtype"
BUDGET = f"{A}.ppo_max_token_len_per_gpu"
ALL_ON = {**SAVING, **TASKS["GRPO"]}


def asked(model="Qwen/Qwen2.5-32B", gpus=8, gpu="H100", task="GRPO", more=None, version=CURRENT):
    request = Request(model, {**SAVING, **TASKS[task], **(more or {})}, gpus, gpu, version=version)
    return fitted(request, REGISTRIES)


def changes(request):
    return changes_for(Layout(request, estimate(request, REGISTRIES)), REGISTRIES)


def after(request, overrides):
    return attempt(with_change(request, overrides), REGISTRIES)


#: A question for each kind of outcome, with the number of settings in its first change: 0 for GPUs alone.
SINGLE = asked("Qwen/Qwen2.5-7B", 2, "A100-80GB")
PAIR = asked("Qwen/Qwen2.5-7B", 2, "H100", "PPO")
MORE = asked("Qwen/Qwen2.5-14B", 4, "H100", "PPO")
NODES = asked("Qwen/Qwen2.5-72B")
NEVER = asked("Qwen/Qwen2.5-72B", 8, "RTX-4090", more={"data.max_response_length": 200_000})


def test_where_it_fits_nothing_changes():
    assert not changes(asked("Qwen/Qwen2.5-0.5B"))


def test_where_no_verdict_is_known_nothing_changes():
    assert not changes(replace(MORE, gpu=None))


def test_a_single_setting_that_suffices_comes_first():
    first, *_ = found = changes(SINGLE)
    assert first.overrides == {BF16: "bfloat16"}
    assert (first.verdict, first.cost, first.caveats) == ("fits", "none", (ROUNDS,))
    assert all(change.verdict == "fits" and len(change.overrides) <= 3 for change in found)


def test_a_caveat_about_results_comes_after_little_time():
    """Offloading alone suffices here, and so does bfloat16."""
    request = asked("Qwen/Qwen2.5-7B", 2, "H200", more=dict.fromkeys(
        (f"{A}.fsdp_config.param_offload", f"{A}.fsdp_config.optimizer_offload"), False
    ))  # fmt: skip
    request = request.having({f"{R}.gpu_memory_utilization": 0.6})
    keys = [next(iter(change.overrides)) for change in changes(request)]
    assert BF16 in keys
    assert keys.index(f"{A}.fsdp_config.optimizer_offload") < keys.index(BF16)


def test_three_settings_where_two_are_not_enough():
    (found,) = changes(MORE)
    assert found.overrides.keys() == {BF16, "critic.fsdp.model_dtype", f"{R}.enforce_eager"}
    assert (found.verdict, found.cost) == ("fits", "little")
    assert ROUNDS in found.caveats


def test_a_whole_mini_batch_is_counted_in_tokens():
    """With smaller micro-batches every GPU keeps unsharded gradients; the critic's micro-batches are large enough."""
    request = Request("Qwen/Qwen2.5-32B", {}, 16, "H100")
    assert estimate(request, REGISTRIES).settings.critic
    first = changes(request)[0]
    assert first.verdict == "fits"
    assert first.overrides[f"{A}.use_dynamic_bsz"] is True
    assert not [key for key in first.overrides if key.startswith(("trainer.", "critic.ppo"))]


def test_more_gpus_where_settings_do_not_suffice():
    helped, alone = changes(NODES)
    assert helped.overrides["trainer.nnodes"] < alone.overrides["trainer.nnodes"]
    assert alone.overrides.keys() == {"trainer.nnodes", "trainer.n_gpus_per_node"}
    assert {helped.verdict, alone.verdict} == {"fits"}
    nodes = [count // 8 for count in COUNTS]
    fewer = nodes[nodes.index(alone.overrides["trainer.nnodes"]) - 1]
    assert not after(NODES, {**alone.overrides, "trainer.nnodes": fewer}).fits


def test_where_nothing_suffices_the_least_is_told():
    (found,) = changes(NEVER)
    assert found.verdict == "does-not-fit"
    assert found.high < estimate(NEVER, REGISTRIES).high


@pytest.mark.parametrize(
    ("verdict", "request_"),
    [
        ("depends-on-lengths", asked("Qwen/Qwen2.5-7B", more={"data.max_response_length": 60_000})),
        ("borderline", SINGLE),
        ("does-not-fit", NODES),
    ],
)
def test_whatever_does_not_surely_fit_is_made_to(verdict, request_):
    assert estimate(request_, REGISTRIES).verdict == verdict
    assert changes(request_)[0].verdict == "fits"


def test_what_the_user_chose_is_changed_but_not_the_question():
    """Settings may be wrong; model, lengths and algorithm are what the user wants."""
    request = SINGLE.having({BF16: "fp32", BUDGET: 2048})
    assert changes(request)[0].overrides == {BF16: "bfloat16"}
    wanted = ("data.", "algorithm.", f"{M}.path", f"{M}.lora_rank", f"{A}.use_kl_loss", f"{A}.ppo_mini_batch")
    for each in (SINGLE, PAIR, MORE, NODES, NEVER):
        for change in changes(each):
            assert not [key for key in change.overrides if key.startswith(wanted)]


@pytest.mark.parametrize(
    ("request_", "count"),
    [(PAIR, 2), (MORE, 3), (NODES, 4)],
    ids=["pair", "three", "nodes"],
)
def test_every_part_is_needed(request_, count):
    first = changes(request_)[0]
    assert len(first.overrides) == count
    gpus = {key: value for key, value in first.overrides.items() if key.startswith("trainer.")}
    for key in first.overrides.keys() - gpus.keys():
        fewer = {other: value for other, value in first.overrides.items() if other != key}
        assert not after(request_, fewer).fits, key


def test_the_first_pair_is_the_cheapest():
    rank = {"none": 0, "little": 1, "much": 3}

    def dearness(reliefs):
        each = [2 if item.caveat == ROUNDS else rank[item.cost] for item in reliefs]
        return max(each), sum(each)

    for request in (PAIR, asked("Qwen/Qwen2.5-7B", 2, "H100", "PPO", {f"{A}.strategy": "fsdp2"})):
        reliefs = reliefs_of(estimate(request, REGISTRIES))
        assert not any(after(request, step).fits for item in reliefs for step in item.steps)
        fitting = []
        for one, other in combinations(reliefs, 2):
            found = after(request, {**one.steps[-1], **other.steps[-1]})
            if isinstance(found, Estimate) and found.fits:
                fitting.append(dearness((one, other)))
        first = changes(request)[0]
        parts = [
            item for item in reliefs if any(step.items() <= first.overrides.items() for step in item.steps)
        ]
        assert dearness(parts) == min(fitting)


def test_the_gentlest_step_is_taken():
    """A token budget is halved no further than needed, and the engine's memory is unchanged."""
    lengths = {"data.max_response_length": 8192, f"{A}.ppo_mini_batch_size": 8}
    request = asked("Qwen/Qwen2.5-0.5B", more={BUDGET: 200_000, BF16: "bf16", **lengths})
    found = next(change for change in changes(request) if change.overrides.keys() == {BUDGET})
    budget = found.overrides[BUDGET]
    assert budget > 10_000
    assert not after(request, {BUDGET: 2 * budget}).fits


def test_a_combination_takes_the_gentlest_steps_too():
    request = asked("Qwen/Qwen2.5-72B", 16, more={"data.max_response_length": 8192}, version=(0, 8, 0))
    key = f"{A}.fsdp_config.ulysses_sequence_parallel_size"
    found = next(change for change in changes(request) if key in change.overrides)
    assert found.overrides.keys() > {BF16}
    assert found.overrides[key] == 2


def test_what_costs_less_comes_first_and_then_what_leaves_less():
    config = {"algorithm.adv_estimator": "grpo", "data.max_response_length": 6144}
    config |= {f"{A}.ppo_micro_batch_size_per_gpu": 8, f"{A}.fsdp_config.optimizer_offload": True}
    found = changes(Request("Qwen/Qwen2.5-7B", config, 8, "H100"))
    assert [change.cost for change in found] == ["none", "none", "little", "little"]
    highs = [change.high for change in found]
    assert highs[:2] == sorted(highs[:2])
    assert f"{A}.use_dynamic_bsz" in found[0].overrides
    assert found[1].overrides == {f"{M}.use_fused_kernels": True}


def keeps_its_promise(request):
    found = attempt(request, REGISTRIES)
    if not isinstance(found, Estimate):
        return
    for change in changes_for(Layout(request, found), REGISTRIES):
        same = after(request, change.overrides)
        verdict = Layout(request, same).verdict
        assert (change.peak, change.high, change.verdict) == (same.peak, same.high, verdict)
        assert change.verdict == "fits" or change.high <= found.high


def test_what_is_told_of_recorded_runs_is_so():
    seen = 0
    for run in DATA.runs.values():
        if run.settings:
            request = request_of_run(run, REGISTRIES)
            keeps_its_promise(request)
            seen += 1
    assert seen > 40


flag = st.booleans()
configs = st.fixed_dictionaries({}, optional={
    f"{A}.strategy": st.sampled_from(["fsdp", "fsdp2", "megatron"]),
    "algorithm.adv_estimator": st.sampled_from(["gae", "grpo"]),
    f"{A}.use_kl_loss": flag,
    f"{A}.use_dynamic_bsz": flag,
    f"{A}.ppo_micro_batch_size_per_gpu": st.integers(1, 64),
    BUDGET: st.integers(1, 50_000),
    f"{A}.entropy_coeff": st.sampled_from([0, 0.01]),
    f"{A}.fsdp_config.param_offload": flag,
    f"{A}.fsdp_config.fsdp_size": st.sampled_from([-1, 2, 8]),
    f"{A}.megatron.tensor_model_parallel_size": st.sampled_from([1, 2, 4, 8]),
    f"{A}.megatron.pipeline_model_parallel_size": st.sampled_from([1, 2, 4, 8]),
    f"{M}.lora_rank": st.sampled_from([0, 16]),
    f"{M}.use_remove_padding": flag,
    f"{R}.name": st.sampled_from(["vllm", "sglang"]),
    f"{R}.gpu_memory_utilization": st.floats(0.05, 1),
    f"{R}.free_cache_engine": flag,
    "data.max_prompt_length": st.integers(1, 8192),
    "data.max_response_length": st.integers(1, 8192),
})  # fmt: skip
requests = st.builds(
    Request,
    st.sampled_from(["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-72B", "Qwen/Qwen3-30B-A3B"]),
    configs,
    st.sampled_from([1, 2, 8, 16]),
    st.sampled_from(["H100", "RTX-4090"]),
    version=st.sampled_from([(0, 5, 0), (0, 8, 0), (0, 9, 0)]),
)


@settings(max_examples=12)
@given(requests)
def test_what_is_told_is_so(request):
    keeps_its_promise(request)


@pytest.mark.parametrize("given", [{"enforce_eager": True, "gpu_memory_utilization": 0.7}, {}])
def test_with_a_change_the_engine_starts(given):
    """Saving memory elsewhere does not give the engine's cache room for a sequence."""
    overrides = {f"actor_rollout_ref.rollout.{key}": value for key, value in given.items()}
    question = Question("Qwen/Qwen2.5-7B", 1, "RTX3090", lora=8, overrides=overrides)
    found = answer(question, DATA)
    assert found.verdict == "borderline"
    first = found.changes[0]
    assert "actor_rollout_ref.rollout.gpu_memory_utilization" in first.overrides
    after = answer(replace(question, overrides={**overrides, **first.overrides}), DATA)
    assert after.verdict == first.verdict == "fits"


def test_a_run_that_fits_and_whose_engine_may_not_start_is_borderline():
    config = {
        "algorithm.adv_estimator": "grpo",
        "actor_rollout_ref.actor.use_dynamic_bsz": True,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.15,
    }
    asked = Request("Qwen/Qwen2.5-7B", config, 64, "H100")
    found = answer_settings(asked, DATA)
    assert found.best.estimate.verdict == "fits"
    assert found.verdict == "borderline"
    [change] = found.changes
    assert change.overrides == {"actor_rollout_ref.rollout.max_model_len": 1024}
    assert answer_settings(asked.having(change.overrides), DATA).verdict == "fits"
    wider = answer_settings(asked.having({"actor_rollout_ref.rollout.gpu_memory_utilization": 0.1}), DATA)
    assert wider.changes[0].overrides["actor_rollout_ref.rollout.tensor_model_parallel_size"] == 4
