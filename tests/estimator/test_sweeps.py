"""Sweeps of one run: memory-saving settings added one by one, and increasing response lengths."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.estimator.estimate import estimate
from sphinx_verl_resources.estimator.recorded import request_of_run
from sphinx_verl_resources.estimator.request import Request
from sphinx_verl_resources.estimator.sweeps import RESPONSE, longer, savings
from sphinx_verl_resources.estimator.tasks import SAVING, fitted, task_settings

REGISTRIES = read_data([]).registries
A, M, R = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
BUDGET = f"{A}.ppo_max_token_len_per_gpu"
MEGATRON = {f"{role}.strategy": "megatron" for role in (A, "critic")}


def switched(found) -> dict[str, object]:
    """Return all overrides of the steps, as settings."""
    pairs = [override.split("=") for step in found.steps for override in step.setting.split()]
    read = {"True": True, "full": "full", "uniform": "uniform"}
    return {key: read.get(value) or float(value) for key, value in pairs}


@pytest.mark.parametrize("more", [{}, MEGATRON], ids=["fsdp", "megatron"])
@pytest.mark.parametrize("task", ["GRPO", "GRPO-LoRA", "PPO"])
@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B"])
def test_the_end_is_the_estimate_with_everything_on(model, task, more):
    request = Request(model, {**task_settings(task), **more}, 8, "H100")
    found = savings(request, REGISTRIES)
    config = switched(found)
    config[BUDGET] = int(config[BUDGET])
    both = estimate(replace(request, config={**request.config, **config}), REGISTRIES)
    assert found.end.peak == pytest.approx(both.peak)
    assert found.end.host.total == pytest.approx(both.host.total)
    assert found.steps[-1].peak == found.end.peak
    assert found.steps[-1].verdict == found.end.verdict


def test_savings_add_up_for_every_run():
    seen = 0
    for run in read_data([]).catalog.runs.values():
        if run.settings:
            found = savings(request_of_run(run, REGISTRIES), REGISTRIES)
            assert math.fsum(step.saves for step in found.steps) == pytest.approx(
                found.start.peak - found.end.peak, abs=1
            )
            added = math.fsum(step.host for step in found.steps)
            assert added == pytest.approx(found.end.host.total - found.start.host.total, abs=1)
            assert found.steps[-1].peak == found.end.peak
            seen += 1
    assert seen > 40


def test_everything_is_off_at_the_start_whatever_was_asked_for():
    on = savings(Request("Qwen/Qwen2.5-7B", task_settings("PPO"), 8, "H100"), REGISTRIES)
    off = dict.fromkeys(SAVING, False)
    task = {key: value for key, value in task_settings("PPO").items() if key not in SAVING}
    assert (
        on.start.peak
        == estimate(
            Request("Qwen/Qwen2.5-7B", {**task, **off, f"{A}.ppo_micro_batch_size_per_gpu": 16}, 8, "H100"),
            REGISTRIES,
        ).peak
    )
    assert not on.start.settings.actor.checkpointing
    assert not on.start.settings.actor.micro_batch.dynamic
    assert on.start.settings.old_micro_batch.sequences == on.start.settings.actor.micro_batch.sequences


def test_cheap_settings_come_first_and_only_those_of_the_backend():
    request = Request("Qwen/Qwen2.5-7B", task_settings("PPO"), 8, "H100")
    keys = [step.setting.split("=")[0] for step in savings(request, REGISTRIES).steps]
    assert keys == [
        f"{M}.use_remove_padding",
        f"{M}.enable_gradient_checkpointing",
        f"{A}.use_dynamic_bsz",
        f"{A}.fsdp_config.optimizer_offload",
        "critic.fsdp.optimizer_offload",
        f"{A}.fsdp_config.param_offload",
        "critic.fsdp.param_offload",
        f"{R}.gpu_memory_utilization",
    ]
    megatron = replace(request, config={**request.config, **MEGATRON})
    settings = " ".join(step.setting for step in savings(megatron, REGISTRIES).steps)
    assert "fsdp" not in settings
    assert "enable_gradient_checkpointing" not in settings
    for name in ("recompute_granularity=full", "optimizer_cpu_offload=True", "megatron.param_offload=True"):
        assert settings.count(name) == 2, name


def test_as_many_tokens_as_before_are_in_a_batch_of_sequences():
    config = {
        "algorithm.adv_estimator": "grpo",
        f"{A}.use_dynamic_bsz": True,
        BUDGET: 16384,
        "data.max_prompt_length": 1024,
        "data.max_response_length": 1024,
    }
    found = savings(Request("Qwen/Qwen2.5-7B", config, 8, "H100"), REGISTRIES)
    assert found.start.settings.actor.micro_batch.sequences == 8
    assert found.end.settings.actor.micro_batch.tokens == 2048
    own = savings(
        Request("Qwen/Qwen2.5-7B", {**config, f"{A}.ppo_micro_batch_size_per_gpu": 3}, 8, "H100"), REGISTRIES
    )
    assert own.start.settings.actor.micro_batch.sequences == 3


def test_older_names_of_keys_are_switched_too():
    config = {**task_settings("PPO"), "critic.model.fsdp_config.param_offload": True}
    config.pop("critic.fsdp.param_offload")
    found = savings(Request("Qwen/Qwen2.5-7B", config, 8, "H100"), REGISTRIES)
    assert found.start.settings.critic.fsdp.param_offload is False
    assert found.end.settings.critic.fsdp.param_offload is True


@given(
    lengths=st.lists(st.integers(64, 60_000), min_size=2, max_size=4, unique=True).map(sorted),
    model=st.sampled_from(["Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B"]),
)
def test_longer_takes_more_and_leaves_room_for_fewer(lengths, model):
    asked = Request(model, task_settings("GRPO"), gpus=8, gpu="H100")
    rows = [row for row in longer(asked, REGISTRIES, tuple(lengths)) if row.estimate]
    peaks = [row.estimate.peak for row in rows]
    held = [row.sequences for row in rows]
    assert peaks == sorted(peaks)
    assert held == sorted(held, reverse=True)


def test_a_row_is_the_estimate_with_that_limit():
    asked = Request("Qwen/Qwen2.5-7B", task_settings("GRPO-LoRA"), gpus=4, gpu="H20")
    (row,) = longer(asked, REGISTRIES, (30_000,))
    same = estimate(fitted(replace(asked, config={**asked.config, RESPONSE: 30_000}), REGISTRIES), REGISTRIES)
    assert (row.estimate.peak, row.estimate.high) == (same.peak, same.high)


def test_what_cannot_be_estimated_says_why():
    config = {**task_settings("GRPO"), "actor_rollout_ref.rollout.max_model_len": "x"}
    (row,) = longer(Request("Qwen/Qwen2.5-7X", config, gpus=4, gpu="H20"), REGISTRIES, (3000,))
    assert row.estimate is None
    assert "Qwen2.5-7X" in row.diagnostics[0].message
