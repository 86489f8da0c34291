"""Megatron compared with sums by hand and with measurements; Qwen2.5-7B with TP 2 and PP 2 on 16 GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from qwen_7b import ADAPTERS, ALONE, FULL, HEAD, HEADS, KEYS, NEW, OLD, OTHERS, ROUTED, V08, F, H, P, T, U, V

from sphinx_verl_resources.memory.megatron import layer_bytes
from sphinx_verl_resources.memory.phases import roles_of
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.roles import NO_MEGATRON
from sphinx_verl_resources.units import GIB

DENSE, SPARSE, LATENT = "Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3"
#: What a dense layer keeps of its attention and norms, and of its MLP with a fused activation.
KEPT, MLP = 8 * H + 4 * H + 4 * KEYS + 4 * HEADS, 6 * F
#: Sizes of the model with experts, 8 of 128 per token: hidden size, tokens and widths of a token's experts.
EH, X, E, N = 2048, 8 * 2048, 8 * 768, 128
WITH_EXPERTS = 8 * EH + 6 * 4096 + 6 * 512 + 8 * 32 + 4 * 4
#: The model with latent attention: a layer's attention, and its MLP or experts.
LH, LQ, LATENTS = 7168, 128 * (128 + 64 + 128) / 2, 1536 + 512
WITH_LATENTS = 8 * LH + 8 * LQ + 4 * 128 + 4 * LATENTS
LATENT_LAYERS = [WITH_LATENTS + 6 * 18_432, WITH_LATENTS + 6 * 2048 + 2 * 8 * LH + 6 * 8 * 2048 + 13 * 256]

UNDIVIDED_NORMS, GATHERED = {"tensor": 4, "sequence_parallel": False}, {"tensor": 2, "expert_tensor": 2}
#: Bytes per token that a layer keeps, those on top in its backward pass, and those without gradients.
LAYERS = [
    (DENSE, {}, KEPT + MLP, 2 * H + 4 * F, 4 * H + 6 * F),
    (DENSE, {"tensor": 8}, (KEPT + MLP) / 8, 2 * H + (2 * H + 2 * F) / 8, 2 * H + (6 * H + 4 * F) / 8),
    # Without sequence parallelism, norms and their inputs are whole.
    (DENSE, UNDIVIDED_NORMS, 8 * H + (KEPT - 8 * H + MLP) / 4, 2 * H + 4 * F / 4, 4 * H + 6 * F / 4),
    (SPARSE, {}, WITH_EXPERTS + 2 * X + 6 * E + 13 * N, 6 * X, 6 * EH + 6 * X + 6 * E),
    (SPARSE, {"fused_activation": False}, WITH_EXPERTS + 2 * X + 12 * E + 13 * N, 6 * X, 6 * EH + 6 * X + 14 * E),
    (SPARSE, {"expert": 8}, WITH_EXPERTS + 2 * X + 6 * E + 13 * N, 8 * X, 6 * EH + 10 * X),
    # Tensor parallelism of experts gathers their tokens and divides their matrices.
    (SPARSE, GATHERED, (WITH_EXPERTS + 6 * E + 13 * N) / 2 + 2 * X, 6 * X, 6 * EH / 2 + 8 * X),
]  # fmt: skip


@pytest.mark.parametrize(("model", "changes", "saved", "backward", "forward"), LAYERS)
def test_layer(registries, model, changes, saved, backward, forward):
    result = layer_bytes(registries.shape(model), replace(NO_MEGATRON, **changes))[model == SPARSE]
    assert result == pytest.approx((saved, backward, forward))


@pytest.mark.parametrize(("context", "a2a", "more"), [(2, True, 2 * H), (2, False, 0), (1, True, 0)])
def test_all_to_all_context_parallelism_keeps_the_output_of_attention_twice(registries, context, a2a, more):
    megatron = replace(NO_MEGATRON, context=context, all_to_all_attention=a2a)
    assert layer_bytes(registries.shape(DENSE), megatron)[False].saved == KEPT + MLP + more


MEGATRON = {**FULL, "actor.strategy": "megatron", "megatron.tp": 2, "megatron.pp": 2}
RECOMPUTED = {"transformer.recompute_granularity": "full", "transformer.recompute_method": "uniform"}
LORA, TP2 = {"model.lora.rank": 32}, {"megatron.pp": 1}
#: Parameters on each GPU: of the first stage with the embedding, of the last with the head and the last norm.
FIRST, LAST = (14 * U + HEAD) / 2, (14 * U + HEAD + H) / 2
STATES = {"weights": 2 * LAST, "gradients": 4 * LAST, "optimizer-states": 12 * LAST / 4}
SPREAD = {**TP2, "model": SPARSE, "megatron.ep": 8, "megatron.etp": 1}
OF_EXPERTS = {"weights": 2 * (OTHERS / 2 + ROUTED / 8), "gradients": 4 * (OTHERS / 2 + ROUTED / 8)}
OF_EXPERTS |= {"optimizer-states": 12 * OTHERS / 2 / 8, "optimizer-states-experts": 12 * ROUTED / 8 / 2}
A = ADAPTERS / P
OF_ADAPTERS = {"weights": 2 * LAST * (1 + A), "gradients": 4 * LAST * A, "optimizer-states": 3 * LAST * A}
TIED, TIED_HEAD = {"model": "Qwen/Qwen2.5-3B"}, 151_936 * 2048
TIED_LAYER = (3_085_938_688 - TIED_HEAD - 2048) / 36
#: Settings of the optimizer and of others.
OVERRIDE, STAGE = "optim.override_optimizer_config", "transformer.num_layers"
SMALL_MOMENT = {"optim.use_precision_aware_optimizer": True, "optim.exp_avg_dtype": "bf16"}
HOST, HALF = {f"{OVERRIDE}.optimizer_cpu_offload": True}, {f"{OVERRIDE}.optimizer_offload_fraction": 0.5}
AWARE, UNEVEN = {f"{OVERRIDE}.use_precision_aware_optimizer": True}, {f"{STAGE}_in_last_pipeline_stage": 4}
PARAM, MERGE, KL = {"megatron.param_offload": True}, {"model.lora.merge": True}, {"actor.use_kl_loss": True}
OFFLOADED = {**KL, "ref.megatron.param_offload": True}
PPO = {f"critic.megatron.{name}_model_parallel_size": 2 for name in ("tensor", "pipeline")}
PPO |= {"algorithm.adv_estimator": "gae"}
ONE = {"actor.ppo_mini_batch_size": 32, "actor.use_dynamic_bsz": False}
ONE |= {"actor.ppo_micro_batch_size_per_gpu": 64}
OF_CRITIC = {"critic-weights": 2 * FIRST, "critic-gradients": 4 * FIRST, "critic-optimizer-states": 3 * FIRST}
OF_CRITIC |= {"critic-dummy-gradients": 2 * U / 2}
HEAD_OF_RECOMPUTED = {"layer-inputs": 2 * H * T / 2 * 14, "gather-buffer": 2 * H * T, "logits": 4 * T * V / 2}

#: Components of a phase that are compared; None if a component is absent.
PHASES = {
    "optimizer-step": [
        ({}, STATES), ({"megatron.use_distributed_optimizer": False}, {"optimizer-states": 12 * LAST}),
        # Main parameters stay, unless the optimizer is precision-aware; Megatron's own fraction is 0.
        ({**HOST, **HALF}, {"optimizer-states": 8 * LAST / 4}), (HOST, {"optimizer-states": 12 * LAST / 4}),
        ({**HOST, **HALF, **AWARE}, {"optimizer-states": 6 * LAST / 4}),
        # Two bytes of each main parameter are in the weight, since Megatron-Core 0.13.
        (SMALL_MOMENT, {"optimizer-states": (2 + 2 + 4) * LAST / 4}),
        ({**SMALL_MOMENT, "version": (0, 5, 0)}, {"optimizer-states": (4 + 2 + 4) * LAST / 4}),
        ({"megatron.override_ddp_config.grad_reduce_in_fp32": False}, {"gradients": 2 * LAST}),
        (SPREAD, OF_EXPERTS), (LORA, OF_ADAPTERS),
        # A tied head is on the last stage, too. The fullest stage counts.
        ({**TP2, **TIED}, {"weights": 36 * TIED_LAYER + TIED_HEAD + 2048}),
        (TIED, {"weights": 18 * TIED_LAYER + TIED_HEAD + 2048}), (UNEVEN, {"weights": 24 * U + HEAD}),
        (KL, {"reference": 2 * LAST}), (OFFLOADED, {"reference": None}),
    ],
    "ref-log-prob": [(OFFLOADED, {"reference": 2 * LAST})],
    # Adapters go to the engine without the frozen weights, unless they are merged.
    "weight-sync": [
        ({**LORA, **PARAM}, {"weights": None, "weight-copies": 2 * V * H}),
        ({**LORA, **PARAM, **MERGE}, {"weights": OF_ADAPTERS["weights"], "gradients": None}),
    ],
    # The first stage has two micro-batches in flight, if there are two; at the head, the gradient of the logits.
    "update-backward": [
        ({}, {"activations": 14 * (KEPT + MLP) / 2 * T * 2, "working-set": (H + 2 * F) * T}),
        (ONE, {"activations": 14 * (KEPT + MLP) / 2 * 64 * 1024}), (RECOMPUTED, {**STATES, **HEAD_OF_RECOMPUTED}),
    ],
    # A critic's head has one output: its first stage with the embedding is the larger one, and no inputs are gathered.
    "critic-optimizer-step": [({**PPO, "version": NEW}, OF_CRITIC)],
    "critic-forward": [({**PPO, "critic.megatron.pipeline_model_parallel_size": 1}, {"critic-gather-buffer": None})],
}  # fmt: skip


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, rows in PHASES.items() for row in rows])
def test_phase(ask, sizes, name, row):
    result = sizes(ask({**MEGATRON, "gpus": 16, "version": V08, **row[0]}), name)
    expected = {key: size and pytest.approx(size) for key, size in row[1].items()}
    assert {key: result.get(key) for key in expected} == expected


def update(estimate, stage, name):
    actors, _ = roles_of(estimate.shape, estimate.settings)
    return {part.key: part.size for part in getattr(actors[stage].update(T), name)}


def test_recomputation_needs_one_layer_at_a_time(ask):
    """The kept inputs include that of the layer which is recomputed."""
    result = update(ask({**MEGATRON, **RECOMPUTED}, gpus=16, version=V08), 0, "backward")
    assert result["layer-inputs"] == pytest.approx(2 * H * T / 2 * 14 * 2)
    assert result["working-set"] == pytest.approx((2 * H + 4 * F + KEPT + MLP - 2 * H) / 2 * T)


def test_swiglu_is_fused_unless_told_otherwise(ask):
    for fusion, each in (({}, 6), ({"transformer.bias_activation_fusion": False}, 10)):
        result = update(ask({**MEGATRON, **fusion}, gpus=16, version=V08), 1, "loss")
        assert result["activations"] == pytest.approx(14 * (KEPT + each * F) / 2 * T)


def test_adapters_of_no_module_train_nothing(ask):
    result = ask({"actor.strategy": "megatron", "model.lora.rank": 8, "model.target_modules": ["linear_qkv"]})
    sizes = {item.key: item.size for item in result.phases[-2].trainer}
    assert (sizes["gradients"], "optimizer-states" in sizes) == (0, False)


def test_dense_first_layers_and_latents(registries, ask):
    """DeepSeek-V3: the first of 16 stages has three dense layers and one with experts, for eight micro-batches."""
    shape = registries.shape(LATENT)
    assert [layer_bytes(shape, NO_MEGATRON)[experts].saved for experts in (False, True)] == LATENT_LAYERS
    settings = {**MEGATRON, "megatron.tp": 1, "megatron.pp": 16, "model": LATENT, "gpus": 256}
    result = ask(settings, version=NEW)
    activations = (3 * LATENT_LAYERS[0] + LATENT_LAYERS[1]) * T * 8
    assert update(result, 0, "loss")["activations"] == pytest.approx(activations)
    # Its widest layer decides the dummy gradients of a stage; one with experts counts with one of them.
    (dense, _), (with_experts, _) = shape.counts.layers
    others = with_experts.total - with_experts.experts + shape.counts.lm_head
    sizes = [2 * dense.total, 2 * (others + 3 * LH * 2048)]
    assert [update(result, stage, "step")["dummy-gradients"] for stage in (0, -1)] == pytest.approx(sizes)


FUSION = "transformer.gradient_accumulation_fusion"
#: Of the first stage, and of the last with the head.
DUMMIES = [
    ({}, NEW, [2 * U / 2, 2 * (U + HEAD) / 2]), ({}, V08, [None, None]), (LORA, NEW, [None, None]),
    ({FUSION: True}, OLD, [U, U + HEAD]), ({FUSION: False}, NEW, [None, None]),
    (ALONE, V08, [U, U + HEAD]),  # plain training
]  # fmt: skip


@pytest.mark.parametrize(("settings", "version", "expected"), DUMMIES)
def test_dummy_gradients_of_transformer_engine(ask, settings, version, expected):
    result = ask({**MEGATRON, **settings}, gpus=16, version=version)
    assert [update(result, stage, "step").get("dummy-gradients") for stage in (0, 1)] == expected


@pytest.mark.parametrize(("model", "tensor", "gib"), [(DENSE, 1, 1.45), ("Qwen/Qwen2.5-32B", 8, 0.29)])
def test_dummy_gradients_are_never_offloaded(ask, sizes, model, tensor, gib):
    offloaded = {**PARAM, "megatron.optimizer_offload": True, "megatron.tp": tensor}
    result = sizes(ask({**MEGATRON, **TP2, **offloaded, "model": model}, version=NEW), "rollout")
    assert result["dummy-gradients"] / GIB == pytest.approx(gib, abs=0.006)


BUFFERS = [({}, 0.3125), ({"megatron.sequence_parallel": False}, None), ({"megatron.tp": 1}, None)]


@pytest.mark.parametrize(("settings", "gib"), BUFFERS)
def test_gather_buffer_of_sequence_parallelism_is_whole(ask, settings, gib):
    """0.3 GiB for Qwen2.5-32B with 32,768 tokens, on the last stage only."""
    result = ask({**MEGATRON, **settings}, model="Qwen/Qwen2.5-32B", gpus=16)
    actors, _ = roles_of(result.shape, result.settings)
    for stage, expected in ((0, None), (1, gib)):
        for pieces in (actors[stage].update(2 * T).loss, actors[stage].inference(2 * T)[1]):
            assert {part.key: part.size / GIB for part in pieces}.get("gather-buffer") == expected


#: GiB that PyTorch allocated at most on a rank in plain training: MooreThreads/SimuMax, docs/b200 at 4dcaae51. Models
#: are cut to some layers, their vocabulary is padded; parallel sizes TP, PP, CP and EP; tokens of a sequence.
MEASURED = [
    ("meta-llama/Llama-3.1-70B", 12, 128_384, (1, 2, 1, 1), 4096, 66.552),
    ("meta-llama/Llama-3.1-70B", 12, 128_512, (4, 1, 1, 1), 4096, 39.072),
    ("meta-llama/Llama-3.1-70B", 12, 128_384, (1, 1, 8, 1), 131_072, 147.988),
    ("deepseek-ai/DeepSeek-V3", 4, 129_408, (1, 2, 1, 4), 4096, 114.002),
]


@pytest.mark.parametrize(("model", "layers", "vocabulary", "parallel", "tokens", "gib"), MEASURED)
def test_measured_plain_training(registries, ask, model, layers, vocabulary, parallel, tokens, gib):
    architecture = registries.shape(model).architecture
    changes = {"name": "cut", "hf_id": "cut", "num_hidden_layers": layers, "vocab_size": vocabulary}
    if architecture.moe:
        changes["moe"] = architecture.moe.model_copy(update={"first_dense_layers": 1, "router_bias": False})
    data = EstimatorContext().knowing(architecture.model_copy(update=changes))
    sizes = {f"megatron.{key}": size for key, size in zip(("tp", "pp", "cp", "ep"), parallel, strict=True)}
    result = ask({
        **sizes, **ALONE, "actor.strategy": "megatron", "megatron.etp": 1,
        "algorithm.rollout_correction.bypass_mode": True, "transformer.bias_activation_fusion": True,
        "data.max_prompt_length": tokens // 2, "data.max_response_length": tokens // 2, "rollout.n": 1,
        "actor.ppo_micro_batch_size_per_gpu": 1, "actor.ppo_mini_batch_size": 16, "data.train_batch_size": 16,
    }, model="cut", gpu="B200", version=V08, data=data)  # fmt: skip
    assert result.torch_peak / GIB == pytest.approx(gib, rel=0.005)
