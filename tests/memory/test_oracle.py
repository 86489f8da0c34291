"""The formulas compared with recorded traces of real training steps, losses and sharded steps."""

from __future__ import annotations

import pytest
from modules import module_at


@pytest.fixture(scope="module")
def oracle(request):
    return module_at(request.config.rootpath / "tests" / "oracle" / "compare.py")


@pytest.fixture(scope="module")
def compared(oracle):
    return oracle.compare_all()


def test_states_are_exact_and_all_else_within_two_per_cent(oracle, compared):
    exact = {"states", "idle"}
    others = {"activations", "loss", "logits", "inference", "after inference", "backward", "step"}
    assert {item.what for item in compared} == exact | others
    assert [item for item in compared if abs(item.deviation) > 0.02 * (item.what not in exact)] == []


def test_traces_cover_what_the_formulas_distinguish(oracle):
    traces = oracle.load_traces()
    ways = {(case["engine"], case["entropy"]) for case in traces["logits"]}
    of_fsdp = {
        (engine, how) for engine in ("v0.8", "v0.9") for how in ("none", "compiled", "eager", "chunked")
    }
    assert of_fsdp | {("megatron", "none"), ("megatron", "compiled"), ("fused", "compiled")} <= ways
    for backend in ("fsdp", "fsdp2"):
        cases = [case for case in traces["sharding"] if case["backend"] == backend]
        assert {case["deferred"] for case in cases if case["micro_batches"] > 1} == {True, False}
        assert {case["dtype"] for case in cases} == {"fp32", "bf16"}
        assert {case["reshard"] for case in cases} == {True, False}
        assert {case["architecture"].endswith("-tied") for case in cases} == {True, False}
