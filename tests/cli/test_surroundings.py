"""Commands in the environments that shells, schedulers and containers provide."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sphinx_verl_resources.cli import main

#: Shell commands by the name of the environment, with the exit code; ``$@`` is the command, which finds an error.
SURROUNDINGS = {
    "no output": ('"$@" >&-', 1),
    "no streams": ('"$@" <&- >&- 2>&-', 1),
    "a full disk": ('"$@" >/dev/full', 2),
    "nobody reads": ('"$@" | true; exit ${PIPESTATUS[0]}', 1),
    "a deleted directory": ('mkdir gone && cd gone && rmdir ../gone && "$@"', 2),
    "no letters": ('LC_ALL=C LANG= PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 PYTHONIOENCODING=ascii "$@"', 1),
    "a narrow terminal": ('COLUMNS=1 "$@"', 1),
}
#: Runs at the start of Python and interrupts it as Ctrl-C does, when a module is imported.
INTERRUPTS = """\
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit that it is ignored

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ.get("INTERRUPTED_AT"):
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


@pytest.fixture
def start(data, tmp_path, root):
    """Return a function that checks bad data in an environment and returns the result."""
    (data.path / "runs/a.yaml").write_text("id: Ü\n", "utf-8")

    def run(surrounding, **environment):
        command = [sys.executable, "-m", "sphinx_verl_resources", "check", "data"]
        return subprocess.run(
            ["bash", "-c", surrounding, "-", *command],
            capture_output=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root), **environment},
        )  # fmt: skip

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_a_surrounding(start, name):
    surrounding, code = SURROUNDINGS[name]
    found = start(surrounding)
    assert found.returncode == code, found.stderr
    for sign in (b"Traceback", b"Errno", b"Exception ignored"):
        assert sign not in found.stderr + found.stdout


def test_an_interrupt_while_modules_are_loaded(start, tmp_path, root):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS, "utf-8")
    path = os.pathsep.join([str(tmp_path), str(root)])
    found = start('"$@"', PYTHONPATH=path, INTERRUPTED_AT="pydantic")
    assert (found.returncode, found.stdout) == (2, b"")
    assert found.stderr == b"\nverl-resources: interrupted\n"


def test_an_argument_that_is_not_utf_8(tmp_path, monkeypatch, capsys):
    (tmp_path / "run.sh").write_text("python3 -m verl.trainer.main_ppo trainer.nnodes=1\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["new", "--script", "run.sh", "--dry-run", "--task", os.fsdecode(b"a \xff")]) in {1, 2}
    assert capsys.readouterr().err.endswith(
        "an argument is not valid UTF-8: '\\udcff'; encode it in UTF-8, or set LC_ALL=C.UTF-8\n"
    )
