"""The optimizer step with FSDP and FSDP2, compared with hand-computed numbers."""

from __future__ import annotations

import pytest
from qwen_7b import (
    FSDP2,
    FULL,
    HEAD,
    OLD,
    P,
)


@pytest.mark.parametrize(
    ("strategy", "data_type", "total"),
    [("fsdp", "fp32", 20), ("fsdp", "bf16", 10), ("fsdp2", "fp32", 16), ("fsdp2", "bf16", 8)],
)
def test_bytes_a_parameter_in_the_optimizer_step(ask, phase, strategy, data_type, total):
    """FSDP2 updates the parameters one by one, with two tensors of the size of the largest."""
    settings = {**FULL, "actor.strategy": strategy, "fsdp.model_dtype": data_type}
    largest = 2 * (total / 4) * HEAD / 8 if strategy == "fsdp2" else 0
    assert phase(ask(settings), "optimizer-step").counted == pytest.approx(total * P / 8 + largest)


@pytest.mark.parametrize("how", [{"fused": True}, {"foreach": False}])
def test_no_buffer_for_a_fused_optimizer(ask, phase, how):
    settings = {**FULL, "optim.override_optimizer_config": how}
    assert phase(ask(settings), "optimizer-step").counted == pytest.approx(16 * P / 8)


def test_moments_in_eight_bits(ask, sizes):
    settings = {**FULL, "optim.optimizer": "AdamW8bit"}
    assert sizes(ask(settings), "optimizer-step")["optimizer-states"] == pytest.approx(2 * P / 8)


def test_shard_groups_smaller_than_all_gpus(ask, sizes):
    found = sizes(ask({**FULL, "fsdp.fsdp_size": 2}), "optimizer-step")
    assert found["weights"] == pytest.approx(4 * P / 2)


def test_offload_policy_keeps_states_on_the_host(ask, tensors, phase):
    settings = {**FSDP2, "fsdp.offload_policy": True}
    found = ask(settings, version=OLD)
    assert tensors(found, "optimizer-step") == {}
    assert phase(found, "rollout").counted == 0
    # FSDP1 has no such switch.
    assert phase(ask({**settings, "actor.strategy": "fsdp"}), "optimizer-step").counted > P
