"""The closed form against the recorded traces of real training steps."""

from __future__ import annotations

import importlib.util
import sys

import pytest


@pytest.fixture(scope="module")
def compare(request):
    path = request.config.rootpath / "tests" / "oracle" / "compare.py"
    spec = importlib.util.spec_from_file_location("oracle_compare", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["oracle_compare"] = module
    spec.loader.exec_module(module)
    return module


def test_states_and_activations_are_within_three_per_cent(compare):
    found = compare.compare_all()
    assert {item.what for item in found} == {"states", "activations"}
    assert {f"{item.name}: {item.deviation:+.1%}" for item in found if abs(item.deviation) > 0.03} == set()


def test_every_full_fine_tune_is_within_one_per_cent(compare):
    full = [item for item in compare.compare_all() if "/full/" in item.name]
    assert len(full) > 20
    assert max(abs(item.deviation) for item in full) < 0.01


def test_traces_cover_what_the_formulas_distinguish(compare):
    cases = compare.load_traces()["cases"]
    names = {case["architecture"] for case in cases}
    assert {"Qwen2.5-7B", "Llama-3-8B", "Qwen3-8B", "Qwen3-30B-A3B", "Gemma-2-2B"} <= names
    assert {case["recompute"] for case in cases if case["gradients"]} == {"full", "none"}
    assert any(case["lora_rank"] for case in cases)
    assert any(not case["gradients"] for case in cases)
