"""Problems of recorded runs: their GPUs, impossible settings, and measured peaks far from the estimate."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.commands import load_check
from sphinx_verl_resources.memory import rules

R = "actor_rollout_ref.rollout"
NODES, EACH, TENSOR = "trainer.nnodes", "trainer.n_gpus_per_node", f"{R}.tensor_model_parallel_size"
APART, POOL = "separate_async", {"rollout.nnodes": 1, "rollout.n_gpus_per_node": 8}
SHARD, PRODUCT = "critic.model.fsdp_config.fsdp_size", f"nodes × {EACH} is"
#: Settings, GPUs, nodes and trainer of the run, and the problem, if there is one.
PROBLEMS = [
    ({}, 8, None, "sync", ""), ({NODES: 2, EACH: 4}, 8, 2, "sync", ""), ({NODES: 2, EACH: 8}, 8, None, "sync", f"{PRODUCT} 2 × 8 = 16, but gpus.count is 8"),
    ({}, 8, 3, "sync", "8 GPUs cannot be divided evenly among 3 nodes"), ({EACH: 2}, 8, 2, "sync", f"{PRODUCT} 2 × 2 = 4, but gpus.count is 8"),
    ({NODES: 2, EACH: 8}, 8, None, APART, f"{PRODUCT} 2 × 8 = 16, but gpus.count is 8"), ({NODES: 1, EACH: 4}, 8, 2, APART, ""),
    ({NODES: 1, EACH: 4, **POOL}, 8, None, APART, f"{PRODUCT} 1 × 4 = 4 and 8 GPUs do not train, but gpus.count is 8"), ({NODES: 1, EACH: 8, **POOL}, 16, None, APART, ""),
    ({NODES: 1, EACH: 8, "distillation.enabled": True, "distillation.nnodes": 1}, 8, None, "sync", f"{PRODUCT} 1 × 8 = 8 and 8 GPUs do not train, but gpus.count is 8"),
    ({TENSOR: 3}, 8, None, "sync", f"{TENSOR}: 3 does not divide the 8 GPUs"),
    ({SHARD: 3, "critic.enable": True}, 8, None, "sync", f"{SHARD}: 3 does not divide the 8 GPUs"),  # a name of older versions
]  # fmt: skip


@pytest.mark.parametrize(("settings", "count", "nodes", "trainer", "text"), PROBLEMS)
def test_gpus_and_impossible_settings(data, settings, count, nodes, trainer, text):
    gpus = {"type": "H100", "count": count} | ({"nodes": nodes} if nodes else {})
    data.good_run("a", settings=settings, trainer=trainer, gpus=gpus)
    check = load_check([str(data.path)])
    of_gpus = [message for _, message, _ in rules.gpu_count(check)]
    refused = [f"{each.place.key}: {each.message}" for each in rules.impossible_settings(check)]
    assert [*of_gpus, *refused] == [text] * bool(text)


#: A measured figure, its counter and a note, with vLLM in the training process on 79 GiB; the rules that report it.
FAR, ABOVE = "far_from_computed", "peak_above_capacity"
PEAKS = [
    (75, "device", None, []), (20, "device", None, [FAR]), (20, "device", "The peak is that of rank 0.", []), (20, "device", "Two runs.", [FAR]), (85, "device", None, [ABOVE]),
    (130, "torch-max-allocated", None, []), (75, "torch-max-allocated", None, [FAR]), (75, "not-stated", None, []), (200, "torch-max-allocated", None, [ABOVE, FAR]),
]  # fmt: skip


@pytest.mark.parametrize(("gib", "counter", "note", "codes"), PEAKS)
def test_measured_peaks(data, gib, counter, note, codes):
    settings = {"actor_rollout_ref.actor.use_dynamic_bsz": True, f"{R}.gpu_memory_utilization": 0.7}
    notes = [{"code": "other", "text": note}] if note else []
    data.good_run("a", settings=settings, measured={"gib": gib, "counter": counter}, notes=notes)
    check = load_check([str(data.path)])
    assert [code for code in (ABOVE, FAR) if [*getattr(rules, code)(check)]] == codes
