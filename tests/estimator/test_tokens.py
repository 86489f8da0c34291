"""Tokens of the fullest micro-batch, from lengths and budgets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.estimator.settings import least, most, update_tokens
from sphinx_verl_resources.estimator.tokens import Lengths, MicroBatch, fullest, tokens_of

#: Sequences of exactly 500 tokens.
EVEN = Lengths(500, 500, 1000, True)
#: Sequences of 500 tokens on average, and at most 2000.
UNEVEN = Lengths(500, 2000, 4000, True)


def dynamic(budget, lengths=EVEN, sequences=20, divide=1, padded=False):
    return tokens_of(lengths, MicroBatch(None, True, budget), sequences, divide, padded=padded)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (20_000, 10_000),  # everything at once
        (10_000, 10_000),
        (9_000, 5_000),  # two, and not one of 9000
        (4_000, 10_000 / 3),
        (600, 10_000 / 17),
    ],
)
def test_a_budget_is_filled_evenly(budget, expected):
    """The smallest number of micro-batches that the budget allows, k, with total ÷ k tokens each."""
    assert dynamic(budget) == pytest.approx(expected)


def test_a_budget_is_one_of_a_gpu():
    assert dynamic(2_000, divide=4) == pytest.approx(2_500 / 2)
    assert dynamic(9_000, padded=True) == pytest.approx(20_000 / 3)  # 1000 tokens each, two thirds real


def test_a_micro_batch_has_a_sequence_at_least():
    """If the longest sequence exceeds the budget, it replaces the budget."""
    assert dynamic(100) == 500
    assert dynamic(400, Lengths(500, 2000, 4000, False)) == 2000
    assert dynamic(400, Lengths(500, 2000, 4000, False), divide=4) == 500


def test_the_budget_is_full_where_totals_vary_around_a_multiple_of_it():
    """16 sequences have 8000 tokens, and 1 + 1/√16 times as many in the fullest mini-batch: 10,000."""
    for budget in (8_000, 9_000, 9_999):
        assert dynamic(budget, UNEVEN, 16) == budget  # some mini-batch has as many as this
    assert dynamic(10_000, UNEVEN, 16) == 10_000
    assert dynamic(7_999, UNEVEN, 16) == 5_000  # all have more: two micro-batches each
    assert dynamic(12_000, UNEVEN, 16) == 10_000  # all have fewer
    assert dynamic(4_500, UNEVEN, 16) == 4_500  # two or three
    assert dynamic(3_900, UNEVEN, 16) == pytest.approx(10_000 / 3)


def test_the_budget_is_full_where_lengths_are_unknown():
    unknown = Lengths(1000, 1000, 1000, False)
    assert dynamic(9_000, unknown) == 9_000
    assert dynamic(30_000, unknown) == 20_000  # all tokens


def test_bounds_of_known_lengths(ask):
    """0.5 and 1.5 times the variation of the estimate."""
    seen = {"prompt_length_mean": 100, "response_length_mean": 300}
    settings = ask({"actor.ppo_micro_batch_size_per_gpu": 16}, observed=seen).settings
    found = [update_tokens(each, each.actor) for each in (least(settings), settings, most(settings))]
    assert found == pytest.approx([16 * 400 * (1 + each / 4) for each in (0.5, 1, 1.5)])


lengths = st.builds(
    lambda mean, more, limit: Lengths(mean, mean + more, mean + more + limit, known=True),
    st.floats(1, 1e5),
    st.floats(0, 1e5),
    st.floats(0, 1e5),
)
cuts = st.builds(MicroBatch, st.none() | st.integers(1, 512), st.booleans(), st.integers(1, 10**6))


@given(lengths, cuts, st.integers(1, 4096), st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_tokens_are_within_bounds(lengths, micro, most, divide, padded):
    found = tokens_of(lengths, micro, most, divide, padded=padded)
    longest = lengths.limit if padded else lengths.longest
    assert 0 < found <= most * longest / divide * (1 + 1e-12)
    assert found >= min(lengths.mean, longest) / divide * (1 - 1e-12)
    if micro.dynamic:
        assert found <= max(micro.tokens, longest / divide) * (1 + 1e-12)
    else:
        assert found <= min(micro.sequences or 1, most) * longest / divide * (1 + 1e-12)


@given(lengths, st.integers(1, 4000), st.booleans())
def test_more_sequences_have_more_tokens(lengths, sequences, padded):
    one, more = (fullest(lengths, count, padded=padded) for count in (sequences, sequences + 1))
    assert one <= more * (1 + 1e-12)
    assert sequences * lengths.mean <= one * (1 + 1e-12)
