"""Estimates of small questions."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.estimator.allocations import Kind
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.estimator.estimate import estimate
from sphinx_verl_resources.estimator.request import Request
from sphinx_verl_resources.units import Category

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"


@pytest.fixture(scope="session")
def registries():
    return EstimatorContext().registries


@pytest.fixture(scope="session")
def ask(registries):
    """Estimate a run of GRPO without a reference policy, from verl's keys in full or abbreviated."""
    short = {
        "actor": ACTOR,
        "fsdp": f"{ACTOR}.fsdp_config",
        "megatron": f"{ACTOR}.megatron",
        "optim": f"{ACTOR}.optim",
        "rollout": ROLLOUT,
        "ref": "actor_rollout_ref.ref",
        "model": "actor_rollout_ref.model",
    }

    def full(key):
        first, _, rest = key.partition(".")
        return f"{short[first]}.{rest}" if first in short else key

    def asked(config=None, *, model="Qwen/Qwen2.5-7B", gpus=8, gpu="H100", **others):
        settings = {"algorithm.adv_estimator": "grpo", **(config or {})}
        found = {full(key): value for key, value in settings.items() if value is not ...}
        return estimate(Request(model, found, gpus=gpus, gpu=gpu, **others), registries)

    return asked


@pytest.fixture(scope="session")
def phase():
    """Return one phase of an estimate, and the bytes of its components by key."""

    def found(estimate, name):
        return {item.name: item for item in estimate.phases}[name]

    return found


@pytest.fixture(scope="session")
def sizes(phase):
    """Return the bytes of the components of one phase, by key."""

    def found(estimate, name):
        parts = phase(estimate, name).breakdown.components
        assert len({part.key for part in parts}) == len(parts), "a duplicate key"
        return {part.key: part.size for part in parts}

    return found


@pytest.fixture(scope="session")
def tensors(phase):
    """Return the bytes of the components of one phase, without contexts, communicators and CUDA graphs."""

    def found(estimate, name):
        parts = phase(estimate, name).allocations
        kept = [part for part in parts if part.kind.category is not Category.RUNTIME_OVERHEAD]
        assert len({part.key for part in kept}) == len(kept), "a duplicate key"
        return {part.key: part.size for part in kept if part.kind is not Kind.CUDA_GRAPHS}

    return found
