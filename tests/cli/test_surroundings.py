"""Every command in the environments that shells, schedulers and containers provide."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from sphinx_verl_resources.cli import main

#: For each command, a line that works, and the exit code.
LINES = {
    "new": ("new --script run.sh --gpus 8*H100 --dry-run", 0),
    "check": ("check bad", 1),
    "import-rst": ("import-rst page.rst --dry-run", 0),
    "table": ("table data", 0),
    "export": ("export data --output out.json", 0),
    "estimate": ("estimate cases.yaml --format json", 0),
    "plan": ("plan Qwen/Qwen2.5-7B --gpus 8xH100", 0),
    "diagnose": ("diagnose failed.log", 0),
    "schema": ("schema", 0),
    "completion": ("completion bash", 0),
}
#: Lines that need no file, or whose file does not exist.
OTHERS = {
    "help": ("--help", 0),
    "help of a command": ("check --help", 0),
    "no command": ("", 2),
    "no such command": ("chek", 2),
    "no such directory": ("check nodir", 2),
    "standard input": ("diagnose -", 1),
    "a name that is too long": (f"estimate {'a' * 5000}", 2),
}
#: Shell commands by the name of the environment; ``$@`` is the command's line.
SURROUNDINGS = {
    "no input": '"$@" <&-',
    "no output": '"$@" >&-',
    "no messages": '"$@" 2>&-',
    "no streams": '"$@" <&- >&- 2>&-',
    "a full disk": '"$@" >/dev/full',
    "a full disk for messages": '"$@" 2>/dev/full',
    "a full disk for both": '"$@" >/dev/full 2>&1',
    "output for reading only": '"$@" 1</dev/null',
    "nobody reads": '"$@" | true; exit ${PIPESTATUS[0]}',
    "a deleted directory": 'mkdir gone && cd gone && rmdir ../gone && "$@"',
    "no home": 'env -u HOME -u PATH "$@"',
    "no letters": 'LC_ALL=C LANG= PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 PYTHONIOENCODING=ascii "$@"',
    "a strange terminal": 'COLUMNS=abc LINES=-1 TERM= FORCE_COLOR=1 "$@"',
    "a narrow terminal": 'COLUMNS=1 "$@"',
    "no size of files": 'ulimit -f 0; "$@"',
    "no docstrings": 'PYTHONOPTIMIZE=2 "$@"',
}
#: Environments in which the exit code is 2 although the line would work.
FULL = {"a full disk", "a full disk for both", "output for reading only"}
PAGE = """\
7B
--
.. list-table::
   :header-rows: 1

   * - Tag
     - Model
     - Task
     - Resource
     - MaxBatch
     - Train
     - Infer
     - Link
     - Contributor
   * - MIN
     - Qwen2-7B
     - GRPO
     - 2*H800
     - 8
     - fsdp
     - vllm0.8.2
     - `a.sh <https://github.com/verl-project/verl/blob/v0.4.0/examples/a.sh>`_
     - Jürgen
"""
CASE = "- {id: x, model: Qwen/Qwen2.5-7B, gpus: {count: 8, type: H100}, config: {}, outcome: fits}\n"
SCRIPT = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct\n"


#: Runs at the start of Python and interrupts it as Ctrl-C does.
INTERRUPTS = """\
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit that it is ignored

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            signal.raise_signal(signal.SIGINT)

if os.environ["INTERRUPTED_AT"] == "a class":
    import functools
    noted = functools.cached_property.__set_name__
    def note(self, owner, name):
        if owner.__module__.startswith("sphinx_verl_resources"):
            signal.raise_signal(signal.SIGINT)
        noted(self, owner, name)
    functools.cached_property.__set_name__ = note
if os.environ["INTERRUPTED_AT"] == "the end":
    import atexit
    atexit.register(signal.raise_signal, signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


@pytest.fixture
def start(data, tmp_path, root):
    """Return a function that runs a line of arguments in an environment and returns the result."""
    data.good_run("a", contributor={"name": "Jürgen"})
    shutil.copytree(data.path, tmp_path / "bad")
    (tmp_path / "bad/runs/a.yaml").write_text("id: Ü\n", "utf-8")
    for name, text in {"page.rst": PAGE, "cases.yaml": CASE, "run.sh": SCRIPT}.items():
        (tmp_path / name).write_text(text, "utf-8")
    shutil.copy(root / "tests/intake/logs/cascade.log", tmp_path / "failed.log")

    def run(line, surrounding, program=("-m", "sphinx_verl_resources"), **environment):
        return subprocess.run(
            ["bash", "-c", surrounding, "-", sys.executable, *program, *line.split()],
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(root), **environment},
            input=b"",
        )

    return run


@pytest.fixture
def start_interrupted(start, tmp_path, root):
    """Return a function that runs a line of arguments and interrupts it at a given moment."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS, "utf-8")
    path = os.pathsep.join([str(tmp_path), str(root)])

    def run(line, program, moment):
        return start(line, '"$@"', program, PYTHONPATH=path, INTERRUPTED_AT=moment)

    return run


def expected(name: str, line: str, code: int) -> set[int]:
    """Return the possible exit codes of a line in an environment."""
    if name == "a full disk for messages":  # 2 if there are messages
        return {code, 2}
    if name in FULL and "--output" not in line:
        return {2}
    reads = any(word in line for word in ("data", "bad", ".", "plan", "diagnose -"))
    refused = {
        "a deleted directory": reads,
        "no size of files": "--output" in line,
        "no input": line == "diagnose -",
        "no streams": line == "diagnose -",
    }
    return {2 if refused.get(name) else code}


def judge(found, name, line, code):
    """Check that only lines of messages are printed, and the exit code."""
    said = found.stderr.decode(errors="replace")
    assert found.returncode in expected(name, line, code), said
    for sign in (b"Traceback", b"Errno", b"Exception ignored"):
        assert sign not in found.stderr + found.stdout
    if found.returncode == 2 and name == "a deleted directory" and code != 2:
        assert "verl-resources: the current directory no longer exists; change to another one" in said


def test_every_command_has_its_line():
    from sphinx_verl_resources.cli.main import NAMES

    assert set(NAMES) == set(LINES)


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_a_surrounding(start, name):
    """Test a command, its help and an error; the slow test covers every command."""
    lines = [LINES["check"], OTHERS["help"], OTHERS["no such directory"]]
    lines += [OTHERS["standard input"]] if name in {"no input", "no streams"} else []
    for line, code in lines:
        judge(start(line, SURROUNDINGS[name]), name, line, code)


@pytest.mark.slow
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_every_command_in_a_surrounding(start, needs, name):
    needs("shtab")
    for line, code in (*LINES.values(), *OTHERS.values()):
        judge(start(line, SURROUNDINGS[name]), name, line, code)


@pytest.mark.parametrize(
    "module",
    [
        "sphinx_verl_resources.cli",
        "sphinx_verl_resources.cli.main",
        "yaml",
        "sphinx_verl_resources.cli.check",
        "pydantic",
        "a class",
    ],
)
@pytest.mark.parametrize("program", ["module", "script"])
def test_an_interrupt_while_modules_are_loaded(start_interrupted, root, module, program):
    """The interrupt arrives when this module is imported."""
    (entry,) = re.findall(r'verl-resources = "([\w.]+):(\w+)"', (root / "pyproject.toml").read_text("utf-8"))
    # The script that pip writes for an entry point.
    script = f"import sys; from {entry[0]} import {entry[1]}; sys.exit({entry[1]}())"
    words = ("-c", script) if program == "script" else ("-m", "sphinx_verl_resources")
    found = start_interrupted("check data", words, module)
    assert (found.returncode, found.stdout) == (2, b"")
    assert found.stderr == b"\nverl-resources: interrupted\n"


def test_an_interrupt_after_the_result(start_interrupted):
    found = start_interrupted("check data", ("-m", "sphinx_verl_resources"), "the end")
    assert (found.returncode, found.stderr) == (0, b"")


def test_a_command_that_ignores_interrupts_goes_on(start_interrupted):
    """This happens after ``nohup`` and for background jobs of a script."""
    ignoring = ("-c", "import signal, runpy; signal.signal(signal.SIGINT, signal.SIG_IGN); runpy.run_module('sphinx_verl_resources', run_name='__main__')")  # fmt: skip
    found = start_interrupted("check data", ignoring, "pydantic")
    assert (found.returncode, found.stderr) == (0, b"")


@pytest.mark.parametrize(
    "option", ["--contributor", "--task", "--evidence", "--model", "--ref", "--path", "--id"]
)
def test_an_argument_that_is_not_utf_8(start, option, monkeypatch, tmp_path, capsys):
    start("schema", "true")  # writes the files
    monkeypatch.chdir(tmp_path)
    words = ["new", "--script", "run.sh", "--gpus", "8*H100", "--dry-run", option, os.fsdecode(b"a \xff")]
    try:
        code = main(words)
    except SystemExit as end:  # --id is validated
        code = end.code
    said = capsys.readouterr().err
    assert code in {0, 1, 2}
    if option in {"--contributor", "--task", "--evidence"}:  # written to the file unchanged
        assert said.endswith(
            "an argument is not valid UTF-8: '\\udcff'; encode it in UTF-8, or set LC_ALL=C.UTF-8\n"
        )
