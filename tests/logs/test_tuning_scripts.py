"""Scripts in the style of verl's tuning scripts, generated from the settings of each."""

from __future__ import annotations

import json

import pytest
import yaml

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.memory.registries import EstimatorContext

_WORDS = {True: "True", False: "False", None: "null"}
#: Settings in all scripts in addition to the listed ones.
_ALWAYS = {
    "algorithm.use_kl_in_reward": False,
    "actor_rollout_ref.rollout.name": "vllm",
    "trainer.critic_warmup": 0,
}


@pytest.fixture(scope="module")
def described(root):
    return yaml.safe_load((root / "tests/logs/tuning_scripts.yaml").read_text("utf-8"))["scripts"]


#: Marks a setting that must be given, the path of an adapter.
_REQUIRED = "(required environment variable)"


def text_of(value):
    if value == _REQUIRED:
        return "${ADAPTER:?give one}"
    if isinstance(value, list):
        return f"[{','.join(map(text_of, value))}]"
    return _WORDS[value] if isinstance(value, bool) or value is None else str(value)


def legacy(fact):
    """Return a script with arithmetic on the number of GPUs and one long command."""
    settings = dict(fact["set"])
    nodes, each = settings["trainer.nnodes"], settings["trainer.n_gpus_per_node"]
    batch = settings["data.train_batch_size"]
    per_gpu, rest = divmod(batch, nodes * each)
    lines = ["set -x", "data_path=$HOME/data/gsm8k", f"nproc_per_gpu={per_gpu} # 8✅ 9❌", f"nnodes={nodes}"]
    lines += [f"ngpu_per_node={each}", f"total_procs=$(( nproc_per_gpu * nnodes * ngpu_per_node + {rest} ))"]
    lines += ["mini_batch_size=$(( total_procs ))", "", "python3 -m verl.trainer.main_ppo \\"]
    variables = {
        key: "${mini_batch_size}" if key.startswith("actor_rollout_ref.actor") else "${total_procs}"
        for key, value in settings.items()
        if value == batch and "batch_size" in key
    }
    variables |= {"trainer.nnodes": "${nnodes}", "trainer.n_gpus_per_node": "$ngpu_per_node"}
    words = [
        f"    {key}={variables.get(key) or quoted(text_of(value))} \\"
        for key, value in {**settings, **_ALWAYS}.items()
    ]
    words += ['    data.train_files="$data_path/train.parquet" \\', "    trainer.project_name='tuning' \\"]
    path = f"    actor_rollout_ref.model.path={fact['model']} \\"
    return "\n".join([*lines, path, *words, "    trainer.total_epochs=15 $@ 2>&1 | tee run.log", ""])


def current(fact):
    """Return a script with defaults from the environment, arrays, and the script's arguments after them."""
    lines = ["#!/usr/bin/env bash", "set -xeuo pipefail", f"MODEL_PATH=${{MODEL_PATH:-{fact['model']}}}"]
    arrays: dict[str, list[str]] = {}
    for number, (key, value) in enumerate({**fact["set"], **_ALWAYS}.items()):
        lines.append(f"V{number}=${{V{number}:-{quoted(text_of(value))}}}")
        arrays.setdefault(key.partition(".")[0].upper(), []).append(f'    {key}="${{V{number}}}"')
    for name, words in arrays.items():
        lines += [f"{name}=(", *words, ")"]
    used = " ".join(f'"${{{name}[@]}}"' for name in arrays)
    lines.append(f'python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path="$MODEL_PATH" {used} "$@"')
    return "\n".join([*lines, ""])


def quoted(text):
    return f"'{text}'" if any(sign in text for sign in "[], ") and "$" not in text else text


@pytest.mark.parametrize("style", [pytest.param(legacy, marks=pytest.mark.slow), current])
def test_settings_read_are_those_recorded(described, style, tmp_path, monkeypatch, capsys):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert len(described) == 19
    for fact in described:
        name = fact["script"].rsplit("/", 1)[-1]
        (tmp_path / name).write_text(style(fact), "utf-8")
        assert main(["new", "--script", name, "--dry-run", "--format", "json"]) == 0, capsys.readouterr()
        run = yaml.safe_load(json.loads(capsys.readouterr().out)["text"])
        expected = {key: value for key, value in fact["set"].items() if key != "actor_rollout_ref.model.path"}
        own = {
            key: value
            for key, value in run["settings"].items()
            if key not in {*_ALWAYS, "trainer.total_epochs"}
        }
        assert own == {
            key: value for key, value in expected.items() if key not in _ALWAYS and value != _REQUIRED
        }, name
        assert run["model"] == fact["model"]
        assert run["gpus"]["count"] == fact["gpus"]
        row = fact.get("page_row")
        if row:
            assert (run["size"], run["task"]) == (row["size"], row["task"])
            assert f"{run['gpus']['count']}*{run['gpus']['type']}" == row["resource"]


def test_recorded_runs_have_the_settings_of_their_scripts(described):
    scripts = {fact["script"]: fact["set"] for fact in described}
    runs = EstimatorContext().runs.values()
    tested = [run for run in runs if run.kind == "tested" and run.script and run.script.path in scripts]
    assert len(tested) == 12
    for run in tested:
        assert dict(run.settings) == scripts[run.script.path], run.id
