"""The rollout engine, weight sync, contexts and communicators, compared with hand-computed numbers.

The model is Qwen2.5-7B on eight GPUs unless stated otherwise.
"""

from __future__ import annotations

import pytest
from qwen_7b import ADAPTERS, FSDP2, FULL, LORA, NEW, V08, H, P, R, U, V

from sphinx_verl_resources.estimator.engine import cache_tokens
from sphinx_verl_resources.units import GIB

#: The capacity of an H100, as CUDA reports it.
CARD = 79.1 * GIB
EXPERTS = "Qwen/Qwen3-30B-A3B"


def test_rollout(ask, tensors):
    found = tensors(ask(FULL), "rollout")
    card = found["rollout-pool"] * 2
    assert card == pytest.approx(CARD, rel=0.002)
    assert found == pytest.approx(
        {"weights": 4 * P / 8, "optimizer-states": 8 * P / 8, "rollout-pool": card / 2}
    )


def test_an_engine_that_never_sleeps_is_always_there(ask, sizes):
    found = ask({**FULL, "rollout.free_cache_engine": False})
    pool = sizes(found, "rollout")["rollout-pool"]
    assert all(sizes(found, phase.name)["rollout-pool"] == pytest.approx(pool) for phase in found.phases)


def test_graphs_stay_while_the_engine_sleeps(ask, sizes):
    settings = {**FULL, "rollout.enforce_eager": False}
    assert sizes(ask(settings), "update-backward")["cuda-graphs"] == 2 * GIB
    assert "cuda-graphs" not in sizes(ask(FULL), "update-backward")


def test_sglang_takes_a_share_of_what_is_free(ask, sizes, phase):
    found = ask({**FULL, "rollout.name": "sglang"})
    free = found.capacity - phase(found, "rollout").counted
    assert sizes(found, "rollout")["rollout-pool"] == pytest.approx(free / 2)
    asleep = ask({**LORA, "rollout.name": "sglang"})
    assert sizes(asleep, "update-backward")["rollout-weights"] == pytest.approx(2 * P / 2)
    assert "rollout-weights" not in sizes(found, "update-backward")


def test_tensorrt_takes_its_share_for_the_cache_alone(ask, sizes, phase):
    found = ask({**FULL, "rollout.name": "trtllm"})
    free = found.capacity - phase(found, "rollout").counted - 2 * P / 2
    assert sizes(found, "rollout")["rollout-weights"] == pytest.approx(2 * P / 2)
    assert sizes(found, "rollout")["rollout-pool"] == pytest.approx(free / 2)


def test_an_engine_with_gpus_of_its_own(ask, sizes):
    found = ask({**FULL, "actor_rollout_ref.hybrid_engine": False})
    assert "rollout" not in {phase.name for phase in found.phases}
    keys = {key for phase in found.phases for key in sizes(found, phase.name)}
    assert not {"rollout-pool", "rollout-weights", "cuda-graphs", "engine-context"} & keys
    assert {"weights", "state-dict", "largest-tensor"} <= set(sizes(found, "weight-sync"))


def test_copies_of_the_engine_share_out_the_experts(ask, sizes):
    settings = {**FULL, "rollout.data_parallel_size": 4}
    model = "Qwen/Qwen3-30B-A3B"
    experts = 48 * 128 * 3 * 2048 * 768
    found = sizes(ask(settings, model=model), "weight-sync")["rollout-weights"]
    assert found == pytest.approx(2 * (30_532_122_624 - experts + experts / 4) / 2)
    dense = sizes(ask(settings), "weight-sync")["rollout-weights"]
    assert dense == sizes(ask(FULL), "weight-sync")["rollout-weights"]


def test_weights_of_the_engine_in_other_data_types(ask, sizes):
    for settings, size in (({"rollout.quantization": "fp8"}, 1), ({"rollout.dtype": "float32"}, 4)):
        found = sizes(ask({**FULL, **settings}), "weight-sync")["rollout-weights"]
        assert found == pytest.approx(size * P / 2)


def test_room_for_keys_and_values(ask):
    found = ask({**FULL, "rollout.tensor_model_parallel_size": 2})
    room = found.capacity / 2 - 2 * P / 2 - GIB  # the context
    room -= 8192 * found.shape.forward / 2 + 256 * V * 4  # one full step, and the sampler's logits
    assert cache_tokens(found.shape, found.settings) == pytest.approx(room / (57_344 / 2))
    larger = ask({**FULL, "rollout.tensor_model_parallel_size": 2, "rollout.max_num_seqs": 512})
    less = cache_tokens(larger.shape, larger.settings)
    assert less == pytest.approx((room - 256 * V * 4) / (57_344 / 2))
    none = ask({**FULL, "rollout.gpu_memory_utilization": 0.1})
    assert cache_tokens(none.shape, none.settings) == 0


def test_an_engine_takes_its_weights_at_least(ask, sizes):
    settings = {**FULL, "rollout.gpu_memory_utilization": 0.05, "rollout.tensor_model_parallel_size": 1}
    found = sizes(ask(settings), "rollout")
    assert found["rollout-weights"] == pytest.approx(2 * P)
    assert "rollout-pool" not in found


# Weight sync.
def test_weight_sync_gathers_the_root_before_it_sends(ask, tensors):
    settings = {**FULL, "fsdp.param_offload": True, "rollout.tensor_model_parallel_size": 4}
    found = tensors(ask(settings), "weight-sync")
    common = {
        "state-dict": 4 * P / 8,
        "largest-tensor": 4 * V * H,
        "optimizer-states": P,
        "rollout-weights": 2 * P / 4,
    }
    assert found == pytest.approx({**common, "weights": 4 * P / 8, "gathered-root": 4 * R})
    # With a larger bucket, or in versions that gather before the engine wakes up, sending is the widest.
    bucket = "rollout.checkpoint_engine.update_weights_bucket_megabytes"
    assert tensors(ask({**settings, bucket: 8192}), "weight-sync") == pytest.approx(
        {**common, "bucket": 8 * GIB}
    )
    assert tensors(ask(settings, version=(0, 7, 0)), "weight-sync") == pytest.approx(common)


def test_fsdp2_streams_its_weights(ask, tensors):
    settings = {**FSDP2, "fsdp.param_offload": True, "fsdp.optimizer_offload": True}
    assert tensors(ask(settings, version=NEW), "weight-sync") == pytest.approx(
        {"largest-tensor": 4 * V * H, "bucket": 2 * GIB, "rollout-weights": 2 * P / 2}
    )
    assert tensors(ask(settings, version=V08), "weight-sync")["weights"] == pytest.approx(4 * P / 8)


def test_the_bucket_is_in_the_counter_of_the_training_process(ask, phase):
    settings = {**FSDP2, "fsdp.param_offload": True, "fsdp.optimizer_offload": True}

    counted = phase(ask(settings, version=NEW), "weight-sync").counted
    assert counted == pytest.approx(4 * V * H + 2 * GIB)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"rollout.layered_summon": True}, {"summoned-layer": 4 * U}),
        ({}, {"summoned-model": 4 * P}),
        ({"rollout.layered_summon": True, "model.lora.merge": True}, {"summoned-model": 4 * P}),
        ({"actor.strategy": "fsdp2"}, {"largest-tensor": 4 * V * H}),
    ],
    ids=["layered", "whole", "merged", "fsdp2"],
)
def test_weight_sync_of_adapters(ask, tensors, settings, expected):
    found = tensors(ask({**LORA, **settings}), "weight-sync")
    assert found.pop("weights") == pytest.approx(4 * (P + ADAPTERS) / 8)
    assert found.pop("optimizer-states") == pytest.approx(8 * ADAPTERS / 8)
    assert found.pop("rollout-weights") == pytest.approx(2 * P / 2)
    assert found.pop("bucket") == 2 * GIB
    assert found == pytest.approx(expected)


# Outside of tensors.
def test_contexts_and_fragments(ask, phase, sizes):
    one, many = ask(FULL, gpus=1, model="Qwen/Qwen2.5-0.5B"), ask(FULL)
    assert sizes(one, "rollout")["context"] == GIB
    assert not {"communicators", "exchange-buffers"} & set(sizes(one, "rollout"))
    update = phase(many, "update-backward")
    assert sizes(many, "update-backward")["fragmentation"] == pytest.approx(0.05 * update.counted)


TP2 = {"actor.strategy": "megatron", "megatron.tensor_model_parallel_size": 2}
IN_PROCESS = (0, 7, 0)


@pytest.mark.parametrize(
    ("settings", "version", "groups", "partners"),
    [
        # All GPUs, and FSDP's own.
        ({}, NEW, 2, 0),
        ({"rollout.tensor_model_parallel_size": 4}, NEW, 2, 0),
        ({"rollout.tensor_model_parallel_size": 4}, IN_PROCESS, 3, 0),
        ({"rollout.tensor_model_parallel_size": 1}, IN_PROCESS, 2, 0),
        ({"actor_rollout_ref.hybrid_engine": False}, IN_PROCESS, 2, 0),
        ({"fsdp.ulysses_sequence_parallel_size": 2}, NEW, 3, 1),
        ({"fsdp.ulysses_sequence_parallel_size": 4}, NEW, 3, 3),
        # Replicas of the shards are another group.
        ({"fsdp.fsdp_size": 2}, NEW, 3, 0),
        ({"fsdp.fsdp_size": 1}, NEW, 2, 0),
        # All, TP, replicas, replicas with context ranks, TP × PP.
        (TP2, NEW, 5, 0),
        # TP × PP is PP itself.
        ({"actor.strategy": "megatron", "megatron.pipeline_model_parallel_size": 2}, NEW, 5, 0),
        ({**TP2, "megatron.context_parallel_size": 4}, NEW, 5, 0),
    ],
)
def test_each_group_that_communicates(ask, sizes, settings, version, groups, partners):
    found = sizes(ask({**FULL, **settings}, version=version), "optimizer-step")
    assert found["communicators"] == pytest.approx(0.55 * groups * GIB)
    assert found.get("exchange-buffers", 0) == pytest.approx(0.375 * partners * GIB)


@pytest.mark.parametrize(("expert", "groups", "partners"), [(8, 8, 7), (16, 7, 7)])
def test_groups_of_experts(ask, sizes, expert, groups, partners):
    """EP, EP × ETP, and replicas of experts; buffers between two GPUs exist only within a node."""
    settings = {**FULL, **TP2, "megatron.expert_tensor_parallel_size": 1}
    settings["megatron.expert_model_parallel_size"] = expert
    settings["trainer.nnodes"] = 2
    found = sizes(ask(settings, model=EXPERTS, gpus=16), "optimizer-step")
    assert found["communicators"] == pytest.approx(0.55 * groups * GIB)
    assert found["exchange-buffers"] == pytest.approx(0.375 * partners * GIB)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("version", [V08, NEW])
def test_an_engine_that_is_too_small_still_has_its_graphs(ask, sizes, version, eager):
    """An engine needs its weights and its graphs, inside the budget or not."""
    settings = {**FULL, "rollout.enforce_eager": eager, "rollout.gpu_memory_utilization": 0.05}
    found = sizes(ask(settings, version=version), "rollout")
    assert found["rollout-weights"] == pytest.approx(2 * P / 2)
    assert found.get("cuda-graphs") == (None if eager else 2 * GIB)
    roomy = sizes(ask({**settings, "rollout.gpu_memory_utilization": 0.5}, version=version), "rollout")
    assert ("cuda-graphs" in roomy) is (version == V08 and not eager)
