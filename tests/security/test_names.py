"""Odd names, floods of problems, and paths in links change nothing but themselves."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.commands import main

#: A run with mistakes.
RUN = "id: zz\nsize: 9B\ninfer: {engine: vllm, version: 0.8}\n"
PARTS = ["a", "b", ".", ":", "1", "\u200b", "\u202e", "\udcff", "\udc80", "ü", "\n", "\t", " ", "\\", "x3a", "%", "'", '"', "*", "[", "-", "#", "🙂",
    ":1:1", ": ERROR: x", "$a", "a.yaml"]  # fmt: skip
#: Names of files, without slashes and null characters; those that begin with a dot are not read.
names = (
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=5).map("".join).filter(lambda name: name[0] != ".")
)


def printed(*words: str) -> tuple[str, str]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        assert main(["check", *words]) in (0, 1)
    return out.getvalue(), err.getvalue()


@given(names, names)
def test_no_two_files_look_alike_and_each_can_be_checked_alone(tmp_path_factory, one, other):
    folder = tmp_path_factory.mktemp("names")
    Path(folder, "runs").mkdir()
    files = {Path(folder, "runs", f"{stem}.yaml") for stem in (one, other)}
    for file in files:
        file.write_text(RUN)
    lines = printed("--", str(folder))[1].splitlines()
    assert all(line.isprintable() for line in lines)
    shown = {re.split(r":\d+:\d+: ", line, maxsplit=1)[0] for line in lines}
    assert len(shown) == len(files)
    alone = printed("--", str(file))[1].splitlines()
    assert len(lines) == len(alone) * len(files) > 3
    assert len({re.split(r":\d+:\d+: ", line, maxsplit=1)[0] for line in alone} & shown) == 1


GPU = "- {{name: G{}, vendor: nvidia, memory_gb: 80, memory_mib: {}, kind: reading{}}}\n"
#: Files with more than 500 problems each; in the last one they come from a rule.
FLOODS = {
    "runs/a.yaml": "id: a\n" + "".join(f"key{index}: 1\n" for index in range(600)),
    "cases/a.yaml": "".join(f"- {{id: a{index}, model: m, outcom: fits}}\n" for index in range(400)),
    "gpus.yaml": "gpus:\n" + "".join(GPU.format(index, 81559, ", x: 1") for index in range(600)),
    "rules/runs/a.yaml": "id: a\nsize: 7B\ntag: null\nmodel: Qwen/Qwen2.5-7B\ntask: GRPO\ngpus: {count: 2, type: H100}\n"
    "train: fsdp\ninfer: null\nkind: stated\nsettings:\n"
    + "".join(f"  x{index}.y: 1\n" for index in range(600)),
}


def test_five_hundred_problems_are_listed_whatever_finds_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for at, (name, text) in enumerate(FLOODS.items()):
        file = Path(f"data{at}", name.removeprefix("rules/"))
        file.parent.mkdir(parents=True)
        file.write_text(text)
        lines = [line for line in printed(f"data{at}")[1].splitlines() if line.startswith(f"{file}:")]
        assert [line for line in lines if "more problems are not listed; fix the others first" in line]
        assert len(lines) == 501
        assert max(map(len, lines)) < 1500
        found = json.loads(printed(f"data{at}", "--format", "json")[0])
        assert 501 <= len([problem for problem in found if problem["path"] == str(file)]) <= 1200


def test_errors_are_listed_before_warnings_and_no_line_is_endless(data, monkeypatch):
    monkeypatch.chdir(data.path.parent)
    settings = {**{f"x{index}.y": 1 for index in range(600)}, "actor_rollout_ref.rollout.n": "five"}
    data.run("a", settings=settings)
    data.run("b", label="x" * 100_000, task="y\u200b" * 50_000, **{"k" * 1000: 1})
    lines = printed("data")[1].splitlines()
    assert [line for line in lines if ": ERROR: actor_rollout_ref.rollout.n: " in line]
    assert max(map(len, lines)) < 900


@pytest.mark.parametrize("path", ["a b.sh", "a%2f..%2fb.sh", "a?x=1#y.sh", "ü.sh", "a&b;c.sh", "a:b.sh"])
def test_what_a_path_may_hold_stays_in_the_path(data, path, capsys):
    data.run("a", script={"ref": "main", "path": path})
    assert main(["table", str(data.path), "--columns", "link", "--format", "list-table"]) == 0
    href = re.search(r"<(\S+)>`__", capsys.readouterr().out)[1].replace("\\", "")
    assert href.startswith("https://github.com/verl-project/verl/blob/main/")
    assert not re.search(r"[ ?#<>]|/\.\./", href)
