"""Models, backends, engines and GPUs from verl's keys, and decisive keys with unknown values."""

from __future__ import annotations

import pytest

MICRO = {"actor.ppo_micro_batch_size_per_gpu": 2}


@pytest.mark.parametrize(
    ("settings", "others", "critic"),
    [
        ({"algorithm.adv_estimator": "gae"}, {}, True),
        ({"algorithm.adv_estimator": "grpo"}, {}, False),
        ({"algorithm.adv_estimator": "gae", "critic.enable": False}, {}, False),
        ({"algorithm.adv_estimator": "grpo", "critic.enable": True}, {}, True),
        ({"algorithm.adv_estimator": ...}, {}, True),  # verl's own default
        ({"algorithm.adv_estimator": ...}, {"task": "GRPO-LoRA"}, False),
        ({"algorithm.adv_estimator": ...}, {"task": "ppo"}, True),
    ],
)
def test_critic(ask, settings, others, critic):
    assert (ask({**MICRO, **settings}, **others).settings.critic is not None) is critic


@pytest.mark.parametrize(
    ("settings", "reference"),
    [
        ({}, False),
        ({"actor.use_kl_loss": True}, True),
        ({"algorithm.use_kl_in_reward": True}, True),
        ({"actor.use_kl_loss": True, "model.lora_rank": 8}, False),
        ({"actor.use_kl_loss": True, "actor.strategy": "megatron", "model.lora.rank": 8}, False),
    ],
)
def test_reference(ask, settings, reference):
    found = ask({**MICRO, **settings})
    assert found.settings.reference is reference
    assert ("ref-log-prob" in {phase.name for phase in found.phases}) is reference


def test_the_critic_follows_the_actor(ask):
    settings = {**MICRO, "algorithm.adv_estimator": "gae", "actor.ppo_mini_batch_size": 64, "rollout.n": 2}
    assert ask(settings).settings.critic.mini_batch == 128
    assert ask({**settings, "critic.ppo_mini_batch_size": 32}).settings.critic.mini_batch == 64
    assert ask({**settings, "actor.strategy": "fsdp2"}).settings.critic.backend == "fsdp2"
    assert ask({**settings, "critic.strategy": "megatron"}).settings.critic.backend == "megatron"


def test_critic_keys_under_their_older_names(ask):
    settings = {**MICRO, "algorithm.adv_estimator": "gae"}
    older = {
        "critic.model.fsdp_config.param_offload": True,
        "critic.model.fsdp_config.fsdp_size": 2,
        "critic.model.fsdp_config.model_dtype": "bf16",
    }
    fsdp = ask({**settings, **older}).settings.critic.fsdp
    assert (fsdp.param_offload, fsdp.shard, fsdp.parameter_bytes) == (True, 2, 2)
    both = ask({**settings, **older, "critic.fsdp.fsdp_size": 4}).settings.critic.fsdp
    assert both.shard == 4


def test_megatron_reads_the_adapters_rank_under_its_own_name(ask):
    megatron = {**MICRO, "actor.strategy": "megatron"}
    assert ask({**megatron, "model.lora.rank": 16}).settings.actor.lora_rank == 16
    found = ask({**megatron, "model.lora_rank": 16})
    assert found.settings.actor.lora_rank == 0
    assert [problem.place.key for problem in found.warnings] == ["actor_rollout_ref.model.lora_rank"]


@pytest.mark.parametrize(
    ("settings", "others", "backend"),
    [
        ({}, {}, "fsdp"),
        ({"actor.strategy": "fsdp2"}, {}, "fsdp2"),
        ({"model_engine": "megatron"}, {}, "megatron"),
        ({"megatron.param_offload": True}, {}, "megatron"),
        ({}, {"backend": "megatron"}, "megatron"),
        ({"actor.strategy": "fsdp"}, {"backend": "megatron"}, "fsdp"),
    ],
)
def test_backends(ask, settings, others, backend):
    assert ask({**MICRO, **settings}, **others).settings.actor.backend == backend


@pytest.mark.parametrize("key", ["actor.strategy", "model_engine"])
@pytest.mark.parametrize("name", ["automodel", "fsdp_turbo", "torchtitan", "veomni"])
def test_backends_of_verl_that_are_not_modelled(ask, key, name):
    found = ask({**MICRO, key: name})
    assert name in found.warnings[0].message
    assert name in found.unsupported[0]
    assert found.settings.undecided == found.unsupported


MEGATRON = {**MICRO, "actor.strategy": "megatron"}


@pytest.mark.parametrize(
    ("settings", "others", "undecided"),
    [
        (MICRO, {}, ()),
        ({**MICRO, "critic.strategy": "veomni"}, {}, ()),  # there is no critic
        ({**MICRO, "critic.strategy": "veomni", "critic.enable": True}, {}, ("critic.strategy",)),
        ({**MICRO, "rollout.name": "lightllm"}, {}, ("actor_rollout_ref.rollout.name",)),
        ({**MICRO, "rollout.name": "trtllm"}, {}, ()),
        (
            {**MEGATRON, "megatron.use_megatron_fsdp": True},
            {},
            ("actor_rollout_ref.actor.megatron.use_megatron_fsdp",),
        ),
        ({**MICRO, "megatron.use_megatron_fsdp": True, "actor.strategy": "fsdp"}, {}, ()),
        ({**MICRO, "data.max_response_length": "${LENGTH}"}, {}, ("data.max_response_length",)),
        ({**MICRO, "data.seed": "${SEED}"}, {}, ()),
        ({**MICRO, "trainer.nnodes": "${NODES}"}, {"gpus": None}, ("trainer.nnodes",)),
        ({**MICRO, "trainer.nnodes": "${NODES}"}, {"gpus": 8}, ()),
        ({**MICRO, "engine.tp_size": 2, "engine.strategy": "automodel"}, {}, ("engine",)),
        (MICRO, {"unread": {"data.max_prompt_length", "data.seed"}}, ("data.max_prompt_length",)),
        (
            MICRO,
            {"unread": {"actor_rollout_ref.model.path", "critic.model.fsdp_config.fsdp_size"}},
            ("critic.fsdp.fsdp_size",),
        ),
    ],
)
def test_settings_that_decide_memory_and_are_not_read(ask, settings, others, undecided):
    found = ask(settings, **others).settings.undecided
    assert tuple(text.partition(":")[0] for text in found) == undecided
    assert all(len(text.partition(": ")[2]) > 10 for text in found)


@pytest.mark.parametrize(
    ("settings", "others", "engine"),
    [
        ({}, {}, "vllm"),
        ({"rollout.name": "sglang"}, {"engine": "vllm"}, "sglang"),
        ({}, {"engine": "sglang"}, "sglang"),
        ({"rollout.name": "trtllm"}, {}, "trtllm"),
    ],
)
def test_engines(ask, settings, others, engine):
    assert ask({**MICRO, **settings}, **others).settings.rollout.engine == engine


@pytest.mark.parametrize(
    ("settings", "gpus", "expected"),
    [
        ({"trainer.nnodes": 2, "trainer.n_gpus_per_node": 4}, None, (8, 2)),
        ({}, None, (8, 1)),
        ({}, 16, (16, 2)),
        ({"trainer.n_gpus_per_node": 4}, 16, (16, 4)),
        ({"trainer.nnodes": 4}, 16, (16, 4)),
        ({"trainer.n_gpus_per_node": 3}, 16, (16, 2)),
        ({"trainer.nnodes": 3}, 16, (16, 2)),
        ({"trainer.nnodes": 2, "trainer.n_gpus_per_node": 2}, 4, (4, 2)),
        ({}, 1, (1, 1)),
    ],
)
def test_gpus_and_nodes(ask, settings, gpus, expected):
    found = ask({**MICRO, **settings, "rollout.tensor_model_parallel_size": 1}, gpus=gpus)
    assert (found.settings.gpus, found.settings.nodes) == expected
    assert not found.warnings


def test_capacity(ask):
    assert ask(MICRO, gpu="H100").capacity == pytest.approx(79.15 * 2**30, rel=0.001)
    assert ask(MICRO, gpu=None).capacity is None
    assert ask(MICRO, gpu=None).verdict == "unknown"
    assert ask(MICRO, gpu=None, memory_gb=80).capacity < ask(MICRO, gpu="H100").capacity * 1.01
    assert ask(MICRO, gpu="Something new", memory_gb=100).capacity == pytest.approx(100e9 - 2**29)


def test_nested_settings_are_the_same_as_dotted_ones(ask):
    nested = {"actor_rollout_ref": {"actor": {"ppo_micro_batch_size_per_gpu": 2}}, "rollout.n": 4}
    assert ask(nested).settings == ask({**MICRO, "rollout.n": 4}).settings


def test_null_means_nothing_or_the_default(ask):
    found = ask(
        {**MICRO, "model.enable_gradient_checkpointing": None, "rollout.n": None, "rollout.name": None}
    )
    assert found.settings.actor.checkpointing is False
    assert found.settings.actor.mini_batch == 256
    assert not found.warnings
