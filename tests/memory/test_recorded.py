"""Recorded cases and runs as requests, their figures, and settings that follow from the GPUs."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.fit.search import ALWAYS, LEVELS
from sphinx_verl_resources.memory import recorded
from sphinx_verl_resources.memory.cases import Case
from sphinx_verl_resources.memory.recorded import fitted
from sphinx_verl_resources.memory.request import ACTOR, ROLLOUT, Request
from sphinx_verl_resources.memory.versions import CURRENT, DOCUMENTED, OBSERVED
from sphinx_verl_resources.records import Run

BUDGET, TENSOR = f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ROLLOUT}.tensor_model_parallel_size"
CONFIG, NODES = {"algorithm.adv_estimator": "grpo", f"{ACTOR}.use_dynamic_bsz": True}, "trainer.nnodes"
SAVING = {**ALWAYS, **LEVELS[4].settings}
FIELDS = {"id": "a", "model": "Qwen/Qwen2.5-7B", "task": "GRPO", "gpus": {"count": 8, "type": "H100"}}
OF_RUN = {"size": "7B", "tag": "MIN", "train": "fsdp", "infer": {"engine": "sglang"}, "settings": CONFIG}


def case(**changes):
    return Case.model_validate({**FIELDS, "config": CONFIG, **changes})


def run(kind="tested", **changes):
    return Run.model_validate({**FIELDS, **OF_RUN, "kind": kind, **changes})


DAY = date(2026, 1, 9)
VERSIONS = [
    (case(), CURRENT), (case(version="v0.7.1"), (0, 7, 1)), (case(version="main of 2025-08-12"), (0, 5, 0)), (case(outcome="fits"), OBSERVED),
    (case(outcome="fits", version="v0.6.0"), (0, 6, 0)), (case(outcome="fits", framework="EasyR1", version="0.3.0"), OBSERVED),
    (case(framework="verl-agent"), CURRENT), (case(outcome="fits", framework="TinyZero"), (0, 2, 0)), (run(added=DAY), (0, 7, 0)),
    (run(versions={"verl": "0.5.0"}, added=DAY), (0, 5, 0)), (run("measured", added=DAY), DOCUMENTED), (run(), DOCUMENTED),
]  # fmt: skip


@pytest.mark.parametrize(("record", "version"), VERSIONS)
def test_versions(record, version):
    request = recorded.request_of_case(record) if isinstance(record, Case) else None
    assert (request.version if request else recorded.version_of_run(record)) == version


def test_an_unreadable_version_follows_from_vllm(registries):
    """It was read as v0.4.0, and so without CUDA graphs."""
    result = recorded.estimate_case(case(outcome="fits", version="vllm 0.10, torch 2.7"), registries)
    assert (result.version, OBSERVED, result.settings.rollout.eager) == ((0, 6, 0), (0, 4, 0), False)


def test_a_case_as_a_request(registries):
    config = {**CONFIG, f"+{ACTOR}.fsdp_config.model_dtype": "bf16"}
    result = recorded.request_of_case(case(train="FSDP2", infer="SGLang", config=config, outcome="oom"))
    own = CONFIG | {f"{ACTOR}.fsdp_config.model_dtype": "bf16"}
    of_case = Request("Qwen/Qwen2.5-7B", own, 8, "H100", None, OBSERVED, {}, "fsdp2", "sglang", "GRPO")
    assert result == replace(of_case, partial=True)
    for own, nodes in (({}, 2), ({NODES: 4}, 4)):
        result = recorded.request_of_case(case(gpus={"count": 8, "nodes": 2}, config=CONFIG | own))
        assert (result.config[NODES], result.partial) == (nodes, False)
    with pytest.raises(NoAnswerError, match="without reinforcement learning is not estimated"):
        recorded.estimate_case(case(config=None, training={}), registries)


def test_settings_that_a_source_does_not_quote_lower_the_low_end(registries):
    cases = (case(outcome=outcome, version="v0.8.0") for outcome in ("fits", None))
    quoted, whole = (recorded.estimate_case(each, registries) for each in cases)
    assert (quoted.peak, quoted.high, quoted.low < whole.low) == (whole.peak, whole.high, True)


def test_a_run_as_a_request(registries):
    result = recorded.request_of_run(run(), registries)
    of_run = Request("Qwen/Qwen2.5-7B", CONFIG, 8, "H100", None, DOCUMENTED, {}, "fsdp", "sglang", "GRPO")
    assert result == replace(of_run, partial=True)
    assert recorded.request_of_run(run("measured"), registries).config[BUDGET] == 1024
    separate = recorded.request_of_run(run(trainer="separate_async"), registries)
    assert separate.config["actor_rollout_ref.hybrid_engine"] is False
    with pytest.raises(NoAnswerError, match="'a' has no recorded settings"):
        recorded.estimate_run(run(settings={}), registries)
    unset = recorded.estimate_run(run("measured", settings={"data.train_batch_size": 8}), registries)
    assert (unset.verdict, recorded.figures(unset), recorded.credible(unset)) == ("unknown", None, None)


def test_figures_of_a_run_that_ran(ask):
    """They are within the capacity: if need be, those of the longest sequences that fit."""
    config = {**CONFIG, BUDGET: 60_000, f"{ROLLOUT}.n": 8, "data.max_response_length": 59_000}
    estimates = ask(CONFIG), ask(config), ask(config, model="Qwen/Qwen2.5-72B")
    assert [own.verdict for own in estimates] == ["fits", "depends-on-lengths", "does-not-fit"]
    small, long, large = (replace(own, ran=True) for own in estimates)
    assert (large.verdict, recorded.figures(large)) == ("borderline", None)
    assert recorded.figures(small) == (small.low, small.peak, small.high)
    figures = recorded.credible(long)
    assert recorded.figures(long) == (long.low, min(long.peak, long.capacity), long.capacity)
    assert figures.high <= long.capacity < figures.with_mean(figures.settings.lengths.mean + 1).high
    known = ask(config, observed={"prompt_length_mean": 400, "response_length_mean": 55_000})
    assert known.low < known.capacity < known.peak
    assert (recorded.credible(known), recorded.credible(replace(known, ran=True))) == (known, None)


def test_the_engines_tp_leaves_room_for_a_cache(registries):
    """Qwen2.5-7B has 28 heads, which 8 GPUs cannot divide."""
    sizes = {("7B", 0.5): 1, ("14B", 0.5): 1, ("32B", 0.5): 4, ("72B", 0.5): 8, ("7B", 0.05): 4}
    for (model, share), tensor in sizes.items():
        question = Request(f"Qwen/Qwen2.5-{model}", {f"{ROLLOUT}.gpu_memory_utilization": share}, 8, "H100")
        assert fitted(question, registries).config[TENSOR] == tensor


def test_settings_that_follow_from_the_gpus_and_the_lengths(registries):
    question = Request("Qwen/Qwen2.5-7B", {**SAVING, "data.max_response_length": 3000, TENSOR: 2}, gpus=12)
    follow = {NODES: 2, "trainer.n_gpus_per_node": 6, TENSOR: 2, "data.max_prompt_length": 512}
    budgets = (BUDGET, "critic.ppo_infer_max_token_len_per_gpu", f"{ROLLOUT}.max_model_len")
    assert {**follow, **dict.fromkeys(budgets, 3512)}.items() <= fitted(question, registries).config.items()
    own = {BUDGET: 9000, NODES: 3}
    assert own.items() <= fitted(question.having(own), registries).config.items()
