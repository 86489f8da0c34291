"""What is meant by the names of GPUs and models that people type."""

from __future__ import annotations

import json

import pytest

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.memory.reader import Reader
from sphinx_verl_resources.memory.registries import (
    EstimatorContext,
    capacity_of,
    capacity_range,
    gpu_name,
    gpu_named,
    known_model,
    model_named,
    no_gpu,
    no_model,
)
from sphinx_verl_resources.memory.request import Request
from sphinx_verl_resources.memory.settings import capacity
from sphinx_verl_resources.units import GIB

DATA = EstimatorContext()
GPUS = {
    "Ascend-A2": [
        "910B",
        "910B1",
        "910B4",
        "Ascend 910B",
        "ascend910b3",
        "Huawei Ascend 910B2C",
        "910B2 64G",
    ],
    "Ascend-A3": ["910C", "Ascend 910C", "Ascend910_9391", "Atlas 800T A3"],
    "RTX-4090": ["4090", "NVIDIA GeForce RTX 4090", "rtx4090 24GB", "4090D", "GeForce RTX 4090 D"],
    "A100-80GB": ["A100-80G", "a100 80gib", "NVIDIA A100-SXM4-80GB", "A100 SXM"],
    "A100-40GB": ["A100-40G", "A100-PCIE-40GB"],
    "A800-80GB": ["A800-80G"],
    "H100-80GB": ["h100", "H100-SXM5-80G", "H100 80GB HBM3", "nvidia_h100_pcie"],
    "H20": ["H20-96G", "H20"],
    "H20-141GB": ["H20 141GB", "H20-141G", "NVIDIA H20-3e"],
    "RTX-6000-Ada": ["A6000 Ada"],
    "MI300X": ["AMD Instinct MI300X", "MI300X OAM"],
    "": ["A800-40G", "H20 80GB", "H100 NVL 94GB", "4080", "910A", "", "Rage\n128"],
}
NAMES = (
    "Qwen/Qwen3.6-35B-A3B", "Qwen/Qwen3.5-2B", "Qwen/Qwen3.5-4B", "Qwen/Qwen3-Omni-30B-A3B-Instruct",
    "OpenGVLab/InternVL3-8B", "NousResearch/Llama-2-7b-hf", "lmsys/gpt-oss-20b-bf16",
)  # fmt: skip
MODELS = {name: [name, name.lower()] for name in NAMES} | {
    "Qwen/Qwen3-4B": ["qwen3-4b", "Qwen 3 4B", "/models/Qwen3-4B", "unsloth/Qwen3-4B", "~/Qwen3_4B/"],
    "Qwen/Qwen2.5-0.5B-Instruct": ["/data/Qwen2.5-0.5B-Instruct", "Qwen/qwen2.5-0.5b-instruct"],
    "Qwen/Qwen2.5-7B": ["/hub/models--Qwen--Qwen2.5-7B/snapshots/0123abc", '"${ROOT:-/m}"/Qwen2.5-7B'],
    "Qwen/Qwen3-VL-8B-Instruct": ["Qwen3-VL-8B"],
}
FINE_TUNES = {
    "Qwen/Qwen3-4B": ["acme/Qwen3-4B-SFT", "/out/qwen-3-4b_sft/global_step_90/actor/huggingface"],
    "Qwen/Qwen2.5-7B-Instruct": ["/ckpt/multiturn-sft-qwen-2.5-7b-instruct/global_step_372"],
    "Qwen/Qwen3-30B-A3B": ["Qwen3-30B-A3B-mcore"],
    "Qwen/Qwen3-8B": ["deepseek-ai/DeepSeek-R1-0528-Qwen3-8B"],
    "meta-llama/Llama-3.2-1B": ["Skywork/Skywork-Reward-V2-Llama-3.2-1B"],
    "microsoft/phi-4": ["acme/phi-4-sft"],
}
#: Unknown models by the model that is suggested for them, if any.
UNKNOWN = {
    "Qwen/Qwen3-4B": ["Qwen3-4", "/m/Qwn3-4B"],
    "Qwen/Qwen2.5-7B": ["Qwen/Qwen2.5-7C"],
    "": ["Qwen/Qwen3-40B", "Qwen3-4B-to-8B", "acme/Qwen3.5-20B-SFT", "Qwen/Qwen3.5-3B", "OpenGVLab/InternVL4-8B",
         "Qwen/Qwen3-Voice-30B-A3B-Instruct", "deepseek-ai/DeepSeek-V3.2", "my-phi-4-sft", "alibaba-pai/DistilQwen2.5-7B", "/", "$MODEL", ""],
}  # fmt: skip


def pairs(table):
    return [(text, name) for name, texts in table.items() for text in texts]


@pytest.mark.parametrize(("text", "name"), pairs(GPUS))
def test_gpus(text, name):
    result = gpu_named(text, DATA.gpus)
    assert (result.name if result else "") == name
    if result:
        assert DATA.gpus.get(gpu_name(text, DATA.gpus)) is result
    else:
        with pytest.raises(NoAnswerError, match="unknown GPU"):
            gpu_name(text, DATA.gpus)


def test_suggested_gpus():
    assert no_gpu("H1000", DATA.gpus).remedy == "did you mean 'H100'? If not, add it to gpus.yaml"
    assert no_gpu("A800-40G", DATA.gpus).remedy.startswith("did you mean 'A100-")  # not the A800 with 80 GB


@pytest.mark.parametrize(("text", "name"), pairs(MODELS))
def test_models(text, name):
    assert known_model(text, DATA.architectures) == (name, "")


@pytest.mark.parametrize(("text", "name"), pairs(FINE_TUNES))
def test_fine_tunes(text, name):
    result = known_model(text, DATA.architectures)
    assert result.name == name
    assert result.note == f"{text} taken as {name} (if its shape differs, give its config.json)"


@pytest.mark.parametrize(("text", "meant"), pairs(UNKNOWN))
def test_unknown_models(text, meant):
    assert model_named(text, DATA.architectures) is None
    with pytest.raises(NoAnswerError, match=r"^model: unknown model "):
        known_model(text, DATA.architectures)
    remedy = no_model(text, DATA.architectures).remedy
    assert remedy.startswith(
        f"did you mean {meant!r}? If not, give " if meant else "give the path of its config.json, "
    )


@pytest.mark.parametrize("gpu", [*DATA.gpus], ids=lambda gpu: gpu.name)
def test_the_capacity_of_an_unknown_gpu(gpu):
    low, high = capacity_range(gpu.memory_gb)
    assert low <= capacity_of(gpu) <= high <= gpu.memory_gb * GIB
    assert low > 0.9 * gpu.memory_gb * GIB - GIB


def test_a_gpu_of_which_only_the_memory_is_known():
    for memory, bytes_ in ((64, 60.96 * GIB), (12, capacity_range(12)[0]), (0.1, 0)):
        assert capacity(Reader(Request("", {}, memory_gb=memory), DATA), DATA) == bytes_


@pytest.mark.parametrize("command", ["plan", "estimate"])
def test_commands(command, capsys):
    main([command, "acme/Qwen3-4B-SFT", "--gpu", "8x910B2", "--format", "json"])
    result = json.loads(capsys.readouterr().out.strip("[]\n"))  # estimate prints a list
    assert (result["model"], result["gpus"]) == ("Qwen/Qwen3-4B", {"count": 8, "type": "Ascend-A2"})
    assert any(text.startswith("acme/Qwen3-4B-SFT taken as Qwen/Qwen3-4B (") for text in result["assumed"])
