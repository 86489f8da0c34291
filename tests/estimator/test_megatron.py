"""Megatron's layers, optimizers and padding, compared with hand-computed sums."""

from __future__ import annotations

from dataclasses import replace

import pytest
from qwen_7b import ADAPTERS, FULL, HEAD, HEADS, KEYS, OLD, F, H, P, T, U, V

from sphinx_verl_resources.estimator.megatron_layers import layer_bytes
from sphinx_verl_resources.estimator.megatron_settings import NO_MEGATRON
from sphinx_verl_resources.estimator.phases import roles_of

DENSE, EXPERTS = "Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B"
#: Sizes of the model with experts, which uses 8 of 128 per token.
EH, EQ, EK, EHEADS, X, E, N = 2048, 4096, 4 * 128, 32, 8 * 2048, 8 * 768, 128
EXPERTS_ATTENTION = 8 * EH + 6 * EQ + 6 * EK + 8 * EHEADS + 4 * 4
OVERRIDE = "megatron.override_transformer_config"


@pytest.fixture(scope="module")
def layer(registries):
    def found(model, **changes):
        return layer_bytes(registries.shape(model), replace(NO_MEGATRON, **changes))

    return found


def test_a_dense_layer_keeps_inputs_of_matrices_and_of_attention(layer):
    attention = 4 * H + 4 * KEYS + 4 * HEADS
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
    """The fullest group gets 20 % more than the mean, and tokens are sent."""
    found = layer(EXPERTS, expert=8, fused_activation=True)
    assert found.saved == pytest.approx(EXPERTS_ATTENTION + 1.2 * (2 * X + 6 * E) + 13 * N)
    assert found.backward == pytest.approx(1.2 * 8 * X)
    # Tensor parallelism of experts gathers their tokens and divides their matrices.
    gathered = layer(EXPERTS, tensor=2, expert_tensor=2, fused_activation=True)
    assert gathered.saved == pytest.approx((EXPERTS_ATTENTION + 6 * E + 13 * N) / 2 + 2 * X)


@pytest.mark.parametrize(
    ("model", "modules", "dropped", "more"),
    [
        (DENSE, ("mlp",), 2 * H + 10 * F, 0),
        (DENSE, ("moe_act", "layernorm"), 0, 0),
        (DENSE, ("core_attn",), 2 * KEYS + 4 * HEADS, 2 * H + 4 * KEYS),
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
    """A quarter of activations and logits if experts are on several GPUs; PyTorch's counter excludes them."""
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
    assert found["activations"] / 28 == pytest.approx(
        expected * (8 * H + 4 * H + 4 * KEYS + 4 * HEADS + 10 * F)
    )


def test_padding_with_fsdp_is_of_the_whole_sequence(ask, sizes):
    fixed = {"actor.ppo_micro_batch_size_per_gpu": 2, "fsdp.pad_to_length": True}
    fixed |= {"fsdp.ulysses_sequence_parallel_size": 2, "fsdp.pad_to_length_bucket": 1000}
    seen = {"prompt_length_mean": 350, "response_length_mean": 0.0001, "prompt_length_max": 350}
    seen["response_length_max"] = 0.0001
    found = sizes(ask(fixed, observed=seen), "update-forward")
    assert found["layer-inputs"] == pytest.approx(2 * H * 28 * 500)


MEGATRON = {
    **FULL,
    "actor.strategy": "megatron",
    "megatron.tensor_model_parallel_size": 2,
    "megatron.pipeline_model_parallel_size": 2,
}


#: Parameters on the last stage: half the layers, the head and the last norm, divided by TP 2.
LAST = (14 * U + HEAD + H) / 2
#: The saved bytes of a Megatron layer on each of two GPUs, which divide tokens and matrices.
KEPT = (8 * H + 4 * 3584 + 4 * 512 + 4 * 28 + 10 * F) / 2


@pytest.fixture
def stage():
    """Return the bytes of the actor's allocations by key on one pipeline stage, at a moment of an update."""

    def found(estimate, index, name, tokens=T):
        actors, _ = roles_of(estimate.shape, estimate.settings)
        return {part.key: part.size for part in getattr(actors[index].update(tokens), name)}

    return found


def test_megatron_dense(ask, tensors, stage):
    found = ask(MEGATRON, gpus=16, version=OLD)
    # The last stage has half the layers, the head and the last norm, divided by TP 2; four replicas.
    step = tensors(found, "optimizer-step")
    first = (14 * U + HEAD) / 2
    assert max(first, LAST) == LAST
    assert step == pytest.approx(
        {"weights": 2 * LAST, "gradients": 4 * LAST, "optimizer-states": 12 * LAST / 4}
    )
    # Nothing is recomputed; the first stage has two micro-batches in flight, the last one the logits.
    backward = stage(found, 0, "backward")
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
    backward = stage(recomputed, 0, "backward")
    assert backward["layer-inputs"] == pytest.approx(2 * H * T / 2 * 14 * 2)
    # The inputs of all layers include the layer's own.
    assert backward["working-set"] == pytest.approx((KEPT - H + H + 2 * F) * T)


def test_megatron_at_the_head(ask, tensors):
    """The last stage is wider at the gradient of its logits than the first stage in a layer."""
    settings = {**MEGATRON, "megatron.override_transformer_config.recompute_granularity": "full"}
    settings["megatron.override_transformer_config.recompute_method"] = "uniform"
    settings["megatron.override_transformer_config.recompute_num_layers"] = 1
    found = tensors(ask(settings, gpus=16), "update-backward")
    assert found == pytest.approx(
        {
            "weights": 2 * LAST,
            "gradients": 4 * LAST,
            "optimizer-states": 12 * LAST / 4,
            "layer-inputs": 2 * H * T / 2 * 14,
            "logits": 4 * T * V / 2,
        }
    )


def test_megatron_has_no_more_micro_batches_in_flight_than_there_are(ask, sizes):
    one = {**MEGATRON, "actor.use_dynamic_bsz": False, "actor.ppo_micro_batch_size_per_gpu": 64}
    one |= {"actor.ppo_mini_batch_size": 32}
    found = ask(one, gpus=16, version=OLD)  # 256 sequences for 4 ranks: one micro-batch
    assert sizes(found, "update-backward")["activations"] == pytest.approx(14 * KEPT * 64 * 1024)


def test_megatron_without_a_distributed_optimizer(ask, phase):
    found = ask({**MEGATRON, "megatron.use_distributed_optimizer": False}, gpus=16)
    assert phase(found, "optimizer-step").counted == pytest.approx(18 * LAST)


def test_megatron_with_an_optimizer_on_the_host(ask, sizes):
    key = "optim.override_optimizer_config"
    half = {**MEGATRON, f"{key}.optimizer_cpu_offload": True, f"{key}.optimizer_offload_fraction": 0.5}
    # The main parameters stay, unless the optimizer is precision-aware.
    assert sizes(ask(half, gpus=16), "optimizer-step")["optimizer-states"] == pytest.approx(8 * LAST / 4)
    aware = {**half, f"{key}.use_precision_aware_optimizer": True}
    assert sizes(ask(aware, gpus=16), "optimizer-step")["optimizer-states"] == pytest.approx(6 * LAST / 4)
    whole = {**aware, f"{key}.optimizer_offload_fraction": 1}
    assert "optimizer-states" not in sizes(ask(whole, gpus=16), "optimizer-step")
    unsaid = {**MEGATRON, f"{key}.optimizer_cpu_offload": True}  # Megatron's own fraction is 0
    assert sizes(ask(unsaid, gpus=16), "optimizer-step")["optimizer-states"] == pytest.approx(12 * LAST / 4)


def test_megatron_with_fewer_bytes_a_moment(ask, sizes):
    settings = {
        **MEGATRON,
        "optim.use_precision_aware_optimizer": True,
        "optim.exp_avg_dtype": "bf16",
        "optim.exp_avg_sq_dtype": "bf16",
    }
    # Two bytes of each main parameter are in the weight.
    assert sizes(ask(settings, gpus=16), "optimizer-step")["optimizer-states"] == pytest.approx(6 * LAST / 4)
    found = sizes(ask(settings, gpus=16, version=(0, 5, 0)), "optimizer-step")
    assert found["optimizer-states"] == pytest.approx(8 * LAST / 4)


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
    share = ADAPTERS / P
    step = sizes(found, "optimizer-step")
    assert step["weights"] == pytest.approx(2 * LAST * (1 + share))
    assert step["gradients"] == pytest.approx(4 * LAST * share)
    assert step["optimizer-states"] == pytest.approx(12 * LAST * share / 4)
    # Only adapters go to the engine, without the frozen weights.
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


def test_megatron_critic_has_a_small_head(ask, sizes):
    settings = {**MEGATRON, "algorithm.adv_estimator": "gae"}
    settings |= {f"critic.megatron.{name}_model_parallel_size": 2 for name in ("tensor", "pipeline")}
    found = ask(settings, gpus=16)
    first = (14 * U + HEAD) / 2  # the embedding is larger than a head with one output
    step = sizes(found, "critic-optimizer-step")
    assert step["critic-weights"] == pytest.approx(2 * first)
    assert step["critic-optimizer-states"] == pytest.approx(12 * first / 4)  # distributed, as the actor's
    actors, critics = roles_of(found.shape, found.settings)
    working = [stage.inference(T)[0][-1].size for stage in (actors[0], critics[0])]
    assert working[0] == working[1] > 0
    values = sizes(found, "critic-values")["critic-working-set"]
    assert values == pytest.approx(2 * working[1])  # twice the token budget


@pytest.mark.parametrize("resident", [True, False])
def test_megatron_reference(ask, sizes, resident):
    settings = {**MEGATRON, "actor.use_kl_loss": True, "ref.megatron.param_offload": not resident}
    found = ask(settings, gpus=16)
    assert sizes(found, "ref-log-prob")["reference"] == pytest.approx(2 * LAST)
    assert ("reference" in sizes(found, "optimizer-step")) is resident


def test_uneven_stages_report_the_worst(ask, sizes):
    last = "megatron.override_transformer_config.num_layers_in_last_pipeline_stage"
    found = ask({**MEGATRON, last: 4}, gpus=16)
    assert sizes(found, "optimizer-step")["weights"] == pytest.approx(2 * (24 * U + HEAD) / 2)
