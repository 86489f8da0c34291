"""The phases of a step: their number, states and names.

The tests of the backends, of logits and of the rollout engine check the contents of each phase. The model is
Qwen2.5-7B on eight GPUs.
"""

from __future__ import annotations

import pytest
from qwen_7b import FULL

# The states in each phase, from the tables of verl's behaviour.
RESIDENT = {
    "rollout": ("weights unless param", "optimizer unless optimizer"),
    "old-log-prob": ("weights", "optimizer unless optimizer"),
    "ref-log-prob": ("weights unless param", "optimizer unless optimizer"),
    "update-forward": ("weights", "optimizer"),
    "update-backward": ("weights", "optimizer"),
    "optimizer-step": ("weights", "optimizer", "gradients"),
    "weight-sync": ("weights", "optimizer unless optimizer"),
}


@pytest.mark.parametrize("param", [True, False])
@pytest.mark.parametrize("optimizer", [True, False])
@pytest.mark.parametrize("strategy", ["fsdp", "fsdp2"])
def test_what_offload_lowers_and_what_it_does_not(ask, sizes, param, optimizer, strategy):
    settings = {**FULL, "actor.use_kl_loss": True, "actor.strategy": strategy}
    found = ask({**settings, "fsdp.param_offload": param, "fsdp.optimizer_offload": optimizer})
    flags = {"param": param, "optimizer": optimizer}
    for name, rules in RESIDENT.items():
        expected = set()
        for rule in rules:
            what, _, flag = rule.partition(" unless ")
            if not (flag and flags[flag]):
                expected.add({"optimizer": "optimizer-states"}.get(what, what))
        if name == "weight-sync" and strategy == "fsdp2" and param:
            expected.discard("weights")  # they are sent from where they are
        states = {"weights", "optimizer-states", "gradients"} & set(sizes(found, name))
        assert states == expected, name


@pytest.mark.parametrize("param", [True, False])
@pytest.mark.parametrize("optimizer", [True, False])
def test_what_megatron_keeps(ask, sizes, param, optimizer):
    settings = {
        **FULL,
        "actor.strategy": "megatron",
        "actor.use_kl_loss": True,
        "megatron.param_offload": param,
        "megatron.optimizer_offload": optimizer,
        "ref.megatron.param_offload": True,
    }
    found = ask(settings)
    moments = set() if optimizer else {"optimizer-states"}
    buffer = set() if param else {"gradients"}
    idle = set() if param else {"weights"}
    expected = {
        "rollout": idle | buffer | moments,
        "old-log-prob": {"weights"} | buffer | moments,
        "ref-log-prob": idle | buffer | moments,
        "update-forward": {"weights", "gradients", "optimizer-states"},
        "update-backward": {"weights", "gradients", "optimizer-states"},
        "optimizer-step": {"weights", "gradients", "optimizer-states"},
        "weight-sync": {"weights"} | buffer | moments,
    }
    states = {"weights", "gradients", "optimizer-states"}
    assert {name: states & set(sizes(found, name)) for name in expected} == expected


def test_each_role_lies_beside_the_other(ask, sizes):
    settings = {**FULL, "algorithm.adv_estimator": "gae"}
    both = ask(settings)
    assert {"critic-weights", "critic-optimizer-states"} <= set(sizes(both, "update-backward"))
    assert {"weights", "optimizer-states"} <= set(sizes(both, "critic-backward"))
    offloaded = ask(
        {
            **settings,
            "fsdp.param_offload": True,
            "fsdp.optimizer_offload": True,
            "critic.fsdp.param_offload": True,
            "critic.fsdp.optimizer_offload": True,
        }
    )
    assert not [key for key in sizes(offloaded, "update-backward") if key.startswith("critic-")]
    assert not {"weights", "optimizer-states"} & set(sizes(offloaded, "critic-backward"))
    assert {"critic-weights", "critic-optimizer-states"} <= set(sizes(offloaded, "critic-backward"))


def test_labels_name_the_role(ask):
    found = ask({**FULL, "algorithm.adv_estimator": "gae"})
    for phase in found.phases:
        for part in phase.breakdown.components:
            assert part.label.startswith("Critic: ") is part.key.startswith("critic-")
            assert part.label[0].isupper()
        assert phase.label


def test_phases_that_settings_leave_out(ask):
    def names(**settings):
        return {phase.name for phase in ask({**FULL, **settings}).phases}

    everything = names(**{"algorithm.adv_estimator": "gae", "actor.use_kl_loss": True})
    least = names(**{"algorithm.rollout_correction.bypass_mode": True})
    assert {"rollout", "update-forward", "update-backward", "optimizer-step", "weight-sync"} <= least
    assert everything - least == {
        "old-log-prob", "ref-log-prob", "critic-values", "critic-forward", "critic-backward", "critic-optimizer-step",
    }  # fmt: skip
