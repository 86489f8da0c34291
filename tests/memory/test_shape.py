"""Widths of layers, which traces confirm (test_oracle.py), and adapters, those that PEFT adds."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.shape import Shape, adapter_parameters, layer_sizes

ARCHITECTURES = EstimatorContext().architectures
MOE, GATED, MIXTRAL = "Qwen/Qwen3-30B-A3B", "Qwen/Qwen1.5-MoE-A2.7B", "mistralai/Mixtral-8x7B-v0.1"
DEEPSEEK, DENSE, GEMMA = "deepseek-ai/DeepSeek-V3", "Qwen/Qwen2.5-7B", "google/gemma-2-2b"
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def shape(name, **changes):
    return Shape(ARCHITECTURES.get(name).model_copy(update=changes))


# Bytes per token: live in the backward pass, kept for it, and without gradients.
@pytest.mark.parametrize(
    ("name", "adapted", "expected"),
    [
        (DENSE, None, (308_336, 225_392, 142_336)),
        (DENSE, "all-linear", (389_232, 239_728, 142_336)),
        (DENSE, ("q_proj", "gate_proj"), (389_232, 239_728, 142_336)),
        (DENSE, ATTENTION, (308_336, 187_504, 142_336)),
        (MOE, None, (296_720, 194_320, 147_456)),
        (MOE, "all-linear", (254_736, 144_144, 147_456)),  # only attention is adapted
        (MOE, ATTENTION, (254_736, 144_144, 147_456)),
        (GATED, None, (233_776, 176_432, 86_016)),
        (GATED, "all-linear", (218_416, 156_976, 86_016)),
        (GATED, ATTENTION, (198_960, 137_520, 86_016)),
        (MIXTRAL, None, (454_816, 348_320, 278_528)),  # wide experts: their activation is the largest
        (MIXTRAL, "all-linear", (438_432, 274_592, 278_528)),
        (MIXTRAL, ("q_proj",), (438_432, 274_592, 278_528)),
        (DEEPSEEK, None, (1_015_296, 656_896, 516_096)),
        (GEMMA, None, (210_464, 168_992, 73_728)),
        (GEMMA, "all-linear", (237_600, 177_696, 73_728)),
        (GEMMA, ATTENTION, (191_520, 150_048, 73_728)),
    ],
)
def test_widths(name, adapted, expected):
    result = shape(name)
    assert (*result.backward(adapted), result.forward) == expected


def test_a_wide_mlp_with_four_norms():
    assert shape(GEMMA, intermediate_size=8 * 2304).backward()[0] == 126 * 2304 + 4 * 2048 + 4 * 1024 + 4 * 8


def test_evidence_and_counts():
    result = [shape(DENSE), shape(MOE), shape(DEEPSEEK, moe=None), shape("Qwen/Qwen2.5-VL-7B-Instruct")]
    assert [one.evidence for one in result] == ["measured", "assumed", "assumed", "assumed"]
    with_experts = [
        [experts for experts, _ in layer_sizes(one.architecture)] for one in (*result, shape(DEEPSEEK))
    ]
    assert with_experts == [[False], [True], [False], [False], [False, True]]
    result = shape(DENSE)
    assert result.critic_parameters == result.parameters - result.head + result.hidden
    assert shape("Qwen/Qwen2.5-0.5B").head == 151_936 * 896  # the embedding
    assert shape(DEEPSEEK).expert_parameters == 58 * 256 * 3 * 7168 * 2048


@pytest.mark.parametrize(
    ("name", "rank", "targets", "expected"),
    [
        (DENSE, 32, "all-linear", 80_740_352),
        (DENSE, 0, "all-linear", 0),
        (DENSE, 8, (), 0),
        (DENSE, 1, ("lm_head", "embed_tokens"), 2 * (3584 + 152_064)),
        (DENSE, 1, ("q_proj", "q_proj", "w1"), 28 * (3584 + 3584)),  # it has no w1
        # PEFT prints this for rank 16 on q, k, v and o of Llama 3 8B.
        ("meta-llama/Meta-Llama-3-8B", 16, ATTENTION, 13_631_488),
        ("microsoft/phi-4", 1, ("qkv_proj",), 40 * (5120 + 7680)),
        ("microsoft/phi-4", 1, ("q_proj", "gate_proj"), 0),
        ("zai-org/GLM-4-9B-0414", 1, ("gate_up_proj",), 40 * (4096 + 2 * 13_696)),
        (DEEPSEEK, 1, ("q_a_proj", "q_b_proj"), 61 * (7168 + 1536 + 1536 + 128 * 192)),
        (DEEPSEEK, 1, ("kv_a_proj_with_mqa", "kv_b_proj"), 61 * (7168 + 576 + 512 + 128 * 256)),
        ("moonshotai/Moonlight-16B-A3B", 1, ("q_proj",), 27 * (2048 + 16 * 192)),
        ("Qwen/Qwen3.5-122B-A10B", 1, ("out_proj",), 36 * (8192 + 3072)),
        ("Qwen/Qwen3.5-122B-A10B", 1, ("in_proj_a",), 36 * (3072 + 64)),
        # A name counts in the vision tower as well.
        ("Qwen/Qwen2.5-VL-7B-Instruct", 1, ("gate_proj",), 28 * (3584 + 18_944) + 32 * (1280 + 3420)),
        # Routed experts and routers get no adapters: transformers 5 keeps them as bare tensors.
        (MOE, 1, "all-linear", 48 * (2 * (2048 + 4096) + 2 * (2048 + 512))),
        (MOE, 1, ("gate", "gate_proj", "up_proj", "down_proj"), 0),
        (MIXTRAL, 1, ("w1", "w2", "w3"), 0),
        (DEEPSEEK, 1, ("down_proj",), 3 * (18_432 + 7168) + 58 * (2048 + 7168)),
        (GATED, 1, "all-linear", 24 * (4 * 2 * 2048 + 3 * (2048 + 5632) + 2048 + 1)),
    ],
)  # fmt: skip
def test_adapters(name, rank, targets, expected):
    assert adapter_parameters(shape(name), rank, targets) == expected


@pytest.mark.parametrize("entry", list(ARCHITECTURES), ids=lambda entry: entry.name)
def test_all_linear_is_every_module_but_the_ends(entry):
    result = Shape(entry)
    names = tuple(name for name in result.modules if name not in {"lm_head", "embed_tokens"})
    assert adapter_parameters(result, 8, names) == adapter_parameters(result, 8)
    without = Shape(entry.model_copy(update={"vision": None}))
    assert (adapter_parameters(result, 8) > adapter_parameters(without, 8)) == (entry.vision is not None)
