"""Longer responses: the same estimate with other limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.cli.data import load_registries
from sphinx_verl_resources.estimator.estimate import estimate
from sphinx_verl_resources.estimator.planner import fitted, task_settings
from sphinx_verl_resources.estimator.request import Request
from sphinx_verl_resources.estimator.sweeps import RESPONSE, longer


@pytest.fixture(scope="module")
def registries():
    return load_registries([])


@given(
    lengths=st.lists(st.integers(64, 60_000), min_size=2, max_size=4, unique=True).map(sorted),
    model=st.sampled_from(["Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B"]),
)
def test_longer_takes_more_and_leaves_room_for_fewer(registries, lengths, model):
    asked = Request(model, task_settings("GRPO"), gpus=8, gpu="H100")
    rows = [row for row in longer(asked, registries, tuple(lengths)) if row.estimate]
    peaks = [row.estimate.peak for row in rows]
    held = [row.sequences for row in rows]
    assert peaks == sorted(peaks)
    assert held == sorted(held, reverse=True)


def test_a_row_is_the_estimate_with_that_limit(registries):
    asked = Request("Qwen/Qwen2.5-7B", task_settings("GRPO-LoRA"), gpus=4, gpu="H20")
    (row,) = longer(asked, registries, (30_000,))
    same = estimate(fitted(replace(asked, config={**asked.config, RESPONSE: 30_000}), registries), registries)
    assert (row.estimate.peak, row.estimate.high) == (same.peak, same.high)


def test_what_cannot_be_estimated_says_why(registries):
    config = {**task_settings("GRPO"), "actor_rollout_ref.rollout.max_model_len": "x"}
    (row,) = longer(Request("Qwen/Qwen2.5-7X", config, gpus=4, gpu="H20"), registries, (3000,))
    assert row.estimate is None
    assert "Qwen2.5-7X" in row.diagnostics[0].message
