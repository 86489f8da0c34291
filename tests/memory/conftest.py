"""Estimates of small questions."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest

from sphinx_verl_resources.memory.estimate import estimate
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import ACTOR, MODEL, REFERENCE, ROLLOUT, Request

#: Abbreviations of the first part of verl's keys, and of Megatron's parallel sizes.
SECTIONS = {"actor": ACTOR, "rollout": ROLLOUT, "ref": REFERENCE, "model": MODEL, "optim": f"{ACTOR}.optim"}
SECTIONS |= {"fsdp": f"{ACTOR}.fsdp_config", "megatron": f"{ACTOR}.megatron"}
SECTIONS |= {"transformer": f"{ACTOR}.megatron.override_transformer_config"}
SIZES = {
    "tp": "tensor_model",
    "pp": "pipeline_model",
    "cp": "context",
    "ep": "expert_model",
    "etp": "expert_tensor",
}

OF_REQUEST = {field.name for field in fields(Request)}


@pytest.fixture(scope="session")
def registries():
    return EstimatorContext()


@pytest.fixture(scope="session")
def ask(registries):
    """Estimate a run of GRPO without a reference policy.

    Keys of settings are verl's, in full or abbreviated; fields of the request have their names.
    """

    def estimate_of(settings=None, *, data=None, **others):
        config = {"algorithm.adv_estimator": "grpo"}
        request = {"model": "Qwen/Qwen2.5-7B", "gpus": 8, "gpu": "H100"}
        for key, value in {**(settings or {}), **others}.items():
            first, dot, rest = key.partition(".")
            rest = f"{SIZES[rest]}_parallel_size" if rest in SIZES else rest
            name = f"{SECTIONS.get(first, first)}.{rest}" if dot else key
            (request if name in OF_REQUEST else config)[name] = value
        return estimate(Request(config=config, **request), data or registries)

    return estimate_of


@pytest.fixture(scope="session")
def sizes():
    """Return the bytes of a phase by component, without those outside of PyTorch and the engine."""

    def sizes_of(estimate, name):
        phase = {item.name: item for item in estimate.phases}[name]
        parts = Counter()
        for part in phase.trainer + phase.engine:
            parts[part.key] += part.size
        return dict(parts)

    return sizes_of
