"""A model's own config.json gives the registry's shape and count, and every mistake is reported at its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.memory.config_json import MODEL_TYPES, read_config_json
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.shape import Counts

CONFIGS = yaml.safe_load(Path(__file__).with_name("configs.yaml").read_text("utf-8"))
QWEN = CONFIGS["Qwen/Qwen2.5-7B"]
#: Fields of a registry entry that are not read from a config.
ABOUT = {
    "sliding_window", "mtp_parameters", "parameters_active", "name", "hf_id", "aliases", "aliases_unverified", "max_position_embeddings_of_aliases",
    "parameters_breakdown", "published", "config_source", "script", "verified", "notes",
}  # fmt: skip
#: Configs of models outside the registry, and counts that are published.
OTHERS = {
    14_315_784_192: {  # Qwen1.5-MoE-A2.7B
        "model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
        "num_key_value_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4,
        "vocab_size": 151936, "max_position_embeddings": 8192,
    },
    15_706_484_224: {  # DeepSeek-V2-Lite
        "model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16,
        "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 1, "vocab_size": 102400,
        "max_position_embeddings": 163840,
    },
    999_885_952: {  # gemma-3-1b
        "model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 6912, "vocab_size": 262144,
        "max_position_embeddings": 32768,
    },
    3_880_263_168: {  # the language model of gemma-3-4b, which leaves out most keys
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
        },
    },
}  # fmt: skip


COPY = "copy the value from the model's config.json on Hugging Face"
TOWER = json.loads(CONFIGS["Qwen/Qwen3-VL-30B-A3B-Instruct"])["vision_config"]
#: What a config with experts needs besides.
GLM_MOE = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
}  # fmt: skip


def read(text):
    """Return the architecture, and every problem as printed."""
    try:
        architecture, problems = read_config_json(text, "my/config.json")
    except NoAnswerError as refused:
        architecture, problems = None, refused.diagnostics
    assert (architecture is None) == any(problem.is_error for problem in problems)
    return architecture, [str(problem) for problem in problems]


def read_with(name="Qwen/Qwen2.5-7B", **changes):
    """Call ``read`` for a config with changes; a value of ``...`` removes a key."""
    fields = {**json.loads(CONFIGS[name]), **changes}
    return read(json.dumps({key: value for key, value in fields.items() if value is not ...}))


@pytest.mark.parametrize("name", CONFIGS)
def test_shapes_are_those_of_the_registry(name):
    entry = EstimatorContext().architectures.get(name)
    architecture, problems = read(CONFIGS[name])
    assert problems == []
    assert architecture.model_dump(exclude=ABOUT) == entry.model_dump(exclude=ABOUT)


@pytest.mark.parametrize("parameters", OTHERS)
def test_counts_published_for_other_models(parameters):
    architecture, problems = read(json.dumps(OTHERS[parameters]))
    assert problems == []
    assert architecture.parameters == parameters == Counts(architecture).total


def test_qwen3_next():
    entry = EstimatorContext().architectures.get("Qwen/Qwen3-Next-80B-A3B-Instruct")
    architecture, problems = read(
        """{"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "head_dim": 256,
        "num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 5120, "num_experts": 512,
        "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_num_value_heads": 32,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 151936,
        "max_position_embeddings": 262144, "num_nextn_predict_layers": 1}"""
    )
    assert problems == []
    assert architecture.linear_attention == entry.linear_attention
    assert architecture.parameters == entry.parameters


def test_a_gate_without_a_shared_expert():
    """As in the modelling code, where the shared expert has matrices of width 0."""
    config = OTHERS[14_315_784_192]
    architecture, problems = read(json.dumps({**config, "shared_expert_intermediate_size": 0}))
    assert problems == []
    assert architecture.moe.shared_width == 0
    assert architecture.parameters == 14_315_784_192 - 24 * 3 * 2048 * 5632


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"num_key_value_heads": ...}, "num_key_value_heads", 28),
        ({"model_type": "qwen3", "head_dim": ...}, "head_dim", 128),
        ({"model_type": "llama"}, "qkv_bias", False),
        ({"model_type": "llama", "attention_bias": True}, "qkv_bias", True),
        ({"qkv_bias": False}, "qkv_bias", False),
        ({"model_type": "mistral", "attention_bias": True}, "qkv_bias", False),
        ({"model_type": "gemma2", "tie_word_embeddings": ...}, "tie_word_embeddings", True),
        ({"tie_word_embeddings": ...}, "tie_word_embeddings", False),
        (
            {"tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True}},
            "tie_word_embeddings",
            False,
        ),
        (
            {"tie_word_embeddings": ..., "text_config": {"tie_word_embeddings": True}},
            "tie_word_embeddings",
            True,
        ),
        ({"text_config": {"model_type": "qwen3_text"}}, "model_type", "qwen3"),
        ({"model_type": "glm4_moe", **GLM_MOE, "use_qk_norm": True}, "qk_norm", True),
        ({"model_type": "glm4_moe", **GLM_MOE}, "qk_norm", False),
    ],
)
def test_the_model_type_decides_what_a_config_leaves_open(changes, field, expected):
    assert getattr(read_with(**changes)[0], field) == expected


def test_defaults_of_experts_and_of_the_vision_tower():
    assert read_with("deepseek-ai/DeepSeek-V3", first_k_dense_replace=...)[0].moe.first_dense_layers == 3
    name = "Qwen/Qwen2.5-VL-7B-Instruct"
    tower = json.loads(CONFIGS[name])["vision_config"]
    for key in ("temporal_patch_size", "spatial_merge_size", "in_channels"):
        tower.pop(key, None)
    assert read_with(name, vision_config=tower)[0] == read(CONFIGS[name])[0]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("3584", "§0", "ERROR: hidden_size: expected a whole number from 1 to 1000000000, got 0; {COPY} [verl.wrong_value]"),
        ("3584", '§"3584"', "ERROR: hidden_size: expected a whole number from 1 to 1000000000, got '3584'; {COPY} [verl.wrong_value]"),
        ("3584", "§true", "ERROR: hidden_size: expected a whole number from 1 to 1000000000, got true; {COPY} [verl.wrong_value]"),
        ("3584", "§9999999999", "ERROR: hidden_size: expected a whole number from 1 to 1000000000, got 9999999999; {COPY} [verl.wrong_value]"),
        ("3584", "null", "ERROR: hidden_size: the key is missing; add it [verl.missing_key]"),
        ('"hidden_size": 3584, ', "", "ERROR: hidden_size: the key is missing; add it [verl.missing_key]"),
        ('"num_hidden_layers": 28', '"num_hidden_layers": §10001', "ERROR: num_hidden_layers: expected a whole number from 1 to 10000, got 10001; {COPY} [verl.wrong_value]"),
        ('"intermediate_size": 18944,', "", "ERROR: intermediate_size: the key is missing; add it [verl.missing_key]"),
        ('"tie_word_embeddings": false', '"tie_word_embeddings": §"no"', "ERROR: tie_word_embeddings: expected true or false, got 'no'; {COPY} [verl.wrong_value]"),
        ("3584", "§[1]", "ERROR: hidden_size: expected a whole number from 1 to 1000000000, got a list; {COPY} [verl.wrong_value]"),
        ('"vocab_size"', '"head_dim": §0, "vocab_size"', "ERROR: head_dim: expected a whole number from 1 to 1000000000, got 0; {COPY} [verl.wrong_value]"),
        ('"vocab_size"', '"use_qk_norm": §"x", "vocab_size"', "ERROR: use_qk_norm: expected true or false, got 'x'; {COPY} [verl.wrong_value]"),
        ('"vocab_size"', '"qkv_bias": §1, "vocab_size"', "ERROR: qkv_bias: expected true or false, got 1; {COPY} [verl.wrong_value]"),
        ('"vocab_size"', '"text_config": §[1], "vocab_size"', "ERROR: text_config: expected keys and values, got a list; {COPY} [verl.wrong_value]"),
        ('"qwen2"', "§2", "ERROR: model_type: expected a name, got 2; {COPY} [verl.wrong_value]"),
        ('"vocab_size"', '"vocab_size": 1, §"vocab_size"', "ERROR: duplicate key 'vocab_size'; keep one of the two [verl.duplicate_key]"),
        (
            '"qwen2"', '§"qwen22"',
            "WARNING: model_type: unknown; the model is read as a dense decoder like llama; did you mean 'qwen2'? If not, "
            "add the model to architectures.yaml [verl.not_modelled]",
        ),
        (
            '"model_type": "qwen2",', "",
            "WARNING: model_type: unknown; the model is read as a dense decoder like llama; add the model to "
            "architectures.yaml [verl.not_modelled]",
        ),
    ],
)  # fmt: skip
def test_mistakes_have_a_place_and_a_remedy(old, new, expected):
    """The place is that of the mark, otherwise the beginning."""
    assert old in QWEN
    marked = QWEN.replace(old, new, 1)
    before = marked.partition("§")[0] if "§" in marked else ""
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    expected = f"my/config.json:{line}:{column}: {expected.format(COPY=COPY)}"
    assert read(marked.replace("§", ""))[1] == [expected]


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("Qwen/Qwen3-30B-A3B", {"num_experts": ...}, "num_experts: the key is missing; add it"),
        ("Qwen/Qwen3-30B-A3B", {"model_type": "qwen4_moe"}, "num_experts: experts, latent and linear attention need a known model type; did you mean 'qwen3_moe'?"),
        ("deepseek-ai/DeepSeek-V3", {"q_lora_rank": "x"}, ": q_lora_rank: expected a whole number from 1 to"),
        ("deepseek-ai/DeepSeek-V3", {"n_shared_experts": 10_001}, ": n_shared_experts: expected a whole number from 0 to 10000"),
        ("deepseek-ai/DeepSeek-V3", {"qk_nope_head_dim": 10**9}, ": qk_nope_head_dim: expected a whole number from 1 to 999999936"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"vision_config": [1]}, ": vision_config: expected keys and values, got a list"),
        ("Qwen/Qwen3-4B", {"vision_config": "x"}, ": vision_config: expected keys and values, got 'x'"),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", {"vision_config": {**TOWER, "deepstack_visual_indexes": "x"}}, ": deepstack_visual_indexes: expected a list, got 'x'"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"vision_config": {"depth": 32}}, "hidden_size: the key is missing"),
        ("Qwen/Qwen3-4B", {"vision_config": {"depth": 32}}, "vision_config: the tower of this model type is not counted"),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", {"text_config": {}}, "the key is missing"),
    ],
)  # fmt: skip
def test_mistakes_of_a_kind_of_model(name, changes, expected):
    _, problems = read_with(name, **changes)
    assert [expected in problem for problem in problems] == [True], problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: ERROR: expected keys and values; give a config.json"),
        ("[]", "1:1: ERROR: expected keys and values"),
        ("{\n", "2:1: ERROR: not valid YAML: "),
        ("[" * 100_000, "nest"),
        ("\0", "1:1: ERROR: invisible character U+0000"),
        ('{"a": "' + "x" * 2**20 + '"}', "the file is over 1 MiB"),
    ],
)
def test_what_is_no_config_at_all(text, expected):
    architecture, problems = read(text)
    assert architecture is None
    assert [expected in problem for problem in problems] == [True], problems


def test_byte_order_mark_is_passed_over():
    assert read("\ufeff" + QWEN) == read(QWEN)


KEYS = sorted({key for text in CONFIGS.values() for key in json.loads(text)} | {"mlp_bias", "qkv_bias"})
VALUES = (
    st.none() | st.booleans() | st.integers(-1, 300) | st.floats() | st.sampled_from([10**8, 10**9, 10**30, "", "x"])
    | st.sampled_from(sorted(MODEL_TYPES)) | st.lists(st.integers(0, 9)) | st.dictionaries(st.sampled_from(KEYS), st.integers())
)  # fmt: skip


@given(st.sampled_from(list(CONFIGS)), st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=4))
def test_no_wrong_value_crashes(name, changes):
    architecture, _ = read_with(name, **changes)
    assert not architecture or architecture.parameters == Counts(architecture).total
