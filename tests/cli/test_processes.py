"""Each command in a separate process, and closed standard output."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from sphinx_verl_resources.cli import main

#: Arguments for every command, with the exit code.
LINES = {
    "new": (["new", "--script", "run.sh", "--gpus", "8*H100"], 0),
    "check": (["check", "data"], 0),
    "import-rst": (["import-rst", "none.rst", "--dry-run"], 2),
    "table": (["table", "data"], 0),
    "export": (["export", "data"], 0),
    "estimate": (["estimate", "Qwen/Qwen2.5-7B", "--gpus", "8*H100"], 0),
    "plan": (["plan", "Qwen/Qwen2.5-7B", "--gpus", "8xH100"], 0),
    "diagnose": (["diagnose", "none.log"], 2),
    "schema": (["schema"], 0),
    "completion": (["completion", "bash"], 0),
}
SCRIPT = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct\n"


def test_every_command_has_its_line():
    from sphinx_verl_resources.cli.main import all_commands

    assert {command.name for command in all_commands()} == set(LINES)


@pytest.mark.parametrize("name", LINES)
def test_a_process(data, tmp_path, needs, name):
    """Run each command with a small encoding and a name that it cannot encode."""
    if name == "completion":
        needs("shtab")
    data.good_run("a", contributor={"name": "Jürgen"})
    (tmp_path / "run.sh").write_text(SCRIPT, "utf-8")
    words, code = LINES[name]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    result = subprocess.run(
        [sys.executable, "-m", "sphinx_verl_resources", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert bool(result.stdout) is (code == 0)


@pytest.mark.parametrize("end", ["| true", ">&-"])
def test_a_shell_that_takes_no_output(data, tmp_path, end):
    """The exit code still reports the error."""
    data.good_run("a", tag="X")
    line = f"{sys.executable} -m sphinx_verl_resources check data {end}; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("data/runs/a.yaml:4:6: ERROR: ")
    assert result.stderr.count("\n") == 1


@pytest.fixture
def closed_pipe(monkeypatch):
    """Return a pipe whose reader has been closed."""
    reader, writer = os.pipe()
    os.close(reader)
    with io.TextIOWrapper(io.FileIO(writer, "w"), "ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        yield stream


@pytest.fixture
def good(data, monkeypatch):
    """Return a data directory without errors; a name contains a non-ASCII letter."""
    data.good_run("a", contributor={"name": "Jürgen"})
    monkeypatch.chdir(data.path.parent)


@pytest.mark.parametrize("words", [["check", "data"], ["table", "data"], ["table", "--help"]])
@pytest.mark.parametrize("is_closed", [True, False])
def test_output_that_nobody_takes(good, monkeypatch, capsys, request, words, is_closed):
    if is_closed:
        monkeypatch.setattr(sys, "stdout", None)
    else:
        request.getfixturevalue("closed_pipe")
    try:
        code = main(words)
    except SystemExit as exit_:
        code = exit_.code
    assert code == 0
    assert capsys.readouterr().err == ""


def test_a_disk_that_is_full(good, monkeypatch, capsys):
    class Full(io.StringIO):
        def flush(self):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    assert main(["table", "data"]) == 2
    assert capsys.readouterr().err == (
        "verl-resources: the output cannot be written: No space left on device\n"
    )
