"""The phases of a step: their order, the states in each, what is outside PyTorch, and names; Qwen2.5-7B."""

from __future__ import annotations

import pytest
from qwen_7b import ALONE, APART, EXPERTS, FULL, KL, NEW, OLD, V08

from sphinx_verl_resources.memory.allocations import Kind
from sphinx_verl_resources.memory.phases import LABELS
from sphinx_verl_resources.units import GIB, Category

WITH_ALL = {**FULL, "algorithm.adv_estimator": "gae", **KL}
MEGATRON = {"actor.strategy": "megatron", "ref.megatron.param_offload": True}
SPREAD = {**MEGATRON, **EXPERTS, "megatron.ep": 8}
ABSENT = [
    (WITH_ALL, []), ({**WITH_ALL, "actor.use_kl_loss": False}, ["ref-log-prob"]),
    ({**WITH_ALL, "algorithm.adv_estimator": "grpo"}, [name for name in LABELS if name.startswith("critic")]),
    ({**WITH_ALL, "algorithm.rollout_correction.bypass_mode": True}, ["old-log-prob"]),
    ({**WITH_ALL, **APART}, ["rollout", "old-log-prob"]),  # weights still go to the engine
]  # fmt: skip


@pytest.mark.parametrize(("settings", "absent"), ABSENT)
def test_phases_in_their_order(ask, settings, absent):
    assert [phase.name for phase in ask(settings).phases] == [
        name for name in LABELS if name not in {"loading", *absent}
    ]


def test_no_weight_sync_when_training_alone(ask):
    for nodes, count in (({}, 0), ({"rollout.nnodes": 1}, 1)):
        assert [phase.name for phase in ask({**FULL, **ALONE, **nodes}).phases].count("weight-sync") == count


#: The states in each phase, from verl's behaviour: W(eights), O(ptimizer) and G(radients), and those that stay
#: although they are offloaded.
FSDP = {"rollout": ("WO", ""), "old-log-prob": ("WO", "W"), "ref-log-prob": ("WO", "")}
FSDP |= {"weight-sync": ("WO", "W")}
KEEPS = {
    "fsdp": FSDP,
    "fsdp2": {**FSDP, "weight-sync": ("WO", "")},  # weights are sent from where they are
    "megatron": {name: (f"{there}G", stays) for name, (there, stays) in FSDP.items()},
}


@pytest.mark.parametrize("strategy", KEEPS)
@pytest.mark.parametrize(("param", "optimizer"), [(False, False), (False, True), (True, False), (True, True)])
def test_states_that_offloading_takes_away(ask, sizes, strategy, param, optimizer):
    section = "megatron" if strategy == "megatron" else "fsdp"
    settings = {f"{section}.param_offload": param, f"{section}.optimizer_offload": optimizer}
    settings |= {"actor.strategy": strategy, **KL, "ref.megatron.param_offload": True}
    result = ask({**FULL, **settings}, version=NEW)
    gone = ("WG" if param else "") + ("O" if optimizer else "")
    expected = {name: {*there} - ({*gone} - {*stays}) for name, (there, stays) in KEEPS[strategy].items()}
    expected |= {name: {*"WOG"} for name in ("update-forward", "update-backward", "optimizer-step")}
    letters = {"weights": "W", "optimizer-states": "O", "gradients": "G", "unsharded-gradients": "G"}
    for name, states in expected.items():
        assert {letters[key] for key in sizes(result, name) if key in letters} == states, name


def test_states_of_actor_and_critic_are_beside_each_other(ask, sizes):
    result = ask({**WITH_ALL, "fsdp.param_offload": True, "critic.fsdp.optimizer_offload": True})
    more = {"rollout": set(), "update-backward": {"weights"}, "critic-backward": {"critic-optimizer-states"}}
    for name, others in more.items():
        states = {key for key in sizes(result, name) if key.endswith(("weights", "optimizer-states"))}
        assert states == {"optimizer-states", "critic-weights"} | others, name


#: Contexts, one of the engine's process, and communicators; in GiB.
OVERHEADS = [
    ({"version": OLD}, 1 + 1), ({"version": OLD, "gpus": 1, "model": "Qwen/Qwen2.5-0.5B"}, 1),
    ({"version": OLD, "rollout.name": "sglang"}, 2 + 1), ({"version": V08}, 2 + 1), ({"version": V08, **APART}, 1 + 1), ({"version": V08, **MEGATRON}, 2 + 3),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "gib"), OVERHEADS)
def test_contexts_and_communicators_in_every_phase(ask, settings, gib):
    for phase in ask({**FULL, **settings}).phases:
        sizes = [part.size for part in phase.overhead if part.kind is not Kind.FRAGMENTATION]
        assert sum(sizes) == gib * GIB, phase.name


DENSE, SMALL = {**SPREAD, "model": "Qwen/Qwen2.5-7B"}, {**SPREAD, "megatron.ep": 1}


@pytest.mark.parametrize(("settings", "share"), [({}, 0.05), (SPREAD, 0.25), (DENSE, 0.05), (SMALL, 0.05)])
def test_only_what_comes_and_goes_leaves_fragments(ask, settings, share):
    """Activations, logits and gathered parameters; not states, nor the rollout engine."""
    for phase in ask({**FULL, "rollout.free_cache_engine": False, **settings}, gpus=16).phases:
        sizes = phase.sizes
        transient = sum(sizes[item] for item in (Category.ACTIVATIONS, Category.LOGITS, Category.GATHERED))
        fragments = [part.size for part in phase.overhead if part.kind is Kind.FRAGMENTATION]
        assert fragments == ([pytest.approx(share * transient)] if transient else []), phase.name
