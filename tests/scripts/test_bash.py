"""For each setting that bash passes to verl, the reader has the same value, or reports it as unknown."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.scripts.overrides import OVERRIDE, read_overrides
from sphinx_verl_resources.scripts.read import read_script

HERE = Path(__file__).parent
CASES = yaml.safe_load((HERE / "bash.yaml").read_text("utf-8"))
SCRIPTS = sorted((HERE.parent / "logs/scripts").glob("*.sh"))
BASH = shutil.which("bash")
#: Replaces every program; records the arguments of programs that train.
RECORDER = """#!/bin/bash
case "${0##*/} $*" in
    *"import torch_npu"*) exit 1 ;;
    *get_device_name*|"python3 -") echo cuda ;;
    scontrol*) echo node1; echo node2 ;;
    *main_ppo*|*main_dapo*|*.train*|*train.py*) printf '%s\\0' "$@" >> "$RECORD"; printf '\\n\\0' >> "$RECORD" ;;
esac
"""
PROGRAMS = "python3 uv ray torchrun pip tee cat nvidia-smi srun scontrol docker kubectl sleep"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for name in PROGRAMS.split():
        (folder / name).write_text(RECORDER)
        (folder / name).chmod(0o755)
    for name in ("wc", "tr", "head"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


def settings_in_bash(script, environment, programs, folder):
    """Run a script; return the settings of the first program that trains."""
    path, record = folder / "run.sh", folder / "record"
    path.write_text(script)
    record.write_text("")
    variables = {"PATH": str(programs), "HOME": "/home/of-nobody", "RECORD": str(record), **environment}
    subprocess.run([BASH, path], env=variables, cwd=folder, check=False, capture_output=True, timeout=60)
    words = record.read_text().partition("\n")[0].split("\0")
    at = next((at for at, word in enumerate(words) if word.endswith(".py") or words[at - 1] == "-m"), 0)
    arguments = [word for word in words[at + 1 :] if OVERRIDE.fullmatch(word) and re.search("[=~]", word)]
    return dict(read_overrides(arguments, Location("")).values)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_value_is_that_of_bash_or_unknown(case, programs, tmp_path):
    script = case["script"].replace("TRAIN", "python3 -m verl.trainer.main_ppo")
    environment = case.get("env", {})
    in_bash = settings_in_bash(script, environment, programs, tmp_path)
    read = read_script(script, "run.sh", environment)
    assert read.values == {key: value for key, value in in_bash.items() if key in case.get("values", {})}
    assert {key: _plain(value) for key, value in read.values.items()} == case.get("values", {})
    assert sorted(in_bash.keys() - read.values.keys()) == case.get("open", [])
    assert all(key in read.unresolved or read.incomplete for key in case.get("open", []))
    assert any(problem.is_error for problem in read.problems) == case.get("refused", False)


def _plain(value):
    return [*map(_plain, value)] if isinstance(value, tuple) else value


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_whole_scripts(path, programs, tmp_path):
    environment = {"UTILIZATION": "0.5"}
    in_bash = settings_in_bash(path.read_text("utf-8"), environment, programs, tmp_path)
    read = read_script(path.read_text("utf-8"), "run.sh", environment)
    if in_bash:  # it trains, and does not start another script
        assert read.values == {key: value for key, value in in_bash.items() if key not in read.unresolved}
        assert len(read.unresolved) <= 10
