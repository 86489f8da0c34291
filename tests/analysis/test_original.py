"""Every figure of the original document, compared with the result of its formula."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.analysis.analysis import analyse
from sphinx_verl_resources.analysis.original import analysis_problems, compare
from sphinx_verl_resources.catalog.names import figure_parts
from sphinx_verl_resources.units import GB

FIGURES = (
    "hidden-size", "ffn-dimension", "parameters", "gradients", "optimizer", "activations", "kv-cache", "total",
    "fsdp.states", "fsdp.total", "gradient-checkpointing.activations", "gradient-checkpointing.total",
    "activation-offload.activations", "activation-offload.total", "dynamic-batching.kv-cache",
    "dynamic-batching.total",
)  # fmt: skip

#: Computed (GB, four decimals), printed, difference in per cent, causes, causes carried in.
EXPECTED = {
    "3B": [
        (2795.0850, 2560, -8.4, "H", ""), (7040, 7040, 0, "", ""), (6, 6, 0, "", ""), (6, 6, 0, "", ""),
        (12, 12, 0, "", ""), (10.7374, 10.7, -0.3, "", ""), (21.4748, 16.8, -21.8, "K", ""),
        (58.2123, 53.5, -8.1, "", "K"), (3, 3, 0, "", ""), (37.2123, 32.5, -12.7, "", "K"),
        (2.6844, 2.7, 0.6, "", ""), (29.1592, 24.5, -16.0, "", "K"), (0.8053, 0.8, -0.7, "", ""),
        (27.2801, 22.6, -17.2, "", "K"), (12.8849, 10.1, -21.6, "", "K"), (18.6902, 15.9, -14.9, "", "K"),
    ],
    "8B": [
        (4564.3546, 4096, -10.3, "H", ""), (11264, 11264, 0, "", ""), (16, 16, 0, "", ""), (16, 16, 0, "", ""),
        (32, 32, 0, "", ""), (17.1799, 16.8, -2.2, "A8", ""), (34.3597, 26.8, -22.0, "K", ""),
        (117.5396, 109.6, -6.8, "", "A8 K"), (8, 8, 0, "", ""), (61.5396, 53.6, -12.9, "", "A8 K"),
        (4.2950, 4.2, -2.2, "", "A8"), (48.6547, 41, -15.7, "", "A8 K"), (1.2885, 1.3, 0.9, "", ""),
        (45.6482, 38.1, -16.5, "", "A8 K"), (20.6158, 16.1, -21.9, "", "K"), (31.9043, 27.4, -14.1, "U", "A8 K"),
    ],
    "32B": [
        (6454.9722, 5120, -20.7, "H", ""), (14080, 14080, 0, "", ""), (64, 64, 0, "", ""), (64, 64, 0, "", ""),
        (128, 128, 0, "", ""), (42.9497, 42.2, -1.7, "A32", ""), (85.8993, 84.4, -1.7, "K2", "A32"),
        (386.8490, 384.6, -0.6, "", "A32 K2"), (16, 16, 0, "", ""), (146.8490, 144.6, -1.5, "", "A32 K2"),
        (10.7374, 10.6, -1.3, "", "A32"), (114.6368, 113, -1.4, "", "A32 K2"), (3.2212, 3.2, -0.7, "", ""),
        (107.1206, 105.6, -1.4, "", "A32 K2"), (51.5396, 50.6, -1.8, "", "K2"), (72.7608, 71.8, -1.3, "", "A32 K2"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_every_figure(analysis, name):
    printed = analysis.printed[name]
    assert tuple(item.figure for item in printed.figures) == FIGURES
    found = compare(analysis, printed)
    assert [
        (
            round(item.computed / (GB if item.is_size else 1), 4), item.original,
            float(item.difference.replace(" %", "").replace("−", "-")), " ".join(item.causes), " ".join(item.carried),
        )
        for item in found
    ] == EXPECTED[name]  # fmt: skip
    assert all(item.is_explained for item in found)
    # A cause is recorded if and only if the printed digits differ from those of the formula.
    assert [item.agrees for item in found] == [not (item.causes or item.carried) for item in found]


def test_the_summary_repeats_the_totals(analysis):
    for printed in analysis.printed.values():
        assert [item.figure for item in printed.figures if item.summary] == [
            name for name in FIGURES if figure_parts(name)[1] == "total"
        ]


@pytest.mark.parametrize("name", EXPECTED)
def test_carried_causes_are_true(analysis, name):
    """Printed figures follow from other printed figures, except for the causes recorded for them."""
    printed = {item.figure: item for item in analysis.printed[name].figures}
    value = {figure: item.value for figure, item in printed.items()}
    overhead, gpus = 2, analyse(analysis, name).gpus
    states = value["parameters"] + value["gradients"] + value["optimizer"]
    activations, kv_cache = value["activations"], value["kv-cache"]
    follows = {
        "total": states + activations + kv_cache + overhead,
        "fsdp.states": states / gpus,
        "fsdp.total": value["fsdp.states"] + activations + kv_cache + overhead,
        "gradient-checkpointing.activations": activations / 4,
        "gradient-checkpointing.total": value["fsdp.states"] + activations / 4 + kv_cache + overhead,
        "activation-offload.activations": activations / 4 * 0.3,
        "activation-offload.total": value["fsdp.states"] + activations / 4 * 0.3 + kv_cache + overhead,
        "dynamic-batching.kv-cache": kv_cache * 0.6,
        "dynamic-batching.total": value["fsdp.states"] + activations / 4 * 0.3 + kv_cache * 0.6 + overhead,
    }
    for figure, expected in follows.items():
        if printed[figure].causes:
            assert printed[figure].causes == ("U",)
            assert abs(expected - value[figure]) > 0.05
        else:
            assert abs(expected - value[figure]) <= 0.05 + 1e-9, figure


def test_what_the_causes_say(analysis):
    """Check the arithmetic in the texts of the causes."""
    values = {
        name: {item.figure: item.value for item in entry.figures} for name, entry in analysis.printed.items()
    }
    formula = {name: analyse(analysis, name).start for name in values}
    for name in ("3B", "8B"):  # K
        assert round(formula[name].of(["kv-cache"]) / GB * 25 / 32, 1) == values[name]["kv-cache"]
    assert values["32B"]["kv-cache"] == 2 * values["32B"]["activations"]  # K2
    assert formula["8B"].of(["activations"]) == 17_179_869_184 == 16 * 2**30  # A8
    assert round(17_179_869_184 / 1.024e9, 1) == values["8B"]["activations"]
    assert formula["32B"].of(["activations"]) == 42_949_672_960 == 40 * 2**30  # A32
    assert round(values["32B"]["activations"] * GB / 42_949_672_960, 3) == 0.983
    assert round(8 + 16.8 / 4 * 0.3 + 26.8 * 0.6 + 2, 2) == 27.34  # U


def test_no_problem(analysis):
    assert [str(problem) for problem in analysis_problems(analysis)] == []


def test_what_a_remark_says_of_vocabularies(analysis):
    """The registry is the source of its numbers."""
    text = " ".join(analysis.remarks["logits"].text.split())
    assert "Llama 2 has that many, Qwen2.5-7B has 152,064" in text
    assert (
        analysis.architectures.get("meta-llama/Llama-2-7b-hf").vocab_size
        == analysis.assumptions.vocabulary_size
    )
    assert analysis.architectures.get("Qwen/Qwen2.5-7B").vocab_size == 152_064
