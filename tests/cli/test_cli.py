"""The command line: output, exit codes, help."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import pytest

from sphinx_verl_resources.cli import main


def test_check_good(data, monkeypatch, capsys):
    data.run("a")
    monkeypatch.chdir(data.path.parent)
    assert main(["check"]) == 0
    assert capsys.readouterr() == ("1 run, 0 errors, 0 warnings\n", "")


def test_check_bad(data, monkeypatch, capsys):
    data.run("a", tag="X")
    data.write("runs/b.txt", "")
    monkeypatch.chdir(data.path)
    assert main(["check", "."]) == 1
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "runs/a.yaml:3:6: ERROR: tag: unknown value 'X'; allowed: MIN, RECOMMENDED [verl.unknown_value]",
        "runs/b.txt:1:1: WARNING: the file 'b.txt' is not read; a run file is named <id>.yaml [verl.file_unexpected]",
    ]
    assert out == "0 runs, 1 error, 1 warning\n"


def test_check_json(data, monkeypatch, capsys):
    data.run("a", tag="X")
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "--format", "json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)
    assert problem == {
        "path": "data/runs/a.yaml", "line": 3, "column": 6, "level": "ERROR", "code": "verl.unknown_value",
        "message": "tag: unknown value 'X'", "hint": "allowed: MIN, RECOMMENDED",
    }  # fmt: skip


def test_check_one_file_or_folder(data, monkeypatch, capsys):
    data.run("a", tag="X")
    data.run("b", tag="Y")
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "data/runs/b.yaml"]) == 1
    assert capsys.readouterr().err.startswith("data/runs/b.yaml:3:6")
    assert main(["check", "data/runs"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_check_of_a_directory_without_data(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["check", str(tmp_path / "empty")]) == 2
    assert "holds no data" in capsys.readouterr().err


def test_check_without_a_directory(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["check", "nowhere"]) == 2
    assert capsys.readouterr().err == (
        "verl-resources: nowhere: no such directory; name a data directory, the one that holds runs/\n"
    )
    assert main(["check"]) == 0, "the bundled data"


@pytest.mark.parametrize("form", ["plain", "rst", "github", "html", "latex", "list-table", "csv", "json"])
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


def test_table_as_list_table_builds_to_the_same_cells(own, data, monkeypatch, capsys):
    data.run("a", label="a_b*c`d|", task="x \\ y")
    monkeypatch.chdir(data.path.parent)
    assert main(["table", "--format", "list-table"]) == 0
    typed = own.page(capsys.readouterr().out).build()
    assert typed.warnings == []
    cells = [cell.get_text().strip() for cell in typed.soup().select("td")]
    ours = own.page(".. verl-runs:: 7B").build()
    assert cells == ours.rows("size-7b")[1]


def test_table_with_an_unknown_field(capsys):
    assert main(["table", "--columns", "modle"]) == 2
    assert "unknown field 'modle'; did you mean 'model'?" in capsys.readouterr().err


def test_schema(tmp_path, capsys, root):
    assert main(["schema", "gpus"]) == 0
    assert capsys.readouterr().out == (root / "data/schema/gpus.json").read_text("utf-8")
    assert main(["schema", "gpus", "--output", str(tmp_path / "one")]) == 0
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["gpus.json"]
    assert main(["schema", "--output", str(tmp_path / "new")]) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "architectures.json",
        "gpus.json",
        "run.json",
    ]


@pytest.mark.parametrize("command", [[], ["check"], ["table"], ["schema"]])
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([*command, "--help"])
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    assert "Exit codes" in out or f"examples:\n  verl-resources {command[0]}" in out


def test_unknown_command():
    with pytest.raises(SystemExit) as exit_:
        main(["chek"])
    assert exit_.value.code == 2


def test_as_a_module_and_into_a_closed_pipe():
    command = f"{sys.executable} -m sphinx_verl_resources table | head -1; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stderr == ""
    assert result.stdout.startswith("Tag")
