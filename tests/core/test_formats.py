"""Output for other programs, and exit codes."""

from __future__ import annotations

import json
import re

import pytest

from sphinx_verl_resources.commands import main


@pytest.fixture
def bad(checked, monkeypatch):
    """An error and a warning."""
    checked.run(tag="MOST")
    checked.run("b", evidence=...)
    monkeypatch.chdir(checked.path)
    return checked


def test_text(bad, capsys):
    assert main(["check"]) == 1
    out, err = capsys.readouterr()
    assert out == "data: 2 runs, 1 error, 1 warning\n"
    assert [line.split(" ", 2)[:2] for line in err.splitlines()] == [
        ["data/runs/a.yaml:4:6:", "ERROR:"],
        ["data/runs/b.yaml:2:1:", "WARNING:"],
    ]


def test_the_problem_matcher_of_github_reads_the_text(bad, root, capsys):
    (matcher,) = json.loads((root / ".github/problem-matcher.json").read_text("utf-8"))["problemMatcher"]
    (pattern,) = matcher["pattern"]
    main(["check"])
    matches = [re.match(pattern["regexp"], line) for line in capsys.readouterr().err.splitlines()]
    assert [
        [match[pattern[name]] for name in ("file", "line", "column", "severity", "code")] for match in matches
    ] == [
        ["data/runs/a.yaml", "4", "6", "ERROR", "verl.unknown_value"],
        ["data/runs/b.yaml", "2", "1", "WARNING", "verl.no_evidence"],
    ]
    assert matches[0][pattern["message"]] == "tag: unknown value 'MOST'; allowed: MIN, RECOMMENDED"


def test_json(bad, capsys):
    assert main(["check", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert [item["code"] for item in json.loads(out)] == ["verl.unknown_value", "verl.no_evidence"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_same_twice_and_nothing_found(bad, capsys, form):
    main(["check", "--format", form])
    first = capsys.readouterr()
    main(["check", "--format", form])
    assert capsys.readouterr() == first
    bad.run()
    bad.run("b", gpus={"count": 8, "type": "H100"})
    assert main(["check", "--format", form]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    if form == "json":
        json.loads(out)


def test_one_file(bad, capsys):
    assert main(["check", "data/runs/b.yaml"]) == 0
    out, err = capsys.readouterr()
    assert out == "data: 2 runs, 0 errors, 1 warning\n"
    assert err.count("\n") == 1


def test_strict(checked, monkeypatch):
    checked.run(evidence=...)
    monkeypatch.chdir(checked.path)
    assert main(["check"]) == 0
    assert main(["check", "--strict"]) == 1
    checked.run()
    assert main(["check", "--strict"]) == 0


def test_the_data_of_this_project(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    assert main(["check", "--strict", "data"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.endswith(" 0 errors, 0 warnings\n")


def test_a_checkout_is_asked(checked, verl, monkeypatch, capsys):
    verl({"a.sh": "python3 -m verl.trainer.main_ppo data.train_batch_size=8\n"})
    checked.run(script={"ref": "v0.4.0", "path": "b.sh"})
    monkeypatch.chdir(checked.path)
    assert main(["check"]) == 0
    assert main(["check", "--repo", "verl"]) == 1
    assert "script.path: v0.4.0 has no file 'b.sh'" in capsys.readouterr().err


def test_the_result_in_a_file(bad, capsys):
    assert main(["check", "--format", "json", "--output", "found.json"]) == 1
    assert capsys.readouterr() == ("", "")
    found = json.loads((bad.path / "found.json").read_text("utf-8"))
    assert [item["code"] for item in found] == ["verl.unknown_value", "verl.no_evidence"]
