"""The two conventions of script names, and contradictions with a run."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.records import Run
from sphinx_verl_resources.scripts.rules import ScriptName, contradictions, parse_script_name


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "examples/tuning/7b/qwen2-7b_grpo-lora_1_h100_fsdp_vllm.sh",
            ScriptName("qwen2-7b", "fsdp", "grpo-lora", 1, "h100", "vllm"),
        ),
        (
            "examples/tuning/32b/qwen2_32B_grpo_8_h20_megatron_vllm.sh",
            ScriptName("qwen2_32b", "megatron", "grpo", 8, "h20", "vllm"),
        ),
        ("run_qwen2_5_32b_megatron.sh", ScriptName("qwen2_5_32b", "megatron")),
        ("run_qwen2_5_72b_fsdp.sh", ScriptName("qwen2_5_72b", "fsdp")),
        ("run_kimi_megatron_lite.sh", ScriptName("kimi", "megatron_lite")),
        ("run_qwen3_30b_a3b_fsdp2.sh", ScriptName("qwen3_30b_a3b", "fsdp2")),
        ("recipe/dapo/run_dapo_qwen2.5_32b.sh", None),
        ("qwen2-7b_grpo_two_h100_fsdp_vllm.sh", None),
        ("qwen2-7b_grpo_2_h100_fsdp.sh", None),
        ("train.sh", None),
        ("run.py", None),
        ("scripts.d/run", None),
    ],
)
def test_parse(path, expected):
    assert parse_script_name(path) == expected


def row(script: str, **changes) -> Run:
    fields = {
        "id": "a", "size": "7B", "tag": "MIN", "model": "Qwen/Qwen2.5-7B-Instruct", "task": "GRPO-LoRA",
        "gpus": {"count": 1, "type": "H100"}, "train": "fsdp", "infer": {"engine": "vllm"},
        "script": {"ref": "abc", "path": script},
    }  # fmt: skip
    return Run.model_validate({**fields, **changes})


def messages(run: Run) -> list[str]:
    return [what for what, _, _ in contradictions(run, lambda name: None)]


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("qwen2-7b_ppo_1_h100_fsdp_vllm.sh", "task"),
        ("qwen2-7b_grpo-lora_2_h100_fsdp_vllm.sh", "GPU count"),
        ("qwen2-7b_grpo-lora_1_h800_fsdp_vllm.sh", "GPU"),
        ("qwen2-7b_grpo-lora_1_h100_megatron_vllm.sh", "training backend"),
        ("run_qwen2_5_7b_megatron.sh", "training backend"),
        ("qwen2-7b_grpo-lora_1_h100_fsdp_sglang.sh", "rollout engine"),
    ],
)
def test_contradictions(script, what):
    assert messages(row(script)) == [what]


def test_another_name_of_the_gpu_and_fsdp2_agree():
    gpus = EstimatorContext().gpus
    run = row(
        "qwen2-7b_grpo-lora_1_a100-80g_fsdp_vllm.sh", train="fsdp2", gpus={"count": 1, "type": "A100-80GB"}
    )
    assert [*contradictions(run, gpus.get)] == []
