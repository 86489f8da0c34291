"""Each mistake in a data file gives its message: place, level, sentence, remedy and code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from sphinx_verl_resources import strict_yaml

FILE = Path(__file__).with_name("messages.yaml")
ENTRIES = yaml.safe_load(FILE.read_text("utf-8"))
RUN = """\
id: a
size: 7B
tag: MIN
model: Qwen/Qwen2.5-7B-Instruct
task: GRPO
gpus: {count: 2, type: H100}
train: fsdp
infer: {engine: vllm, version: "0.8.3"}
"""


def text_of(entry) -> str:
    old, new = entry.get("replace", ["", ""])
    assert old in RUN
    return entry.get("text", RUN.replace(old, new, 1) + entry.get("add", ""))


def problems(data, entry) -> list[str]:
    """Return the problems of everything, without the name of the entry's file."""
    name = entry.get("file", "runs/a.yaml")
    data.write(name, text_of(entry))
    loaded = data.load()
    _ = loaded.runs, loaded.analysis
    return [str(problem).removeprefix(f"data/{name}:") for problem in loaded.diagnostics]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_message(data, entry):
    if os.environ.get("UPDATE_GOLDEN"):
        lines = [f"    - {json.dumps(line)}\n" for line in problems(data, entry)]
        before, begin, after = FILE.read_text("utf-8").partition(f"\n- name: {entry['name']}\n")
        head, says, rest = after.partition("  says:\n")
        others = "".join(rest.splitlines(keepends=True)[len(entry["says"]) :])
        FILE.write_text(f"{before}{begin}{head}{says}{''.join(lines)}{others}", "utf-8")
    assert entry["says"], "an entry without a message tests nothing"
    assert problems(data, entry) == entry["says"]


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry["name"].startswith("yaml")], ids=str)
def test_the_parser_in_python_gives_the_same(data, monkeypatch, entry):
    """The two parsers differ only in the place of an escape, and in what they notice first in deep nesting."""
    monkeypatch.setattr(strict_yaml, "LOADER", yaml.SafeLoader)
    if "deep" not in entry["name"] and "character" not in entry["name"]:
        assert problems(data, entry) == entry["says"]


def test_a_run_with_wrong_settings_is_shown(data):
    data.write("runs/a.yaml", RUN + "settings:\n  data.a: {b: 1}\n  +c: 1\n  data.train_batch_size: 4\n")
    loaded = data.load()
    assert dict(loaded.runs["a"].settings) == {"data.train_batch_size": 4}
    assert [problem.place.line for problem in loaded.diagnostics] == [10, 11]
    assert loaded.broken == ()


def test_many_problems_are_counted(data):
    data.write("runs/a.yaml", RUN + "".join(f"key{number}: 1\n" for number in range(200)))
    lines = [str(problem) for problem in data.load().diagnostics_of("runs")]
    assert len(lines) == 51
    assert any("150 more problems are not listed; fix the others first" in line for line in lines)


def test_no_line_is_endless(data):
    data.write("runs/a.yaml", f"{RUN}{'k' * 1000}: 1\nlabel: {'x' * 100_000}\nadded: {'y' * 100_000}\n")
    lines = [str(problem) for problem in data.load().diagnostics_of("runs")]
    assert len(lines) == 3
    assert max(map(len, lines)) < 1500
