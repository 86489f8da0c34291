"""``verl-resources plan``: the answer as text and JSON, forms of the question, and invalid questions."""

from __future__ import annotations

import json
import re

import pytest

from sphinx_verl_resources.answer.answer import answer
from sphinx_verl_resources.answer.export import FIELDS
from sphinx_verl_resources.answer.question import Question
from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.estimator.tasks import TASKS

ACTOR = "actor_rollout_ref.actor"
CONTRACT = [
    "model", "gpus", "verdict", "ran", "reported", "claimed", "strategy", "peak_gib", "low_gib", "high_gib",
    "capacity_gib", "peak_phase", "host_ram_gib_per_node", "largest_token_budget", "longest_response",
    "measured_runs_of_this_kind", "change", "command", "assumed",
]  # fmt: skip
QWEN = {
    "model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "intermediate_size": 4864,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}  # fmt: skip


def test_the_fields_of_an_answer(planned):
    code, found, err = planned("Qwen/Qwen2.5-7B --gpus 2xA100-80GB --prompt 1024 --response 1024")
    assert (code, err) == (0, "")
    assert list(found)[: len(CONTRACT)] == CONTRACT
    assert found["gpus"] == {"count": 2, "type": "A100-80GB"}
    assert found["ran"] == ["qwen2-7b-grpo-2xh800"]
    assert found["low_gib"] <= found["peak_gib"] <= found["high_gib"]
    assert found["command"].startswith("python3 -m verl.trainer.main_ppo")
    assert found["assumed"] == ["task GRPO", "verl v0.9.0"]


def test_it_is_the_answer_of_the_python_api(planned):
    _, found, _ = planned("qwen2.5-14b --gpus 4xH100 --lora 16 --response 4096")
    asked = Question("Qwen/Qwen2.5-14B", 4, "H100", lora=16, response=4096)
    best = answer(asked, read_data([])).best
    assert found["peak_gib"] == round(best.estimate.peak / 2**30, 3)
    assert found["strategy"] == best.name


@pytest.mark.parametrize(
    "line",
    [
        "qwen2.5-7b --gpus 8*H100",
        "--gpu H100 --gpus 8 Qwen2.5-7B",
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B --gpus 8xH100",
    ],
)
def test_every_form_asks_the_same(planned, line):
    _, found, _ = planned(line)
    assert found == planned("Qwen/Qwen2.5-7B --gpus 8xH100")[1]


@pytest.mark.parametrize("task", TASKS)
def test_every_task(planned, task):
    code, found, _ = planned(f"Qwen/Qwen2.5-7B --gpus 8xH100 --task {task.lower()}")
    assert (code, found["verdict"]) == (0, "fits")
    assert ("lora_rank=32" in found["command"] or "lora.rank=32" in found["command"]) == ("LoRA" in task)


def test_overrides_are_never_changed(planned):
    _, found, _ = planned(
        f"Qwen/Qwen2.5-7B --gpus 8xH100 {ACTOR}.ppo_max_token_len_per_gpu=2048 {ACTOR}.strategy=fsdp2"
    )
    assert f"{ACTOR}.ppo_max_token_len_per_gpu=2048" in found["command"]
    assert found["strategy"] == "FSDP2"


def test_the_first_lines(plan):
    code, out, err = plan("qwen2.5-7b --gpus 8xH100")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "Fits: Qwen/Qwen2.5-7B, GRPO, on 8×H100."
    assert lines[1].startswith("Ran on ")
    head = " ".join(lines[:5])
    assert re.search(
        r"Peak [\d.]+ GiB per GPU \(range .+ GiB\); the GPU has 79\.1 GiB\. The peak phase is “", head
    )
    for assumed in ("task GRPO", "prompts up to 512 tokens", "responses up to 512 tokens", "verl v0.9.0"):
        assert assumed in head
    assert "Best with" in out
    assert "runs of this kind were measured" in out
    assert "critic." not in out


def test_claimed_runs_are_not_counted_as_runs_that_ran(plan):
    # Only one other run of this model is recorded, and it is claimed.
    out = " ".join(plan("qwen2.5-72b-instruct --gpus 8xH100 --lora 32")[1].split())
    assert "qwen2-5-72b-grpo-lora-8xh100. Estimated" in out


def test_what_a_setting_does_comes_before_the_figures(plan):
    _, out, err = plan("qwen2.5-7b --gpus 8xH100 actor_rollout_ref.rollout.gpu_memory_utilisation=0.4 a.b=1")
    assert "did you mean 'actor_rollout_ref.rollout.gpu_memory_utilization'?" in err
    assert out.index("Ignored: a.b") < out.index("Best with")


@pytest.mark.parametrize("columns", [72, 300])
@pytest.mark.parametrize(
    "line",
    ["qwen2.5-7b --gpus 8xH100", "qwen2.5-72b --gpus 2xH100", "qwen2.5-7b --gpus 2xH100 --task PPO"],
)
def test_no_line_is_too_long(plan, monkeypatch, columns, line):
    monkeypatch.setenv("COLUMNS", str(columns))
    out = plan(line)[1]
    before, _, command = out.partition("Command:\n")
    assert max(map(len, before.splitlines())) <= min(columns, 100)
    assert command.startswith("python3 -m verl.trainer.main_ppo \\\n")


def test_details(plan):
    short, verbose = (plan("qwen2.5-7b --gpus 8xH100", *words)[1] for words in ((), ("--verbose",)))
    assert verbose.startswith(short.rstrip())
    for word in ("Update: backward", "(the peak)", "Evidence", "Settings:\n", "Tried", "Recorded runs:"):
        assert word in verbose
        assert word not in short


def test_what_does_not_fit(plan):
    code, out, _ = plan("qwen2.5-7b --gpus 1xT4")
    assert code == 1
    assert out.startswith("Does not fit: Qwen/Qwen2.5-7B, GRPO, on 1×T4.\n")


def test_what_only_may_fit(plan):
    line = f"Qwen/Qwen2.5-14B --gpus 4xH100 {ACTOR}.strategy=fsdp"
    strict = f"{line} --strict"
    assert plan(line)[1].startswith("Borderline: ")
    assert (plan(line)[0], plan(strict)[0]) == (0, 1)


def test_a_setting_that_is_not_modelled_leaves_no_figure(planned):
    code, found, _ = planned(f"Qwen/Qwen2.5-7B --gpus 8xH100 {ACTOR}.strategy=veomni")
    assert (found["verdict"], found["peak_gib"], found["change"]) == ("unknown", None, [])
    assert "veomni" in found["undecided"][0]
    assert code == 0
    assert planned(f"Qwen/Qwen2.5-7B --gpus 8xH100 {ACTOR}.strategy=veomni --strict")[0] == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Qwen/Qwen2.5-9B --gpus 8xH100", "model: unknown model 'Qwen/Qwen2.5-9B'; did you mean Qwen/Qwen2.5-"),
        ("zzz --gpus 8xH100", "model: unknown model 'zzz'; give the path of its config.json instead"),
        ("qwen2.5-7b --gpus 8xH10", "unknown GPU 'H10'; did you mean 'H100'?"),
        ("qwen2.5-7b --gpus 8xH100 --task GRPO-Lara", "unknown task 'GRPO-Lara'; did you mean 'GRPO-LoRA'? [verl.unknown_value]"),
        ("qwen2.5-7b --gpus 8xH100 --gpu A100", "--gpus is H100, but --gpu is A100; give one of them"),
        ("qwen2.5-7b nonsense --gpus 8xH100", "two models given, 'qwen2.5-7b' and 'nonsense'; give one model; settings are key=value"),
        ("qwen2.5-7b --gpus 8xH100 actor_rollout_ref.rollout.tensor_model_parallel_size=3", "3 does not divide the 8 GPUs"),
        ("actor_rollout_ref.model.path=/m/Qwen2.5-7 --gpus 8xH100", "did you mean Qwen/Qwen2.5-7B? Give it before the settings, "),
    ],
)  # fmt: skip
def test_questions_without_an_answer(planned, line, message):
    code, found, err = planned(line)
    assert code == 2
    assert message in err
    assert err.startswith("ERROR: ")
    assert list(found) == [*FIELDS, "error"]
    assert found["verdict"] is None
    assert found["error"]


@pytest.mark.parametrize("option", ["--gpus=0xH100", "--lora=0", "--response=x", "--gpus=1000000"])
def test_numbers_that_are_none(plan, capsys, option):
    with pytest.raises(SystemExit) as exit_:
        plan("qwen2.5-7b", option)
    assert exit_.value.code == 2
    assert "must be a whole number from 1 to" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["own", "own/config.json", "own/small --config own/config.json"])
def test_a_model_by_its_config_json(planned, tmp_path, words):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/config.json").write_text(json.dumps(QWEN), "utf-8")
    code, found, _ = planned(f"{words} --gpus 1xH100")
    assert code == 0
    recorded = planned("Qwen/Qwen2.5-0.5B --gpus 1xH100")[1]
    # verl loads a directory, from any working directory.
    name = str(tmp_path / "own") if words == "own/config.json" else words.split()[0]
    assert (found["model"], found["peak_gib"]) == (name, recorded["peak_gib"])
    assert f"actor_rollout_ref.model.path={name} " in found["command"]
