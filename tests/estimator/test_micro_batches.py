"""Micro-batches and their tokens, from verl's keys."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.estimator.settings import (
    micro_batches,
    old_tokens,
    reference_tokens,
    update_tokens,
)

MICRO = {"actor.ppo_micro_batch_size_per_gpu": 2}
KNOWN = {"prompt_length_mean": 100.0, "response_length_mean": 300.0}


def tokens(found):
    return update_tokens(found.settings, found.settings.actor)


@pytest.mark.parametrize(
    ("settings", "gpus", "sequences"),
    [
        ({"actor.ppo_micro_batch_size": 64}, 8, 8),
        ({"actor.ppo_micro_batch_size": 64, "fsdp.ulysses_sequence_parallel_size": 2}, 8, 16),
        ({"actor.ppo_micro_batch_size": 64, "actor.ulysses_sequence_parallel_size": 4}, 8, 32),
        ({"actor.ppo_micro_batch_size": 64, "actor.ppo_micro_batch_size_per_gpu": 3}, 8, 3),
        (
            {
                "actor.ppo_micro_batch_size": 64,
                "actor.strategy": "megatron",
                "megatron.tensor_model_parallel_size": 2,
                "megatron.pipeline_model_parallel_size": 2,
                "megatron.context_parallel_size": 2,
            },
            16,
            32,
        ),
    ],
)
def test_global_sizes_are_divided_among_the_ranks(ask, settings, gpus, sequences):
    assert ask(settings, gpus=gpus).settings.actor.micro_batch.sequences == sequences


def test_fixed_micro_batches_of_the_longest_sequences(ask):
    assert tokens(ask(MICRO)) == 2 * 1024
    assert tokens(ask({**MICRO, "data.max_response_length": 2048})) == 2 * 2560
    assert tokens(ask({**MICRO, "fsdp.ulysses_sequence_parallel_size": 4})) == 2 * 1024 / 4


def test_fixed_micro_batches_of_known_lengths(ask):
    found = ask({"actor.ppo_micro_batch_size_per_gpu": 16}, observed=KNOWN)
    assert tokens(found) == 16 * 400 * 1.25  # 1 + 1/√16 of the mean
    assert tokens(ask(MICRO, observed=KNOWN)) == pytest.approx(2 * 400 * (1 + 2**-0.5))
    short = {**KNOWN, "prompt_length_max": 150, "response_length_max": 350}
    assert tokens(ask(MICRO, observed=short)) == 2 * 500  # no sequence is longer


def test_lengths_from_the_tokens_of_a_step(ask):
    settings = {**MICRO, "actor.ppo_micro_batch_size_per_gpu": 16, "rollout.n": 2}
    found = ask(settings, observed={"total_num_tokens": 2048 * 200})
    assert found.settings.lengths.mean == 200
    both = ask(settings, observed={"total_num_tokens": 2048 * 200, **KNOWN})
    assert both.settings.lengths.mean == 400


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"actor.ppo_micro_batch_size_per_gpu": 2}, 16),
        ({"actor.ppo_micro_batch_size_per_gpu": 5}, 7),
        ({"actor.ppo_micro_batch_size_per_gpu": 64}, 1),
        ({"actor.use_dynamic_bsz": True, "actor.ppo_max_token_len_per_gpu": 4096}, 4),  # 32 × 400 tokens
        ({"actor.use_dynamic_bsz": True, "actor.ppo_max_token_len_per_gpu": 99_999}, 1),
        (
            {
                "actor.use_dynamic_bsz": True,
                "actor.ppo_max_token_len_per_gpu": 4096,
                "fsdp.ulysses_sequence_parallel_size": 4,
            },
            4,  # four times the sequences, a quarter of each
        ),
        (
            {
                "actor.use_dynamic_bsz": True,
                "actor.ppo_max_token_len_per_gpu": 4096,
                "model.use_remove_padding": False,
            },
            8,
        ),
    ],
)
def test_micro_batches_per_optimizer_step(ask, settings, count):
    found = ask(settings, observed=KNOWN).settings
    assert micro_batches(found, found.actor) == count


def test_padding_fills_up_to_the_limit(ask):
    assert tokens(ask({**MICRO, "model.use_remove_padding": False}, observed=KNOWN)) == 2 * 1024


def test_dynamic_batches_are_the_budget_of_a_gpu(ask):
    dynamic = {"actor.use_dynamic_bsz": True, "rollout.n": 8}
    assert tokens(ask(dynamic)) == 16_384
    assert tokens(ask({**dynamic, "fsdp.ulysses_sequence_parallel_size": 4})) == 16_384
    assert tokens(ask({**dynamic, "actor.ppo_max_token_len_per_gpu": 100})) == 1024  # one whole sequence
    assert (
        tokens(ask({**dynamic, "actor.ppo_max_token_len_per_gpu": 10**6})) == 256 * 8 * 1024 / 8
    )  # all tokens


def test_packed_micro_batches_are_padded_up_to_a_bucket(ask):
    def of_fsdp(**settings):
        found = ask({**MICRO, "actor.use_kl_loss": True, **settings}).settings
        return found.actor.fsdp.pad_bucket, found.reference_fsdp.pad_bucket

    assert of_fsdp() == (1, 1)
    assert of_fsdp(**{"fsdp.pad_to_length_bucket": 256}) == (1, 1)
    switch = {"actor.pad_to_length": True}
    assert of_fsdp(**switch) == (1024, 1024)
    assert of_fsdp(**switch, **{"fsdp.pad_to_length_bucket": 256}) == (256, 256)
    assert of_fsdp(**switch, **{"fsdp.pad_to_length": False}) == (1, 1024)
    assert of_fsdp(**switch, **{"ref.pad_to_length": False}) == (1024, 1)
    megatron = {**MICRO, "actor.strategy": "megatron"}
    assert ask(megatron).settings.actor.megatron.pad_bucket == 1
    assert ask({**megatron, "megatron.pad_to_length": True}).settings.actor.megatron.pad_bucket == 512
    assert ask({**megatron, **switch}).settings.actor.megatron.pad_bucket == 1


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({}, 4),
        ({"optim.main_grads_dtype": "bf16"}, 4),
        ({"optim.main_grads_dtype": "bf16", "optim.use_precision_aware_optimizer": True}, 2),
        ({"megatron.override_ddp_config.grad_reduce_in_fp32": False}, 2),
        (
            {
                "optim.main_grads_dtype": "bf16",
                "optim.use_precision_aware_optimizer": True,
                "megatron.override_ddp_config.grad_reduce_in_fp32": True,
            },
            4,
        ),
    ],
)
def test_gradients_of_megatron_have_a_type(ask, settings, size):
    found = ask({**MICRO, "actor.strategy": "megatron", **settings}).settings
    assert found.actor.megatron.gradient_bytes == size


def test_ranks_are_balanced_unless_told_otherwise(ask):
    assert ask(MICRO).settings.balance_batch
    assert not ask({**MICRO, "trainer.balance_batch": False}).settings.balance_batch


def test_a_step_has_no_more_sequences_than_it_has(ask):
    few = {**MICRO, "actor.ppo_micro_batch_size_per_gpu": 32, "data.train_batch_size": 16}
    assert tokens(ask(few)) == 2 * 1024


def test_log_prob_passes_follow_the_actor(ask):
    found = ask({**MICRO, "actor.use_kl_loss": True})
    assert old_tokens(found.settings) == reference_tokens(found.settings) == 2 * 1024
    dynamic = ask({"actor.use_dynamic_bsz": True, "actor.ppo_max_token_len_per_gpu": 9000})
    assert old_tokens(dynamic.settings) == reference_tokens(dynamic.settings) == 9000


def test_log_prob_passes_have_keys_of_their_own(ask):
    found = ask(
        {
            **MICRO,
            "actor.use_kl_loss": True,
            "rollout.log_prob_micro_batch_size_per_gpu": 8,
            "ref.log_prob_micro_batch_size": 32,
        }
    )
    assert old_tokens(found.settings) == 8 * 1024
    assert reference_tokens(found.settings) == 32 / 8 * 1024
    budget = {"actor.use_dynamic_bsz": True, "rollout.log_prob_max_token_len_per_gpu": 32_768}
    found = ask({**budget, "rollout.n": 8, "actor.use_kl_loss": True})
    assert old_tokens(found.settings) == 32_768
    assert reference_tokens(found.settings) == 16_384  # follows the actor, not the rollout section
    only_old = ask({**MICRO, "rollout.log_prob_use_dynamic_bsz": True})
    assert (only_old.settings.old_micro_batch.dynamic, only_old.settings.actor.micro_batch.dynamic) == (
        True,
        False,
    )


def test_reference_has_its_own_ulysses_size(ask):
    settings = {**MICRO, "actor.use_kl_loss": True}
    assert reference_tokens(ask({**settings, "ref.ulysses_sequence_parallel_size": 2}).settings) == 1024
    assert reference_tokens(ask({**settings, "actor.ulysses_sequence_parallel_size": 2}).settings) == 1024
    # Only the actor has the newer key.
    assert reference_tokens(ask({**settings, "fsdp.ulysses_sequence_parallel_size": 2}).settings) == 2048


def test_the_older_ulysses_key_counts_above_one(ask):
    both = {**MICRO, "actor.ulysses_sequence_parallel_size": 1, "fsdp.ulysses_sequence_parallel_size": 4}
    assert ask(both).settings.actor.fsdp.ulysses == 4
    assert ask({**both, "actor.ulysses_sequence_parallel_size": 2}).settings.actor.fsdp.ulysses == 2
