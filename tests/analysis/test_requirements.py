"""Numbers of GPUs: judgements of the claims, and the derivations of the counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.analysis import analyse, judge, power_of_two, smallest_count
from sphinx_verl_resources.units import GB

#: Level, GPU, claimed number, number by chain and pool, judgement, derivations with the same number.
EXPECTED = {
    "3B": [
        ("minimum", "A100-40GB", 2, 2, 2, "holds", "chain, pooled"),
        ("minimum", "RTX-4090", 4, 4, 4, "holds", "chain, pooled"),
        ("recommended", "A100-40GB", 4, 2, 2, "more than needed", "doubled"),
        ("recommended", "RTX-4090", 8, 4, 4, "more than needed", "doubled"),
        ("optimal", "A100-80GB", 8, 1, 1, "more than needed", ""),
        ("optimal", "H100-80GB", 8, 1, 1, "more than needed", ""),
    ],
    "8B": [
        ("minimum", "A100-40GB", 4, 8, 4, "too few", "pooled"),
        ("minimum", "RTX-4090", 8, None, 8, "never fits", "pooled"),
        ("recommended", "A100-40GB", 8, 8, 4, "holds", "chain, doubled"),
        ("recommended", "RTX-4090", 16, None, 8, "never fits", "doubled"),
        ("optimal", "A100-80GB", 8, 2, 2, "more than needed", ""),
        ("optimal", "H100-80GB", 8, 2, 2, "more than needed", ""),
    ],
    "32B": [
        ("minimum", "A100-80GB", 8, 16, 8, "too few", "pooled"),
        ("minimum", "H100-80GB", 8, 16, 8, "too few", "pooled"),
        ("recommended", "A100-80GB", 16, 16, 8, "holds", "chain, doubled"),
        ("recommended", "H100-80GB", 16, 16, 8, "holds", "chain, doubled"),
        ("optimal", "A100-80GB", 32, 16, 8, "more than needed", ""),
        ("optimal", "H100-80GB", 32, 16, 8, "more than needed", ""),
    ],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_verdicts(analysis, name):
    found = judge(analysis, analysis.requirements[name])
    assert [
        (
            item.claim.level, item.gpu, item.claim.count, item.counts["chain"], item.counts["pooled"],
            item.judgement, ", ".join(item.follows),
        )
        for item in found
    ] == EXPECTED[name]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "judgement"), [(8, "too few"), (13, "holds"), (16, "holds"), (17, "more than needed")]
)
def test_counts_that_are_no_power_of_two(analysis, count, judgement):
    """32B on 13 GPUs with 80 GB: each uses 76.5 of 77.3 GB."""
    claim = analysis.requirements["32B"].claims[0].model_copy(update={"count": count})
    requirement = analysis.requirements["32B"].model_copy(update={"claims": (claim,)})
    assert judge(analysis, requirement)[0].judgement == judgement


def test_the_figures_that_decide(analysis):
    """A100 40 GB has 40960 MiB, 42.95 GB; an RTX 4090 24564 MiB, 25.76 GB."""
    claims = judge(analysis, analysis.requirements["8B"])
    assert round(claims[0].limit / GB, 1) == 38.7
    assert round(claims[0].per_gpu / GB, 1) == 39.9
    assert round(claims[1].limit / GB, 1) == 23.2
    assert [(item.judgement, item.deciding[0], round(item.deciding[1] / GB, 1)) for item in claims[:5]] == [
        ("too few", 4, 39.9),
        ("never fits", 8, 23.9),  # the part that more GPUs do not reduce
        ("holds", 4, 39.9),  # half of the claimed GPUs
        ("never fits", 16, 23.9),
        ("more than needed", 2, 55.9),
    ]
    assert claims[0].claim.unknown == ("H100 with 40 GB",)
    assert claims[1].claim.unknown == ()


def test_nothing_is_smaller_than_one_gpu(analysis):
    claim = analysis.requirements["3B"].claims[-1].model_copy(update={"count": 1})
    requirement = analysis.requirements["3B"].model_copy(update={"claims": (claim,)})
    found = judge(analysis, requirement)[0]
    assert (found.judgement, found.deciding) == ("holds", None)


@given(limit=st.floats(1e9, 1e12))
@pytest.mark.parametrize("name", ["3B", "8B", "32B", "671B"])
def test_the_smallest_count_is_the_smallest(analysis, name, limit):
    count = smallest_count(analysis, name, limit)
    if count is None:
        assert analyse(analysis, name, gpus=2**20).end.total >= limit
        return
    assert count.bit_count() == 1
    assert analyse(analysis, name, gpus=count).end.total < limit
    assert count == 1 or analyse(analysis, name, gpus=count // 2).end.total >= limit


@given(st.floats(0.001, 1e9))
def test_power_of_two(number):
    found = power_of_two(number)
    assert found.bit_count() == 1
    assert found >= number
    assert found == 1 or found / 2 < number
