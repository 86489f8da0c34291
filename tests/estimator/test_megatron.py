"""Megatron's layers, optimizers and padding, against sums put together by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sphinx_verl_resources.estimator.megatron_layers import layer_bytes
from sphinx_verl_resources.estimator.megatron_settings import NO_MEGATRON

DENSE, EXPERTS = "Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B"
H, F, Q, K, HEADS = 3584, 18_944, 3584, 4 * 128, 28
#: Of the model with experts: 8 of 128 for a token.
EH, EQ, EK, EHEADS, X, E, N = 2048, 4096, 4 * 128, 32, 8 * 2048, 8 * 768, 128
EXPERTS_ATTENTION = 8 * EH + 6 * EQ + 6 * EK + 8 * EHEADS + 4 * 4
OVERRIDE = "megatron.override_transformer_config"


@pytest.fixture(scope="module")
def layer(registries):
    def found(model, **changes):
        return layer_bytes(registries.shape(model), replace(NO_MEGATRON, **changes))

    return found


def test_a_dense_layer_keeps_inputs_of_matrices_and_of_attention(layer):
    attention = 4 * Q + 4 * K + 4 * HEADS
    assert layer(DENSE).saved == 8 * H + attention + 10 * F
    assert layer(DENSE, fused_activation=True).saved == 8 * H + attention + 6 * F
    # Without sequence parallelism, norms and their inputs are on each GPU.
    divided = layer(DENSE, tensor=4, sequence_parallel=False)
    assert divided.saved == 8 * H + (attention + 10 * F) / 4
    assert layer(DENSE, tensor=4).saved == (8 * H + attention + 10 * F) / 4


def test_some_models_fuse_the_activation_by_themselves(layer):
    llama = "meta-llama/Meta-Llama-3-8B"
    assert layer(llama) == layer(llama, fused_activation=True) != layer(llama, fused_activation=False)


def test_gathered_tokens_are_whole(layer):
    """The gradient of the output is gathered for the second matrix."""
    found = layer(DENSE, tensor=8)
    assert found.backward == max(2 * H / 8 + 2 * H + 2 * F / 8, (2 * H + 4 * F) / 8)


def test_a_layer_with_experts(layer):
    fused = layer(EXPERTS, fused_activation=True)
    assert fused.saved == EXPERTS_ATTENTION + 2 * X + 6 * E + 13 * N
    assert layer(EXPERTS).saved == EXPERTS_ATTENTION + 2 * X + 12 * E + 13 * N
    assert (fused.backward, fused.forward) == (6 * X, max(6 * EH + 8 * X, 6 * EH + 6 * X + 6 * E))


def test_experts_on_several_gpus(layer):
    """The fullest group gets a fifth more than the mean, and tokens are sent."""
    found = layer(EXPERTS, expert=8, fused_activation=True)
    assert found.saved == pytest.approx(EXPERTS_ATTENTION + 1.2 * (2 * X + 6 * E) + 13 * N)
    assert found.backward == pytest.approx(1.2 * 8 * X)
    # Tensor parallelism of experts gathers their tokens, and divides their matrices.
    gathered = layer(EXPERTS, tensor=2, expert_tensor=2, fused_activation=True)
    assert gathered.saved == pytest.approx((EXPERTS_ATTENTION + 6 * E + 13 * N) / 2 + 2 * X)


@pytest.mark.parametrize(
    ("model", "modules", "dropped", "more"),
    [
        (DENSE, ("mlp",), 2 * H + 10 * F, 0),
        (DENSE, ("moe_act", "layernorm"), 0, 0),
        (DENSE, ("core_attn",), 2 * K + 4 * HEADS, 2 * Q + 4 * K),
        (EXPERTS, ("moe_act",), 8 * E, 0),
        (EXPERTS, ("layernorm", "moe", "moe_act"), 2 * EH + 2 * X + 12 * E + 13 * N, 0),
    ],
)
def test_modules_that_are_recomputed(layer, model, modules, dropped, more):
    whole, found = layer(model), layer(model, recompute_modules=modules)
    assert (found.dropped, found.saved) == (dropped, whole.saved + more - dropped)


def test_modules_count_with_selective_recomputation_only(ask, sizes):
    modules = {f"{OVERRIDE}.recompute_modules": ["mlp"]}
    layers = 28 * 32_768
    common = {"actor.strategy": "megatron", "actor.use_dynamic_bsz": True, "rollout.n": 8}
    common |= {"actor.ppo_max_token_len_per_gpu": 32_768}

    def kept(settings):
        return sizes(ask({**common, **settings}), "update-backward")["activations"] / layers

    everything = kept(modules)
    selective = kept({**modules, f"{OVERRIDE}.recompute_granularity": "selective"})
    assert everything - selective == pytest.approx(2 * H + 10 * F)


MUON = {
    "actor.strategy": "megatron",
    "megatron.tensor_model_parallel_size": 2,
    "megatron.expert_model_parallel_size": 8,
    "megatron.expert_tensor_parallel_size": 1,
    "optim.optimizer": "muon",
}
ENDS = 2 * 151_936 * 2048 + 2048
ROUTED = 48 * 128 * 3 * 2048 * 768
MATRICES = 30_532_122_624 - ROUTED - ENDS


def test_muon_has_one_moment_of_matrices(ask, sizes):
    settings = {**MUON, "optim.use_layer_wise_distributed_optimizer": True}
    found = sizes(ask(settings, model=EXPERTS, gpus=16), "optimizer-step")
    assert found["muon-states"] == pytest.approx(8 * MATRICES / 2 / 8)
    assert found["muon-states-experts"] == pytest.approx(8 * ROUTED / 8 / 2)
    assert found["optimizer-states"] == pytest.approx(12 * ENDS / 2 / 8)


def test_muon_is_shared_layer_wise_only(ask, sizes):
    found = sizes(ask(MUON, model=EXPERTS, gpus=16), "optimizer-step")
    assert found["muon-states"] == pytest.approx(8 * (MATRICES / 2 + ROUTED / 8))
    assert found["optimizer-states"] == pytest.approx(12 * ENDS / 2)


def test_states_of_muon_are_not_offloaded(ask, sizes):
    found = ask({**MUON, "megatron.optimizer_offload": True}, model=EXPERTS, gpus=16)
    assert "muon-states" in sizes(found, "rollout")
    assert "optimizer-states" not in sizes(found, "rollout")
    host = {part.key: part.size for part in found.host.components}
    assert host["optimizer-states"] == pytest.approx(8 * 12 * ENDS / 2)


def test_uneven_experts_leave_cached_blocks(ask, sizes):
    """A quarter of activations and logits, where experts are on several GPUs; not in PyTorch's counter."""
    alone, spread = (
        ask({**MUON, "megatron.expert_model_parallel_size": size}, model=EXPERTS, gpus=16) for size in (1, 8)
    )
    assert "uneven-cache" not in sizes(alone, "update-forward")
    found = sizes(spread, "update-forward")
    passing = sum(found[key] for key in ("activations", "logits", "last-norm"))
    assert found["uneven-cache"] == pytest.approx(0.25 * passing)
    assert "uneven-cache" not in sizes(spread, "rollout")
    (phase,) = (item for item in spread.phases if item.name == "update-forward")
    assert phase.counted == pytest.approx(sum(part.size for part in phase.trainer))


def test_copies_in_fp8(ask, sizes):
    fp8 = {**MUON, "optim.optimizer": "adam", f"{OVERRIDE}.fp8": "e4m3", "megatron.param_offload": True}
    copies = pytest.approx(2 * (MATRICES / 2 + ROUTED / 8))

    def found(version):
        return ask(fp8, model=EXPERTS, gpus=16, version=version)

    assert sizes(found((0, 9, 0)), "optimizer-step")["fp8-weights"] == copies
    assert sizes(found((0, 8, 0)), "rollout")["fp8-weights"] == copies
    assert "fp8-weights" not in sizes(found((0, 9, 0)), "rollout")
    assert "fp8-weights" not in {part.key for part in found((0, 9, 0)).host.components}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"megatron.pad_to_length": True}, 1024),  # a multiple of 512
        ({"megatron.pad_to_length": True, "megatron.pad_to_length_bucket": 1500}, 1500),
        ({"megatron.pad_to_length": True, "megatron.context_parallel_size": 2}, 512),
        ({"megatron.pad_to_length_bucket": 1500}, 700),
        (
            {
                "megatron.pad_to_length": True,
                "megatron.pad_to_length_bucket": 1500,
                "model.use_remove_padding": False,
            },
            2 * 1024,
        ),
    ],
)
def test_padding_of_micro_batches(ask, sizes, settings, expected):
    fixed = {"actor.strategy": "megatron", "actor.ppo_micro_batch_size_per_gpu": 2}
    seen = {"prompt_length_mean": 350, "response_length_mean": 0.0001, "prompt_length_max": 350}
    seen["response_length_max"] = 0.0001
    found = sizes(ask({**fixed, **settings}, observed=seen), "update-backward")
    assert found["activations"] / 28 == pytest.approx(expected * (8 * H + 4 * Q + 4 * K + 4 * HEADS + 10 * F))


def test_padding_with_fsdp_is_of_the_whole_sequence(ask, sizes):
    fixed = {"actor.ppo_micro_batch_size_per_gpu": 2, "fsdp.pad_to_length": True}
    fixed |= {"fsdp.ulysses_sequence_parallel_size": 2, "fsdp.pad_to_length_bucket": 1000}
    seen = {"prompt_length_mean": 350, "response_length_mean": 0.0001, "prompt_length_max": 350}
    seen["response_length_max"] = 0.0001
    found = sizes(ask(fixed, observed=seen), "update-forward")
    assert found["layer-inputs"] == pytest.approx(2 * H * 28 * 500)
