"""Contradictions in runs, and missing facts."""

from __future__ import annotations

from datetime import date

import pytest

EACH, NODES = "trainer.n_gpus_per_node", "trainer.nnodes"
ROLLOUT = "actor_rollout_ref.rollout"
ACTOR = "actor_rollout_ref.actor"
MEGATRON = f"{ACTOR}.megatron"


@pytest.mark.parametrize(
    ("gpus", "settings", "broken"),
    [
        ({"count": 16, "nodes": 2}, {NODES: 2, EACH: 8}, None),
        ({"count": 16}, {EACH: 8}, None),
        ({"count": 16, "nodes": 2}, {}, None),
        ({"count": 16}, {NODES: "two", EACH: 8}, None),
        ({"count": 16}, {NODES: 2, EACH: 4}, "trainer.nnodes × trainer.n_gpus_per_node is 2 × 4 = 8"),
        ({"count": 16, "nodes": 4}, {EACH: 8}, "gpus.nodes × trainer.n_gpus_per_node is 4 × 8 = 32"),
        ({"count": 16, "nodes": 3}, {}, "16 GPUs cannot be divided evenly among 3 nodes"),
        ({"count": 16, "nodes": 4}, {NODES: 2}, "gpus.nodes is 4, but trainer.nnodes is 2"),
    ],
)
def test_gpus_are_nodes_times_gpus_of_each(checked, gpus, settings, broken):
    checked.run(gpus={"type": "H100", **gpus}, settings=settings)
    found = [line for line in checked.problems() if "gpu_count" in line]
    assert [broken in line for line in found] == ([True] if broken else [])


@pytest.mark.parametrize(
    ("settings", "broken"),
    [
        ({NODES: 1, EACH: 8}, None),
        ({NODES: 1, EACH: 8, "rollout.nnodes": 1, "rollout.n_gpus_per_node": 8}, None),
        ({NODES: 1, EACH: 8, f"{ROLLOUT}.nnodes": 2, f"{ROLLOUT}.n_gpus_per_node": 8}, "together 24, but"),
        ({NODES: 3, EACH: 8}, "is 24, but gpus.count, which includes rollout GPUs, is 16"),
    ],
)
def test_an_engine_with_gpus_of_its_own_is_counted_beside_the_trainer(checked, settings, broken):
    checked.run(task="DAPO (fully async)", gpus={"count": 16, "type": "H100"}, settings=settings)
    found = [line for line in checked.problems() if "gpu_count" in line]
    assert [broken in line for line in found] == ([True] if broken else [])


@pytest.mark.parametrize(
    ("train", "settings", "place"),
    [
        ("fsdp", {f"{ROLLOUT}.tensor_model_parallel_size": 4}, None),
        ("fsdp", {f"{ROLLOUT}.tensor_model_parallel_size": 16}, "does not divide the 8 GPUs"),
        ("fsdp", {f"{ACTOR}.fsdp_config.fsdp_size": 3}, "3 does not divide the 8 GPUs"),
        ("fsdp", {f"{ACTOR}.fsdp_config.fsdp_size": -1}, None),
        ("fsdp", {f"{ACTOR}.ulysses_sequence_parallel_size": 8}, "does not divide the model's 28 attention heads"),
        ("megatron", {f"{MEGATRON}.tensor_model_parallel_size": 2, f"{MEGATRON}.context_parallel_size": 2}, None),
        ("megatron", {f"{MEGATRON}.tensor_model_parallel_size": 4, f"{MEGATRON}.context_parallel_size": 4}, "TP × PP × CP is 16"),
        ("fsdp", {f"{ROLLOUT}.tensor_model_parallel_size": 4, f"{ROLLOUT}.data_parallel_size": 4}, "is 16, which does not divide its 8 GPUs"),
        ("fsdp", {f"{ROLLOUT}.tensor_model_parallel_size": 4, f"{ROLLOUT}.data_parallel_size": 2}, None),
        ("fsdp", {f"{ROLLOUT}.gpu_memory_utilization": 60}, "gpu_memory_utilization: "),
        ("fsdp", {f"{ROLLOUT}.name": "vlm"}, None),  # a warning of the estimator
    ],
)  # fmt: skip
def test_settings_with_which_verl_does_not_start(checked, train, settings, place):
    checked.run(gpus={"count": 8, "type": "H100"}, train=train, settings=settings)
    found = [line for line in checked.problems() if "impossible_settings" in line]
    assert [place in line for line in found] == ([True] if place else [])


def test_defaults_that_do_not_divide_are_no_mistake_of_the_row(checked):
    checked.run(gpus={"count": 1, "type": "H100"}, settings={"data.train_batch_size": 16})
    assert checked.codes() == []


@pytest.mark.parametrize(
    ("gpus", "measured", "found"),
    [
        ({"count": 2, "type": "H100"}, {"gib": 79.6, "counter": "device"}, []),
        ({"count": 2, "type": "H100"}, {"gib": 79.7, "counter": "device"}, ["peak_above_capacity"]),
        ({"count": 2, "type": "H100"}, {"host_ram_gib": 500}, []),
        (
            {"count": 2, "type": None, "memory_gb": 24},
            {"gib": 25, "counter": "device"},
            ["peak_above_capacity"],
        ),
        ({"count": 2, "type": None}, {"gib": 900}, []),
    ],
)
def test_a_card_holds_no_more_than_it_has(checked, gpus, measured, found):
    checked.run(gpus=gpus, measured=measured, kind="measured")
    assert [code for code in checked.codes() if code != "far_from_computed"] == found


@pytest.mark.parametrize(("release", "found"), [("0.8.0", ["peak_above_capacity"]), ("0.4.0", [])])
def test_the_pool_of_a_sleeping_engine_counts_where_pytorch_counted_it(checked, release, found):
    """Older releases of verl ran the engine in the process of the trainer."""
    checked.run(
        measured={"gib": 90, "counter": "torch-max-allocated"},
        versions={"verl": release},
        settings={f"{ROLLOUT}.gpu_memory_utilization": 0.6},
    )
    assert [code for code in checked.codes() if code == "peak_above_capacity"] == found


@pytest.mark.parametrize(("day", "found"), [(22, []), (23, ["future_date"])])
def test_days_up_to_today(checked, day, found):
    checked.run(added=date(2026, 11, day))
    assert checked.codes() == found


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"evidence": ...}, ["no_evidence"]),
        ({"evidence": ..., "kind": "stated"}, ["no_evidence"]),
        ({"evidence": ..., "kind": "stated", "script": {"ref": "49b08e950", "path": "a.sh"}}, []),
        ({"evidence": ..., "script": {"ref": "49b08e950", "path": "a.sh"}}, ["no_evidence"]),
        ({"evidence": ..., "script": {"ref": "49b08e950", "path": "a.sh"}, "added": date(2025, 6, 25)}, []),
        ({"evidence": ..., "added": date(2025, 6, 25)}, ["no_evidence"]),
        ({"versions": ..., "added": date(2025, 6, 25)}, []),
        ({"added": ...}, ["no_date"]),
        ({"added": ..., "kind": "measured"}, []),
        ({"versions": ...}, ["no_version"]),
        ({"versions": {"torch": "2.6.0"}}, ["no_version"]),
        ({"infer": {"engine": "vllm"}}, ["no_version"]),
        ({"versions": ..., "infer": {"engine": "vllm"}, "kind": "stated"}, []),
    ],
)
def test_what_a_tested_run_names(checked, changes, found):
    checked.run(**changes)
    assert checked.codes() == found


@pytest.mark.parametrize(
    ("ref", "found"),
    [
        ("2239fd0ff7210c80ad63e20581924d1f66167429", []),
        ("49b08e950", []),
        ("v0.4.0", []),
        ("0.4.0.post1", []),
        ("v0.4.0-rc1", []),
        ("main", ["moving_ref"]),
        ("release/v0.4.x", ["moving_ref"]),
        ("deadbee", []),
        ("feedback", ["moving_ref"]),
    ],
)
def test_refs_that_stay(checked, ref, found):
    checked.run(script={"ref": ref, "path": "a.sh"})
    assert checked.codes() == found
    checked.run(evidence=[{"kind": "document", "ref": ref, "path": "a.md"}])
    assert checked.codes() == found
