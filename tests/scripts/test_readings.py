"""What the reader makes of scripts, YAML and overrides: values, unknown values and messages."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sphinx_verl_resources import scripts
from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.memory.keys import key_names
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.scripts.overrides import read_overrides
from sphinx_verl_resources.scripts.read import read_script, read_settings

CASES = yaml.safe_load((Path(__file__).parent / "readings.yaml").read_text("utf-8"))
ROOM = Path(scripts.__file__).parent
TRAIN = "python3 -m verl.trainer.main_ppo"


def plain(value):
    return [*map(plain, value)] if isinstance(value, tuple) else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_readings(case):
    text = case["text"] if "text" in case else case["script"].replace("TRAIN", TRAIN)
    read = read_settings(text, "x") if "text" in case else read_script(text, "x", case.get("env", {}))
    assert {key: plain(value) for key, value in read.values.items()} == case.get("values", {})
    assert dict(read.unresolved) == case.get("unresolved", {})
    assert [str(problem) for problem in read.problems] == case.get("problems", [])
    assert [*read.incomplete] == case.get("incomplete", [])
    assert read.places.keys() == read.values.keys() | read.unresolved.keys()
    if "config" in case:
        assert read.config_name == case["config"]
    if "program" in case:
        assert [*read.program[:2]] == case["program"]
    if "variables_read" in case:
        assert sorted(read.variables_read) == case["variables_read"]


def test_values_that_are_settled_elsewhere_are_no_problems():
    read = read_script(f"{TRAIN} a.b=$X a.c=$X a.d=$(date)", "x")
    (problem,) = read.problems_besides({"a.b", "a.d"})
    assert problem.message == "the value of a.c is unknown: the script does not set $X"
    assert read.problems_besides(read.unresolved) == ()


def test_keys_of_a_fork_become_keys_of_verl():
    table = yaml.safe_load((ROOM / "easyr1.yaml").read_text("utf-8"))
    assert {*table.values()} <= {*key_names()}
    assert not {*table} & {*key_names()}
    assert read_settings("\n".join(f"{key}: 1" for key in table), "x").values == dict.fromkeys(
        table.values(), 1
    )
    # A log keeps its keys, which tell that EasyR1 ran.
    assert read_overrides(["worker.rollout.n=5"], Location("x")).values == {"worker.rollout.n": 5}


def test_nothing_of_the_environment_is_read(monkeypatch):
    monkeypatch.setenv("NNODES", "4")
    read = read_script(f"{TRAIN} trainer.nnodes=${{NNODES:-2}} c.d=$NNODES", "run.sh")
    assert (read.values, read.unresolved) == ({"trainer.nnodes": 2}, {"c.d": "$NNODES"})


def test_settings_of_recorded_runs_come_back_from_every_kind_of_text():
    recorded = [dict(run.settings) for run in EstimatorContext().runs.values() if run.settings]
    assert len(recorded) > 10
    for values in recorded:
        words = [shlex.quote(f"{key}={json.dumps(value)}") for key, value in values.items()]
        texts = ("\n".join(words), f"{TRAIN} {' '.join(words)}", json.dumps(values, indent=2))
        assert [read_settings(text, "x").values for text in texts] == [values] * 3


#: For each kind of nesting: the opening, the inside and the closing.
NESTS = {
    "subshells": ("( ", "true", " )"),
    "if": ("if true; then ", "true", "; fi"),
    "loops": ("while true; do ", "true", "; done"),
    "functions": ("f() { ", "true", "; }"),
    "defaults": ("A=${a:-", "x", "}"),
    "sums": ("A=$((", "1", "))"),
    "brackets": ("A=$(( ", "(" * 5 + "1" + ")" * 5, " ))"),
    "commands": ("A=$(", "echo", ")"),
    "tests": ("[[ ! ", "a = b", " ]]"),
    "quotes": ("A='\"", "", ""),
    "words": ("A=$A$A; ", "", ""),
}


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("times", [3, 1_000])
def test_deep_nesting_is_read_or_reported(name, times):
    opening, inside, closing = NESTS[name]
    text = f"{opening * times}{inside}{closing * times}\n{TRAIN} a.b=$A trainer.nnodes=2\n"
    read = read_script(text, "run.sh")
    assert read.values.get("trainer.nnodes") == 2 or any(problem.is_error for problem in read.problems)
    for problem in read.problems:
        assert re.match(r"run\.sh:\d+:\d+: (ERROR|WARNING): .+; .+ \[verl\.\w+\]", str(problem))


WITHOUT = """
import sys
sys.modules["tree_sitter"] = None
from sphinx_verl_resources.commands import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["new", "--script", "run.sh", "--dry-run"], 1, "not installed; install the extra"),
        (["estimate", "--script", "run.sh", "--gpus", "8xH100"], 2, 'install the extra "scripts" of'),
        (["estimate", "--settings", "a.yaml", "--gpus", "8xH100", "data.max_response_length=64"], 0, ""),
    ],
)
def test_without_the_extra(words, code, error, tmp_path):
    """YAML and overrides need no parser of scripts."""
    (tmp_path / "run.sh").write_text(f"{TRAIN} a.b=1\n", "utf-8")
    (tmp_path / "a.yaml").write_text("actor_rollout_ref.model.path: Qwen/Qwen2.5-0.5B-Instruct\n", "utf-8")
    command = [sys.executable, "-c", WITHOUT, *words]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, error in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr
