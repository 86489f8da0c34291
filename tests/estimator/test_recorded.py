"""Cases and runs as requests to the estimator."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.estimator.case_records import Case
from sphinx_verl_resources.estimator.recorded import estimate_case, request_of_case
from sphinx_verl_resources.estimator.versions import CURRENT, OBSERVED

CONFIG = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}


def case(**changes):
    fields = {"id": "a", "model": "Qwen/Qwen2.5-7B", "gpus": {"count": 8, "type": "H100"}, "config": CONFIG}
    return Case.model_validate(
        {key: value for key, value in {**fields, **changes}.items() if value is not None}
    )


def test_a_case_says_what_a_request_needs():
    found = request_of_case(case(train="FSDP2", infer="SGLang", task="grpo", framework="verl"))
    assert (found.gpus, found.gpu, found.backend, found.engine) == (8, "H100", "fsdp2", "sglang")
    assert (found.task, found.framework, found.partial) == ("grpo", "verl", False)


def test_keys_that_are_added_with_a_plus():
    config = {**CONFIG, "+actor_rollout_ref.actor.fsdp_config.model_dtype": "bf16"}
    assert (
        request_of_case(case(config=config)).config["actor_rollout_ref.actor.fsdp_config.model_dtype"]
        == "bf16"
    )


def test_nodes_of_the_case(registries):
    gpus = {"count": 8, "type": "H100", "nodes": 2}
    assert estimate_case(case(gpus=gpus), registries).settings.nodes == 2
    stated = {**CONFIG, "trainer.nnodes": 4, "trainer.n_gpus_per_node": 2}
    assert estimate_case(case(gpus=gpus, config=stated), registries).settings.nodes == 4


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({}, CURRENT),
        ({"version": "v0.7.1"}, (0, 7, 1)),
        ({"version": "main of 2025-08-12"}, (0, 5, 0)),
        ({"outcome": "fits"}, OBSERVED),
        ({"outcome": "fits", "version": "v0.6.0"}, (0, 6, 0)),
        ({"outcome": "fits", "framework": "EasyR1", "version": "0.3.0"}, OBSERVED),
        ({"outcome": "fits", "framework": "TinyZero"}, (0, 2, 0)),
    ],
)
def test_the_version_of_a_case(fields, version):
    assert request_of_case(case(**fields)).version == version


def test_what_is_quoted_in_part_widens_the_range(registries):
    alone = {"actor_rollout_ref.actor.strategy": "fsdp", **CONFIG}
    quoted, whole = (
        estimate_case(case(config=alone, outcome=outcome, version="v0.8.0"), registries)
        for outcome in ("fits", None)
    )
    assert quoted.peak == whole.peak
    assert quoted.low <= whole.low
    assert quoted.settings.unstated == {"padding", "length", "recompute", "offload"}
    assert whole.settings.unstated == frozenset()


def test_easyr1_has_a_mode_for_its_data_type(registries):
    config = {**CONFIG, "easyr1.dtype": "bf16 with adamw_bf16"}
    found = estimate_case(case(config=config, framework="EasyR1", outcome="fits"), registries)
    assert found.settings.actor.fsdp.parameter_bytes == 2
    assert found.settings.actor.moments == 6  # with a Kahan summation buffer
    assert found.settings.computes_entropy is False
    assert found.torch_peak == max(phase.counted for phase in found.phases)
