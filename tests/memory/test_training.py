"""Plain training in tools/: states, activations, losses and kernels of Llama-3-8B on four GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.memory.allocations import COMMUNICATORS, CONTEXT
from sphinx_verl_resources.memory.cases import Case

P, H, F, V, LAYERS, KEYS, HEADS, T = 8_030_261_248, 4096, 14_336, 128_256, 32, 1024, 32, 8192
#: Parameters of a layer, outside the layers, and of adapters.
U, R = 2 * H * (H + KEYS) + 3 * H * F + 2 * H, 2 * V * H + H
ADAPTERS = 16 * LAYERS * (2 * (H + H) + 2 * (H + KEYS) + 3 * (H + F))
#: Bytes per token: of the current layer, the same with adapters, and saved by a layer.
WIDTHS = ((22, 12), (34, 14), (20, 8))
WORKING, WITH_ADAPTERS, SAVED = (each * H + mlp * F + 4 * KEYS + 4 * HEADS for each, mlp in WIDTHS)
STATES, STEP = {"weights": P, "optimizer-states": 2 * P}, {"gradients": P, "step-buffer": P}
LONG, BF16, NONE = {"sequence_length": 2 * T}, {"parameter_dtype": "bfloat16"}, {"recompute": "none"}
LORA, NORM = {"method": "lora", "lora": {"rank": 16}, **BF16}, 4 * H * T
OF_LORA = {"weights": P / 2 + ADAPTERS, "optimizer-states": 2 * ADAPTERS}
FULL = {"parameter_dtype": "float32", "autocast": True, "micro_batch_per_gpu": 1, "sequence_length": T}
#: Settings, phase, and the bytes of components: all of them, or some if one is named "".
PARTS = [
    ({}, "update-forward", {**STATES, "gathered-root": 2 * R, "layer-inputs": 2 * H * LAYERS * T, "logits": 12 * T * V, "activations": NORM}),
    ({}, "optimizer-step", {**STATES, **STEP}), ({}, "update-backward", {**STATES, "gradients": P, "root-gradient": 6 * R}),  # in 16 and in 32 bits
    (LONG, "update-backward", {**STATES, "gathered-root": 2 * R, "gathered-layers": 2 * U, "root-gradient": 2 * V * H, "gradients": P, "working-set": WORKING * 2 * T}),
    ({**BF16, "sequence_length": 512}, "update-backward", {"": 0, "root-gradient": (6 + 4 / 4) * R}),  # and its shard in 32 bits
    (NONE, "update-forward", {"": 0, "activations": LAYERS * SAVED * T + NORM, "layer-inputs": 0}), (NONE, "update-backward", {"": 0, "activations": (LAYERS - 1) * SAVED * T}),
    ({**LONG, "kernels": "liger"}, "update-backward", {"": 0, "working-set": (WORKING - 8 * H) * 2 * T}),
    # A frozen base, reentrant checkpointing and several GPUs: two bytes for each layer but two.
    (LORA, "update-backward", {"": 0, **OF_LORA, "working-set": (WITH_ADAPTERS + 2 * H * (LAYERS - 2)) * T, "root-gradient": 0}),
    ({**LORA, "sharding": {"fsdp": 1}}, "update-backward", {"": 0, "working-set": WITH_ADAPTERS * T, "gathered-root": 0}),
    ({**LORA, **NONE}, "update-backward", {"": 0, "working-set": WITH_ADAPTERS * T}), ({"loss": "liger"}, "update-forward", {"": 0, "logits": 0}),
    (LORA, "optimizer-step", {**OF_LORA, "gradients": ADAPTERS, "step-buffer": ADAPTERS}),
    ({**LORA, "autocast": False}, "optimizer-step", {"": 0, "optimizer-states": ADAPTERS}), ({"loss": "chunked"}, "update-forward", {"": 0, "logits": 4 * T * V}),
]  # fmt: skip


@pytest.fixture(scope="module")
def run(root, registries):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "tools")
        from training import estimate_any

    def run(gpus=4, **changes):
        fields = {"id": "a", "model": "meta-llama/Meta-Llama-3-8B", "gpus": {"count": gpus, "type": "A100"}}
        return estimate_any(Case.model_validate({**fields, "training": {**FULL, **changes}}), registries)

    return run


@pytest.mark.parametrize(("changes", "name", "parts"), PARTS)
def test_components(run, changes, name, parts):
    (phase,) = (phase for phase in run(**changes).phases if phase.name == name)
    sizes = Counter()
    for part in phase.trainer:
        sizes[part.key] += part.size
    assert {key: sizes[key] for key in parts} == pytest.approx(parts)
    assert "" in parts or sizes.keys() == parts.keys()


def test_overhead_and_verdicts(run):
    one, several = run(gpus=1), run()
    outside = [sum(part.size for part in result.phases[-1].overhead) for result in (one, several)]
    assert outside == [CONTEXT.value, CONTEXT.value + COMMUNICATORS.value]
    assert (one.verdict, several.verdict) == ("does-not-fit", "fits")
    for key in ("sequence_length", "micro_batch_per_gpu", "parameter_dtype"):
        with pytest.raises(NoAnswerError, match=f"training.{key}"):
            run(**{key: "float8" if key == "parameter_dtype" else None})


def test_the_program_prints_what_the_command_does_and_plain_training_too(root, tmp_path, monkeypatch, capsys):
    run = {"model": "Qwen/Qwen2.5-7B", "gpus": {"count": 8, "type": "H100"}}
    good, plain = {**run, "id": "a", "config": {"data.seed": 1}}, {**run, "id": "b", "training": FULL}
    wrong = [{**good, "id": "c", "config": {"data.train_batch_size": "x"}}, {**good, "id": "d", "gpus": 8}]
    (tmp_path / "cases.yaml").write_text(json.dumps([good, plain, *wrong]), "utf-8")
    monkeypatch.chdir(tmp_path)
    words = [sys.executable, str(root / "tools/backtest.py"), "cases.yaml", "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert main(["estimate", "cases.yaml", "--format", "json"]) == done.returncode == 1
    first, of_training, *others = json.loads(done.stdout)
    assert [first, *others] == [item for item in json.loads(capsys.readouterr().out) if item["id"] != "b"]
    assert (of_training["logged_max_allocated_gib"] > 15, "error" in of_training) == (True, False)
