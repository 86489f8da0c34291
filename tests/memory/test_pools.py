"""Pools of GPUs: for training, and for rollout, teachers or reward models only."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.memory.request import ACTOR, ROLLOUT, Request
from sphinx_verl_resources.memory.resolve import resolve
from sphinx_verl_resources.memory.settings import all_gpus

POOL = {"rollout.nnodes": 1, "rollout.n_gpus_per_node": 4}
SEPARATE = {"trainer.v1.trainer_mode": "separate_async"}
TEACHERS = {"distillation.enabled": True, "distillation.nnodes": 2, "distillation.n_gpus_per_node": 8}
REWARD = {f"reward.reward_model.{key}": 1 for key in ("nnodes", "n_gpus_per_node")}
REWARD["reward.reward_model.enable_resource_pool"] = True
ASYNC = {"data.train_batch_size": 0, f"{ACTOR}.ppo_mini_batch_size": 32, f"{ROLLOUT}.n": 16}
#: Settings, GPUs of other pools, whether no engine is on the training GPUs, unread keys, the key that leaves a number open.
POOLS = [
    ({}, 0, False, "", ""), (POOL, 4, True, "", ""), (TEACHERS, 16, False, "", ""), ({**POOL, **REWARD}, 5, True, "", ""), ({"rollout.nnodes": 2}, 16, True, "", ""),
    ({**TEACHERS, "distillation.enabled": False}, 0, False, "distillation.nnodes", ""), ({"rollout.n_gpus_per_node": 2}, 2, True, "", ""),
    (TEACHERS, 16, False, "distillation.nnodes", "distillation.nnodes"), ({**POOL, "rollout.nnodes": None}, 4, True, "rollout.nnodes", "rollout.nnodes"),
    ({}, 0, False, "trainer.nnodes", "trainer.nnodes"), ({f"{ROLLOUT}.nnodes": 3, f"{ROLLOUT}.n_gpus_per_node": 8, **SEPARATE}, 24, False, "", ""),
    ({f"{ROLLOUT}.nnodes": 1, **SEPARATE}, 8, False, "", ""), (SEPARATE, 0, True, "", ""),  # it starts and validates on the training GPUs, if any
    ({"trainer.v1.trainer_mode": "colocate_async"}, 0, False, "", ""), *(({"actor_rollout_ref.hybrid_engine": hybrid}, 0, not hybrid, "", "") for hybrid in (False, True)),
    (ASYNC, 0, True, "", ""), *(({**ASYNC, f"async_training.use_{x}": True}, 0, False, "", "") for x in ("trainer_do_validate", "dynamic_resource_scheduling")),
]  # fmt: skip


def read(registries, config, gpus=None):
    """Return the settings for verl's full keys; those of asynchronous trainers look like abbreviations."""
    config = {"algorithm.adv_estimator": "grpo", f"{ACTOR}.ppo_micro_batch_size_per_gpu": 1, **config}
    return resolve(Request("Qwen/Qwen2.5-7B", config, gpus, "H100"), registries)[1]


@pytest.mark.parametrize(("settings", "others", "separate", "unread", "open_key"), POOLS)
def test_pools_that_do_not_train(registries, settings, others, separate, unread, open_key):
    pools = all_gpus(settings, [unread], registries)
    assert (pools.total, pools.others, pools.open_key) == (8 + others, others, open_key)
    for gpus in (None, 8, 8 + others):  # a request counts the training GPUs, or all of them
        result = read(registries, settings, gpus)
        assert (result.gpus, result.other_gpus, result.rollout.separate) == (8, others, separate)


def test_asynchronous_trainers(registries):
    """The fully asynchronous one collects mini-batches; engines are divided among their own GPUs."""
    result = read(registries, {**ASYNC, **POOL})
    assert (result.old_micro_batch.most, result.old_log_prob) == (32 * 16 / 8, False)
    assert result.actor.remove_padding
    own = {"async_training.require_batches": 4, "algorithm.rollout_correction.bypass_mode": False}
    for batch in (0, 512):
        result = read(registries, {**ASYNC, **own, "data.train_batch_size": batch})
        most = [micro.most for micro in (result.old_micro_batch, result.actor.micro_batch)]
        assert (most, result.old_log_prob) == ([4 * 32 * 16 / 8, 32 * 16 / 8], True)
    tensor = {**POOL, "trainer.n_gpus_per_node": 6, f"{ROLLOUT}.tensor_model_parallel_size": 4}
    assert read(registries, tensor).rollout.tensor == 4
    follows = {**SEPARATE, f"{ROLLOUT}.nnodes": 3, "trainer.n_gpus_per_node": 4}
    assert read(registries, follows).other_gpus == 12
    own = {"rollout.nnodes": 1, "trainer.n_gpus_per_node": 4}
    assert read(registries, own).other_gpus == 8  # a key of its own
