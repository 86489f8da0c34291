"""``verl-resources plan`` without a model or without GPUs: models that fit, and the fewest GPUs."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.answer.answer import answer
from sphinx_verl_resources.answer.export import FIELDS
from sphinx_verl_resources.answer.layouts import COUNTS
from sphinx_verl_resources.answer.question import Question
from sphinx_verl_resources.cli.data import read_data


def test_the_fewest_of_each_memory_size(planned):
    code, found, err = planned("qwen2.5-7b --response 1024")
    assert (code, err) == (0, "")
    assert found["model"] == "Qwen/Qwen2.5-7B"
    assert found["assumed"] == ["task GRPO", "prompts up to 512 tokens", "verl v0.9.0"]
    sizes = [item["memory_gb"] for item in found["fewest"]]
    assert sizes == sorted(sizes)
    assert {24, 40, 80, 96, 141} <= set(sizes)
    counts = [item["gpus"]["count"] or 10_000 for item in found["fewest"]]
    assert counts == sorted(counts, reverse=True), "with more memory it takes no more"
    data = read_data([])
    for item in found["fewest"]:
        count, gpu = item["gpus"].values()
        if not count:
            continue
        asked = Question("Qwen/Qwen2.5-7B", count, gpu, response=1024)
        assert round(answer(asked, data).best.estimate.peak / 2**30, 3) == item["peak_gib"]
        fewer = [number for number in COUNTS if number < count]
        if fewer:
            less = Question("Qwen/Qwen2.5-7B", fewer[-1], gpu, response=1024)
            assert answer(less, data).verdict != "fits"


def test_the_text_of_the_fewest(plan):
    code, out, _ = plan("qwen2.5-32b")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("Fewest GPUs for Qwen/Qwen2.5-32B, GRPO: ")
    assert "8×H20: qwen2-5-32b-grpo-8xh20" in " ".join(lines[1:4])
    assert "prompts up to 512 tokens" in " ".join(lines[:5])
    of_gpu = {
        line.split()[1].rstrip(","): line.split()
        for line in lines
        if " GB " not in line and line[:3].strip().isdigit()
    }
    assert "none" in of_gpu["L4"], "of GPUs of 24 GB, these offer less"
    assert "64" in of_gpu["RTX-4090"]
    assert "first GPU" in lines[-1]
    assert max(map(len, lines)) <= 100


def test_a_gpu_without_a_number(planned, plan):
    code, found, _ = planned("Qwen/Qwen2.5-72B --gpu H100")
    assert code == 0
    count = found["gpus"]["count"]
    assert found["assumed"][0] == f"{count} GPUs, the fewest that fit"
    assert found["verdict"] == "fits"
    assert planned(f"Qwen/Qwen2.5-72B --gpus {count // 2}xH100")[1]["verdict"] != "fits"
    code, out, _ = plan("meta-llama/Llama-3.1-405B --gpu T4")
    assert code == 1
    assert out.startswith("Does not fit: meta-llama/Llama-3.1-405B, GRPO, on 8×T4.")
    assert "Assumed: 8 GPUs, " in out


def test_what_fits_on_gpus(planned):
    code, found, err = planned("--gpus 8xRTX4090 --lora 32")
    assert (code, err) == (0, "")
    assert found["gpus"] == {"count": 8, "type": "RTX4090"}
    data = read_data([])
    sizes = [data.registries.shape(item["model"]).parameters for item in found["fits"]]
    assert sizes == sorted(sizes, reverse=True)
    assert all(list(item) == list(FIELDS) for item in found["fits"])
    assert "Qwen/Qwen2.5-7B" in [item["model"] for item in found["fits"]]
    assert "Qwen/Qwen2.5-72B" not in [item["model"] for item in found["fits"]]


def test_where_nothing_fits(plan):
    code, out, _ = plan("--gpus 1xT4 --response 100000 actor_rollout_ref.actor.strategy=fsdp")
    assert code == 1
    assert out.startswith("None of the recorded models fits on 1×T4, GRPO.")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no model and no GPU given; give a model such as qwen2.5-7b, or GPUs"),
        ("qwen2.5-7b --gpus 8", "8 GPUs given, but not their type; write --gpus 8xH100 for example"),
        ("--gpus 8xH10", "unknown GPU 'H10'; did you mean 'H100'?"),
    ],
)
def test_questions_without_an_answer(planned, line, message):
    code, found, err = planned(line)
    assert code == 2
    assert message in err
    assert found["error"]
