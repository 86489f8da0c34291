"""The formulas compared with recorded traces of real training steps, losses and sharded steps."""

from __future__ import annotations

import pytest
from modules import module_at


@pytest.fixture(scope="module")
def oracle(request):
    return module_at(request.config.rootpath / "tests" / "oracle" / "compare.py")


def test_states_are_exact_widths_within_one_per_cent_and_all_else_within_two(oracle):
    compared = oracle.compare_all()
    tolerances = dict.fromkeys(("loss", "logits", "inference", "after inference", "backward", "step"), 0.02)
    tolerances |= {"states": 0, "idle": 0, "activations": 0.01}
    assert {item.what for item in compared} == tolerances.keys()
    assert [item for item in compared if abs(item.deviation) > tolerances[item.what]] == []


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


def test_traces_cover_what_the_widths_distinguish(oracle):
    cases = oracle.load_traces()["cases"]
    models = {"Qwen2.5-7B", "Llama-3-8B", "Qwen3-8B", "Qwen3-30B-A3B", "Qwen1.5-MoE-A2.7B", "Gemma-2-2B"}
    assert models <= {case["architecture"] for case in cases}
    with_experts = [case for case in cases if "A3B" in case["id"] or "MoE" in case["id"]]
    for group in (cases, with_experts):
        assert {case["recompute"] for case in group if case["gradients"]} == {"full", "none"}
        assert any(case["lora_rank"] for case in group)
        assert any(not case["gradients"] for case in group)
    assert {case["gradients"] for case in cases if case["loss"] == "value"} == {True, False}
