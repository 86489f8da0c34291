"""Settings of verl out of overrides, YAML and launch scripts."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import shlex

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sphinx_verl_resources.catalog import settings as package
from sphinx_verl_resources.catalog.files import bundled_directory, take_snapshot
from sphinx_verl_resources.catalog.load import load_catalog
from sphinx_verl_resources.catalog.settings.launch_script import read_script
from sphinx_verl_resources.catalog.settings.overrides import parse_value, read_overrides
from sphinx_verl_resources.catalog.settings.read import read_settings
from sphinx_verl_resources.catalog.settings.result import flatten
from sphinx_verl_resources.catalog.settings.yaml_text import read_yaml_settings
from sphinx_verl_resources.diagnostics import Diagnostic, Location, Severity

HERE = Location("here", 1, 1)


@pytest.mark.parametrize("module", [module.name for module in pkgutil.iter_modules(package.__path__)])
def test_doctests(module):
    found = doctest.testmod(importlib.import_module(f"{package.__name__}.{module}"))
    assert found.failed == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8), ("-1", -1), ("1_024", 1024), ("0.5", 0.5), (".5", 0.5), ("5.", 5.0), ("1e-6", 1e-6), ("1E5", 1e5),
        ("0123", "0123"), ("1__0", "1__0"), ("8446e", "8446e"), ("1e9999", "1e9999"), ("nan", "nan"),
        ("True", True), ("false", False), ("null", None), ("None", "None"), ("~", "~"), ("", ""), ("  a b ", "a b"),
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B"), ("a=b", "a=b"), ("console,wandb", "console,wandb"),
        ("'8'", "8"), ('"true"', "true"), ("'it\\'s'", "it's"), ("' a '", " a "),
        ("[]", ()), ("[console,wandb]", ("console", "wandb")), ("[1, 'a, b', null,]", (1, "a, b", None)),
        ("[[1,2],[3]]", ((1, 2), (3,))), ("[a b]", ("a b",)), ("[${a.b},1]", ("${a.b}", 1)),
        ("{}", {}), ("{a: b, c: {d: 1}}", {"a": "b", "c": {"d": 1}}), ("{a:[1,2]}", {"a": (1, 2)}),
        ("9" * 50, "9" * 50),
    ],
)  # fmt: skip
def test_values(text, value):
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "[ is not closed"),
        ("['a'b]", "a comma is missing before 'b]'"),
        ("'a", "' is not closed"),
        ("'a'b", "'b' stands behind it"),
        ("[a]]", "']' stands behind it"),
        ("{a: 1", "{ is not closed"),
        ("{a, b}", "a key in braces has no colon behind it"),
        ("[" * 50, "it is nested deeper than 20 levels"),
    ],
)
def test_values_that_cannot_be_read(text, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        parse_value(text)
    assert str(caught.value) == message
    found = read_overrides([f"a.b={text}", "c.d=1"], HERE)
    assert dict(found.values) == {"c.d": 1}
    assert message in found.problems[0].message


def test_overrides():
    words = [
        "data.train_batch_size=64", "+a.b=1", "++c.d=x=y", "e.f=", "~g.h", "i.j={k: 1, l: {m: [1, 2]}}", "n.o={}",
        "hydra.run.dir=/tmp", "model_engine=megatron", "p.q_1-r=2",
    ]  # fmt: skip
    found = read_overrides(words, HERE)
    assert found.values == {
        "data.train_batch_size": 64, "a.b": 1, "c.d": "x=y", "e.f": "", "g.h": None, "i.j.k": 1, "i.j.l.m": (1, 2),
        "model_engine": "megatron", "p.q_1-r": 2,
    }  # fmt: skip
    assert found.places == dict.fromkeys(found.values, HERE)
    assert found.problems == ()


@pytest.mark.parametrize(
    "word", ["a.b", "=1", "a..b=1", ".a=1", "a.=1", "1a=2", "", " ", "+", "a b=1", "\0=1"]
)
def test_words_that_set_nothing(word):
    found = read_overrides([word], HERE)
    assert found.values == {}
    assert [problem.code.name for problem in found.problems] == ["wrong_value"]
    assert found.problems[0].hint


def test_the_later_of_two_wins():
    found = read_settings("a.b=1\na.c=2\n+a.b=3\n", "x")
    assert found.values == {"a.c": 2, "a.b": 3}
    assert found.places["a.b"] == Location("x", 3, 1)
    (problem,) = found.problems
    assert str(problem) == (
        "x:3:1: WARNING: a.b is set twice; this value replaces that of line 1; keep one of the two [verl.duplicate_key]"
    )


def test_the_later_of_two_wins_whether_it_is_known_or_not():
    assert read_settings("a.b=1 a.b=$X", "x").unresolved == {"a.b": "$X"}
    assert read_settings("a.b=1 a.b=$X", "x").values == {}
    assert read_settings("a.b=$X a.b=1", "x").unresolved == {}


def test_references_to_other_keys():
    words = [
        "a.b=${c.d}",
        "c.d=${e.f}",
        "e.f=1",
        "g.h=${no.such}",
        "i.j=${oc.env:HOME}/x",
        "k=${l}",
        "l=${k}",
    ]
    found = read_overrides(words, HERE)
    assert found.values == {"a.b": 1, "c.d": 1, "e.f": 1}
    assert found.unresolved == {
        "g.h": "${no.such}", "i.j": "${oc.env:HOME}/x", "k": "${l}", "l": "${k}",
    }  # fmt: skip
    assert {problem.code.name for problem in found.problems} == {"unresolved"}


def test_flatten():
    nested = {"a": {"b": 1, "c": {"d": [1, 2]}}, "a.b": 2, "e": {}, "f": None}
    assert flatten(nested) == {"a.b": 2, "a.c.d": (1, 2), "f": None}
    assert flatten({"a": 1}, "x.y") == {"x.y.a": 1}


def test_yaml():
    text = "# settings\ndata:\n  train_batch_size: 64\n  files: [a, b]\ntrainer.nnodes: 2\nactor.optim: {lr: 1e-6, x: null}\n"
    found = read_settings(text, "x.yaml")
    assert found.values == {
        "data.train_batch_size": 64, "data.files": ("a", "b"), "trainer.nnodes": 2, "actor.optim.lr": 1e-6,
        "actor.optim.x": None,
    }  # fmt: skip
    assert [(place.line, place.column) for place in found.places.values()] == [
        (3, 3),
        (4, 3),
        (5, 1),
        (6, 15),
        (6, 25),
    ]
    assert found.problems == ()


def test_yaml_with_a_key_in_both_forms():
    found = read_yaml_settings("data:\n  a: 1\ndata.a: 2\ntrainer: {b: 1}\ntrainer: {b: 2}\n", "x.yaml")
    assert found.values == {"data.a": 2, "trainer.b": 2}
    assert [(str(problem.location), problem.code.name, problem.severity) for problem in found.problems] == [
        ("x.yaml:3:1", "duplicate_key", Severity.WARNING),
        ("x.yaml:5:1", "duplicate_key", Severity.ERROR),
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: b: c", "yaml_syntax"),
        ("a: &x 1\nb: *x", "yaml_feature"),
        ("- a=1", "wrong_type"),
        ("a: [{b: 1}]", "unresolved"),
        ("a: \ud800", "encoding"),
        ("a: \u202e", "bad_character"),
        ("a: " + "[" * 50, "yaml_feature"),
    ],
)
def test_yaml_that_cannot_be_read(text, code):
    found = read_settings(text, "x.yaml")
    assert found.values == {}
    assert [problem.code.name for problem in found.problems] == [code]


@pytest.mark.parametrize("text", ["", "\n \n", "# nothing\n", "\ufeff", "{}", "---\n"])
def test_texts_that_set_nothing(text):
    found = read_settings(text, "x")
    assert (found.values, found.problems) == ({}, ())


@pytest.mark.parametrize(
    "text",
    [
        "trainer.nnodes: 2",
        "trainer:\n  nnodes: 2",
        "# note\n\n---\ntrainer: {nnodes: 2}",
        '{"trainer": {"nnodes": 2}}',
        '"trainer.nnodes": 2',
        "trainer.nnodes=2",
        "\n# note\n  trainer.nnodes=2  # note\n",
        "trainer.nnodes=2 \\\n",
        "+trainer.nnodes='2'",
        "trainer.nnodes=1\r\ntrainer.nnodes=2\r\n",
        "python3 -m verl.trainer.main_ppo trainer.nnodes=2",
        "PYTHONUNBUFFERED=1 python3 -u -m verl.trainer.main_ppo \\\r\n trainer.nnodes=2 \\\r\n",
        "#!/bin/bash\nN=2\ntorchrun --nproc_per_node=8 verl/trainer/fsdp_sft_trainer.py trainer.nnodes=$N",
        "export N=2\npython3 -m recipe.dapo.main_dapo trainer.nnodes=$N",
    ],
)
def test_kinds_of_text(text):
    found = read_settings(text, "x")
    assert {key: int(value) for key, value in found.values.items()} == {"trainer.nnodes": 2}
    assert not [problem for problem in found.problems if problem.severity is Severity.ERROR]


def test_overrides_in_a_text_keep_their_brackets():
    found = read_settings('a.b=f(x;y) a.c=[a,b] a.d="[\'$HOME/x\']"\na.e=$((2 * 8)) a.f="open', "x")
    assert found.values == {"a.b": "f(x;y)", "a.c": ("a", "b"), "a.e": 16, "a.f": "open"}
    assert found.unresolved == {"a.d": "['$HOME/x']"}
    assert [problem.code.name for problem in found.problems] == ["unresolved", "shell_syntax"]


TUNING = r"""
set -x

gsm8k_train_path=$HOME/data/gsm8k/train.parquet
math_train_path=$HOME/data/math/train.parquet
train_files="['$gsm8k_train_path', '$math_train_path']"

nproc_per_gpu=116 # 32✅ 64✅ 128❌
nnodes=2
ngpu_per_node=8
total_procs=$(( nproc_per_gpu * nnodes * ngpu_per_node ))
mini_batch_size=$(( total_procs ))

python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="${train_files}" \
    data.train_batch_size=${total_procs} \
    data.truncation='error' \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct \
    actor_rollout_ref.actor.optim.lr=3e-5 \
    actor_rollout_ref.actor.ppo_mini_batch_size=${mini_batch_size} \
    actor_rollout_ref.actor.fsdp_config.fsdp_size=-1 \
    actor_rollout_ref.model.use_shm=True \
    +actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space=null \
    trainer.logger=['console','wandb'] $@ 2>&1 | tee run.log
"""


def test_a_tuning_script():
    found = read_settings(TUNING, "run.sh")
    assert found.values == {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": 1856,
        "data.truncation": "error",
        "actor_rollout_ref.model.path": "Qwen/Qwen2.5-7B-Instruct",
        "actor_rollout_ref.actor.optim.lr": 3e-5,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 1856,
        "actor_rollout_ref.actor.fsdp_config.fsdp_size": -1,
        "actor_rollout_ref.model.use_shm": True,
        "actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space": None,
        "trainer.logger": ("console", "wandb"),
    }
    assert found.places["data.train_batch_size"] == Location("run.sh", 17, 5)
    assert found.unresolved == {
        "data.train_files": "['$HOME/data/gsm8k/train.parquet', '$HOME/data/math/train.parquet']"
    }
    assert [str(problem) for problem in found.problems] == [
        "run.sh:16:5: WARNING: the value of data.train_files is not known: $HOME is set nowhere in the script; "
        "write the value out [verl.unresolved]"
    ]


DAPO = r"""#!/usr/bin/env bash
set -euxo pipefail
max_prompt_length=$((1024 * 2))
max_response_length=$((1024 * 20))
RAY_ADDRESS=${RAY_ADDRESS:-"http://localhost:8265"}
WORKING_DIR=${WORKING_DIR:-"${PWD}"}
NNODES=${NNODES:-16}
RAY_DATA_HOME=${RAY_DATA_HOME:-"${HOME}/verl"}
MODEL_PATH=${MODEL_PATH:-"${RAY_DATA_HOME}/models/Qwen2.5-32B"}
use_dynamic_bsz=True
actor_ppo_max_token_len=$(((max_prompt_length + max_response_length) * 2))
train_prompt_bsz=512
gen_prompt_bsz=$((train_prompt_bsz * 3))

ray job submit --no-wait --runtime-env="${WORKING_DIR}/env.yaml" \
    --working-dir "${WORKING_DIR}" \
    -- python3 -m recipe.dapo.main_dapo \
    --config-path config --config-name='ppo_megatron_trainer.yaml' \
    data.gen_batch_size=${gen_prompt_bsz} \
    actor_rollout_ref.actor.use_dynamic_bsz=${use_dynamic_bsz} \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=${actor_ppo_max_token_len} \
    actor_rollout_ref.model.path="${MODEL_PATH}" \
    trainer.logger='["console","wandb"]' \
    trainer.nnodes="${NNODES}"
"""


def test_a_script_that_hands_the_command_to_ray():
    found = read_settings(DAPO, "run.sh")
    assert found.config_name == "ppo_megatron_trainer"
    assert found.values == {
        "data.gen_batch_size": 1536,
        "actor_rollout_ref.actor.use_dynamic_bsz": True,
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 45056,
        "trainer.logger": ("console", "wandb"),
        "trainer.nnodes": 16,
    }
    assert found.unresolved == {"actor_rollout_ref.model.path": "${HOME}/verl/models/Qwen2.5-32B"}
    assert len(found.problems) == 1


ARRAYS = r"""
set -xeuo pipefail
DEVICE=${DEVICE:-$(python3 -c 'import torch; print("cuda")')}
INFER_BACKEND=${INFER_BACKEND:-vllm}
MODEL_ENGINE=${MODEL_ENGINE:-fsdp}
MAX_LENGTH=${MAX_LENGTH:-3072}
DATA=(
    data.train_batch_size=${TRAIN_BATCH_SIZE:-1024}
    # lengths
    data.max_response_length=$((MAX_LENGTH - 1024))
)
ACTOR=(actor_rollout_ref.actor.ppo_max_token_len_per_gpu=${TOKENS:-$(( MAX_LENGTH * 8 ))})
if [ "$DEVICE" = "npu" ]; then
    ACTOR+=(actor_rollout_ref.actor.use_torch_compile=False)
fi
if [[ "$MODEL_ENGINE" == "megatron" ]]; then
    ACTOR+=(actor_rollout_ref.actor.megatron.param_offload=True)
else
    ACTOR+=(actor_rollout_ref.actor.fsdp_config.param_offload=True)
fi
case "$INFER_BACKEND" in
    vllm) ROLLOUT=(actor_rollout_ref.rollout.name=vllm) ;;
    sglang) ROLLOUT=(actor_rollout_ref.rollout.name=sglang) ;;
    *) echo "unknown: $INFER_BACKEND" >&2; exit 1 ;;
esac
main() {
    python3 -m verl.trainer.main_ppo model_engine="$MODEL_ENGINE" \
        "${DATA[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" "$@"
}
main trainer.nnodes=2 "$@"
"""


def test_a_script_of_arrays():
    found = read_settings(ARRAYS, "run.sh")
    assert found.values == {
        "model_engine": "fsdp",
        "data.train_batch_size": 1024,
        "data.max_response_length": 2048,
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 24576,
        "actor_rollout_ref.actor.fsdp_config.param_offload": True,
        "actor_rollout_ref.rollout.name": "vllm",
        "trainer.nnodes": 2,
    }
    assert found.places["data.max_response_length"] == Location("run.sh", 10, 5)
    assert found.unresolved == {"actor_rollout_ref.actor.use_torch_compile": "False"}
    (problem,) = found.problems
    assert problem.location == Location("run.sh", 14, 13)
    assert problem.message.endswith("is not known: it depends on the condition in line 13")


def script(*lines: str) -> str:
    return "python3 -m verl.trainer.main_ppo \\\n    " + " \\\n    ".join(lines) + "\n"


def test_a_comment_between_the_lines_ends_the_command():
    found = read_settings(script("a.b=1", "# a.c=2", "a.d=3", "a.e=4"), "run.sh")
    assert found.values == {"a.b": 1}
    (problem,) = found.problems
    assert problem.location == Location("run.sh", 4, 5)
    assert problem.message == "the settings from here on are not passed on: the command ends above"


def test_a_blank_behind_a_backslash_ends_the_command():
    found = read_settings("python3 -m verl.trainer.main_ppo a.b=1 \\ \n  a.c=2\n", "run.sh")
    assert found.values == {"a.b": 1}
    assert [problem.location for problem in found.problems] == [
        Location("run.sh", 1, 40),
        Location("run.sh", 2, 3),
    ]
    assert "blank behind a backslash" in found.problems[0].hint


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--config-name=ppo_megatron_trainer.yaml", "ppo_megatron_trainer"),
        ("--config-name ppo_megatron_trainer", "ppo_megatron_trainer"),
        ("-cn 'x.yml'", "x"),
        ("--config-path=../config --config-dir x -cp y --cfg job", None),
        ("--config-name=${CONFIG:-x}", "x"),
    ],
)
def test_the_name_of_the_configuration(words, name):
    found = read_settings(script(words, "a.b=1"), "run.sh")
    assert (found.config_name, found.values, found.problems) == (name, {"a.b": 1}, ())


def test_the_name_of_the_configuration_may_be_unknown():
    found = read_settings(script("--config-name $CONFIG", "a.b=1"), "run.sh")
    assert (found.config_name, found.values) == (None, {"a.b": 1})
    assert found.problems[0].message == (
        "the name of the configuration is not known: $CONFIG is set nowhere in the script"
    )


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m verl.trainer.main_ppo {}",
        "python -u -m verl.trainer.sft_trainer {}",
        "torchrun --standalone --nnodes=1 -m verl.trainer.fsdp_sft_trainer {}",
        "python3 -m recipe.one_step_off_policy.main_ppo {}",
        "python3 -m verl.experimental.fully_async_policy.fully_async_main {}",
        "python3 -m verl.trainer.main {}",
        "cd /verl && nohup python3 verl/trainer/main_ppo.py {} > log 2>&1 &",
        "ray job submit --address=x --runtime-env=y -- python3 -m verl.trainer.main_ppo {}",
        "srun --nodes=1 -w $node apptainer run --nv $image python3 -m verl.trainer.main_ppo {}",
        "docker exec x bash -c 'cd verl; N=1; python3 -m verl.trainer.main_ppo {}'",
        "CMD='python3 -m verl.trainer.main_ppo'; $CMD {}",
        'CMD=(python3 -m verl.trainer.main_ppo); "${{CMD[@]}}" {}',
        "$PYTHON $MODULE {}",
        "if [ -f x ]; then python3 -m verl.trainer.main_ppo {}; fi",
        "for i in 1 2; do python3 -m verl.trainer.main_ppo {} || break; done",
        "python3 -m verl.trainer.main_ppo {} &\nwait",
        "python3 -m verl.trainer.main_generation data.x=1\npython3 -m verl.trainer.main_ppo {}",
        "echo trainer.x=1 data.y=2\n$PYTHON $MODULE {}",
    ],
)
def test_commands_that_train(command):
    found = read_script(command.format("a.b=1 c.d=x"), "run.sh")
    assert found.values == {"a.b": 1, "c.d": "x"}
    assert found.problems == ()


@pytest.mark.parametrize(
    "text", ["", "echo hello", "python3 -m verl.trainer.main_eval x", "pip install verl"]
)
def test_a_script_that_trains_nothing(text):
    (problem,) = read_script(text, "run.sh").problems
    assert (problem.code.name, problem.location) == ("shell_syntax", Location("run.sh", 1, 1))


def test_a_script_that_trains_twice():
    found = read_script(
        "python -m verl.trainer.sft_trainer a.b=1\npython -m verl.trainer.main_ppo a.b=2", "run.sh"
    )
    assert found.values == {"a.b": 1}
    assert [(problem.location.line, problem.severity) for problem in found.problems] == [
        (2, Severity.WARNING)
    ]


def test_words_that_cannot_be_known():
    found = read_script(
        script("a.b=1", "$EXTRA", '"${MORE[@]}"', "$(cat args)", "c.$X=2", '"$@"', "${Y:-}"), "run.sh"
    )
    assert found.values == {"a.b": 1}
    assert [problem.message for problem in found.problems] == [
        "what '$EXTRA' adds is not known: $EXTRA is set nowhere in the script",
        "what '${MORE[@]}' adds is not known: $MORE is set nowhere in the script",
        "what '$(cat args)' adds is not known: the output of a command is not known",
        "what 'c.$X=2' adds is not known: $X is set nowhere in the script",
    ]


def test_a_script_with_a_mistake_yields_what_stands_before_it():
    found = read_script(script("a.b=1", 'c.d="2'), "run.sh")
    assert found.values == {"a.b": 1, "c.d": 2}
    (problem,) = found.problems
    assert (
        str(problem)
        == "run.sh:3:9: ERROR: the quote that opens here is never closed; close it [verl.shell_syntax]"
    )


def test_a_text_too_long_for_a_script_is_not_read():
    (problem,) = read_script("# \n" * 100_000, "run.sh").problems
    assert problem.code.name == "file_too_large"


def test_very_many_problems_are_cut():
    found = read_settings("x " * 1000 + "a.b=$X", "x")
    assert len(found.problems) == 51
    assert [problem.message for problem in found.problems if "more problems" in problem.message] == [
        "951 more problems are not listed"
    ]


def test_nothing_of_the_environment_is_read(monkeypatch):
    monkeypatch.setenv("NNODES", "4")
    monkeypatch.setenv("HOME", "/home/someone")
    found = read_script(script("trainer.nnodes=${NNODES:-2}", "a.b=$HOME", "c.d=$NNODES"), "run.sh")
    assert found.values == {"trainer.nnodes": 2}
    assert found.unresolved == {"a.b": "$HOME", "c.d": "$NNODES"}


@pytest.fixture(scope="module")
def recorded():
    catalog = load_catalog(take_snapshot(bundled_directory(), [], Location("conf.py")))
    return [dict(run.settings) for run in catalog.runs.values() if run.settings]


def test_settings_of_recorded_runs_come_back_from_every_kind_of_text(recorded):
    assert len(recorded) > 10
    for values in recorded:
        words = [f"{key}={json.dumps(value)}" for key, value in values.items()]
        lines = [shlex.quote(word) for word in words]
        assert read_overrides(words, HERE).values == values
        assert read_settings("\n".join(lines), "x").values == values
        assert read_settings(script(*lines), "x").values == values
        assert read_settings(json.dumps(values, indent=2), "x").values == values


PIECES = st.sampled_from(
    [
        "if ", "then ", "else ", "elif ", "fi", "for i in ", "while ", "do ", "done", "case $A in ", "esac", "a) ", ";;", ";",
        "\n", " ", "\\\n", "\\", "'", '"', "`", "$(", "$((", "))", ")", "(", "{ ", "}", "${A", "${A:-", "${A:=", "${#A}", "${A[@]}",
        '"${L[@]}"', "$@", "$A", "$B", "A=", "L=(", "L+=(", "A+=", "A=$A$A", "f() ", "f ", "[[ ", "]]", "[ ", "]", "-z ", "=", "&&",
        "||", "|", "&", ">", "<<E\n", "E\n", "<(", "2>&1", "#", "~", "!", "1", "x", "*", "**", "+ ", "- ", "/ ", "? ", ": ", "<<",
        "python3 -m verl.trainer.main_ppo ", "a.b=", "+c.d=", "~e ", "[1,", "{a: ", "null", "--config-name ", "exit", "unset A",
        "read A", "export ", "local ", "\0", "\r", "\u00e9", "\ud800", "a: ", "- ", "---\n", "eval ", "bash -c ",
    ]
)  # fmt: skip


def check(text: str) -> None:
    """Whatever stands in a text, the result is one that can be used and printed."""
    for found in (read_settings(text, "x"), read_script(text, "x"), read_yaml_settings(text, "x")):
        assert not found.values.keys() & found.unresolved.keys()
        assert found.places.keys() == found.values.keys() | found.unresolved.keys()
        for value in found.values.values():
            items = value if isinstance(value, tuple) else (value,)
            assert all(item is None or isinstance(item, (bool, int, float, str)) for item in items)
        for problem in found.problems:
            assert isinstance(problem, Diagnostic)
            assert "\n" not in str(problem)
            assert problem.location.path == "x"
            assert problem.location.line >= 1
            assert problem.location.column >= 1


@given(st.text())
@example("'")
@example("$((")
@settings(deadline=1000)
def test_any_text(text):
    check(text)


@given(st.lists(PIECES, max_size=60).map("".join))
@example("a ` -m verl.trainer.main_ppo b.c=1 `")
@example("A=$A$A\n" * 30 + "python3 -m verl.trainer.main_ppo a.b=$A")
@settings(max_examples=300, deadline=1000)
def test_any_script(text):
    check(text)


@given(st.recursive(st.sampled_from(["1", "x", "$A"]), lambda inner: st.builds("{}{}{}".format, st.sampled_from(["$((", "${A:-", "[", "{a: ", "(", '"$(']), inner, st.sampled_from(["))", "}", "]", ")", ')"', ""]))))  # fmt: skip
def test_any_nesting(text):
    check(f"python3 -m verl.trainer.main_ppo a.b={text}\nA={text}")
    check(f"a.b={text}")


@given(st.text())
def test_any_override(word):
    found = read_overrides([word, f"a.b={word}"], HERE)
    assert all(isinstance(problem, Diagnostic) for problem in found.problems)
