"""Functions that run ``verl-resources`` in a folder."""

from __future__ import annotations

import json

import pytest

from sphinx_verl_resources.commands import main

SCRIPT = """\
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256 \\
    data.max_prompt_length=512 data.max_response_length=1024 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.actor.use_dynamic_bsz=True trainer.n_gpus_per_node=8 trainer.nnodes=1
"""


@pytest.fixture
def script(tmp_path):
    """Write a launch script and return its text."""
    (tmp_path / "run.sh").write_text(SCRIPT, "utf-8")
    return SCRIPT


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs a line, and words with spaces; it returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def called(line, *words):
        return main([*line.split(), *words]), *capsys.readouterr()

    return called


@pytest.fixture
def result(run):
    """Return a function that runs a line with JSON; it returns exit code, result and lines of errors."""

    def called(line, *words):
        code, out, err = run(line, *words, "--format", "json")
        return code, json.loads(out), err.splitlines()

    return called
