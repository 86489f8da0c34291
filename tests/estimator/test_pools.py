"""Pools of GPUs: for training, and for rollout, teachers or reward models only."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.estimator.estimate import estimate
from sphinx_verl_resources.estimator.pools import all_gpus
from sphinx_verl_resources.estimator.request import ACTOR, Request

ROLLOUT_POOL = {"rollout.nnodes": 1, "rollout.n_gpus_per_node": 4}
TEACHERS = {"distillation.enabled": True, "distillation.nnodes": 2, "distillation.n_gpus_per_node": 8}
REWARD = {
    "reward.reward_model.enable_resource_pool": True,
    "reward.reward_model.nnodes": 1,
    "reward.reward_model.n_gpus_per_node": 2,
}


@pytest.fixture
def raw(registries):
    """Return the settings for verl's full keys; the asynchronous trainers' keys look like abbreviations."""

    def found(config, **others):
        config = {"algorithm.adv_estimator": "grpo", f"{ACTOR}.ppo_micro_batch_size_per_gpu": 1, **config}
        request = Request("Qwen/Qwen2.5-7B", config, gpu="H100", **others)
        return estimate(request, registries).settings

    return found


@pytest.mark.parametrize(
    ("settings", "gpus"),
    [
        (ROLLOUT_POOL, 12),
        (TEACHERS, 24),
        ({**ROLLOUT_POOL, **REWARD}, 14),
        ({**TEACHERS, "distillation.enabled": False}, 8),
        (
            {
                "trainer.v1.trainer_mode": "separate_async",
                "actor_rollout_ref.rollout.nnodes": 3,
                "actor_rollout_ref.rollout.n_gpus_per_node": 8,
            },
            32,
        ),
    ],
)
def test_pools_of_others_take_none_of_the_training_gpus(raw, settings, gpus):
    config = {"trainer.nnodes": 1, "trainer.n_gpus_per_node": 8, **settings}
    for named in (None, 8, gpus):
        found = raw(config, gpus=named)
        assert (found.gpus, found.other_gpus) == (8, gpus - 8)


@pytest.mark.parametrize(
    ("settings", "unread", "total", "open_key"),
    [
        ({}, (), 8, ""),
        ({"trainer.nnodes": 2, **TEACHERS}, (), 32, ""),
        ({"trainer.n_gpus_per_node": 4, "trainer.v1.trainer_mode": "separate_async", "actor_rollout_ref.rollout.nnodes": 1}, (), 8, ""),
        ({"rollout.n_gpus_per_node": 2}, (), 10, ""),
        ({key.removeprefix("reward."): value for key, value in REWARD.items()}, (), 10, ""),
        ({"rollout.nnodes": 2}, (), 24, ""),
        (TEACHERS, ["distillation.nnodes"], 24, "distillation.nnodes"),
        ({**TEACHERS, "distillation.enabled": False}, ["distillation.nnodes"], 8, ""),
        ({**ROLLOUT_POOL, "rollout.nnodes": None}, ["rollout.nnodes"], 12, "rollout.nnodes"),
        ({}, ["trainer.nnodes"], 8, "trainer.nnodes"),
        ({"trainer.n_gpus_per_node": "auto"}, (), 8, "trainer.n_gpus_per_node"),
    ],
)  # fmt: skip
def test_the_gpus_of_all_pools(registries, settings, unread, total, open_key):
    found = all_gpus(settings, unread, registries)
    assert (found.total, found.open_key) == (total, open_key)


def test_the_fully_asynchronous_trainer_collects_mini_batches(raw):
    config = {
        "data.train_batch_size": 0,
        f"{ACTOR}.ppo_mini_batch_size": 32,
        "actor_rollout_ref.rollout.n": 16,
    }
    found = raw({**config, **ROLLOUT_POOL})
    assert (found.sequences, found.actor.mini_batch) == (32 * 16, 32 * 16)
    assert found.rollout.separate
    assert not found.old_log_prob
    assert found.actor.remove_padding
    own = {"async_training.require_batches": 4, "algorithm.rollout_correction.bypass_mode": False}
    found = raw({**config, **own})
    assert found.sequences == 4 * 32 * 16
    assert found.old_log_prob
    assert raw({**config, **own, "data.train_batch_size": 512}).sequences == 4 * 32 * 16


@pytest.mark.parametrize("switch", ["use_trainer_do_validate", "use_dynamic_resource_scheduling"])
def test_engines_can_be_on_the_training_gpus_too(raw, switch):
    assert not raw({"data.train_batch_size": 0, f"async_training.{switch}": True}).rollout.separate
    assert raw({"data.train_batch_size": 0, f"async_training.{switch}": False}).rollout.separate


@pytest.mark.parametrize(
    ("settings", "separate"),
    [
        ({}, False),
        (ROLLOUT_POOL, True),
        ({"actor_rollout_ref.hybrid_engine": False}, True),
        ({"actor_rollout_ref.hybrid_engine": True}, False),
        ({"trainer.v1.trainer_mode": "separate_async"}, True),
        # It starts and validates with the engines on the training GPUs.
        ({"trainer.v1.trainer_mode": "separate_async", "actor_rollout_ref.rollout.nnodes": 1}, False),
        ({"trainer.v1.trainer_mode": "colocate_async"}, False),
    ],
)
def test_engines_with_gpus_of_their_own(raw, settings, separate):
    assert raw(settings).rollout.separate is separate


def test_engines_are_divided_among_their_own_gpus(raw):
    sizes = {"trainer.n_gpus_per_node": 6, "actor_rollout_ref.rollout.tensor_model_parallel_size": 4}
    assert raw({**ROLLOUT_POOL, **sizes}).rollout.tensor == 4
    with pytest.raises(NoAnswerError, match="does not divide the 6 GPUs"):
        raw(sizes)
