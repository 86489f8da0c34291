"""``verl-resources new`` in a terminal: questions, defaults, nonsense, and going away."""

from __future__ import annotations

import io
import sys

import pytest
import yaml

from sphinx_verl_resources.cli import main


class Typed(io.StringIO):
    """What a person types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def here(data, root, monkeypatch):
    for name in ("run.sh", "run.log"):
        (data.path.parent / name).write_bytes((root / "docs" / "examples" / name).read_bytes())
    monkeypatch.chdir(data.path.parent)
    return data


def answer(monkeypatch, capsys, *lines):
    monkeypatch.setattr(sys, "stdin", Typed("".join(f"{line}\n" for line in lines)))
    code = main(["new"])
    return code, *capsys.readouterr()


def test_defaults_come_from_script_and_log(here, monkeypatch, capsys):
    code, out, err = answer(monkeypatch, capsys, "run.sh", "run.log", *[""] * 13)
    assert code == 0
    assert "Model (Hugging Face name) [Qwen/Qwen2.5-7B-Instruct]: " in err
    assert "GPUs (number and card, as 8*H100) [2*H100]: " in err
    run = yaml.safe_load((here.path / "runs/qwen2-5-7b-grpo-2xh100.yaml").read_text())
    assert (run["tag"], run["contributor"]["name"]) == ("TODO", "TODO")
    assert out.startswith("wrote data/runs/")


def test_without_a_script(here, monkeypatch, capsys):
    code, _, err = answer(
        monkeypatch, capsys, "no.sh", "", "", "nonsense", "data.train_batch_size=64", "trainer.nnodes=1", "",
        "Qwen2.5-7B", "GRPO", "eight", "8*H1000", "8*H100", "deepspeed", "FSDP2", "vllm", "0.8.3", "0.5.0", "best",
        "min", "many", "64", "example.org", "https://example.org/log", "jane@example.org", "Jane", "", "No Id", "mine",
    )  # fmt: skip
    assert code == 0, err
    assert yaml.safe_load((here.path / "runs/mine.yaml").read_text()) == {
        "id": "mine", "size": "7B", "tag": "MIN", "model": "Qwen/Qwen2.5-7B", "task": "GRPO",
        "gpus": {"count": 8, "type": "H100", "nodes": 1}, "train": "fsdp2",
        "infer": {"engine": "vllm", "version": "0.8.3"}, "versions": {"verl": "0.5.0"}, "max_batch": 64, "contributor": {"name": "Jane"},
        "kind": "tested", "added": __import__("datetime").date.today(),
        "settings": {"data.train_batch_size": 64, "trainer.nnodes": 1},
        "evidence": [{"kind": "log", "url": "https://example.org/log"}],
    }  # fmt: skip
    assert err.count(":   ") == 10  # each wrong answer is told what is right
    assert here.problems() == []


@pytest.mark.parametrize("lines", [(), ("run.sh",), ("run.sh", "run.log", *[""] * 11), ("no.sh",) * 30])
def test_going_away_leaves_nothing(here, monkeypatch, capsys, lines):
    code, out, err = answer(monkeypatch, capsys, *lines)
    assert (code, out) == (2, "")
    assert err.endswith("verl-resources: nothing was written\n")
    assert list((here.path / "runs").iterdir()) == []


def test_ctrl_c_leaves_nothing(here, monkeypatch, capsys):
    class Interrupted(Typed):
        def readline(self, *_):
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert main(["new"]) == 2
    assert capsys.readouterr().err.endswith("verl-resources: nothing was written\n")
    assert list((here.path / "runs").iterdir()) == []
