"""``tools/backtest.py``: the estimates of every case, also of plain training."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sphinx_verl_resources.commands import main

CASE = {
    "id": "a",
    "model": "Qwen/Qwen2.5-7B",
    "gpus": {"count": 8, "type": "H100"},
    "config": {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True},
}
PLAIN = {
    "id": "b",
    "model": "Qwen/Qwen2.5-7B",
    "training": {"micro_batch_per_gpu": 1, "sequence_length": 512},
}


@pytest.fixture
def backtest(root, tmp_path, monkeypatch):
    """Return a function that runs the program on cases; it returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(cases, *words):
        (tmp_path / "cases.yaml").write_text(json.dumps(cases), "utf-8")
        command = [sys.executable, str(root / "tools/backtest.py"), "cases.yaml", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


def test_the_command_prints_the_same_but_for_plain_training(backtest, capsys):
    wrong = {**CASE, "id": "c", "config": {**CASE["config"], "actor_rollout_ref.rollout.n": "x"}}
    code, out, _ = backtest(
        [CASE, PLAIN, wrong, {**CASE, "id": "d", "gpus": {"count": "x"}}], "--format", "json"
    )
    assert code == 1
    assert main(["estimate", "cases.yaml", "--format", "json"]) == 1
    first, plain, *others = json.loads(out)
    printed, refused, *printed_others = json.loads(capsys.readouterr().out)
    assert (first, others) == (printed, printed_others)
    assert refused["error"].startswith("training: training without reinforcement learning is not estimated; ")
    assert refused["verdict"] == "unknown"
    assert plain["logged_max_allocated_gib"] > 70
    assert plain.keys() | {"error"} == refused.keys()


@pytest.mark.slow
def test_a_table_for_people(backtest):
    code, out, err = backtest([PLAIN, {**PLAIN, "id": "c", "training": {"sequence_length": 5}}])
    assert code == 1
    assert "micro_batch_per_gpu is required" in out
    assert err == ""
    assert backtest([PLAIN], "--data", "none")[0] == 2
