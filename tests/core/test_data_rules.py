"""Rules for registries, and for all runs together."""

from __future__ import annotations

from datetime import date

import pytest

TODAY = date(2026, 11, 22)
CARD = "name: X100, vendor: nvidia, memory_gb: 80, memory_mib: 81559"
ROLLOUT = "actor_rollout_ref.rollout"
#: Settings with a complete estimate.
SETTINGS = {
    "algorithm.adv_estimator": "grpo",
    "data.train_batch_size": 256,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 64,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 2,
    f"{ROLLOUT}.gpu_memory_utilization": 0.6,
}


def cards(checked, *entries: str) -> None:
    lines = [
        "# yaml-language-server: $schema=schema/gpus.json",
        "gpus:",
        *(f"  - {{{entry}}}" for entry in entries),
    ]
    checked.write("gpus.yaml", "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("mib", "more", "found"),
    [
        (81920, "", []),
        (76294, "", []),
        (83000, "", ["gpu_memory"]),
        (70000, "", ["gpu_memory"]),
        (81559, ", cuda_total_gib: 79.2", []),
        (81559, ", cuda_total_gib: 80.1", ["gpu_memory"]),
    ],
)
def test_memory_of_a_card(checked, mib, more, found):
    cards(checked, f"name: X100, vendor: nvidia, memory_gb: 80, memory_mib: {mib}, kind: reading{more}")
    checked.run(gpus={"count": 2, "type": "X100"})
    assert checked.codes() == found


def test_an_entry_with_errors_is_left_to_the_loader(checked):
    cards(
        checked,
        "name: X100, vendor: nvidia, memory_gb: 80, kind: derived",
        f"{CARD.replace('X', 'Y')}, kind: derived",
    )
    checked.run(gpus={"count": 2, "type": "Y100"})
    assert checked.codes() == ["missing_key", "incomplete_entry"]


def test_active_parameters_are_counted_too(checked, root):
    entry = (root / "docs/rules/good/data/architectures.yaml").read_text("utf-8")
    checked.run(model="example/Tiny", size="0.5B")
    checked.write("architectures.yaml", entry + "    parameters_active: 5\n")
    (found,) = checked.problems()
    assert "Tiny: parameters_active is 5, but the shape gives 2,354,432" in found


def test_incomplete_models(checked, root):
    entry = (root / "docs/rules/good/data/architectures.yaml").read_text("utf-8")
    lines = [line for line in entry.splitlines() if "config_source" not in line]
    checked.run(model="example/Tiny", size="0.5B")
    checked.write("architectures.yaml", "\n".join(lines).replace("verified: false", "verified: true") + "\n")
    assert checked.codes() == ["incomplete_entry", "incomplete_entry"]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, ["duplicate_run"]),
        ({"gpus": {"count": 2, "type": "NVIDIA H100 80GB HBM3"}}, ["duplicate_run"]),
        ({"tag": None, "kind": "stated", "max_batch": 4}, ["duplicate_run"]),
        ({"settings": {"data.train_batch_size": 8}}, []),
        ({"settings": {"data.train_batch_size": 16, "trainer.nnodes": 1}}, []),
        ({"gpus": {"count": 4, "type": "H100"}}, []),
        ({"infer": {"engine": "vllm", "version": "0.8.4"}}, []),
        ({"task": "DAPO"}, []),
    ],
)
def test_the_same_run_twice(checked, changes, found):
    checked.run(settings={"data.train_batch_size": 16})
    checked.run("b", **{"settings": {"data.train_batch_size": 16}, **changes})
    assert checked.codes() == found


PATH = "examples/tuning/{}.sh"


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ({"versions": {"verl": "0.7.0"}}, {"versions": {"verl": "0.8.0"}}, []),
        ({"versions": {"verl": "0.8.0"}}, {"versions": {"verl": "0.8.0"}}, ["duplicate_run"]),
        ({"versions": {"verl": "0.8.0", "torch": "2.6.0"}}, {"versions": {"torch": "2.8.0"}}, []),
        (
            {"script": {"ref": "v0.4.0", "path": PATH.format("a")}},
            {"script": {"ref": "v0.5.0", "path": PATH.format("b")}},
            [],
        ),
        (
            {"script": {"ref": "v0.4.0", "path": PATH.format("a")}},
            {"script": {"ref": "v0.5.0", "path": PATH.format("a")}},
            ["duplicate_run"],
        ),
        ({"script": {"ref": "v0.4.0", "path": PATH.format("a")}}, {}, ["duplicate_run"]),
    ],
)
def test_runs_are_not_the_same_where_both_say_what_tells_them_apart(checked, one, other, found):
    stated = {"tag": None, "kind": "stated"}
    checked.run(**{**stated, **one})
    checked.run("b", **{**stated, **other})
    assert [code for code in checked.codes() if code == "duplicate_run"] == found


def test_the_same_run_three_times_is_said_of_two(checked):
    for name, version in (("a", "0.7.0"), ("b", "0.8.0"), ("c", "0.8.0")):
        checked.run(name, versions={"verl": version})
    (found,) = checked.problems()
    assert found.startswith("data/runs/c.yaml:2:5: WARNING: the run is the same as 'b'")


@pytest.mark.parametrize(
    ("least", "recommended", "found"),
    [
        ({"count": 8, "type": "A100"}, {"count": 8, "type": "H100"}, []),
        ({"count": 8, "type": "H100"}, {"count": 8, "type": None, "memory_gb": 80}, []),
        ({"count": 16, "type": None, "memory_gb": 24}, {"count": 8, "type": None, "memory_gb": 80}, []),
        (
            {"count": 16, "type": None, "memory_gb": 80},
            {"count": 8, "type": "H100"},
            ["recommended_below_min"],
        ),
        ({"count": 16, "type": None}, {"count": 8, "type": None}, []),
    ],
)
def test_cards_are_compared_as_they_are_sold(checked, least, recommended, found):
    """Drivers report 81920 MiB for an A100 and 81559 for an H100, both with 80 GB."""
    checked.run(gpus=least, kind="stated")
    checked.run("b", tag="RECOMMENDED", gpus=recommended, kind="stated")
    assert [code for code in checked.codes() if code == "recommended_below_min"] == found


@pytest.mark.parametrize(
    ("gpus", "found"),
    [
        ({"count": 1, "type": "H100"}, ["recommended_below_min"]),
        ({"count": 4, "type": "H100"}, []),
        ({"count": 1, "type": "B200"}, []),  # more memory than two H100
        ({"count": 4, "type": "T4"}, ["recommended_below_min"]),
        ({"count": 1, "type": None}, []),  # which may be anything
    ],
)
def test_what_is_recommended_is_no_less_than_the_minimum(checked, gpus, found):
    checked.run()
    checked.run("b", tag="RECOMMENDED", gpus=gpus, kind="stated")
    checked.run("c", model="Qwen/Qwen2.5-3B", size="3B", gpus={"count": 8, "type": "H100"})
    assert checked.codes() == found


def test_one_of_several_minimums_is_enough(checked):
    checked.run()
    checked.run("b", gpus={"count": 8, "type": "H100"})
    checked.run("c", tag="RECOMMENDED", gpus={"count": 4, "type": "H100"})
    assert checked.codes() == []


NOTE = {"code": "counter", "about": "gpus", "text": "The peak is that of the first step alone."}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"measured": {"gib": 12, "counter": "device"}}, ["far_from_computed"]),
        ({"measured": {"gib": 75, "counter": "device"}}, []),
        ({"measured": {"gib": 12, "counter": "device"}, "notes": [NOTE]}, []),
        (
            {
                "measured": {"gib": 12, "counter": "device"},
                "notes": [{**NOTE, "text": "The script was renamed."}],
            },
            ["far_from_computed"],
        ),
        ({"measured": {"gib": 12, "counter": "device"}, "settings": {"data.train_batch_size": 256}}, []),
        ({"measured": {"gib": 12, "counter": "device"}, "settings": ...}, []),
        ({"measured": {"gib": 114, "counter": "torch-max-allocated"}}, []),
        ({"measured": {"gib": 12, "counter": "torch-max-allocated"}}, ["far_from_computed"]),
        ({"measured": {"gib": 12}}, ["far_from_computed"]),
        ({"measured": {"mfu": 0.4}}, []),
    ],
)
def test_what_is_measured_beside_what_is_computed(checked, changes, found):
    checked.run(**{"settings": SETTINGS, **changes})
    assert checked.codes() == found
