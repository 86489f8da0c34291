"""Settings that a launch script passes to verl; text that looks like a setting is read or reported."""

from __future__ import annotations

import json
import shlex

import pytest

from sphinx_verl_resources.dataset import Dataset
from sphinx_verl_resources.diagnostics import Location, Severity
from sphinx_verl_resources.settings.overrides import read_overrides
from sphinx_verl_resources.settings.read import read_script, read_settings


def script(*lines: str) -> str:
    return "python3 -m verl.trainer.main_ppo \\\n    " + " \\\n    ".join(lines) + "\n"


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
        "run.sh:16:5: WARNING: the value of data.train_files is unknown: the script does not set $HOME; "
        "add --env HOME=… [verl.unresolved]"
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
DEVICE=${DEVICE:-$(detect)}
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
    assert problem.place == Location("run.sh", 13, 1)
    assert problem.message.endswith("is unknown: the condition in line 13 depends on $DEVICE")
    assert problem.remedy == "add --env DEVICE=…"


def test_a_comment_between_the_lines_ends_the_command():
    found = read_settings(script("a.b=1", "# a.c=2", "a.d=3", "a.e=4"), "run.sh")
    assert found.values == {"a.b": 1}
    (problem,) = found.problems
    assert problem.place == Location("run.sh", 4, 5)
    assert (
        problem.message == "the settings from here on are not passed to verl, because the command ends above"
    )


def test_a_blank_behind_a_backslash_ends_the_command():
    found = read_settings("python3 -m verl.trainer.main_ppo a.b=1 \\ \n  a.c=2\n", "run.sh")
    assert found.values == {"a.b": 1}
    assert [problem.place for problem in found.problems] == [
        Location("run.sh", 1, 40),
        Location("run.sh", 2, 3),
    ]
    assert "blank after the backslash" in found.problems[0].remedy


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--config-name=ppo_megatron_trainer.yaml", "ppo_megatron_trainer"),
        ("--config-name ppo_megatron_trainer", "ppo_megatron_trainer"),
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
        "the name of the configuration is unknown: the script does not set $CONFIG"
    )


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m verl.trainer.main_ppo {}",
        "python3 -m recipe.one_step_off_policy.main_ppo {}",
        "cd /verl && nohup python3 verl/trainer/main_ppo.py {} > log 2>&1 &",
        "ray job submit --address=x --runtime-env=y -- python3 -m verl.trainer.main_ppo {}",
        "srun --nodes=1 -w $node apptainer run --nv $image python3 -m verl.trainer.main_ppo {}",
        "docker exec x bash -c 'cd verl; N=1; python3 -m verl.trainer.main_ppo {}'",
        "CMD='python3 -m verl.trainer.main_ppo'; $CMD {}",
        'CMD=(python3 -m verl.trainer.main_ppo); "${{CMD[@]}}" {}',
        "$PYTHON $MODULE {}",
        "for i in 1 2; do python3 -m verl.trainer.main_ppo {} || break; done",
        "python3 -m verl.trainer.main_generation data.x=1\npython3 -m verl.trainer.main_ppo {}",
    ],
)
def test_commands_that_train(command):
    found = read_script(command.format("a.b=1 c.d=x"), "run.sh")
    assert found.values == {"a.b": 1, "c.d": "x"}
    assert found.problems == ()


@pytest.mark.parametrize("text", ["", "python3 -m verl.trainer.main_eval x"])
def test_a_script_that_trains_nothing(text):
    (problem,) = read_script(text, "run.sh").problems
    assert (problem.code, problem.place) == ("shell_syntax", Location("run.sh", 1, 1))


def test_a_script_that_trains_twice():
    found = read_script("-m x\npython -m verl.trainer.main_ppo a.b=1\npython main_ppo.py a.b=2", "run.sh")
    assert found.values == {"a.b": 1}
    assert [(problem.place.line, problem.severity) for problem in found.problems] == [(3, Severity.WARNING)]
    assert found.problems[0].message.endswith("only the one in line 2 is read")


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("ENTRY='-m verl.trainer.sft_trainer'\ntorchrun --nproc_per_node=8 $ENTRY model.path=a", "verl.trainer.sft_trainer", "sft"),
        ("python3 examples/data_preprocess/gsm8k.py\npython3 -m verl.trainer.main_eval data.path=x", "verl.trainer.main_eval", "evaluation"),
        ("python -m verl.model_merger merge --backend fsdp", "verl.model_merger", "conversion"),
        ("ray start --head\npython data_preprocess/gsm8k.py --local_dir x", "ray start", "cluster"),
        ('exec bash "$(dirname "$0")/other.sh" trainer.nnodes=2', '$(dirname "$0")/other.sh', "script"),
        ("torchrun -m verl_mlite.launch verl.trainer.sft_trainer model.path=a", "verl.trainer.sft_trainer", "sft"),
        ("$RUN trainer.nnodes=2", "", "rl"),
        ("python -m torch.distributed.run --nproc_per_node 8 train/main_ppo.py a.b=1", "train/main_ppo", "rl"),
    ],
)  # fmt: skip
def test_the_program_that_is_started(text, name, kind):
    program = read_script(text, "run.sh").program
    assert (program.name, program.kind) == (name, kind)


def test_words_that_cannot_be_known():
    found = read_script(
        script("a.b=1", "$EXTRA", '"${MORE[@]}"', "$(cat args)", "c.$X=2", '"$@"', "${Y:-}"), "run.sh"
    )
    assert found.values == {"a.b": 1}
    assert [problem.message for problem in found.problems] == [
        "the settings in '$EXTRA' are unknown: the script does not set $EXTRA",
        "the settings in '${MORE[@]}' are unknown: the script does not set $MORE",
        "the settings in '$(cat args)' are unknown: the output of a command is unknown",
        "the settings in 'c.$X=2' are unknown: the script does not set $X",
    ]


def test_a_script_with_a_mistake_yields_what_stands_before_it():
    found = read_script(script("a.b=1", 'c.d="2'), "run.sh")
    assert found.values == {"a.b": 1, "c.d": 2}
    (problem,) = found.problems
    assert (
        str(problem)
        == "run.sh:3:9: ERROR: the quote that opens here is never closed; add the closing quote [verl.shell_syntax]"
    )


def test_nothing_of_the_environment_is_read(monkeypatch):
    monkeypatch.setenv("NNODES", "4")
    monkeypatch.setenv("HOME", "/home/someone")
    found = read_script(script("trainer.nnodes=${NNODES:-2}", "a.b=$HOME", "c.d=$NNODES"), "run.sh")
    assert found.values == {"trainer.nnodes": 2}
    assert found.unresolved == {"a.b": "$HOME", "c.d": "$NNODES"}


@pytest.fixture(scope="module")
def recorded():
    catalog = Dataset([], missing=Location("conf.py"))
    return [dict(run.settings) for run in catalog.runs.values() if run.settings]


def test_settings_of_recorded_runs_come_back_from_every_kind_of_text(recorded):
    assert len(recorded) > 10
    for values in recorded:
        words = [f"{key}={json.dumps(value)}" for key, value in values.items()]
        lines = [shlex.quote(word) for word in words]
        assert read_overrides(words, Location("here")).values == values
        assert read_settings("\n".join(lines), "x").values == values
        assert read_settings(script(*lines), "x").values == values
        assert read_settings(json.dumps(values, indent=2), "x").values == values
