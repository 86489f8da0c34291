"""``verl-resources plan``: the number of GPUs, the micro-batch, and bad questions."""

from __future__ import annotations

import json
import re

import pytest

from sphinx_verl_resources.cli import main
from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.estimator.estimate import estimate
from sphinx_verl_resources.estimator.request import Request
from sphinx_verl_resources.estimator.tasks import TASKS

FIELDS = [
    "model", "task", "gpu", "gpus", "fits", "layout", "gpus_with_fsdp", "micro_batch", "unit", "verdict", "peak_gib", "low_gib", "high_gib",
    "capacity_gib", "binding_phase", "relief", "relief_saves_gib", "relief_peak_gib", "host_ram_gib_per_node", "unsupported", "warnings", "settings",
]  # fmt: skip


@pytest.fixture
def plan(tmp_path, monkeypatch, capsys):
    """Runs the command; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*words, model="Qwen/Qwen2.5-7B", task="GRPO", gpu="H100"):
        code = main(["plan", "--model", model, "--task", task, "--gpu", gpu, *words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def planned(plan):
    """The same with JSON, which is read."""

    def run(*words, **names):
        code, out, err = plan(*words, "--format", "json", **names)
        return code, json.loads(out), err

    return run


def test_smallest_number_of_gpus(planned):
    code, found, err = planned(model="Qwen/Qwen2.5-72B")
    assert (code, err) == (0, "")
    assert list(found) == FIELDS
    assert found["fits"] is True
    assert found["high_gib"] <= found["capacity_gib"] == pytest.approx(79.15, abs=0.01)
    assert found["gpus"] > 1
    code, fewer, _ = planned("--gpus", str(found["gpus"] // 2), model="Qwen/Qwen2.5-72B")
    assert code == 1
    assert (fewer["fits"], fewer["gpus"]) == (False, found["gpus"] // 2)
    assert fewer["high_gib"] > fewer["capacity_gib"]
    assert fewer["relief"].startswith(("actor_rollout_ref.", "critic."))


def test_fsdp_is_named_where_megatron_takes_fewer(planned):
    _, found, _ = planned(model="Qwen/Qwen2.5-72B")
    assert found["layout"].startswith("Megatron TP")
    assert found["settings"]["actor_rollout_ref.actor.strategy"] == "megatron"
    assert found["gpus_with_fsdp"] > found["gpus"]
    _, same, _ = planned("actor_rollout_ref.actor.strategy=megatron", model="Qwen/Qwen2.5-72B")
    assert (same["layout"], same["gpus"]) == (found["layout"], found["gpus"])
    _, named, _ = planned("actor_rollout_ref.actor.strategy=fsdp2", model="Qwen/Qwen2.5-72B")
    assert (named["layout"], named["gpus_with_fsdp"]) == ("FSDP2", None)


def test_what_the_settings_give(planned):
    """The figures are those of the settings that are printed."""
    _, found, _ = planned("actor_rollout_ref.actor.strategy=fsdp")
    again = estimate(
        Request(found["model"], found["settings"], gpus=found["gpus"], gpu="H100"), read_data([]).registries
    )
    assert found["peak_gib"] == round(again.peak / 2**30, 3)
    assert found["binding_phase"] == again.peak_phase.name
    assert found["settings"]["trainer.n_gpus_per_node"] == found["gpus"]


def test_largest_micro_batch(planned):
    _, found, _ = planned("--gpus", "8")
    assert (found["gpus"], found["unit"]) == (8, "tokens")
    assert found["micro_batch"] >= 1024
    _, sequences, _ = planned("--gpus", "8", "actor_rollout_ref.actor.use_dynamic_bsz=False")
    assert sequences["unit"] == "sequences"
    assert sequences["micro_batch"] >= 1
    _, longer, _ = planned("--gpus", "8", "data.max_response_length=20000", "data.train_batch_size=8192")
    assert longer["micro_batch"] is None or longer["micro_batch"] >= 20512


def test_text(plan):
    code, out, err = plan("--gpus", "8", task="grpo-lora")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "Qwen/Qwen2.5-7B with GRPO-LoRA fits on 8 GPUs with FSDP."
    assert re.fullmatch(r"Peak [\d.]+ GiB per GPU \(range .+ GiB\); the GPU has 79\.1 GiB\.", lines[1])
    assert re.fullmatch(r"Each node needs [\d.]+ GiB of host memory\.", lines[2])
    assert lines[3].startswith("The largest token budget of a GPU that fits there is ")
    assert any(line.startswith("Update: backward") for line in lines)
    assert "  actor_rollout_ref.model.lora_rank=32" in lines


def test_what_the_readme_shows(plan, root):
    text = (root / "README.md").read_text("utf-8")
    (shown,) = re.findall(
        r"\$ verl-resources plan --model (\S+) --task (\S+) --gpu (\S+)\n(.*?)\n```", text, re.DOTALL
    )
    out = plan(model=shown[0], task=shown[1], gpu=shown[2])[1]
    pattern = ".+?".join(re.escape(part) for part in shown[3].split("…"))
    assert re.match(pattern, out)


def test_text_of_what_does_not_fit(plan):
    code, out, _ = plan("--gpus", "1", gpu="T4")
    assert code == 1
    lines = out.splitlines()
    assert lines[0] == "Qwen/Qwen2.5-7B with GRPO does not fit on 1 GPU."
    assert lines[3].startswith(("Change first: ", "No other value of a single setting"))
    assert "largest" not in out.split("\n\n")[0]


def test_overrides_go_on_top(planned):
    _, small, _ = planned("actor_rollout_ref.actor.strategy=fsdp")
    _, large, _ = planned(
        "actor_rollout_ref.actor.strategy=fsdp",
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=False",
        "data.max_response_length=16384",
    )
    assert large["settings"]["actor_rollout_ref.actor.fsdp_config.optimizer_offload"] is False
    assert large["gpus"] >= small["gpus"]


@pytest.mark.parametrize("task", TASKS)
def test_every_task(planned, task):
    code, found, _ = planned("--gpus", "8", task=task.lower())
    assert code == 0
    assert (found["task"], found["fits"]) == (task, True)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"model": "Qwen/Qwen2.5-7"}, "model: no architecture is recorded for 'Qwen/Qwen2.5-7'; did you mean 'Qwen/Qwen2.5-7B'?"),
        ({"task": "GRPO-Lara"}, "unknown task 'GRPO-Lara'; did you mean 'GRPO-LoRA'? [verl.unknown_value]"),
        ({"task": "?"}, "unknown task '?'; allowed: GRPO, "),
        ({"gpu": "H10"}, "no GPU is recorded as 'H10'; did you mean 'H100'?"),
    ],
)  # fmt: skip
def test_names_that_nobody_knows(planned, names, message):
    code, found, err = planned(**names)
    assert code == 2
    assert err.startswith(f"command line:1:1: ERROR: {message}")
    assert list(found) == [*FIELDS, "error"]
    assert found["gpus"] is None
    assert found["error"]


@pytest.mark.parametrize("number", ["0", "-1", "1000000"])
def test_numbers_of_gpus_that_are_none(planned, number):
    code, found, err = planned("--gpus", number)
    assert code == 2
    assert "expected a number of GPUs from 1 to 100000" in err
    assert found["fits"] is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.train_batch_size=x", "data.train_batch_size: expected a whole number, got 'x'"),
        ("actor_rollout_ref.rollout.tensor_model_parallel_size=3", "it is 3, which does not divide the 8 GPUs"),
        ("actor_rollout_ref.rollout.gpu_memory_utilization=80", "expected a number above 0 and up to 1, got 80"),
        ("nonsense", "'nonsense' is not a setting; write key=value"),
    ],
)  # fmt: skip
def test_settings_that_are_none(planned, setting, message):
    code, found, err = planned("--gpus", "8", setting)
    assert code == (2 if setting == "nonsense" else 1)
    (line,) = [line for line in err.splitlines() if message in line]
    assert line.startswith("command line:1:1: ERROR: ")
    assert found["error"]


def test_without_a_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "--task", "GRPO", "--gpu", "H100"]) == 2
    assert "no model is named; add --model" in capsys.readouterr().err


def test_a_model_by_its_config_json(planned, tmp_path):
    config = {
        "model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "intermediate_size": 4864,
        "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    code, found, _ = planned("--config", "config.json", model="own/small")
    assert (code, found["model"]) == (0, "own/small")
    recorded = planned(model="Qwen/Qwen2.5-0.5B")[1]
    assert (found["gpus"], found["peak_gib"]) == (recorded["gpus"], recorded["peak_gib"])
