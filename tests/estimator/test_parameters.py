"""Exact counts from shapes: parameters, adapters and the KV cache."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.estimator.architectures import LinearAttention, Moe
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.estimator.engine import kv_cache_bytes_per_token
from sphinx_verl_resources.estimator.parameters import (
    count_parameters,
    layer_kinds,
    layer_matrices,
    mtp_parameters,
    vision_parameters,
)
from sphinx_verl_resources.estimator.shape import lora_parameters, target_names, unknown_targets

ARCHITECTURES = EstimatorContext().architectures
ENTRIES = pytest.mark.parametrize("entry", list(ARCHITECTURES), ids=lambda entry: entry.name)


def model(name, **changes):
    return ARCHITECTURES.get(name).model_copy(update=changes)


@ENTRIES
def test_counts_are_those_of_the_registry(entry):
    counts = count_parameters(entry)
    assert counts.total == entry.parameters
    assert counts.active == (
        entry.parameters_active or entry.parameters - (entry.vision.parameters if entry.vision else 0)
    )
    assert not entry.mtp_parameters or mtp_parameters(entry) == entry.mtp_parameters
    assert not entry.vision or vision_parameters(entry.vision) == entry.vision.parameters


@ENTRIES
def test_parts_are_those_of_the_registry(entry):
    counts = count_parameters(entry)
    found = {"embedding": counts.embedding, "lm_head": counts.lm_head, "final_norm": counts.final_norm}
    if entry.vision:
        found["vision"] = counts.vision
    for (kind, _), (layer, _) in zip(layer_kinds(entry), counts.layers, strict=True):
        name = "moe_layer" if kind.experts else "dense_layer"
        if entry.linear_attention:
            name += "_linear_attention" if kind.linear_attention else "_full_attention"
        found[name] = layer.total
    assert found == dict(entry.parameters_breakdown)


@ENTRIES
def test_parts_add_up(entry):
    counts = count_parameters(entry)
    assert sum(number for _, number in counts.layers) == entry.num_hidden_layers
    assert counts.root == counts.embedding + counts.lm_head + counts.final_norm + counts.vision
    assert counts.total == counts.root + sum(layer.total * number for layer, number in counts.layers)
    assert counts.largest_layer == max(layer.total for layer, _ in counts.layers)
    head = 0 if entry.tie_word_embeddings else counts.embedding
    assert counts.critic == counts.total - head + entry.hidden_size


def test_parts_of_a_layer():
    (dense, three), (sparse, others) = count_parameters(model("deepseek-ai/DeepSeek-V3")).layers
    assert (three, others) == (3, 58)
    assert dense.parts["mlp"] == 3 * 7168 * 18432
    assert dense.experts == dense.parts["router"] == dense.parts["shared_experts"] == 0
    assert sparse.experts == 256 * 3 * 7168 * 2048 == 32 * sparse.experts_used
    assert sparse.parts["shared_experts"] == 3 * 7168 * 2048
    assert sparse.parts["router"] == 256 * 7168 + 256
    assert sparse.parts["norms"] == dense.parts["norms"] == 2 * 7168
    assert sparse.parts["attention"] == dense.parts["attention"]
    assert sparse.active < dense.active + sparse.parts["router"] + sparse.experts_used


@given(
    layers=st.integers(1, 200), interval=st.integers(1, 210), dense=st.integers(0, 210), sparse=st.booleans()
)
def test_kinds_are_those_met_layer_by_layer(layers, interval, dense, sparse):
    linear = LinearAttention(
        full_attention_interval=interval, num_key_heads=1, key_head_dim=1, num_value_heads=1,
        value_head_dim=1, conv_kernel=1,
    )  # fmt: skip
    moe = Moe(
        num_experts=4, experts_per_token=2, moe_intermediate_size=1, shared_experts=0,
        first_dense_layers=dense, shared_expert_gate=False, router_bias=False,
    )  # fmt: skip
    changes = {"num_hidden_layers": layers, "linear_attention": linear, "moe": moe if sparse else None}
    met: dict[tuple[bool, bool], int] = {}
    for layer in range(layers):
        kind = ((layer + 1) % interval != 0, sparse and layer >= dense)
        met[kind] = met.get(kind, 0) + 1
    entry = model("Qwen/Qwen2.5-7B", **changes)
    assert list(layer_kinds(entry)) == list(met.items())
    full = sum(number for kind, number in met.items() if not kind[0])
    assert kv_cache_bytes_per_token(entry) == 2 * full * entry.num_key_value_heads * entry.head_dim * 2


def test_a_model_of_any_size_is_counted_at_once():
    assert count_parameters(model("Qwen/Qwen2.5-7B", num_hidden_layers=10**9)).total > 10**17


@pytest.mark.parametrize(
    ("name", "rank", "targets", "expected"),
    [
        ("Qwen/Qwen2.5-7B", 32, "all-linear", 80_740_352),
        ("Qwen/Qwen2.5-7B", 0, "all-linear", 0),
        ("Qwen/Qwen2.5-7B", 8, (), 0),
        ("Qwen/Qwen2.5-7B", 1, ("lm_head", "embed_tokens"), 2 * (3584 + 152064)),
        # PEFT prints this for rank 16 on q, k, v and o of Llama 3 8B.
        ("meta-llama/Meta-Llama-3-8B", 16, ("q_proj", "k_proj", "v_proj", "o_proj"), 13_631_488),
        ("microsoft/phi-4", 1, ("qkv_proj",), 40 * (5120 + 7680)),
        ("mistralai/Mixtral-8x7B-v0.1", 1, ("w1", "w2", "w3"), 32 * 8 * 3 * (4096 + 14336)),
        (
            "deepseek-ai/DeepSeek-V3", 1, ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"),
            61 * (7168 + 1536 + 1536 + 128 * 192 + 7168 + 576 + 512 + 128 * 256),
        ),
        ("moonshotai/Moonlight-16B-A3B", 1, ("q_proj",), 27 * (2048 + 16 * 192)),
        ("Qwen/Qwen3.5-122B-A10B", 1, ("out_proj",), 36 * (8192 + 3072)),
    ],
)  # fmt: skip
def test_adapters(name, rank, targets, expected):
    assert lora_parameters(model(name), rank, targets) == expected
    assert unknown_targets(model(name), targets) == ()


@ENTRIES
def test_all_linear_is_every_name_but_ends_and_routers(entry):
    names = tuple(
        name
        for name in target_names(entry)
        if name not in {"lm_head", "embed_tokens", "gate", "shared_expert_gate"}
    )
    assert lora_parameters(entry, 8, names) == lora_parameters(entry, 8)
    without = entry.model_copy(update={"vision": None})
    assert (lora_parameters(entry, 8) > lora_parameters(without, 8)) == (entry.vision is not None)


def test_a_name_counts_in_the_tower_as_well():
    found = lora_parameters(model("Qwen/Qwen2.5-VL-7B-Instruct"), 1, ("gate_proj",))
    assert found == 28 * (3584 + 18944) + 32 * (1280 + 3420)


@pytest.mark.parametrize(
    ("name", "targets", "unknown"),
    [
        ("Qwen/Qwen2.5-7B", ("q_proj", "qkv_proj", "w1"), ("qkv_proj", "w1")),
        ("microsoft/phi-4", ("q_proj", "gate_proj", "down_proj"), ("q_proj", "gate_proj")),
        ("mistralai/Mixtral-8x7B-v0.1", ("gate_proj", "w1"), ("gate_proj",)),
        ("deepseek-ai/DeepSeek-V3", ("q_proj", "o_proj"), ("q_proj",)),
        ("Qwen/Qwen2.5-7B", "all-linear", ()),
    ],
)
def test_unknown_targets_are_told_and_passed_over(name, targets, unknown):
    assert unknown_targets(model(name), targets) == unknown
    if unknown:
        known = tuple(target for target in targets if target not in unknown)
        assert lora_parameters(model(name), 8, targets) == lora_parameters(model(name), 8, known)


@pytest.mark.parametrize(
    ("name", "gpus", "expected"),
    [
        ("Qwen/Qwen2.5-7B", 1, 57_344),
        ("Qwen/Qwen2.5-7B", 16, 14_336),
        ("Qwen/Qwen2.5-72B", 1, 327_680),
        ("Qwen/Qwen3-30B-A3B", 1, 98_304),
        ("deepseek-ai/DeepSeek-V3", 1, 70_272),
        ("deepseek-ai/DeepSeek-V3", 8, 70_272),
        ("Qwen/Qwen3.5-122B-A10B", 1, 12 * 2 * 2 * 256 * 2),
    ],
)
def test_kv_cache(name, gpus, expected):
    assert kv_cache_bytes_per_token(model(name), gpus) == expected
    assert kv_cache_bytes_per_token(model(name), gpus, element_bytes=1) == expected / 2


@ENTRIES
def test_matrices_are_most_of_a_layer(entry):
    for (kind, _), (layer, _) in zip(layer_kinds(entry), count_parameters(entry).layers, strict=True):
        matrices = sum(matrix.size * matrix.copies for matrix in layer_matrices(entry, kind))
        assert 0.999 < matrices / layer.total < 1
