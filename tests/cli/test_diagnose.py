"""``verl-resources diagnose``: output, JSON, exit codes, and the user's additions to a log."""

from __future__ import annotations

import io
import json
import sys

import pytest

NO_ROOM = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.\n"
OUT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.10 GiB of which 1.00 GiB is free.\n"
)
SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"
DYNAMIC = "actor_rollout_ref.actor.use_dynamic_bsz=True"
FIELDS = [
    "phase", "how", "form", "step", "model", "gpus", "tried_gib", "in_use_gib", "others_gib", "allocated_gib",
    "reserved_unallocated_gib", "free_gib", "capacity_gib", "besides_pytorch_gib", "estimate", "no_estimate", "assumed",
    "differences", "missing", "change",
]  # fmt: skip


@pytest.fixture
def diagnose(tmp_path, run):
    """Return a function that runs the command on a log; it returns exit code, output and errors."""

    def call(log, words=""):
        (tmp_path / "run.log").write_text(log, "utf-8")
        return run(f"diagnose run.log {words}")

    return call


def test_the_example_of_the_documentation(root, result):
    _, output, _ = result(f"diagnose {root}/docs/examples/out-of-memory.log")
    assert list(output) == FIELDS
    assert (output["phase"], output["step"]) == ("update-forward", 2)
    assert (output["model"], output["gpus"]) == ("Qwen/Qwen2.5-7B-Instruct", {"count": 8, "type": "H100"})
    assert (output["tried_gib"], output["in_use_gib"]) == (18.56, 65.9)
    assert (output["estimate"]["binding_phase"], output["missing"]) == ("update-forward", [])
    assert {tuple(change) for change in output["change"]} == {
        ("overrides", "peak_gib", "high_gib", "cost", "text")
    }
    assert output["change"][0]["peak_gib"] < output["estimate"]["peak_gib"]


def test_a_log_alone(diagnose, run, monkeypatch):
    code, out, err = diagnose(NO_ROOM)
    assert (code, err) == (0, "")
    first, _, heading, change, *_ = out.splitlines()
    assert first.startswith("Out of GPU memory in the phase “Start”")
    assert heading == "What to do, in this order:"
    assert change == f"1. Raise {SHARE}; the log does not give its value."
    assert "Not in the log: the configuration; the model; the number of GPUs; the GPU's type; " in out
    verbose = diagnose(NO_ROOM, "--verbose")[1]
    assert verbose.startswith(out.rstrip("\n"))
    assert "run.log:1:1: ValueError: No available memory" in verbose
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(NO_ROOM.encode())))
    assert run("diagnose -")[:2] == (0, out)


def test_what_the_user_adds(diagnose, tmp_path):
    (tmp_path / "run.sh").write_text(
        f"python3 -m verl.trainer.main_ppo {SHARE}=0.3 data.train_batch_size=8\n"
    )
    words = f"qwen2.5-7b --gpus 8xH100 --script run.sh {DYNAMIC} --verl-version 0.9.0 --format json"
    code, out, err = diagnose(NO_ROOM, words)
    output = json.loads(out)
    assert (code, err, output["model"], output["missing"]) == (0, "", "Qwen/Qwen2.5-7B", [])
    assert output["change"][0]["overrides"] == {SHARE: 0.4}
    assert output["estimate"]["capacity_gib"] == pytest.approx(79.15, abs=0.01)


@pytest.mark.parametrize(
    ("words", "text", "is_there"),
    [
        ("", "For an estimate, add what you know of the model's name, --gpus 8xH100, --script", True),
        (f"qwen2.5-7b {DYNAMIC} --gpus 8xH100", "For an estimate", False),
        ("", "first step", False),  # this log has no beginning
        (f"qwen2.5-7b {DYNAMIC} --gpus 8xA100-40GB", "A100-40GB has 39.5 GiB. Check the", True),
        (f"qwen2.5-7b {DYNAMIC} --gpus 8xH100", "Check the", False),
    ],
)
def test_what_is_missing_or_wrong(diagnose, words, text, is_there):
    assert (text in " ".join(diagnose(OUT, words)[1].split())) == is_there


def test_a_log_without_a_failure(diagnose):
    code, out, _ = diagnose("step:7 - perf/max_memory_allocated_gb:71.3\n")
    assert code == 1
    assert out.startswith("The log contains no out-of-memory message. Its last figures are from step 7.")
    code, out, _ = diagnose("", "--format json")
    assert (code, json.loads(out)["phase"], json.loads(out)["change"]) == (1, None, [])


@pytest.mark.parametrize(
    ("words", "message"),
    [("one/model other/model", "give one model"), ("--gpus 8xH1000", "H1000"), ("qwen2.5-7q", "qwen2.5-7q")],
)
def test_questions_that_cannot_be_asked(diagnose, words, message):
    code, out, err = diagnose(NO_ROOM, words)
    assert (code, out, message in err) == (2, "", True)
    code, out, _ = diagnose(NO_ROOM, f"{words} --format json")
    assert (code, json.loads(out)["phase"], message in json.loads(out)["error"]) == (2, None, True)


def test_a_closed_standard_input(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert run("diagnose -") == (
        2, "", "verl-resources: standard input is closed; give the name of the log's file\n",
    )  # fmt: skip
