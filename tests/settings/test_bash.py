"""For each setting that bash passes to verl, the reader has the same value, or reports it as unknown."""

from __future__ import annotations

import subprocess

import pytest

from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.settings.overrides import OVERRIDE, read_overrides
from sphinx_verl_resources.settings.read import read_script

#: Replaces every program; records the arguments of training programs.
RECORDER = """#!/bin/bash
case "$*" in
    *"import torch_npu"*) exit 1 ;;
    *get_device_name*|"-") echo cuda ;;
    *"main_ppo "*|*"main_dapo "*) printf '%s\\0' "$@" >> "$RECORD" ;;
esac
"""
BY_DEVICE = r"""#!/usr/bin/env bash
set -xeuo pipefail
DEVICE=${DEVICE:-$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)}
INFER=${INFER:-vllm}
N=${N:-}
batch=${BATCH:-1024}
EXTRA=()
case "${DEVICE}" in
    gpu)
        case "${MACHINE:-}" in
            gb200) N=${N:-4}; EXTRA+=("+ray_kwargs.ray_init.num_gpus=${N}") ;;
            *) N=${N:-8} ;;
        esac
        tp=${TP:-2}
        ;;
    npu)
        N=16; tp=${TP:-4}; batch=16
        EXTRA+=(actor_rollout_ref.actor.use_torch_compile=False)
        ;;
    *) echo "unknown device" >&2; exit 1 ;;
esac
if [ "${DEVICE}" = npu ] && [ "${INFER}" = trtllm ]; then exit 1; fi
PLAN='{model.blocks.\{*\}:{a:1},'\
'lm_head:{b:2}}'
local_batch() { local batch=7; shift 2; EXTRA+=(data.gen_batch_size=$batch "$@"); }
local_batch x y data.seed=3
set -- data.shuffle=True "data.more='a b'"
LAUNCH=(python3)
if [ "${USE_UV:-1}" != 0 ] && [ "${DEVICE:-gpu}" = gpu ] && { [ "$INFER" = vllm ] || [ "$INFER" = sglang ]; }; then
    LAUNCH=(uv run --extra "$INFER" python3)
fi
"${LAUNCH[@]}" -m verl.trainer.main_ppo \
    trainer.n_gpus_per_node=${N} data.train_batch_size=$batch data.mini=$((batch / tp)) \
    "actor_rollout_ref.actor.plan=${PLAN}" actor_rollout_ref.model.path="${MODEL:-~/models/Qwen3-8B}" \
    "${EXTRA[@]}" "${@:1}" "$@" \
"""


@pytest.fixture
def passed(bash, tmp_path):
    """Run a script with recorders in place of programs; return the words of the training command."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python3", "uv", "ray", "torchrun", "pip", "tee", "cat", "nvidia-smi"):
        (programs / name).write_text(RECORDER)
        (programs / name).chmod(0o755)

    def run(text, environment):
        script, record = tmp_path / "run.sh", tmp_path / "record"
        script.write_text(text)
        record.write_text("")
        variables = {"PATH": str(programs), "HOME": "/home/of-nobody", "RECORD": str(record), **environment}
        subprocess.run(
            [bash, str(script)], env=variables, cwd=tmp_path, check=False, capture_output=True, timeout=30
        )
        return record.read_text().split("\0")[:-1]

    return run


def scripts(root):
    yield BY_DEVICE, {}
    yield BY_DEVICE, {"DEVICE": "npu", "TP": "8"}
    yield BY_DEVICE, {"MACHINE": "gb200", "INFER": "trtllm", "BATCH": "64"}
    for path in sorted((root / "tests/intake/scripts").glob("*.sh")):
        yield path.read_text("utf-8"), {"UTILIZATION": "0.5"}


def test_the_reader_agrees_with_bash(passed, root):
    read, left_open = 0, 0
    for text, environment in scripts(root):
        words = [word for word in passed(text, environment) if OVERRIDE.fullmatch(word)]
        wanted = read_overrides(words, Location("")).values
        if not words:  # it does not train, or starts another program
            continue
        found = read_script(text, "run.sh", environment)
        assert [problem for problem in found.problems if problem.is_error] == []
        assert found.values == {key: value for key, value in wanted.items() if key not in found.unresolved}
        assert found.unresolved.keys() == found.reasons.keys()
        read, left_open = read + len(found.values), left_open + len(found.unresolved)
    assert read > 150
    assert left_open < read / 10


def test_what_the_script_by_hand_passes(passed):
    assert passed(BY_DEVICE, {})[:2] == ["run", "--extra"]
    found = read_script(BY_DEVICE, "run.sh", {"HOME": "/home/of-nobody"})
    assert found.values == {
        "trainer.n_gpus_per_node": 8,
        "data.train_batch_size": 1024,
        "data.mini": 512,
        "actor_rollout_ref.actor.plan.model.blocks.{*}.a": 1,
        "actor_rollout_ref.actor.plan.lm_head.b": 2,
        "actor_rollout_ref.model.path": "~/models/Qwen3-8B",
        "data.gen_batch_size": 7,
        "data.seed": 3,
        "data.shuffle": True,
        "data.more": "a b",
    }
