"""The number of measured runs behind an estimate, and estimates below every recorded run."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.fit.answer import answer, answer_settings
from sphinx_verl_resources.fit.question import Question
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request

FSDP = {"actor_rollout_ref.actor.strategy": "fsdp", "algorithm.adv_estimator": "grpo"}
MEGATRON = {"actor_rollout_ref.actor.strategy": "megatron", "algorithm.adv_estimator": "grpo"}
LORA = {"actor_rollout_ref.model.lora_rank": 32}


@pytest.fixture(scope="module")
def data():
    return EstimatorContext()


@pytest.mark.parametrize(
    ("model", "config", "version", "runs", "error"),
    [
        ("Qwen/Qwen2.5-7B", FSDP, (0, 9, 0), 7, 0.078),
        ("Qwen/Qwen2.5-7B", {**FSDP, **LORA}, (0, 7, 0), 7, 0.05),
        ("Qwen/Qwen2.5-7B", {**FSDP, **LORA}, (0, 9, 0), 0, None),
        ("Qwen/Qwen3-30B-A3B", FSDP, (0, 9, 0), 0, None),
        ("Qwen/Qwen3-30B-A3B", MEGATRON, (0, 7, 0), 1, 0.068),
        ("Qwen/Qwen3-30B-A3B", MEGATRON, (0, 9, 0), 0, None),  # only fine-tuning was measured
    ],
)
def test_measured_runs_of_the_same_kind(data, model, config, version, runs, error):
    """By backend, time of verl, full fine-tuning or adapters, dense or experts."""
    found = answer_settings(Request(model, config, gpus=8, gpu="H200", version=version), data).trust
    mean = found.accuracy and found.accuracy.mean_error
    assert (found.measured_runs, mean) == (runs, error and pytest.approx(error, abs=5e-4))


def test_an_estimate_that_undercuts_every_recorded_run_says_so(data):
    less = answer(Question("Qwen/Qwen2.5-Coder-14B-Instruct", 2, "H200"), data)
    assert less.verdict == "fits"
    assert less.trust.undercuts
    assert less.trust.smallest.id == "qwen2-5-coder-14b-grpo-4xh800"
    as_much = answer(Question("Qwen/Qwen2.5-Coder-14B-Instruct", 4, "H800"), data)
    assert as_much.verdict == "fits"
    assert not as_much.trust.undercuts


def test_without_a_recorded_run_nothing_is_undercut(data):
    found = answer(Question("meta-llama/Llama-3.1-8B-Instruct", 8, "H100"), data).trust
    assert (found.smallest, found.undercuts) == (None, False)
