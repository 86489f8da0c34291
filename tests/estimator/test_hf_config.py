"""A user's config.json gives the registry's shape and count, and every mistake is reported at its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.estimator.hf_config import read_config_json
from sphinx_verl_resources.estimator.model_types import CONVENTIONS
from sphinx_verl_resources.estimator.parameters import count_parameters

CONFIGS = yaml.safe_load(Path(__file__).with_name("configs.yaml").read_text("utf-8"))
QWEN = CONFIGS["Qwen/Qwen2.5-7B"]
#: Fields of a registry entry that a config does not contain.
ABOUT = {
    "name", "hf_id", "aliases", "aliases_unverified", "max_position_embeddings_of_aliases",
    "parameters_breakdown", "published", "config_source", "script", "verified", "notes",
}  # fmt: skip


def read(text):
    """Return the architecture, and every problem as printed."""
    architecture, problems = read_config_json(text, "my/config.json")
    assert (architecture is None) == any(problem.is_error for problem in problems)
    return architecture, [str(problem) for problem in problems]


def read_with(**changes):
    """Call ``read`` for Qwen2.5-7B with changes; a value of ``...`` removes a key."""
    fields = {**json.loads(QWEN), **changes}
    return read(json.dumps({key: value for key, value in fields.items() if value is not ...}))


@pytest.mark.parametrize("name", CONFIGS)
def test_shapes_are_those_of_the_registry(name):
    entry = EstimatorContext().architectures.get(name)
    architecture, problems = read(CONFIGS[name])
    assert problems == []
    assert architecture.model_dump(exclude=ABOUT) == entry.model_dump(exclude=ABOUT)


@pytest.mark.parametrize(
    ("fields", "parameters"),
    [
        (  # Qwen1.5-MoE-A2.7B
            {
                "model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
                "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632,
                "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60,
                "num_experts_per_tok": 4, "vocab_size": 151936, "max_position_embeddings": 8192,
            },
            14_315_784_192,
        ),
        (  # DeepSeek-V2-Lite
            {
                "model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 27,
                "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 10944,
                "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
                "num_experts_per_tok": 6, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 1,
                "vocab_size": 102400, "max_position_embeddings": 163840,
            },
            15_706_484_224,
        ),
        (  # gemma-3-1b
            {
                "model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26,
                "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
                "intermediate_size": 6912, "vocab_size": 262144, "max_position_embeddings": 32768,
            },
            999_885_952,
        ),
    ],
)  # fmt: skip
def test_counts_published_for_models_outside_the_registry(fields, parameters):
    architecture, problems = read(json.dumps(fields))
    assert problems == []
    assert architecture.parameters == parameters == count_parameters(architecture).total


def test_qwen3_next_with_its_extra_layer():
    architecture, problems = read(
        """{"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120,
        "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4, "vocab_size": 151936, "max_position_embeddings": 262144,
        "num_nextn_predict_layers": 1}"""
    )
    assert problems == []
    assert architecture.parameters + architecture.mtp_parameters == 81_324_862_720


def test_gemma_3_leaves_out_most_keys_and_its_tower_is_not_counted():
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    architecture, problems = read(
        json.dumps({"model_type": "gemma3", "vision_config": {}, "text_config": text})
    )
    assert architecture.parameters == 3_880_263_168
    assert problems == [
        "my/config.json:1:43: WARNING: the vision tower of this model type is not counted; the parameter count "
        "is approximate [verl.not_modelled]"
    ]


@pytest.mark.parametrize(
    ("changes", "sparse"),
    [
        ({}, 8), ({"mlp_only_layers": [0, 3]}, 6), ({"decoder_sparse_step": 2}, 4),
        ({"decoder_sparse_step": 3, "mlp_only_layers": [5, 6]}, 1), ({"mlp_only_layers": [99]}, 8),
    ],
)  # fmt: skip
def test_layers_with_experts(changes, sparse):
    architecture, _ = read(
        json.dumps({**json.loads(CONFIGS["Qwen/Qwen3-30B-A3B"]), "num_hidden_layers": 8, **changes})
    )
    assert architecture.moe.first_dense_layers == 8 - sparse


def test_what_a_key_leaves_open_the_type_decides():
    assert read_with(num_key_value_heads=...)[0].num_key_value_heads == 28
    assert read_with(model_type="qwen3", head_dim=...)[0].head_dim == 128
    assert read_with(model_type="llama")[0].qkv_bias is False
    assert read_with(model_type="gemma2", tie_word_embeddings=...)[0].tie_word_embeddings is True
    assert read_with(tie_word_embeddings=...)[0].tie_word_embeddings is False
    assert read_with(use_sliding_window=...)[0].sliding_window is None
    assert read_with(use_sliding_window=True)[0].sliding_window == 131072
    assert read_with(model_type="mistral", use_sliding_window=...)[0].sliding_window == 131072


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B"), ("/home/me/model", "my/config.json"), ("", "my/config.json"),
        (3, "my/config.json"), ("TODO", "my/config.json"), ("a\nb", "my/config.json"), ("x" * 201, "my/config.json"),
    ],
)  # fmt: skip
def test_the_name_is_one_that_can_be_shown(given, name):
    assert read_with(_name_or_path=given)[0].name == name


@pytest.mark.parametrize("shown", ["", "\0", "a b", "C:\\model\\config.json", "x@example.org", "x" * 999])
def test_a_path_that_is_no_name(shown):
    architecture, problems = read_config_json(QWEN, shown)
    assert (architecture.name, problems) == ("config.json", ())


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("3584", "§0", "ERROR: hidden_size: Input should be greater than or equal to 1, got 0 [verl.wrong_value]"),
        ("3584", '§"3584"', "ERROR: hidden_size: Input should be a valid integer, got '3584' [verl.wrong_type]"),
        ("3584", "§3584.5", "ERROR: hidden_size: Input should be a valid integer, got 3584.5 [verl.wrong_type]"),
        ("3584", "§null", "ERROR: hidden_size: expected a value, got nothing; Width of the residual stream [verl.wrong_type]"),
        ("3584", "§" + "1" * 30, "ERROR: hidden_size: must be between 1 and 100000000, got a number of 30 digits [verl.wrong_value]"),
        ("3584", "§999999999", "ERROR: hidden_size: Input should be less than or equal to 100000000, got 999999999 [verl.wrong_value]"),
        (
            '"num_attention_heads": 28', '"num_attention_heads": §12',
            "ERROR: num_attention_heads: 12 does not divide hidden_size, 3584; correct one of them, or write "
            "head_dim [verl.wrong_value]",
        ),
        (
            '"num_key_value_heads": 4', '"num_key_value_heads": §5',
            "ERROR: num_key_value_heads: 5 does not divide num_attention_heads, 28; each key-value head serves "
            "the same number of query heads [verl.wrong_value]",
        ),
        ('"hidden_size": 3584, ', "", "ERROR: the key 'hidden_size' is missing; add it: Width of the residual stream [verl.missing_key]"),
        ('"vocab_size"', '"vocab_size": 1, §"vocab_size"', "ERROR: duplicate key 'vocab_size'; keep one of the two [verl.duplicate_key]"),
        (
            '"qwen2"', '§"qwen22"',
            "WARNING: unknown model type 'qwen22'; assumed to be a dense decoder like llama; did you mean 'qwen2'? If "
            "not, compare the parameter count with the published one [verl.unknown_value]",
        ),
        (
            '"model_type": "qwen2",', "",
            "WARNING: the key 'model_type' is missing; assumed to be a dense decoder like llama; write the model's "
            "type, for example qwen2 [verl.missing_key]",
        ),
        ('"qwen2"', "§2", 'ERROR: model_type: Input should be a valid string, got 2; put it in quotes: "2" [verl.wrong_type]'),
        (
            '"qwen2"', '"llama", "attention_bias": §true',
            "WARNING: attention_bias: the biases of the output projections, 100352 parameters, are not counted; the "
            "parameter count is approximate [verl.not_modelled]",
        ),
        (
            '"use_cache"', '"mlp_bias": §true, "use_cache"',
            "WARNING: mlp_bias: the biases of the MLP are not counted; the parameter count is approximate [verl.not_modelled]",
        ),
    ],
)  # fmt: skip
def test_mistakes_have_a_place_and_a_remedy(old, new, expected):
    """The place is that of the mark, otherwise the beginning."""
    assert old in QWEN
    marked = QWEN.replace(old, new, 1)
    before = marked.partition("§")[0] if "§" in marked else ""
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    assert read(marked.replace("§", ""))[1] == [f"my/config.json:{line}:{column}: {expected}"]


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("Qwen/Qwen3-30B-A3B", {"num_experts": ...}, "the key 'num_experts' is missing; add it: Routed experts per layer"),
        ("Qwen/Qwen3-30B-A3B", {"num_experts_per_tok": 129}, "num_experts_per_tok: 129 is more than the 128 experts of a layer"),
        ("Qwen/Qwen3-30B-A3B", {"model_type": "acme_moe"}, "num_experts: cannot be counted for an unknown model type"),
        ("deepseek-ai/DeepSeek-V3", {"q_lora_rank": ...}, "the key 'q_lora_rank' is missing; add it: Rank of the query projection; null"),
        ("deepseek-ai/DeepSeek-V3", {"attention_bias": True}, "attention_bias: the biases of attention are not counted"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"vision_config": {"depth": 32}}, "the key 'patch_size' is missing in 'vision_config'"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"vision_config": 3}, "vision_config: expected keys and values, got 3"),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", {"text_config": {}}, "the key 'hidden_size' is missing in 'text_config'"),
        ("Qwen/Qwen3.5-122B-A10B", {"text_config": {"layer_types": [1, "full_attention"]}}, "layer_types: treated as full attention in layers 2, 4, …"),
    ],
)  # fmt: skip
def test_mistakes_of_a_kind_of_model(name, changes, expected):
    fields = {**json.loads(CONFIGS[name]), **changes}
    _, problems = read(json.dumps({key: value for key, value in fields.items() if value is not ...}))
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "",
            "1:1: ERROR: the file is empty; begin the file with the key 'model_type' [verl.file_empty]",
        ),
        ("[]", "1:1: ERROR: expected keys and values, got a list"),
        ("{\n", "2:1: ERROR: not valid YAML: "),
        ("[" * 30 + "]" * 30, "1:22: ERROR: too many nested lists or mappings"),
        ("[" * 100_000, "nest"),
        ("\0", "1:1: ERROR: invisible character U+0000"),
        ('{"a": "' + "x" * 2**20 + '"}', "the file is over 1 MiB"),
    ],
)
def test_what_is_no_config_at_all(text, expected):
    architecture, problems = read(text)
    assert architecture is None
    assert len(problems) == 1
    assert expected in problems[0]


def test_byte_order_mark_is_passed_over():
    assert read("\ufeff" + QWEN) == read(QWEN)


KEYS = sorted({key for text in CONFIGS.values() for key in json.loads(text)} | {"mlp_bias", "qkv_bias", "x"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(0, 300) | st.floats() | st.text(max_size=20)
    | st.sampled_from(sorted(CONVENTIONS)) | st.sampled_from([10**8, 10**9, 10**30, -1, "", "1e5"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


def assert_sound(text):
    """Check that reading does not crash, problems have places, and counts agree."""
    architecture, problems = read_config_json(text, "config.json")
    errors = [problem for problem in problems if problem.is_error]
    assert (architecture is None) == bool(errors)
    assert all(problem.message and problem.place.line >= 1 for problem in problems)
    if architecture:
        assert architecture.parameters == count_parameters(architecture).total <= 10**15
        assert type(architecture).model_validate(architecture.model_dump()) == architecture


@given(st.text())
def test_no_text_crashes(text):
    assert_sound(text)


@given(VALUES)
def test_no_value_crashes(value):
    assert_sound(json.dumps(value))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_mutation_of_a_real_config_crashes(data):
    fields = json.loads(data.draw(st.sampled_from(list(CONFIGS.values()))))
    parts = [fields, *(value for value in fields.values() if isinstance(value, dict))]
    for _ in range(data.draw(st.integers(1, 4))):
        part = data.draw(st.sampled_from(parts))
        key = data.draw(st.sampled_from([*sorted(part), *KEYS]))
        part[key] = data.draw(VALUES)
        if data.draw(st.booleans()):
            del part[key]
    text = json.dumps(fields)
    if data.draw(st.booleans()):
        cut = data.draw(st.integers(0, len(text)))
        text = text[:cut] + data.draw(st.sampled_from(["", " ", "{", '"', "\t", "&", "0"])) + text[cut + 1 :]
    assert_sound(text)
