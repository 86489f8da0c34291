"""Variables given by a caller, devices that a script detects, and undetermined conditions."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.settings.read import read_script, read_settings

TRAIN = "python3 -m verl.trainer.main_ppo"
PROBE = "$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)"
VERL_PROBE = (
    "$(python3 - <<'EOF'\nfrom verl.utils.device import get_device_name\nprint(get_device_name())\nEOF\n)"
)
BY_DEVICE = """\
case "$DEVICE" in
    gpu | cuda) N=8; TP=2; EXTRA=() ;;
    npu) N=16; TP=4; EXTRA=(data.seed=1) ;;
    *) echo "unknown device"; exit 1 ;;
esac
python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=$N a.tp=$TP a.size=$((N * TP)) "${EXTRA[@]}"
"""
ON_GPUS = {"trainer.n_gpus_per_node": 8, "a.tp": 2, "a.size": 16}
ON_NPUS = {"trainer.n_gpus_per_node": 16, "a.tp": 4, "a.size": 64, "data.seed": 1}


@pytest.mark.parametrize(
    ("assignment", "message", "remedy"),
    [
        (f"DEVICE=${{DEVICE:-{PROBE}}}", "DEVICE is assumed to be gpu", "add --env DEVICE=npu"),
        (f"DEVICE={PROBE}", "DEVICE is assumed to be gpu", "write its value here"),
        (f"export DEVICE={VERL_PROBE}", "DEVICE is assumed to be cuda", "write its value here"),
        (
            """DEVICE=$(python3 -c 'import torch; print("cuda" if torch.cuda.is_available() else "cpu")')""",
            "DEVICE is assumed to be cuda",
            "write its value here",
        ),
    ],
)
def test_a_script_that_asks_for_the_device_is_read_as_on_gpus(assignment, message, remedy):
    found = read_script(f"set -x\n{assignment}\n{BY_DEVICE}", "run.sh")
    assert found.values == ON_GPUS
    (problem,) = found.problems
    assert (problem.place, problem.code) == (Location("run.sh", 2, 1), "assumed_device")
    assert (problem.message, problem.remedy) == (message, f"for another device, {remedy}")


def test_a_device_in_the_condition_itself():
    found = read_script(f"set -x\n{BY_DEVICE}".replace("$DEVICE", PROBE), "run.sh")
    assert found.values == ON_GPUS
    assert [(problem.place.line, problem.message) for problem in found.problems] == [
        (2, "the device is assumed to be gpu")
    ]


@pytest.mark.parametrize(
    ("condition", "on_gpus"),
    [
        ("command -v npu-smi > /dev/null 2>&1", False),
        ("nvidia-smi", True),
        ("python3 -c 'import torch_npu'", False),
    ],
)
def test_a_condition_that_looks_for_the_device(condition, on_gpus):
    found = read_script(f"nvidia-smi\nX=1\nif {condition}; then N=1; else N=2; fi\n{TRAIN} a.b=$N", "run.sh")
    assert found.values == {"a.b": 1 if on_gpus else 2}
    (problem,) = {problem.message: problem for problem in found.problems}.values()
    assert (problem.place.line, problem.message) == (3, "the device is assumed to be a GPU")


@pytest.mark.parametrize(("device", "values"), [("gpu", ON_GPUS), ("npu", ON_NPUS)])
def test_a_device_that_is_given(device, values):
    found = read_script(f"DEVICE=${{DEVICE:-{PROBE}}}\n{BY_DEVICE}", "run.sh", {"DEVICE": device})
    assert (found.values, found.problems) == (values, ())


def test_a_condition_is_one_message_whatever_depends_on_it():
    found = read_script(f"set -x\n{BY_DEVICE}", "run.sh")
    assert (found.values, set(found.unresolved)) == ({}, set(ON_NPUS))
    (problem,) = found.problems
    assert str(problem) == (
        "run.sh:2:1: WARNING: 4 settings are unknown because the condition in line 2 depends on $DEVICE: "
        "trainer.n_gpus_per_node, a.tp, a.size and 1 more; add --env DEVICE=… [verl.unresolved]"
    )


@pytest.mark.parametrize(
    ("condition", "depends", "remedy"),
    [
        ('[ "$A" = 1 ]', "depends on $A", "add --env A=…"),
        ('[[ "$A" -gt 1 ]] && [ "$B" = x ]', "depends on $A, $B", "add --env A=… --env B=…"),
        ('[ "$A" = 1 ] && { [ -n "$B" ] && X=1; true; }', "depends on $A", "add --env A=…"),
        ("[ -f model ]", "cannot be evaluated", "write the value out"),
    ],
)
def test_a_condition_names_its_variables(condition, depends, remedy):
    found = read_script(f"N=1\nif {condition}; then N=2; fi\n{TRAIN} a.b=$N", "run.sh")
    (problem,) = found.problems
    assert problem.message == f"the value of a.b is unknown: the condition in line 2 {depends}"
    assert (problem.place, problem.remedy) == (Location("run.sh", 2, 1), remedy)


def test_a_condition_does_not_name_the_variables_of_those_inside():
    script = f'if [ "$A" = 1 ]; then\nif [ "$B" = 1 ]; then M=1; fi; N=2\nfi\n{TRAIN} a.b=$M a.c=$N'
    problems = read_script(script, "run.sh").problems
    assert [(problem.place.line, problem.remedy) for problem in problems] == [(1, "add --env A=…")]


def test_variables_given_go_before_defaults_and_behind_what_the_script_sets():
    script = f"B=2\n{TRAIN} a.b=${{A:-1}} a.c=$B a.d=$((C + 1)) a.path=$HOME/models/Qwen3-8B"
    found = read_script(script, "run.sh", {"A": "8", "B": "9", "C": "3", "HOME": "/h", "D": ""})
    assert found.values == {"a.b": 8, "a.c": 2, "a.d": 4, "a.path": "/h/models/Qwen3-8B"}
    assert found.problems == ()
    assert {"A", "C", "HOME"} <= found.asked
    assert not {"B", "D"} & found.asked
    assert read_settings("a.b=$A", "overrides", {"A": "8"}).values == {"a.b": 8}


def test_settings_that_lack_the_same_variable_are_one_message():
    first, second = "a.b=1 c.d=$HOME/x c.e=$HOME/y", "f.g=$(hostname) f.h=${H:-$(date)} f.i=${I:-$(date)}"
    found = read_script(f"{TRAIN} {first} \\\n {second}", "run.sh")
    unknown, command = "settings are unknown because", "the output of a command is unknown"
    assert [str(problem).replace(" [verl.unresolved]", "") for problem in found.problems] == [
        f"run.sh:1:40: WARNING: 2 {unknown} the script does not set $HOME: c.d, c.e; add --env HOME=…",
        f"run.sh:2:2: WARNING: the value of f.g is unknown: {command}; write the value out",
        f"run.sh:2:18: WARNING: 2 {unknown} {command}: f.h, f.i; add --env H=… --env I=…",
    ]
    still = found.problems_besides({"c.d", "f.g", "f.h"})
    assert [problem.message for problem in still] == [
        "the value of c.e is unknown: the script does not set $HOME",
        f"the value of f.i is unknown: {command}",
    ]
    assert found.problems_besides(found.unresolved) == ()


def test_settings_that_are_set_twice_are_one_message():
    found = read_script(f"{TRAIN} a.b=1 a.c=1 a.d=1 a.d=2 \\\n a.b=2", "run.sh")
    assert [str(problem) for problem in found.problems] == [
        "run.sh:1:52: WARNING: 2 settings are set twice; the later values are used: a.d, a.b; keep one of the "
        "two [verl.duplicate_key]"
    ]


@pytest.mark.parametrize(
    ("script", "place", "incomplete"),
    [
        (f"source env.sh\n{TRAIN} a.b=1", "1:1", "env.sh: it was not read, but may set any variable"),
        (f'eval "$MORE"\n{TRAIN} a.b=1', "1:1", "eval $MORE: it was not read"),
        (f"{TRAIN} a.b=1 $MORE", "1:40", "$MORE: the script does not set $MORE"),
        (f'mapfile -t L < x\n{TRAIN} a.b=1 "${{L[@]}}"', "2:40", "$L: $L is set when the script runs"),
        (
            f'for X in a b; do L+=($X); done\n{TRAIN} a.b=1 "${{L[@]}}"',
            "1:1",
            "$L: the loop in line 1 sets it",
        ),
        (
            f"{TRAIN} --config-name=$C a.b=1",
            "1:34",
            "the name of the configuration is unknown: the script does not set $C",
        ),
        (
            f'if [ "$X" = 1 ]; then\n{TRAIN} a.b=1\nelse\n{TRAIN} a.b=2\nfi',
            "4:1",
            "the command in line 2: the condition in line 1 depends on $X",
        ),
    ],
)
def test_what_may_set_more_than_is_read(script, place, incomplete):
    found = read_script(script, "run.sh")
    assert found.values == {"a.b": 1}
    (reason,) = found.incomplete
    assert reason.startswith(incomplete)
    (problem,) = found.problems
    assert str(problem.place) == f"run.sh:{place}"
    assert problem.remedy


@pytest.mark.parametrize("file", ["/usr/local/Ascend/ascend-toolkit/set_env.sh", "~/.bashrc"])
def test_files_that_only_prepare_a_shell(file):
    found = read_script(f"source {file}\n{TRAIN} a.b=1", "run.sh")
    assert (found.values, found.incomplete, found.problems) == ({"a.b": 1}, (), ())
