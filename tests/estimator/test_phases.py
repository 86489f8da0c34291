"""Every phase and every component against numbers put together by hand, from shapes and data types.

The model is Qwen2.5-7B on eight GPUs unless something else is said; where T stands, a micro-batch has 16384
tokens on every GPU.
"""

from __future__ import annotations

import pytest

from sphinx_verl_resources.estimator.engine import cache_tokens
from sphinx_verl_resources.units import GIB

#: Parameters, those of one layer, those outside the layers, those of the head.
P, U, R, HEAD = 7_615_616_512, 233_057_792, 2 * 152_064 * 3584 + 3584, 152_064 * 3584
H, LAYERS, F, V, HEADS, KEYS = 3584, 28, 18_944, 152_064, 28, 4 * 128
#: Of the critic: a head that gives one number.
P_CRITIC = P - HEAD + H
T = 16_384
#: What CUDA offers of an H100, as read from one.
CARD = 79.1 * GIB
#: A layer that keeps everything, and one at work.
SAVED = 16 * H + 8 * F + 4 * H + 4 * KEYS + 4 * HEADS
OLD, NEW = (0, 4, 0), (0, 9, 0)
#: Long enough a step for many full micro-batches.
FULL = {"actor.use_dynamic_bsz": True, "rollout.n": 8, "rollout.enforce_eager": True}
FIXED = {"actor.ppo_micro_batch_size_per_gpu": 16, "rollout.enforce_eager": True}
LORA = {**FULL, "model.lora_rank": 32}
#: 32 × (in + out) over the seven matrices of 28 layers.
ADAPTERS = 80_740_352
OUTSIDE = ("context", "engine-context", "communicators", "fragmentation", "cuda-graphs", "bucket")


@pytest.fixture(scope="module")
def working(registries):
    return registries.shape("Qwen/Qwen2.5-7B").backward()[0]


@pytest.fixture(scope="module")
def forward(registries):
    return registries.shape("Qwen/Qwen2.5-7B").forward


def tensors(sizes):
    return {key: size for key, size in sizes.items() if key not in OUTSIDE}


def test_rollout(ask, sizes):
    found = sizes(ask(FULL), "rollout")
    card = found["rollout-pool"] * 2
    assert card == pytest.approx(CARD, rel=0.002)
    assert tensors(found) == pytest.approx(
        {"weights": 4 * P / 8, "optimizer-states": 8 * P / 8, "rollout-pool": card / 2}
    )


def test_old_log_prob(ask, sizes, forward):
    found = tensors(sizes(ask(FULL, version=OLD), "old-log-prob"))
    assert found == pytest.approx(
        {
            "weights": 4 * P / 8,
            "optimizer-states": P,
            "gathered-root": 2 * R,
            "gathered-layer": 2 * U,
            "working-set": forward * T,
            "logits": 9 * T * V,
        }
    )


def test_reference_log_prob_streams_one_unit(ask, sizes, forward):
    settings = {**FULL, "actor.use_kl_loss": True, "fsdp.param_offload": True}
    found = tensors(sizes(ask(settings, version=OLD), "ref-log-prob"))
    expected = {
        "optimizer-states": P,
        "gathered-root": 2 * R,
        "gathered-layer": 2 * U,
        "working-set": forward * T,
        "logits": 2 * T * V,
    }
    assert found == pytest.approx(expected)


def test_update_loss_before_gradients_stayed_undivided(ask, sizes):
    found = tensors(sizes(ask(FULL, version=OLD), "update-forward"))
    assert found == pytest.approx(
        {
            "weights": 4 * P / 8,
            "optimizer-states": P,
            "gradients": 4 * P / 8,
            "gathered-root": 2 * R,
            "layer-inputs": 2 * H * LAYERS * T,
            "logits": 6 * T * V,
            "last-norm": 8 * H * T,
        }
    )


def test_update_backward(ask, sizes, working):
    found = tensors(sizes(ask(FULL, version=OLD), "update-backward"))
    assert found == pytest.approx(
        {
            "weights": 4 * P / 8,
            "optimizer-states": P,
            "gradients": 4 * P / 8,
            "layer-inputs": 2 * H * LAYERS * T,
            "gathered-root": 2 * R,
            "gathered-layer": 2 * U,
            "head-gradient": 2 * HEAD,
            "working-set": working * T,
        }
    )


def test_with_one_micro_batch_gradients_come_while_activations_go(ask, sizes):
    one = {**FIXED, "actor.ppo_mini_batch_size": 128}
    found = ask(one, version=OLD)
    assert "gradients" not in sizes(found, "update-forward")
    backward = sizes(found, "update-backward")
    kept = 2 * H * LAYERS * 16 * 1024
    assert ("layer-inputs" in backward) is (kept > 4 * P / 8)
    assert ("gradients" in backward) is (kept <= 4 * P / 8)


@pytest.mark.parametrize(
    ("strategy", "data_type", "total"),
    [("fsdp", "fp32", 20), ("fsdp", "bf16", 10), ("fsdp2", "fp32", 16), ("fsdp2", "bf16", 8)],
)
def test_bytes_a_parameter_in_the_optimizer_step(ask, phase, strategy, data_type, total):
    settings = {**FULL, "actor.strategy": strategy, "fsdp.model_dtype": data_type}
    assert phase(ask(settings), "optimizer-step").counted == pytest.approx(total * P / 8)


@pytest.mark.parametrize("how", [{"fused": True}, {"foreach": False}])
def test_no_buffer_for_a_fused_optimizer(ask, phase, how):
    settings = {**FULL, "optim.override_optimizer_config": how}
    assert phase(ask(settings), "optimizer-step").counted == pytest.approx(16 * P / 8)


def test_moments_in_eight_bits(ask, sizes):
    settings = {**FULL, "optim.optimizer": "AdamW8bit"}
    assert sizes(ask(settings), "optimizer-step")["optimizer-states"] == pytest.approx(2 * P / 8)


def test_weight_sync_of_fsdp1(ask, sizes):
    found = sizes(
        ask({**FULL, "fsdp.param_offload": True, "rollout.tensor_model_parallel_size": 4}), "weight-sync"
    )
    assert found["bucket"] == 2 * GIB
    assert tensors(found) == pytest.approx(
        {
            "weights": 4 * P / 8,
            "state-dict": 4 * P / 8,
            "largest-tensor": 4 * V * H,
            "optimizer-states": P,
            "rollout-weights": 2 * P / 4,
        }
    )


def test_fsdp2_streams_its_weights(ask, sizes):
    settings = {**FULL, "actor.strategy": "fsdp2", "fsdp.param_offload": True, "fsdp.optimizer_offload": True}
    assert tensors(sizes(ask(settings, version=NEW), "weight-sync")) == pytest.approx(
        {"largest-tensor": 4 * V * H, "rollout-weights": 2 * P / 2}
    )
    assert sizes(ask(settings, version=(0, 8, 0)), "weight-sync")["weights"] == pytest.approx(4 * P / 8)


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
def test_weight_sync_of_adapters(ask, sizes, settings, expected):
    found = tensors(sizes(ask({**LORA, **settings}), "weight-sync"))
    assert found.pop("weights") == pytest.approx(4 * (P + ADAPTERS) / 8)
    assert found.pop("optimizer-states") == pytest.approx(8 * ADAPTERS / 8)
    assert found.pop("rollout-weights") == pytest.approx(2 * P / 2)
    assert found == pytest.approx(expected)


def test_lora(ask, sizes, registries):
    found = ask(LORA, version=OLD)
    step = tensors(sizes(found, "optimizer-step"))
    assert step == pytest.approx(
        {
            "weights": 4 * (P + ADAPTERS) / 8,
            "optimizer-states": ADAPTERS,
            "gradients": 4 * ADAPTERS / 8,
            "step-buffer": 4 * ADAPTERS / 8,
        }
    )
    backward = sizes(found, "update-backward")
    assert backward["working-set"] == pytest.approx(
        registries.shape("Qwen/Qwen2.5-7B").backward("all-linear")[0] * T
    )
    assert "head-gradient" not in backward
    # The copies in fp32 of what the adapters read nearly double the layer at work.
    plain = sizes(ask(FULL, version=OLD), "update-backward")["working-set"]
    assert 1.1 < backward["working-set"] / plain < 2


def test_critic(ask, sizes, working, forward):
    settings = {**FULL, "algorithm.adv_estimator": "gae", "critic.ppo_infer_max_token_len_per_gpu": T}
    found = ask({**settings, "fsdp.param_offload": True, "fsdp.optimizer_offload": True}, version=NEW)
    states = {"critic-weights": 4 * P_CRITIC / 8, "critic-optimizer-states": P_CRITIC}
    gathered = {"critic-gathered-root": 2 * (R - HEAD + H), "critic-gathered-layer": 2 * U}
    kept = {"critic-layer-inputs": 2 * H * LAYERS * T, "critic-undivided-gradients": 2 * P_CRITIC}
    assert tensors(sizes(found, "critic-values")) == pytest.approx(
        {**states, **gathered, "critic-working-set": forward * T}
    )
    assert tensors(sizes(found, "critic-forward")) == pytest.approx(
        {**states, **kept, "critic-gathered-root": 2 * (R - HEAD + H)}
    )
    assert tensors(sizes(found, "critic-backward")) == pytest.approx(
        {**states, **kept, **gathered, "critic-working-set": working * T}
    )
    assert tensors(sizes(found, "critic-optimizer-step")) == pytest.approx(
        {**states, "critic-gradients": 4 * P_CRITIC / 8, "critic-step-buffer": 4 * P_CRITIC / 8}
    )


def test_layers_stay_gathered_without_resharding(ask, sizes):
    found = ask({**FULL, "fsdp.reshard_after_forward": False})
    for name in ("update-forward", "update-backward", "old-log-prob"):
        assert sizes(found, name)["gathered-layers"] == pytest.approx(2 * (P - R))
        assert "gathered-layer" not in sizes(found, name)
    critic = {"algorithm.adv_estimator": "gae", "critic.fsdp.reshard_after_forward": False}
    both = ask({**FULL, **critic})
    assert sizes(both, "critic-forward")["critic-gathered-layers"] == pytest.approx(2 * (P - R))


def test_shard_groups_smaller_than_all_gpus(ask, sizes):
    found = sizes(ask({**FULL, "fsdp.fsdp_size": 2}), "optimizer-step")
    assert found["weights"] == pytest.approx(4 * P / 2)


def test_offload_policy_keeps_states_on_the_host(ask, sizes, phase):
    settings = {**FULL, "actor.strategy": "fsdp2", "fsdp.offload_policy": True}
    found = ask(settings, version=OLD)
    assert tensors(sizes(found, "optimizer-step")) == {}
    assert phase(found, "rollout").counted == 0
    assert set(tensors(sizes(found, "update-backward"))) == {
        "gathered-root",
        "gathered-layer",
        "head-gradient",
        "layer-inputs",
        "working-set",
    }
    # FSDP1 has no such switch.
    assert phase(ask({**settings, "actor.strategy": "fsdp"}), "optimizer-step").counted > P


def test_activation_offload_keeps_two_layers(ask, sizes):
    found = ask({**FULL, "model.enable_activation_offload": True})
    assert sizes(found, "update-forward")["layer-inputs"] == pytest.approx(2 * 2 * H * T)
    bare = ask(
        {**FULL, "model.enable_activation_offload": True, "model.enable_gradient_checkpointing": False}
    )
    assert sizes(bare, "update-forward")["activations"] == pytest.approx(2 * SAVED * T)


def test_without_checkpointing_every_layer_keeps_its_tensors(ask, sizes, working):
    found = ask({**FULL, "model.enable_gradient_checkpointing": False})
    assert sizes(found, "update-forward")["activations"] == pytest.approx(LAYERS * SAVED * T)
    backward = sizes(found, "update-backward")
    assert backward["activations"] == pytest.approx((LAYERS - 1) * SAVED * T)
    assert backward["working-set"] == pytest.approx(working * T)


def test_fused_kernels_never_store_logits(ask, sizes):
    found = ask({**FULL, "model.use_fused_kernels": True, "actor.use_kl_loss": True})
    chunk = 3 * 512 * V * 4
    for name in ("old-log-prob", "ref-log-prob", "update-forward"):
        assert sizes(found, name)["logits"] == pytest.approx(chunk)
    assert sizes(found, "update-forward")["fused-head-gradient"] == pytest.approx(2 * HEAD)
    assert "fused-head-gradient" not in sizes(found, "old-log-prob")


def test_liger_stores_logits(ask, sizes):
    found = ask({**FULL, "model.use_liger": True})
    assert sizes(found, "update-forward")["logits"] == sizes(ask(FULL), "update-forward")["logits"]
    assert any(text.startswith("actor_rollout_ref.model.use_liger") for text in found.unsupported)


@pytest.mark.parametrize(
    ("settings", "update", "old"),
    [
        ({}, 6, 9),
        ({"actor.entropy_coeff": 0.01}, 10, 9),
        ({"actor.calculate_entropy": True}, 10, 9),
        ({"actor.entropy_coeff": 0.01, "actor.entropy_checkpointing": True}, 6, 9),
        ({"actor.entropy_coeff": 0.01, "actor.use_torch_compile": False}, 28, 14),
    ],
)
@pytest.mark.parametrize(("version", "copy"), [((0, 8, 0), 0), (NEW, 2)])
def test_bytes_a_token_and_vocabulary_entry(ask, sizes, settings, update, old, version, copy):
    found = ask({**FULL, **settings}, version=version)
    assert sizes(found, "update-forward")["logits"] == pytest.approx(
        (update + (copy if settings else 0)) * T * V
    )
    assert sizes(found, "old-log-prob")["logits"] == pytest.approx((old + copy) * T * V)


def test_entropy_in_chunks(ask, sizes):
    settings = {**FULL, "actor.entropy_coeff": 0.01, "actor.entropy_from_logits_with_chunking": True}
    found = ask(settings, version=(0, 8, 0))
    for name, whole in (("update-forward", 6), ("old-log-prob", 2)):
        assert sizes(found, name)["logits"] == pytest.approx(whole * T * V)
        assert sizes(found, name)["entropy-chunk"] == pytest.approx(7 * 2048 * V)
    smaller = ask({**settings, "actor.entropy_from_logits_chunk_size": 512}, version=NEW)
    assert sizes(smaller, "old-log-prob")["entropy-chunk"] == pytest.approx(7 * 512 * V)


def test_one_gpu_gathers_nothing(ask, sizes):
    small, count = "Qwen/Qwen2.5-0.5B", 494_032_768
    found = ask({**FULL, "actor.use_kl_loss": True}, model=small, gpus=1)
    update = sizes(found, "update-backward")
    assert update["weights"] == pytest.approx(4 * count)
    assert not {"gathered-root", "gathered-layer", "communicators"} & set(update)
    # The reference comes from the host all the same.
    assert {"gathered-root", "gathered-layer"} <= set(sizes(found, "ref-log-prob"))


def test_outside_of_tensors(ask, phase, sizes):
    one, many = ask(FULL, gpus=1, model="Qwen/Qwen2.5-0.5B"), ask(FULL)
    assert sizes(one, "rollout")["context"] == GIB
    assert "communicators" not in sizes(one, "rollout")
    assert sizes(many, "rollout")["communicators"] == 1.5 * GIB  # all GPUs, and the engine's TP of 2
    update = phase(many, "update-backward")
    assert sizes(many, "update-backward")["fragmentation"] == pytest.approx(0.04 * update.counted)


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({"rollout.tensor_model_parallel_size": 1}, 1),
        ({"rollout.tensor_model_parallel_size": 4}, 1.5),
        ({"fsdp.ulysses_sequence_parallel_size": 2}, 2),
        ({"fsdp.ulysses_sequence_parallel_size": 2, "fsdp.fsdp_size": 2}, 2.5),
        ({"actor.strategy": "megatron", "megatron.tensor_model_parallel_size": 2}, 2.5),  # ETP follows TP
        ({"actor.strategy": "megatron", "megatron.pipeline_model_parallel_size": 2}, 2),
        ({"actor_rollout_ref.hybrid_engine": False}, 1),
    ],
)
def test_each_way_of_grouping_has_a_communicator(ask, sizes, settings, size):
    assert sizes(ask({**FULL, **settings}), "optimizer-step")["communicators"] == size * GIB


# Which states are where: the tables of verl's behaviour, phase by phase.
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
            expected.discard("weights")  # they are taken from where they lie
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


MEGATRON = {
    **FULL,
    "actor.strategy": "megatron",
    "megatron.tensor_model_parallel_size": 2,
    "megatron.pipeline_model_parallel_size": 2,
}


#: What a layer keeps under Megatron, on each of two GPUs: tokens and matrices are divided.
KEPT = (8 * H + 4 * 3584 + 4 * 512 + 4 * 28 + 10 * F) / 2


def test_megatron_dense(ask, sizes):
    found = ask(MEGATRON, gpus=16, version=OLD)
    # The last stage has half the layers, the head and the last norm, divided by TP 2; four replicas.
    last = (14 * U + HEAD + H) / 2
    step = tensors(sizes(found, "optimizer-step"))
    first = (14 * U + HEAD) / 2
    assert max(first, last) == last
    assert step == pytest.approx(
        {"weights": 2 * last, "gradients": 4 * last, "optimizer-states": 12 * last / 4}
    )
    # Nothing is recomputed; the first stage has two micro-batches in flight, the last one the logits.
    backward = sizes(found, "update-backward")
    assert backward["activations"] == pytest.approx(14 * KEPT * T * 2)
    # In the backward pass: the gradient of the output, and the gradients of both halves of the MLP.
    assert backward["working-set"] == pytest.approx((2 * H + 4 * F) / 2 * T)
    recomputed = ask(
        {
            **MEGATRON,
            "megatron.override_transformer_config.recompute_granularity": "full",
            "megatron.override_transformer_config.recompute_method": "uniform",
            "megatron.override_transformer_config.recompute_num_layers": 1,
        },
        gpus=16,
        version=OLD,
    )
    # Now the last stage is fuller, at the gradient of its logits in fp32.
    at_head = sizes(recomputed, "update-backward")
    assert at_head["layer-inputs"] == pytest.approx(2 * H * T / 2 * 14)
    assert at_head["logits"] == pytest.approx(4 * T * V / 2)
    assert sizes(recomputed, "update-forward")["logits"] == pytest.approx(6 * T * V / 2)


def test_megatron_has_no_more_micro_batches_in_flight_than_there_are(ask, sizes):
    one = {**MEGATRON, "actor.use_dynamic_bsz": False, "actor.ppo_micro_batch_size_per_gpu": 64}
    one |= {"actor.ppo_mini_batch_size": 32}
    found = ask(one, gpus=16, version=OLD)  # 256 sequences for 4 ranks: one micro-batch
    assert sizes(found, "update-backward")["activations"] == pytest.approx(14 * KEPT * 64 * 1024)


def test_megatron_without_a_distributed_optimizer(ask, phase):
    found = ask({**MEGATRON, "megatron.use_distributed_optimizer": False}, gpus=16)
    last = (14 * U + HEAD + H) / 2
    assert phase(found, "optimizer-step").counted == pytest.approx(18 * last)


def test_megatron_with_an_optimizer_on_the_host(ask, sizes):
    key = "optim.override_optimizer_config"
    half = {**MEGATRON, f"{key}.optimizer_cpu_offload": True, f"{key}.optimizer_offload_fraction": 0.5}
    last = (14 * U + HEAD + H) / 2
    # The main parameters stay, unless the optimizer is precision-aware.
    assert sizes(ask(half, gpus=16), "optimizer-step")["optimizer-states"] == pytest.approx(8 * last / 4)
    aware = {**half, f"{key}.use_precision_aware_optimizer": True}
    assert sizes(ask(aware, gpus=16), "optimizer-step")["optimizer-states"] == pytest.approx(6 * last / 4)
    whole = {**aware, f"{key}.optimizer_offload_fraction": 1}
    assert "optimizer-states" not in sizes(ask(whole, gpus=16), "optimizer-step")
    unsaid = {**MEGATRON, f"{key}.optimizer_cpu_offload": True}  # Megatron's own fraction is 0
    assert sizes(ask(unsaid, gpus=16), "optimizer-step")["optimizer-states"] == pytest.approx(12 * last / 4)


def test_megatron_with_fewer_bytes_a_moment(ask, sizes):
    settings = {
        **MEGATRON,
        "optim.use_precision_aware_optimizer": True,
        "optim.exp_avg_dtype": "bf16",
        "optim.exp_avg_sq_dtype": "bf16",
    }
    last = (14 * U + HEAD + H) / 2
    # Two bytes of each main parameter are those of the weight.
    assert sizes(ask(settings, gpus=16), "optimizer-step")["optimizer-states"] == pytest.approx(6 * last / 4)
    found = sizes(ask(settings, gpus=16, version=(0, 5, 0)), "optimizer-step")
    assert found["optimizer-states"] == pytest.approx(8 * last / 4)


def test_megatron_with_gradients_in_16_bits(ask, sizes):
    settings = {
        **MEGATRON,
        "optim.use_precision_aware_optimizer": True,
        "optim.main_grads_dtype": "bf16",
    }
    last = (14 * U + HEAD + H) / 2
    assert sizes(ask(settings, gpus=16), "optimizer-step")["gradients"] == pytest.approx(2 * last)
    settings["megatron.override_ddp_config.grad_reduce_in_fp32"] = True
    assert sizes(ask(settings, gpus=16), "optimizer-step")["gradients"] == pytest.approx(4 * last)


def test_megatron_spreads_experts(ask, sizes, registries):
    model = "Qwen/Qwen3-30B-A3B"
    total, experts, head, hidden = 30_532_122_624, 48 * 128 * 3 * 2048 * 768, 151_936 * 2048, 2048
    settings = {
        **FULL,
        "actor.strategy": "megatron",
        "megatron.tensor_model_parallel_size": 2,
        "megatron.expert_model_parallel_size": 8,
        "megatron.expert_tensor_parallel_size": 1,
    }
    found = sizes(ask(settings, model=model, gpus=16), "optimizer-step")
    dense = (total - experts) / 2
    assert found["weights"] == pytest.approx(2 * (dense + experts / 8))
    assert found["gradients"] == pytest.approx(4 * (dense + experts / 8))
    assert found["optimizer-states"] == pytest.approx(12 * dense / 8)
    assert found["optimizer-states-experts"] == pytest.approx(12 * experts / 8 / 2)
    assert registries.shape(model).parameters == total
    assert head * 2 + hidden < dense * 2


def test_megatron_lora(ask, sizes):
    found = ask({**MEGATRON, "model.lora.rank": 32}, gpus=16, version=OLD)
    last, share = (14 * U + HEAD + H) / 2, ADAPTERS / P
    step = sizes(found, "optimizer-step")
    assert step["weights"] == pytest.approx(2 * last * (1 + share))
    assert step["gradients"] == pytest.approx(4 * last * share)
    assert step["optimizer-states"] == pytest.approx(12 * last * share / 4)
    # Adapters alone go to the engine, without the frozen weights.
    offloaded = {**MEGATRON, "model.lora.rank": 32, "megatron.param_offload": True}
    assert "weights" not in sizes(ask(offloaded, gpus=16), "weight-sync")
    merged = {**offloaded, "model.lora.merge": True}
    assert "weights" in sizes(ask(merged, gpus=16), "weight-sync")


@pytest.mark.parametrize(("stages", "heads"), [(1, 1), (2, 2)])
def test_megatron_copies_a_tied_head_onto_the_last_stage(ask, sizes, stages, heads):
    model, layers, head, total = "Qwen/Qwen2.5-3B", 36, 151_936 * 2048, 3_085_938_688
    layer = (total - head - 2048) / layers
    settings = {**FULL, "actor.strategy": "megatron", "megatron.pipeline_model_parallel_size": stages}
    found = sizes(ask(settings, model=model), "optimizer-step")["weights"]
    each = layers / stages * layer + head + 2048
    assert found == pytest.approx(2 * each)
    assert stages * each == pytest.approx(total + (heads - 1) * head, rel=1e-5)


def test_experts_on_several_gpus_are_uneven(ask, sizes):
    settings = {**FULL, "actor.strategy": "megatron"}
    model = "Qwen/Qwen3-30B-A3B"
    even, uneven = (
        sizes(ask({**settings, "megatron.expert_model_parallel_size": size}, model=model), "update-backward")
        for size in (1, 2)
    )
    assert 1 < uneven["activations"] / even["activations"] < 1.2


def test_megatron_critic_has_a_small_head(ask, sizes):
    settings = {**MEGATRON, "algorithm.adv_estimator": "gae"}
    settings |= {f"critic.megatron.{name}_model_parallel_size": 2 for name in ("tensor", "pipeline")}
    found = ask(settings, gpus=16)
    first = (14 * U + HEAD) / 2  # the embedding is larger than a head that gives one number
    step = sizes(found, "critic-optimizer-step")
    assert step["critic-weights"] == pytest.approx(2 * first)
    assert step["critic-optimizer-states"] == pytest.approx(12 * first / 4)  # distributed, as the actor's
    values = sizes(found, "critic-values")["critic-working-set"]
    assert values == pytest.approx((4 * H + 10 * F) / 2 * 2 * T)  # twice the token budget
    # A layer is recomputed; its own input is among those of all layers.
    full = {
        f"critic.megatron.override_transformer_config.recompute_{key}": value
        for key, value in (("granularity", "full"), ("method", "uniform"), ("num_layers", 1))
    }
    backward = sizes(ask({**settings, **full}, gpus=16), "critic-backward")
    assert backward["critic-layer-inputs"] == pytest.approx(2 * H / 2 * 14 * 2 * 2 * T)
    assert backward["critic-working-set"] == pytest.approx((KEPT - H + H + 2 * F) * 2 * T)


@pytest.mark.parametrize("resident", [True, False])
def test_megatron_reference(ask, sizes, resident):
    settings = {**MEGATRON, "actor.use_kl_loss": True, "ref.megatron.param_offload": not resident}
    found = ask(settings, gpus=16)
    last = (14 * U + HEAD + H) / 2
    assert sizes(found, "ref-log-prob")["reference"] == pytest.approx(2 * last)
    assert ("reference" in sizes(found, "optimizer-step")) is resident


def test_uneven_stages_report_the_worst(ask, sizes):
    last = "megatron.override_transformer_config.num_layers_in_last_pipeline_stage"
    found = ask({**MEGATRON, last: 4}, gpus=16)
    assert sizes(found, "optimizer-step")["weights"] == pytest.approx(2 * (24 * U + HEAD) / 2)


# The rollout engine.
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
    assert {"weights", "state-dict", "bucket"} <= set(sizes(found, "weight-sync"))


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
