"""``verl-resources diagnose``: output, JSON, exit codes, and the user's additions to a log."""

from __future__ import annotations

import io
import json
import sys

import pytest

from sphinx_verl_resources.cli import main

NO_ROOM = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.\n"
SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"
FIELDS = [
    "phase", "how", "form", "step", "model", "gpus", "tried_gib", "in_use_gib", "others_gib", "allocated_gib",
    "reserved_unallocated_gib", "free_gib", "capacity_gib", "estimate", "no_estimate", "differences", "missing", "change",
]  # fmt: skip


@pytest.fixture
def diagnose(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command on a log; it returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(log, *words):
        (tmp_path / "run.log").write_text(log, "utf-8")
        code = main(["diagnose", "run.log", *words])
        return code, *capsys.readouterr()

    return run


def test_the_example_of_the_documentation(root, capsys):
    assert main(["diagnose", str(root / "docs/examples/out-of-memory.log"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == FIELDS
    assert (found["phase"], found["step"]) == ("update-forward", 2)
    assert (found["model"], found["gpus"]) == ("Qwen/Qwen2.5-7B-Instruct", {"count": 8, "type": "H100"})
    assert (found["tried_gib"], found["in_use_gib"]) == (18.56, 65.9)
    assert found["estimate"]["binding_phase"] == "update-forward"
    assert found["missing"] == []
    assert [set(change) for change in found["change"]] == [
        {"overrides", "peak_gib", "high_gib", "cost", "text"}
    ] * len(found["change"])
    assert found["change"][0]["peak_gib"] < found["estimate"]["peak_gib"]


def test_a_log_alone(diagnose):
    code, out, err = diagnose(NO_ROOM)
    assert (code, err) == (0, "")
    first, figures, _, heading, change, *_ = out.splitlines()
    assert first.startswith("Out of GPU memory in the phase “Start”")
    assert figures == "The message contains no figures."
    assert heading == "What to change, in this order:"
    assert change.lstrip().startswith(f"1. {SHARE}=0.6; ")
    assert "Not in the log: the configuration; the model; the number of GPUs; the GPU's type; " in out


def test_what_the_user_adds(diagnose, tmp_path):
    (tmp_path / "run.sh").write_text(
        f"python3 -m verl.trainer.main_ppo {SHARE}=0.3 data.train_batch_size=8\n"
    )
    words = (
        "qwen2.5-7b",
        "--gpus",
        "8xH100",
        "--script",
        "run.sh",
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
    )
    code, out, err = diagnose(NO_ROOM, *words, "--verl-version", "0.9.0", "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["model"] == "Qwen/Qwen2.5-7B"
    assert found["change"][0]["overrides"] == {SHARE: 0.4}
    assert found["estimate"]["capacity_gib"] == pytest.approx(79.15, abs=0.01)
    assert found["missing"] == []


def test_a_model_by_the_end_of_the_path_in_the_script(diagnose, tmp_path):
    command = "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.use_dynamic_bsz=True"
    teachers = (
        "distillation.enabled=True distillation.nnodes=1 distillation.n_gpus_per_node=4 trainer.nnodes=1"
    )
    for name, model in (("Qwen2.5-7B", "Qwen/Qwen2.5-7B"), ("Qwen2.5-7", None)):
        path = f"actor_rollout_ref.model.path=$HOME/models/{name}"
        (tmp_path / "run.sh").write_text(f"{command} {path} {teachers}\n")
        _, out, err = diagnose(OUT, "--script", "run.sh", "--gpu", "H100", "--format", "json")
        found = json.loads(out)
        assert (found["model"], "the model" in found["missing"]) == (model, model is None)
        assert found["gpus"] == {"count": 12 if model else None, "type": "H100"}
        assert ("the script does not set $HOME" in err) == (model is None)


OUT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.10 GiB of which 1.00 GiB is free.\n"
)


def test_only_what_is_missing_is_asked_for(diagnose):
    settings = "--script run.sh, or settings as key=value."
    for words, lacking in (
        ((), f"the model's name; --gpus, for example 8xH100; {settings}"),
        (("qwen2.5-7b",), f"--gpus, for example 8xH100; {settings}"),
        (("qwen2.5-7b", "--gpus", "8xH100"), settings),
    ):
        out = " ".join(diagnose(OUT, *words)[1].split())
        assert f"For an estimate, add {lacking}" in out
        assert "first step" not in out  # this log has no beginning


def test_another_gpu_than_that_of_the_message(diagnose):
    words = ("qwen2.5-7b", "actor_rollout_ref.actor.use_dynamic_bsz=True", "--gpus")
    assert "A100-40GB has 39.5 GiB. Check the" in diagnose(OUT, *words, "8xA100-40GB")[1]
    assert "Name the" not in diagnose(OUT, *words, "8xH100")[1]


def test_settings_are_written_as_verl_takes_them(diagnose):
    """Hydra requires a plus before a key that verl's configuration does not have."""
    frame = '  File "megatron/core/optimizer/optimizer.py", line 500, in step_with_ready_grads\n    step()\n'
    log = f"Traceback (most recent call last):\n{frame}{OUT}"
    out = diagnose(log, "qwen2.5-7b", "--gpus", "8xH100", "actor_rollout_ref.actor.strategy=megatron")[1]
    assert " +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True" in out
    assert ". actor_rollout_ref.rollout.enforce_eager=True" in out


def test_verbose(diagnose):
    short, long = diagnose(NO_ROOM)[1], diagnose(NO_ROOM, "--verbose")[1]
    assert long.startswith(short.rstrip("\n"))
    assert "run.log:1:1: ValueError: No available memory" in long


def test_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(NO_ROOM.encode())))
    assert main(["diagnose", "-"]) == 0
    assert "“Start”" in capsys.readouterr().out


def test_a_log_without_a_failure(diagnose):
    code, out, _ = diagnose("step:7 - perf/max_memory_allocated_gb:71.3\n")
    assert code == 1
    assert out.startswith("The log contains no out-of-memory message.\nIts last figures are from step 7.")
    code, out, _ = diagnose("", "--format", "json")
    assert (code, json.loads(out)["phase"], json.loads(out)["change"]) == (1, None, [])


@pytest.mark.parametrize(
    ("words", "message"),
    [(("one/model", "other/model"), "give one model"), (("--gpus", "8xH1000"), "H1000"),
     (("qwen2.5-7q",), "qwen2.5-7q"), (("--script", "none.sh"), "none.sh")],
)  # fmt: skip
def test_questions_that_cannot_be_asked(diagnose, words, message):
    code, out, err = diagnose(NO_ROOM, *words)
    assert (code, out) == (2, "")
    assert message in err
