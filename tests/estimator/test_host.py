"""Host memory of one node, compared with hand-computed sums; Qwen2.5-7B on eight GPUs."""

from __future__ import annotations

import pytest
from qwen_7b import ADAPTERS, HEAD, LAYERS, H, P, U

from sphinx_verl_resources.units import GIB

BASE = 20 * GIB
FULL = {"actor.use_dynamic_bsz": True, "rollout.n": 8, "rollout.name": "vllm"}

HOST_OPTIMIZER = {
    "optim.override_optimizer_config.optimizer_cpu_offload": True,
    "optim.override_optimizer_config.optimizer_offload_fraction": 1,
}


@pytest.fixture
def host(ask):
    """Return the bytes in host memory of one node by key, without the base."""

    def found(settings, **others):
        breakdown = ask({**FULL, **settings}, **others).host
        sizes = {part.key: part.size for part in breakdown.components}
        assert sizes.pop("base") == BASE
        assert breakdown.total == pytest.approx(sum(sizes.values()) + BASE)
        return sizes

    return found


def test_nothing_is_there_unless_something_is_offloaded(host):
    assert host({}) == {}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"fsdp.param_offload": True}, {"weights": 4 * P}),
        ({"fsdp.optimizer_offload": True}, {"optimizer-states": 8 * P}),
        ({"fsdp.param_offload": True, "fsdp.model_dtype": "bf16"}, {"weights": 2 * P}),
        ({"actor.use_kl_loss": True}, {"reference": 4 * P}),
        ({"model.enable_activation_offload": True}, {"layer-inputs": 8 * 2 * 16_384 * H * LAYERS}),
        (
            {"actor.strategy": "fsdp2", "fsdp.offload_policy": True},
            {"weights": 4 * P, "gradients": 4 * P, "optimizer-states": 8 * P},
        ),
    ],
    ids=["weights", "moments", "bf16", "reference", "activations", "policy"],
)
def test_fsdp(host, settings, expected):
    assert host(settings) == pytest.approx(expected)


def test_lora(host):
    settings = {"model.lora_rank": 32, "fsdp.param_offload": True, "fsdp.optimizer_offload": True}
    assert host(settings) == pytest.approx(
        {
            "weights": 4 * (P + ADAPTERS),
            "optimizer-states": 8 * ADAPTERS,
            "sleeping-weights": 8 * 2 * P / 2,  # with adapters the engine keeps the base model
        }
    )


def test_groups_of_gpus_have_copies_of_their_own(host):
    assert host({"fsdp.param_offload": True, "fsdp.fsdp_size": 2})["weights"] == pytest.approx(4 * 4 * P)


def test_a_node_has_its_share_of_the_gpus(host):
    found = host({"fsdp.param_offload": True}, gpus=32)
    assert found["weights"] == pytest.approx(4 * P / 32 * 8)


def test_critic(host):
    critic = P - HEAD + H
    settings = {"algorithm.adv_estimator": "gae", "critic.fsdp.param_offload": True}
    assert host(settings) == pytest.approx({"critic-weights": 4 * critic})


MEGATRON = {
    "actor.strategy": "megatron",
    "megatron.tensor_model_parallel_size": 2,
    "megatron.pipeline_model_parallel_size": 2,
}
#: The fuller of two stages, on each of two GPUs: its head is as large as the embedding, and it has the last norm.
STAGE = (14 * U + HEAD + H) / 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"megatron.param_offload": True}, {"weights": 8 * 2 * STAGE}),
        ({"megatron.optimizer_offload": True}, {"optimizer-states": 8 * 12 * STAGE / 2}),
        (
            HOST_OPTIMIZER,
            {"host-optimizer": 8 * 16 * STAGE / 2},  # with gradients
        ),
        (
            {
                **HOST_OPTIMIZER,
                "megatron.use_distributed_optimizer": False,
            },
            {"host-optimizer": 8 * 16 * STAGE},
        ),
        ({"actor.use_kl_loss": True}, {}),
        (
            {"actor.use_kl_loss": True, "ref.megatron.param_offload": True},
            {"reference": 8 * 2 * STAGE},
        ),
        ({"model.enable_activation_offload": True}, {}),
    ],
)
def test_megatron(host, settings, expected):
    assert host({**MEGATRON, **settings}) == pytest.approx(expected)


def test_experts_of_an_optimizer_on_the_host(host):
    settings = {
        "actor.strategy": "megatron",
        "megatron.expert_model_parallel_size": 4,
        **HOST_OPTIMIZER,
    }
    total, experts = 30_532_122_624, 48 * 128 * 3 * 2048 * 768
    found = host(settings, model="Qwen/Qwen3-30B-A3B")
    assert found == pytest.approx({"host-optimizer": 8 * 16 * ((total - experts) / 8 + experts / 4 / 2)})


def test_the_fullest_stage_counts(host):
    last = "megatron.override_transformer_config.num_layers_in_last_pipeline_stage"
    found = host({**MEGATRON, last: 24, "megatron.param_offload": True})
    assert found["weights"] == pytest.approx(8 * 2 * (24 * U + HEAD + H) / 2)


def test_an_engine_with_gpus_of_its_own_sleeps_nowhere(host):
    settings = {"model.lora_rank": 32, "actor_rollout_ref.hybrid_engine": False}
    assert host(settings) == {}
