"""The totals of the original document: its formulas give them, except where it contradicts itself."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.analysis import analyse, value_text

STEPS = ("FSDP", "gradient checkpointing", "activation offloading", "dynamic batching")
#: By the formulas: the total, and the total after each step.
TOTALS = {
    "3B": "58.2 37.2 29.2 27.3 18.7",
    "8B": "117.5 61.5 48.7 45.6 31.9",
    "32B": "386.8 146.8 114.6 107.1 72.8",
}
#: Printed in the document: parameters, gradients, optimizer states, and model states after FSDP.
STATES = {"3B": "6.0 6.0 12.0 3.0", "8B": "16.0 16.0 32.0 8.0", "32B": "64.0 64.0 128.0 16.0"}


@pytest.mark.parametrize("name", TOTALS)
def test_totals(analysis, name):
    asked = [f"{name}, total", *(f"{name}, after {step}" for step in STEPS)]
    assert [value_text(analysis, text) for text in asked] == [f"{size} GB" for size in TOTALS[name].split()]
    asked = [
        f"{name}, {part}" for part in ("parameters", "gradients", "optimizer states", "states after FSDP")
    ]
    assert [value_text(analysis, text) for text in asked] == [f"{size} GB" for size in STATES[name].split()]


def test_figures_of_the_page(analysis):
    """The page explains these printed figures by the formulas."""
    kv_cache = {name: analyse(analysis, name).start.of(["kv-cache"]) / 1e9 for name in TOTALS}
    assert [round(kv_cache[name] * 25 / 32, 1) for name in ("3B", "8B")] == [16.8, 26.8]
    assert analyse(analysis, "8B").start.of(["activations"]) == 17_179_869_184
    assert analyse(analysis, "32B").start.of(["activations"]) == 42_949_672_960


def test_what_a_remark_says_of_vocabularies(analysis):
    """The registry is the source of its numbers."""
    text = " ".join(analysis.remarks["logits"].text.split())
    assert "Llama 2 has that many, Qwen2.5-7B has 152,064" in text
    assert (
        analysis.architectures.get("meta-llama/Llama-2-7b-hf").vocab_size
        == analysis.assumptions.vocabulary_size
    )
    assert analysis.architectures.get("Qwen/Qwen2.5-7B").vocab_size == 152_064
