"""The command line: output, exit codes, help."""

from __future__ import annotations

import csv
import io
import json

import pytest

from sphinx_verl_resources.cli import main


def test_check_good(data, monkeypatch, capsys):
    data.good_run("a")
    monkeypatch.chdir(data.path.parent)
    assert main(["check"]) == 0
    assert capsys.readouterr() == ("data: 1 run, 0 errors, 0 warnings\n", "")


def test_check_bad(data, monkeypatch, capsys):
    data.good_run("a", tag="X")
    data.write("runs/b.txt", "")
    monkeypatch.chdir(data.path)
    assert main(["check", "."]) == 1
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "runs/a.yaml:4:6: ERROR: tag: unknown value 'X'; allowed: MIN, RECOMMENDED [verl.unknown_value]",
        "runs/b.txt:1:1: WARNING: the file 'b.txt' is not read; data files are named <id>.yaml [verl.file_unexpected]",
    ]
    assert out == ".: 1 run, 1 error, 1 warning\n"


def test_check_of_cases_and_accuracy(data, monkeypatch, capsys):
    data.good_run("a")
    data.write(
        "cases/mine.yaml",
        "# yaml-language-server: $schema=../schema/cases.json\n- id: x\n  model: Qwen/Qwen2.5-7B\n  gpus: {count: eight}\n  config: {}\n",
    )
    data.write("accuracy.yaml", "accuracy:\n- {name: training, cases: 0.5}\n")
    monkeypatch.chdir(data.path.parent)
    assert main(["check"]) == 1
    places = [line.split(": ERROR: ")[0] for line in capsys.readouterr().err.splitlines()]
    assert places[-1] == "data/cases/mine.yaml:4:17"
    assert "data/accuracy.yaml:2:27" in places
    assert main(["check", "data/cases"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_check_counts_the_runs_of_the_directory_and_no_others(data, monkeypatch, capsys):
    data.write("gpus.yaml", "# yaml-language-server: $schema=schema/gpus.json\ngpus: []\n")
    (data.path / "runs").rmdir()
    monkeypatch.chdir(data.path.parent)
    assert main(["check"]) == 0
    assert capsys.readouterr().out == "data: 0 runs, 0 errors, 0 warnings\n"
    assert main(["check", "data/gpus.yaml"]) == 0, "a registry without runs beside it"
    assert main(["check", "data/nothing.yaml"]) == 2


def test_names_that_break_lines_are_printed_on_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command in (["check"], ["table"]):
        assert main([*command, "a\nb"]) == 2
        assert capsys.readouterr().err.splitlines() == [
            f"verl-resources: a\\nb: no such {'file or ' if command == ['check'] else ''}directory"
            f"{'' if command == ['check'] else '; give a data directory, which contains runs/'}"
        ]


def test_a_file_is_no_directory(data, monkeypatch, capsys):
    data.good_run("a")
    monkeypatch.chdir(data.path)
    for command in (["table", "runs/a.yaml"], ["schema", "--output", "runs/a.yaml"]):
        assert main(command) == 2
        assert "verl-resources: runs/a.yaml: not a directory; give " in capsys.readouterr().err


def test_an_empty_name_of_a_checkout(data, monkeypatch, capsys):
    data.good_run("a")
    monkeypatch.chdir(data.path)
    assert main(["check", "--repo", ""]) == 2
    assert (
        capsys.readouterr().err
        == "verl-resources: --repo is empty; give the path of a git checkout of verl\n"
    )


def test_files_of_every_directory_are_checked(data, monkeypatch, capsys):
    data.run("a")
    (data.path.parent / "more/runs").mkdir(parents=True)
    data.run("b").rename(data.path.parent / "more/runs/b.yaml")
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "data", "more"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("data, more: 2 runs, 0 errors")
    assert "data/runs/a.yaml:1:1: WARNING" in err
    assert "more/runs/b.yaml:1:1: WARNING" in err


def test_check_one_file_or_folder(data, monkeypatch, capsys):
    data.good_run("a", tag="X")
    data.good_run("b", tag="Y")
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "data/runs/b.yaml"]) == 1
    assert capsys.readouterr().err.startswith("data/runs/b.yaml:4:6")
    assert main(["check", "data/runs"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_check_without_a_directory(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["check", "empty"]) == 2
    assert "contains no data" in capsys.readouterr().err
    assert main(["check", "nowhere"]) == 2
    assert capsys.readouterr().err == "verl-resources: nowhere: no such file or directory\n"
    assert main(["table", "nowhere"]) == 2
    assert capsys.readouterr().err == (
        "verl-resources: nowhere: no such directory; give a data directory, which contains runs/\n"
    )
    assert main(["check"]) == 0
    assert capsys.readouterr().out.startswith("sphinx_verl_resources/data: ")


def test_check_inside_a_data_directory(data, monkeypatch, capsys):
    data.good_run("a", tag="X")
    data.good_run("b", tag="Y")
    monkeypatch.chdir(data.path / "runs")
    assert main(["check"]) == 1
    out, err = capsys.readouterr()
    assert out == "..: 2 runs, 2 errors, 0 warnings\n"
    assert err.startswith("../runs/a.yaml:4:6: ERROR: ")
    assert main(["check", "b.yaml"]) == 1
    assert capsys.readouterr().err.startswith("../runs/b.yaml:4:6: ERROR: ")


@pytest.mark.parametrize("form", ["plain", "github", "list-table", "csv", "json"])
def test_table(data, monkeypatch, capsys, form):
    data.run("a", label="a_b*c")
    data.run("b", size="3B")
    monkeypatch.chdir(data.path.parent)
    columns = "id,model,resource" + (",max_batch,gpus.count" if form == "json" else "")
    assert main(["table", "--size", "7B", "--columns", columns, "--format", form]) == 0
    out = capsys.readouterr().out
    if form == "json":
        assert json.loads(out) == [
            {"id": "a", "model": "a_b*c", "gpus": "2*H100", "max_batch": None, "gpus.count": 2}
        ]
    elif form == "csv":
        assert list(csv.reader(io.StringIO(out))) == [["Run", "Model", "Resource"], ["a", "a_b*c", "2*H100"]]
    elif form == "list-table":
        assert out.splitlines()[-3:] == ["   * - a", r"     - a\_b\*c", r"     - 2\*H100"]
    else:
        assert "2*H100" in out
        assert "Resource" in out


def test_a_run_that_nobody_tested_says_so_in_text_too(data, monkeypatch, capsys):
    data.run("a", kind="stated")
    monkeypatch.chdir(data.path.parent)
    assert main(["table", "--columns", "model,gpus", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "Qwen2.5-7B-Instruct (claimed),2*H100"


def test_schema(tmp_path, capsys, root):
    assert main(["schema", "gpus"]) == 0
    assert capsys.readouterr().out == (root / "data/schema/gpus.json").read_text("utf-8")
    assert main(["schema", "gpus", "--output", str(tmp_path / "one")]) == 0
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["gpus.json"]
    assert main(["schema", "--output", str(tmp_path / "new")]) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "accuracy.json",
        "analysis.json",
        "architectures.json",
        "cases.json",
        "config_keys.json",
        "gpus.json",
        "run.json",
    ]


def test_words_between_options(data, monkeypatch, capsys):
    data.good_run("a", tag="X")
    data.good_run("b", tag="Y")
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "data/runs/a.yaml", "--format", "json", "data/runs/b.yaml"]) == 1
    problem, _ = json.loads(capsys.readouterr().out)
    assert problem == {
        "path": "data/runs/a.yaml", "line": 4, "column": 6, "level": "ERROR", "code": "verl.unknown_value",
        "message": "tag: unknown value 'X'", "hint": "allowed: MIN, RECOMMENDED",
    }  # fmt: skip
    for wrong in (["check", "data", "--fromat"], ["schema", "run", "gpus"]):
        with pytest.raises(SystemExit) as exit_:
            main(wrong)
        assert exit_.value.code == 2
        assert "unrecognized arguments" in capsys.readouterr().err


def test_a_linked_file_is_checked_where_it_is_linked(data, monkeypatch, capsys, tmp_path):
    elsewhere = data.run("b", tag="X").rename(data.path / "runs/.b.yaml")
    (data.path / "runs/b.yaml").symlink_to(elsewhere)
    monkeypatch.chdir(tmp_path)
    assert main(["check", "data"]) == 1
    assert main(["check", "data/runs/b.yaml"]) == 1
    assert main(["check", "data/runs/none.yaml"]) == 2
