"""The estimator compared with recorded traces of real training steps, losses and sharded steps."""

from __future__ import annotations

import pytest
from modules import module_at


@pytest.fixture(scope="module")
def oracle(request):
    return module_at(request.config.rootpath / "tests" / "oracle" / "compare.py").Oracle()


@pytest.fixture(scope="module")
def wrong(oracle):
    """Return the figures that are too far off, by part of the memory."""
    found = oracle.compare()
    assert {item.tolerance for item in found if item.what in ("states", "idle")} == {0.0}
    assert {item.tolerance for item in found if item.what not in ("states", "idle")} == {0.02}
    return {
        what: {f"{item.name}: {item.deviation:+.2%}" for item in found if item.what == what and not item.good}
        for what in {item.what for item in found}
    }


def test_everything_is_compared(wrong):
    assert set(wrong) == set(WHAT)


WHAT = ("states", "idle", "activations", "loss", "logits", "inference", "after inference", "backward", "step")


@pytest.mark.parametrize("what", WHAT)
def test_states_are_exact_and_all_else_within_two_per_cent(wrong, what):
    assert wrong[what] == set()


def test_traces_cover_what_the_formulas_distinguish(oracle):
    cases = oracle.traces["cases"]
    names = {case["architecture"] for case in cases}
    assert {
        "Qwen2.5-7B",
        "Llama-3-8B",
        "Qwen3-8B",
        "Qwen3-30B-A3B",
        "Qwen1.5-MoE-A2.7B",
        "Gemma-2-2B",
    } <= names
    with_experts = [case for case in cases if "A3B" in case["id"] or "MoE" in case["id"]]
    for of_all in (cases, with_experts):
        assert {case["recompute"] for case in of_all if case["gradients"]} == {"full", "none"}
        assert any(case["lora_rank"] for case in of_all)
        assert any(not case["gradients"] for case in of_all)
    assert {case["gradients"] for case in cases if case["loss"] == "value"} == {True, False}


def test_traces_cover_every_way_to_the_loss(oracle):
    ways = {(case["engine"], case["entropy"]) for case in oracle.traces["logits"]}
    of_fsdp = {
        (engine, how) for engine in ("v0.8", "v0.9") for how in ("none", "compiled", "eager", "chunked")
    }
    assert of_fsdp | {("megatron", "none"), ("megatron", "compiled"), ("fused", "compiled")} <= ways


def test_traces_cover_both_backends_and_deferred_gradients(oracle):
    for backend in ("fsdp", "fsdp2"):
        cases = [case for case in oracle.traces["sharding"] if case["backend"] == backend]
        assert {case["deferred"] for case in cases if case["micro_batches"] > 1} == {True, False}
        assert {case["dtype"] for case in cases} == {"fp32", "bf16"}
        assert {case["reshard"] for case in cases} == {True, False}
