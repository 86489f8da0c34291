"""Hand-computed ranges: of allocations, of phases with unknown or varying lengths, and their verdicts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sphinx_verl_resources.estimator.allocations import Kind, allocate, ends_of
from sphinx_verl_resources.estimator.constants import UNMODELLED, Spread
from sphinx_verl_resources.estimator.peak import AnyEstimate
from sphinx_verl_resources.estimator.phases import phase_of
from sphinx_verl_resources.units import GIB

FULL = {"actor.use_dynamic_bsz": True, "rollout.n": 8}


def piece(kind, size, low=1.0, high=1.0):
    spread = {} if low == high == 1 else {"spread": Spread(low, high)}
    return allocate(kind, "assumed", {"bytes": size}, **spread)


WEIGHTS = piece(Kind.WEIGHTS, 30)


# Allocations.
def test_what_is_exact_has_no_range():
    assert ends_of((WEIGHTS, piece(Kind.GRADIENTS, 10)), 3, 0) == (40, 40)


def test_a_share_of_the_training_process_is_never_modelled():
    """4 % of PyTorch's count, widened like the rest."""
    assert UNMODELLED.value == 0.04
    assert ends_of((piece(Kind.WEIGHTS, 1000),), 1, 1000) == pytest.approx((960, 1040))
    assert ends_of((piece(Kind.WEIGHTS, 1000),), 0.5, 1000) == pytest.approx((980, 1020))


def test_within_a_category_distances_add_up():
    logits = (piece(Kind.LOGITS, 30, 0.9, 1.2), piece(Kind.ENTROPY_CHUNK, 10, 0.9, 1.2))
    assert ends_of((WEIGHTS, *logits), 1, 0) == pytest.approx((70 - 4, 70 + 8))


def test_across_categories_distances_add_up_as_squares():
    parts = (piece(Kind.LOGITS, 30, 0.9, 1.2), piece(Kind.ACTIVATIONS, 40, 0.9, 1.2))
    assert ends_of(parts, 1, 0) == pytest.approx((70 - 5, 70 + 10))
    # With 4 % of 300 as a third error: √(3² + 4² + 12²) = 13.
    assert ends_of(parts, 1, 300).low == pytest.approx(70 - 13)


@pytest.mark.parametrize("kind", [Kind.ROLLOUT_POOL, Kind.CUDA_GRAPHS, Kind.CUDA_CONTEXT, Kind.COMMUNICATORS])
def test_a_widening_leaves_what_is_outside_the_training_process(kind):
    outside, inside = piece(kind, 40, 0.9, 1.1), piece(Kind.LOGITS, 40, 0.9, 1.1)
    assert ends_of((outside,), 3, 0) == pytest.approx((36, 44))
    assert ends_of((inside,), 3, 0) == pytest.approx((28, 52))


def test_no_end_is_below_zero():
    logits = piece(Kind.LOGITS, 10, 0.5, 1.5)
    assert logits.ends(8) == (0, 50)
    assert ends_of((logits,), 8, 10).low == 0  # despite another 4 % below it


# Phases.
class Ranged(AnyEstimate):
    """An estimate of one phase with graphs of 100 ± 30 bytes."""

    kind, widening = "fsdp", 1.0

    def __init__(self, capacity=None, least=60, most=140, varies=False, **others):
        self.phases, self._least, self._most = _phases(100), _phases(least), _phases(most)
        self.capacity, self._varies = capacity, varies
        self._others = others

    least = property(lambda self: self._least)
    most = property(lambda self: self._most)
    varies = property(lambda self: self._varies)
    undecided = property(lambda self: self._others.get("undecided", ()))
    fits_up_to_tokens = property(lambda self: self._others.get("fits_up_to_tokens"))
    ran = property(lambda self: self._others.get("ran", False))


def _phases(size):
    return (phase_of("rollout", (), "awake", (piece(Kind.CUDA_GRAPHS, size, 0.7, 1.3),), ()),)


def test_what_is_unknown_gives_bounds():
    """The low end of the least, 42 = 60 × 0.7, and the high end of the most, 182 = 140 × 1.3."""
    assert Ranged().peak_range == pytest.approx((42, 182))


def test_the_low_end_is_not_above_the_estimate():
    """Padded logits are divided into a copy, so the favourable value of an unknown setting can need more memory."""
    assert Ranged(least=120).peak_range == pytest.approx((70, 182))


def test_lengths_that_vary_are_one_more_cause():
    """30 for the graphs and 40 for the lengths, in both directions: √(30² + 40²) = 50."""
    assert Ranged(varies=True).peak_range == pytest.approx((50, 150))
    assert Ranged(varies=True, least=100, most=100).peak_range == pytest.approx((70, 130))


def test_only_lengths_around_a_known_mean_vary(ask):
    seen = {"prompt_length_mean": 200, "response_length_mean": 400}
    assert ask(FULL, observed=seen).varies
    assert not ask(FULL).varies
    source = {"fsdp.param_offload": ...}
    unquoted = ask({**FULL, **source}, observed=seen, partial=True)
    assert "offload" in unquoted.settings.unstated
    assert not unquoted.varies  # the offload setting is unknown, too


def test_unknown_lengths_are_between_short_ones_and_the_limit(ask):
    """The low end has sequences of 0.24 of the longest, with almost no variation; the high end has full ones."""
    fixed = {"actor.ppo_micro_batch_size_per_gpu": 4, "actor.use_dynamic_bsz": False}
    found = ask(fixed)
    shorter, longer = (
        {phase.name: {part.key: part.size for part in phase.trainer} for phase in phases}["update-forward"]
        for phases in (found.least, found.most)
    )
    each = 2 * 3584 * 28
    assert longer["layer-inputs"] == pytest.approx(4 * 1024 * each)
    assert shorter["layer-inputs"] == pytest.approx(4 * 0.24 * 1024 * (1 + 0.5 / math.sqrt(4)) * each)
    assert found.low == max(phase.ends(found.widening).low for phase in found.least)
    assert found.high == max(phase.ends(found.widening).high for phase in found.most)


def test_both_ends_of_the_counter(ask):
    """It excludes everything outside the training process, except vLLM's pool before v0.7.1."""
    found = ask(FULL, version=(0, 7, 0))
    low, high = found.torch_peak_range
    assert low < found.torch_peak < high
    (pool,) = found.counted_besides
    assert found.torch_peak == pytest.approx(pool.size + max(phase.counted for phase in found.phases))
    assert pool.ends(3) == pytest.approx((pool.size - 5 * GIB, pool.size + 2 * GIB))
    assert ask(FULL, version=(0, 7, 1)).counted_besides == ()


# Verdicts.
@pytest.mark.parametrize(
    ("capacity", "others", "verdict"),
    [
        (182, {}, "fits"),
        (181, {}, "borderline"),
        (42, {}, "borderline"),
        (41, {}, "does-not-fit"),
        (41, {"ran": True}, "borderline"),
        (181, {"fits_up_to_tokens": 100}, "depends-on-lengths"),
        (182, {"fits_up_to_tokens": 100}, "fits"),
        (41, {"fits_up_to_tokens": 100}, "does-not-fit"),
        (None, {}, "unknown"),
        (182, {"undecided": ("a setting",)}, "unknown"),
        (41, {"undecided": ("a setting",)}, "unknown"),
    ],
)
def test_verdicts(capacity, others, verdict):
    """Both ends, 42 and 182, compared with the capacity."""
    found = Ranged(capacity, **others)
    assert found.verdict == verdict
    assert found.fits is (verdict == "fits")


LONG = {
    "actor.ppo_micro_batch_size_per_gpu": 3,
    "model.use_remove_padding": True,
    "data.max_prompt_length": 1024,
    "data.max_response_length": 15_360,
    "rollout.gpu_memory_utilization": 0.4,
}


def known(found, mean):
    """Return the same run with sequences of a known mean length."""
    lengths = replace(found.settings.lengths, mean=mean, known=True)
    return replace(found, settings=replace(found.settings, lengths=lengths))


def test_the_longest_sequences_that_fit(ask):
    found = ask(LONG)
    tokens = found.fits_up_to_tokens
    assert found.verdict == "depends-on-lengths"
    assert 0.24 * 16_384 < tokens < 16_384
    assert known(found, tokens).verdict == "fits"
    assert known(found, tokens + 1).verdict != "fits"


def test_only_lengths_below_those_of_real_data_fit(ask):
    found = ask({**LONG, "actor.ppo_micro_batch_size_per_gpu": 12})
    tokens = found.fits_up_to_tokens
    assert found.verdict == "depends-on-lengths"
    assert 1 < tokens < 0.24 * 16_384
    assert known(found, tokens).verdict == "fits"
    assert known(found, tokens + 1).verdict != "fits"


def test_lengths_do_not_matter(ask):
    for settings, observed in (
        ({**LONG, "actor.ppo_micro_batch_size_per_gpu": 1, "data.max_response_length": 1024}, {}),
        ({**LONG, "actor.ppo_micro_batch_size_per_gpu": 64}, {}),  # too long in any case
        (LONG, {"prompt_length_mean": 1000, "response_length_mean": 8000}),
    ):
        found = ask(settings, observed=observed)
        assert found.fits_up_to_tokens is None
        assert found.verdict != "depends-on-lengths"
