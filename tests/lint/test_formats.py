"""Output for other programs, and exit codes."""

from __future__ import annotations

import json

import pytest

from sphinx_verl_resources import __version__
from sphinx_verl_resources.cli import main
from sphinx_verl_resources.diagnostics import Code, Diagnostic, Location, Severity
from sphinx_verl_resources.views.problems import problems_github, problems_sarif


@pytest.fixture
def bad(checked, monkeypatch):
    """An error, a warning and an excused warning."""
    checked.run(tag="MOST")
    checked.run("b", evidence=...)
    checked.run("c", gpus={"count": 4, "type": "H100"}, evidence=...)
    checked.suppress("{code: no_evidence, files: [runs/c.yaml], reason: The log was lost with the machine.}")
    monkeypatch.chdir(checked.path)
    return checked


def test_text(bad, capsys):
    assert main(["check"]) == 1
    out, err = capsys.readouterr()
    assert out == "data: 3 runs, 1 error, 1 warning, 1 excused\n"
    assert [line.split(" ", 2)[:2] for line in err.splitlines()] == [
        ["data/runs/a.yaml:4:6:", "ERROR:"],
        ["data/runs/b.yaml:2:1:", "WARNING:"],
    ]


def test_json(bad, capsys):
    assert main(["check", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert [item["code"] for item in json.loads(out)] == ["verl.unknown_value", "verl.no_evidence"]


def test_github(bad, capsys):
    assert main(["check", "--format", "github"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == (
        "::error file=data/runs/a.yaml,line=4,col=6,title=verl.unknown_value::"
        "tag: unknown value 'MOST'; allowed: MIN, RECOMMENDED"
    )
    assert lines[1].startswith(
        "::warning file=data/runs/b.yaml,line=2,col=1,title=verl.no_evidence::the run's kind "
    )
    assert lines[2] == "::group::All problems"
    assert lines[3].startswith(" data/runs/a.yaml:4:6: ERROR: ")
    assert lines[4].startswith(" data/runs/b.yaml:2:1: WARNING: ")
    assert lines[5:] == ["::endgroup::", "data: 3 runs, 1 error, 1 warning, 1 excused"]


def test_what_commands_of_github_are_made_of_is_escaped():
    place = Location("a,b:c%\n.yaml", 0, 0)
    problem = Diagnostic(place, Code.todo, "100% ::error::\r\nx")
    command, *_ = problems_github([problem], "done").splitlines()
    assert command == ("::error file=a%2Cb%3Ac%25%0A.yaml,line=1,col=1,title=verl.todo::100%25 ::error:: x")
    assert problems_github([], "done") == "done"


def test_sarif(bad, capsys):
    assert main(["check", "--format", "sarif"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    log = json.loads(out)
    assert (log["version"], log["$schema"].rsplit("/", 1)[-1]) == ("2.1.0", "sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["semanticVersion"]) == ("verl-resources", __version__)
    assert [rule["id"] for rule in driver["rules"]] == ["verl.unknown_value", "verl.no_evidence"]
    assert all(rule["help"]["text"] and rule["shortDescription"]["text"] for rule in driver["rules"])
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    found = [
        (result["level"], result["locations"][0]["physicalLocation"], "suppressions" in result)
        for result in run["results"]
    ]
    assert found == [
        ("error", place("data/runs/a.yaml", 4, 6), False),
        ("warning", place("data/runs/b.yaml", 2, 1), False),
        ("warning", place("data/runs/c.yaml", 2, 1), True),
    ]
    (suppression,) = run["results"][2]["suppressions"]
    assert suppression == {
        "kind": "external",
        "status": "accepted",
        "justification": "The log was lost with the machine.",
    }


def place(path, line, column):
    return {
        "artifactLocation": {"uri": path},
        "region": {"startLine": line, "startColumn": column},
    }


def test_addresses_of_files_in_sarif():
    problem = Diagnostic(Location("data/ä b#1.yaml"), Code.todo, "x", severity=Severity.WARNING)
    (result,) = json.loads(problems_sarif([problem], [], "1"))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"] == place("data/%C3%A4%20b%231.yaml", 1, 1)


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif"])
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
    if form in {"json", "sarif"}:
        json.loads(out)


def test_one_file(bad, capsys):
    """Only its problems are reported, and exceptions for other files do not become stale."""
    assert main(["check", "data/runs/b.yaml"]) == 0
    out, err = capsys.readouterr()
    assert out == "data: 3 runs, 0 errors, 1 warning\n"
    assert err.count("\n") == 1
    assert main(["check", "data/runs/c.yaml"]) == 0
    assert capsys.readouterr() == ("data: 3 runs, 0 errors, 0 warnings, 1 excused\n", "")
    bad.run("c", gpus={"count": 4, "type": "H100"})
    assert main(["check", "data/runs/c.yaml"]) == 0
    assert main(["check", "data/exceptions.yaml"]) == 1
    assert "stale_exception" in capsys.readouterr().err


def test_strict(checked, monkeypatch, capsys):
    checked.run(evidence=...)
    monkeypatch.chdir(checked.path)
    assert main(["check"]) == 0
    assert main(["check", "--strict"]) == 1
    checked.suppress("{code: no_evidence, files: [runs/a.yaml], reason: The log was lost with the machine.}")
    assert main(["check", "--strict"]) == 0
    assert capsys.readouterr().out.endswith("data: 1 run, 0 errors, 0 warnings, 1 excused\n")


def test_the_data_of_this_project(root, monkeypatch, capsys):
    """No error, and only excused warnings."""
    monkeypatch.chdir(root)
    assert main(["check", "--strict", "data"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert " 0 errors, 0 warnings, " in out


def test_a_checkout_is_asked(checked, verl, monkeypatch, capsys):
    verl({"a.sh": "python3 -m verl.trainer.main_ppo data.train_batch_size=8\n"})
    checked.run(script={"ref": "v0.4.0", "path": "b.sh"})
    monkeypatch.chdir(checked.path)
    assert main(["check"]) == 0
    assert main(["check", "--repo", "verl"]) == 1
    assert "script.path: v0.4.0 has no file 'b.sh'" in capsys.readouterr().err


def test_the_result_in_a_file(bad, capsys):
    """As for every command with a result; repairs are not part of it."""
    bad.write("runs/a.yaml", bad.run_text(id="z", tag="MOST"))
    assert main(["check", "--fix", "--format", "json", "--output", "found.json"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "data/runs/a.yaml:2: repaired: id 'z' changed to 'a', the file name\n")
    found = json.loads((bad.path / "found.json").read_text("utf-8"))
    assert [item["code"] for item in found] == ["verl.unknown_value", "verl.no_evidence"]


@pytest.mark.parametrize("form", ["json", "github", "sarif"])
def test_repairs_do_not_mix_with_what_programs_read(bad, capsys, form):
    assert main(["check", "--format", form]) == 1
    before = capsys.readouterr().out
    bad.write("runs/b.yaml", bad.run_text(id="z", evidence=...))
    assert main(["check", "--fix", "--format", form]) == 1
    out, err = capsys.readouterr()
    assert out == before
    assert ": repaired: " in err
