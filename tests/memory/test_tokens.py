"""Tokens of the fullest micro-batch, from lengths, sizes and budgets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.memory.roles import Lengths, MicroBatch, tokens_of
from sphinx_verl_resources.memory.settings import least, micro_batches

#: Sequences of exactly 500 tokens, of 500 on average and at most 2000, and of unknown lengths.
EVEN, UNEVEN = Lengths(500, 500, 1000, observed=True), Lengths(500, 2000, 4000, observed=True)
UNKNOWN = Lengths(1000, 1000, 1000, observed=False)
#: Lengths, budget, sequences, GPUs that share a sequence, whether they are padded, tokens.
BUDGETS = [
    # The smallest number of micro-batches that the budget allows, evenly filled.
    (EVEN, 20_000, 20, 1, False, 10_000), (EVEN, 10_000, 20, 1, False, 10_000), (EVEN, 9_000, 20, 1, False, 5_000),
    (EVEN, 4_000, 20, 1, False, 10_000 / 3), (EVEN, 2_000, 20, 4, False, 1_250), (EVEN, 9_000, 20, 1, True, 20_000 / 3),
    # At least one sequence, the longest if need be.
    (EVEN, 100, 20, 1, False, 500), (UNEVEN, 400, 20, 4, False, 500), (UNEVEN, 400, 20, 4, True, 1_000),
    # 16 sequences have 8000 tokens on average and 10,000 in the fullest mini-batch: full in some mini-batch.
    (UNEVEN, 8_000, 16, 1, False, 8_000), (UNEVEN, 9_999, 16, 1, False, 9_999), (UNEVEN, 12_000, 16, 1, False, 10_000),
    (UNEVEN, 7_999, 16, 1, False, 5_000), (UNEVEN, 4_500, 16, 1, False, 4_500), (UNEVEN, 3_900, 16, 1, False, 10_000 / 3),
    (UNKNOWN, 9_000, 20, 1, False, 9_000), (UNKNOWN, 30_000, 20, 1, False, 20_000),
]  # fmt: skip


@pytest.mark.parametrize(("lengths", "budget", "sequences", "divide", "padded", "expected"), BUDGETS)
def test_a_token_budget(lengths, budget, sequences, divide, padded, expected):
    result = tokens_of(lengths, MicroBatch(None, True, budget, sequences, divide), unpadded=not padded)
    assert result == pytest.approx(expected)


MICRO, DYNAMIC = {"actor.ppo_micro_batch_size_per_gpu": 2}, {"actor.use_dynamic_bsz": True}
BUDGET = "actor.ppo_max_token_len_per_gpu"
SEEN, LIMIT = {"prompt_length_mean": 100, "response_length_mean": 300}, 512 + 512
SIZE, ULYSSES = "actor.ppo_micro_batch_size_per_gpu", "fsdp.ulysses_sequence_parallel_size"
PADDED, L, LOW = {"model.use_remove_padding": False}, LIMIT, 0.24 * LIMIT
#: Settings, observed lengths; tokens of the update, of the old log-prob and reference passes, and of the update at the low end; micro-batches
#: per optimizer step. A mini-batch has 256 and a step 1024 sequences.
PASSES = [
    (MICRO, {}, [2 * L, 2 * L, 2 * L, 2 * LOW, 16]), ({**MICRO, "data.max_response_length": 2048}, {}, [5120, 5120, 5120, 0.24 * 5120, 16]),
    ({**MICRO, ULYSSES: 4}, {}, [L / 2, L / 2, 2 * L, LOW / 2, 64]), ({"actor.ppo_micro_batch_size": 64}, {}, [8 * L, 8 * L, 8 * L, 8 * LOW, 4]),
    ({"actor.ppo_micro_batch_size": 64, ULYSSES: 2}, {}, [8 * L, 8 * L, 8 * L, 8 * LOW, 4]), ({SIZE: 64}, {}, [32 * L, 64 * L, 64 * L, 32 * LOW, 1]),
    ({SIZE: 5}, {}, [5 * L, 5 * L, 5 * L, 5 * LOW, 7]), ({SIZE: 16}, SEEN, [16 * 400 * 1.25] * 3 + [16 * 400, 2]), ({**MICRO, **PADDED}, SEEN, [2 * L] * 4 + [16]),
    (MICRO, {**SEEN, "prompt_length_max": 150, "response_length_max": 350}, [1000, 1000, 1000, 800, 16]), (DYNAMIC, {}, [16_384] * 3 + [32 * LOW, 2]),
    ({**DYNAMIC, BUDGET: 100}, {}, [L, L, L, LOW, 328]), ({**DYNAMIC, BUDGET: 10**6}, {}, [32 * L, 128 * L, 128 * L, 32 * LOW, 1]),
    ({**DYNAMIC, BUDGET: 5000}, {}, [5000, 5000, 5000, 32 * LOW / 2, 7]), ({**DYNAMIC, BUDGET: 4096, **PADDED}, SEEN, [4096] * 4 + [8]),
    ({**DYNAMIC, BUDGET: 4096}, SEEN, [32 * 400 * (1 + 32**-0.5) / 4, 4096, 4096, 32 * 400 / 4, 4]),
    ({**DYNAMIC, BUDGET: 4096, ULYSSES: 4}, SEEN, [128 * 400 * (1 + 128**-0.5) / 16, 4096, 4096, 32 * 400 / 4, 4]),
    # Log-prob passes have keys of their own; the reference has its own Ulysses size.
    ({**MICRO, "rollout.log_prob_micro_batch_size_per_gpu": 8, "ref.log_prob_micro_batch_size": 32}, {}, [2 * L, 8 * L, 4 * L, 2 * LOW, 16]),
    ({**DYNAMIC, "rollout.log_prob_max_token_len_per_gpu": 32_768}, {}, [16_384, 32_768, 16_384, 32 * LOW, 2]),
    ({**MICRO, "rollout.log_prob_use_dynamic_bsz": True}, {}, [2 * L, 16_384, 2 * L, 2 * LOW, 16]), ({**MICRO, "ref.ulysses_sequence_parallel_size": 2}, {}, [2 * L, 2 * L, L, 2 * LOW, 16]),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "observed", "expected"), PASSES)
def test_tokens_and_micro_batches(ask, settings, observed, expected):
    step = {"actor.use_kl_loss": True, "rollout.n": 1, "data.train_batch_size": 1024}
    result = ask({**step, **settings}, observed=observed).settings
    low, count = least(result), micro_batches(result, result.actor)
    passes = result.actor.micro_batch, result.old_micro_batch, result.reference_micro_batch
    tokens = [tokens_of(result.lengths, micro, result.actor.remove_padding) for micro in passes]
    tokens.append(tokens_of(low.lengths, low.actor.micro_batch, low.actor.remove_padding))
    assert [*tokens, count] == pytest.approx(expected)


#: Observations, mean and longest sequence.
LENGTHS = [
    ({"total_num_tokens": 2048 * 200}, 200, LIMIT), ({"total_num_tokens": 2048 * 200, **SEEN}, 400, LIMIT), ({"prompt_length_mean": 100}, LIMIT, LIMIT),
    ({**SEEN, "response_length_max": 400}, 400, LIMIT), ({**SEEN, "prompt_length_max": 200, "response_length_max": 9999}, 400, LIMIT),
    ({**SEEN, "prompt_length_max": 200, "response_length_max": 400}, 400, 600),
]  # fmt: skip


@pytest.mark.parametrize(("observed", "mean", "longest"), LENGTHS)
def test_lengths_from_observations(ask, observed, mean, longest):
    lengths = ask({**MICRO, "rollout.n": 2}, observed=observed).settings.lengths
    assert lengths == Lengths(mean, longest, LIMIT, observed=mean != LIMIT)


def test_constant_lengths(ask):
    """If the mean is the maximum, both ends of the range have the same tokens."""
    result = ask(MICRO, observed={**SEEN, "prompt_length_max": 100, "response_length_max": 300})
    actor = result.settings.actor
    assert tokens_of(result.settings.lengths, actor.micro_batch, actor.remove_padding) == 2 * 400
    assert [phase.total for phase in result.phases] == [phase.total for phase in result.least]


EASYR1 = [
    ("verl", {}, 16_384), ("EasyR1", {}, 4 * LIMIT), ("EasyR1", {"data.max_response_length": 2048}, 4 * 2560), ("EasyR1", {BUDGET: 9000}, 9000),
    ("EasyR1", {"actor.ppo_micro_batch_size_per_gpu": None}, LIMIT),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "settings", "tokens"), EASYR1)
def test_the_budget_of_easyr1_is_sequences_times_padded_length(ask, framework, settings, tokens):
    result = ask({**DYNAMIC, SIZE: 4, "rollout.n": 8, **settings}, framework=framework).settings
    assert result.actor.micro_batch.tokens == result.old_micro_batch.tokens == tokens


lengths = st.tuples(*[st.floats(1, 1e5)] * 3).map(lambda x: Lengths(x[0], sum(x[:2]), sum(x), observed=True))
sizes = (st.none() | st.integers(1, 512), st.booleans(), st.integers(1, 10**6))
micros = st.builds(MicroBatch, *sizes, st.integers(1, 4096), st.sampled_from([1, 2, 4, 8]))


@given(lengths, micros, st.booleans())
def test_tokens_are_within_bounds(lengths, micro, padded):
    result = tokens_of(lengths, micro, not padded)
    longest = (lengths.limit if padded else lengths.longest) / micro.sharers
    budget = max(micro.tokens, longest) if micro.dynamic else min(micro.sequences or 1, micro.most) * longest
    assert (
        lengths.mean / micro.sharers * (1 - 1e-9) <= result <= min(budget, micro.most * longest) * (1 + 1e-9)
    )
