"""Fixtures for tests of pages with estimates."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.commands import given_data
from sphinx_verl_resources.memory.recorded import estimate_run

SETTINGS = {
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
    "actor_rollout_ref.rollout.load_format": "dummy_dtensor",
}


@pytest.fixture
def runs(own, data):
    """A project with two runs, ``a`` with settings and ``b`` without."""
    gpus = {"count": 8, "type": "H100"}  # on these it fits with sequences at their limits
    data.run(
        "a", settings=SETTINGS, gpus=gpus, added="2026-08-20", measured={"gib": 60.0, "counter": "device"}
    )
    data.run("b")
    return own


@pytest.fixture
def estimated(runs, data):
    """The estimate of the run ``a``."""
    data_of_folder = given_data([str(data.path)])
    return estimate_run(data_of_folder.runs["a"], data_of_folder)
