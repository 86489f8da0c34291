"""From verl's keys to numbers: defaults, divisions, what follows what, and everything that can be wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.diagnostics import Code, NoAnswerError, Severity
from sphinx_verl_resources.estimator.estimate import estimate
from sphinx_verl_resources.estimator.request import Request
from sphinx_verl_resources.estimator.settings import (
    micro_batches,
    old_tokens,
    reference_tokens,
    update_tokens,
)
from sphinx_verl_resources.estimator.tokens import Lengths, MicroBatch, fullest, tokens_of

MICRO = {"actor.ppo_micro_batch_size_per_gpu": 2}
KNOWN = {"prompt_length_mean": 100.0, "response_length_mean": 300.0}


def tokens(found):
    return update_tokens(found.settings, found.settings.actor)


# Micro-batches and tokens.
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
    )  # all there is


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
    assert reference_tokens(found.settings) == 16_384  # follows the actor, not the rollout
    only_old = ask({**MICRO, "rollout.log_prob_use_dynamic_bsz": True})
    assert (only_old.settings.old_micro_batch.dynamic, only_old.settings.actor.micro_batch.dynamic) == (
        True,
        False,
    )


def test_reference_has_its_own_ulysses_size(ask):
    settings = {**MICRO, "actor.use_kl_loss": True}
    assert reference_tokens(ask({**settings, "ref.ulysses_sequence_parallel_size": 2}).settings) == 1024
    assert reference_tokens(ask({**settings, "actor.ulysses_sequence_parallel_size": 2}).settings) == 1024
    # The newer key is the actor's alone.
    assert reference_tokens(ask({**settings, "fsdp.ulysses_sequence_parallel_size": 2}).settings) == 2048


def test_the_older_ulysses_key_counts_above_one(ask):
    both = {**MICRO, "actor.ulysses_sequence_parallel_size": 1, "fsdp.ulysses_sequence_parallel_size": 4}
    assert ask(both).settings.actor.fsdp.ulysses == 4
    assert ask({**both, "actor.ulysses_sequence_parallel_size": 2}).settings.actor.fsdp.ulysses == 2


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


# What exists.
@pytest.mark.parametrize(
    ("settings", "others", "critic"),
    [
        ({"algorithm.adv_estimator": "gae"}, {}, True),
        ({"algorithm.adv_estimator": "grpo"}, {}, False),
        ({"algorithm.adv_estimator": "gae", "critic.enable": False}, {}, False),
        ({"algorithm.adv_estimator": "grpo", "critic.enable": True}, {}, True),
        ({"algorithm.adv_estimator": ...}, {}, True),  # verl's own default
        ({"algorithm.adv_estimator": ...}, {"task": "GRPO-LoRA"}, False),
        ({"algorithm.adv_estimator": ...}, {"task": "ppo"}, True),
    ],
)
def test_critic(ask, settings, others, critic):
    assert (ask({**MICRO, **settings}, **others).settings.critic is not None) is critic


@pytest.mark.parametrize(
    ("settings", "reference"),
    [
        ({}, False),
        ({"actor.use_kl_loss": True}, True),
        ({"algorithm.use_kl_in_reward": True}, True),
        ({"actor.use_kl_loss": True, "model.lora_rank": 8}, False),
        ({"actor.use_kl_loss": True, "actor.strategy": "megatron", "model.lora.rank": 8}, False),
    ],
)
def test_reference(ask, settings, reference):
    found = ask({**MICRO, **settings})
    assert found.settings.reference is reference
    assert ("ref-log-prob" in {phase.name for phase in found.phases}) is reference


def test_the_critic_follows_the_actor(ask):
    settings = {**MICRO, "algorithm.adv_estimator": "gae", "actor.ppo_mini_batch_size": 64, "rollout.n": 2}
    assert ask(settings).settings.critic.mini_batch == 128
    assert ask({**settings, "critic.ppo_mini_batch_size": 32}).settings.critic.mini_batch == 64
    assert ask({**settings, "actor.strategy": "fsdp2"}).settings.critic.backend == "fsdp2"
    assert ask({**settings, "critic.strategy": "megatron"}).settings.critic.backend == "megatron"


def test_critic_keys_under_their_older_names(ask):
    settings = {**MICRO, "algorithm.adv_estimator": "gae"}
    older = {
        "critic.model.fsdp_config.param_offload": True,
        "critic.model.fsdp_config.fsdp_size": 2,
        "critic.model.fsdp_config.model_dtype": "bf16",
    }
    fsdp = ask({**settings, **older}).settings.critic.fsdp
    assert (fsdp.param_offload, fsdp.shard, fsdp.parameter_bytes) == (True, 2, 2)
    both = ask({**settings, **older, "critic.fsdp.fsdp_size": 4}).settings.critic.fsdp
    assert both.shard == 4


def test_megatron_reads_the_adapters_rank_under_its_own_name(ask):
    megatron = {**MICRO, "actor.strategy": "megatron"}
    assert ask({**megatron, "model.lora.rank": 16}).settings.actor.lora_rank == 16
    found = ask({**megatron, "model.lora_rank": 16})
    assert found.settings.actor.lora_rank == 0
    assert [problem.place.key for problem in found.warnings] == ["actor_rollout_ref.model.lora_rank"]


@pytest.mark.parametrize(
    ("settings", "others", "backend"),
    [
        ({}, {}, "fsdp"),
        ({"actor.strategy": "fsdp2"}, {}, "fsdp2"),
        ({"model_engine": "megatron"}, {}, "megatron"),
        ({"megatron.param_offload": True}, {}, "megatron"),
        ({}, {"backend": "megatron"}, "megatron"),
        ({"actor.strategy": "fsdp"}, {"backend": "megatron"}, "fsdp"),
    ],
)
def test_backends(ask, settings, others, backend):
    assert ask({**MICRO, **settings}, **others).settings.actor.backend == backend


@pytest.mark.parametrize("key", ["actor.strategy", "model_engine"])
@pytest.mark.parametrize("name", ["automodel", "fsdp_turbo", "torchtitan", "veomni"])
def test_backends_of_verl_that_are_not_modelled(ask, key, name):
    found = ask({**MICRO, key: name})
    assert name in found.warnings[0].message
    assert name in found.unsupported[0]
    assert found.settings.undecided == found.unsupported


MEGATRON = {**MICRO, "actor.strategy": "megatron"}


@pytest.mark.parametrize(
    ("settings", "others", "undecided"),
    [
        (MICRO, {}, ()),
        ({**MICRO, "critic.strategy": "veomni"}, {}, ()),  # there is no critic
        ({**MICRO, "critic.strategy": "veomni", "critic.enable": True}, {}, ("critic.strategy",)),
        ({**MICRO, "rollout.name": "lightllm"}, {}, ("actor_rollout_ref.rollout.name",)),
        ({**MICRO, "rollout.name": "trtllm"}, {}, ()),
        (
            {**MEGATRON, "megatron.use_megatron_fsdp": True},
            {},
            ("actor_rollout_ref.actor.megatron.use_megatron_fsdp",),
        ),
        ({**MICRO, "megatron.use_megatron_fsdp": True, "actor.strategy": "fsdp"}, {}, ()),
        ({**MICRO, "data.max_response_length": "${LENGTH}"}, {}, ("data.max_response_length",)),
        ({**MICRO, "data.seed": "${SEED}"}, {}, ()),
        ({**MICRO, "trainer.nnodes": "${NODES}"}, {"gpus": None}, ("trainer.nnodes",)),
        ({**MICRO, "trainer.nnodes": "${NODES}"}, {"gpus": 8}, ()),
        ({**MICRO, "engine.tp_size": 2, "engine.strategy": "automodel"}, {}, ("engine",)),
        (MICRO, {"unread": {"data.max_prompt_length", "data.seed"}}, ("data.max_prompt_length",)),
        (
            MICRO,
            {"unread": {"actor_rollout_ref.model.path", "critic.model.fsdp_config.fsdp_size"}},
            ("critic.fsdp.fsdp_size",),
        ),
    ],
)
def test_settings_that_decide_memory_and_are_not_read(ask, settings, others, undecided):
    found = ask(settings, **others).settings.undecided
    assert tuple(text.partition(":")[0] for text in found) == undecided
    assert all(len(text.partition(": ")[2]) > 10 for text in found)


@pytest.mark.parametrize(
    ("settings", "others", "engine"),
    [
        ({}, {}, "vllm"),
        ({"rollout.name": "sglang"}, {"engine": "vllm"}, "sglang"),
        ({}, {"engine": "sglang"}, "sglang"),
        ({"rollout.name": "trtllm"}, {}, "trtllm"),
    ],
)
def test_engines(ask, settings, others, engine):
    assert ask({**MICRO, **settings}, **others).settings.rollout.engine == engine


@pytest.mark.parametrize(
    ("settings", "gpus", "expected"),
    [
        ({"trainer.nnodes": 2, "trainer.n_gpus_per_node": 4}, None, (8, 2)),
        ({}, None, (8, 1)),
        ({}, 16, (16, 2)),
        ({"trainer.n_gpus_per_node": 4}, 16, (16, 4)),
        ({"trainer.nnodes": 4}, 16, (16, 4)),
        ({"trainer.n_gpus_per_node": 3}, 16, (16, 2)),
        ({"trainer.nnodes": 3}, 16, (16, 2)),
        ({"trainer.nnodes": 2, "trainer.n_gpus_per_node": 2}, 4, (4, 2)),
        ({}, 1, (1, 1)),
    ],
)
def test_gpus_and_nodes(ask, settings, gpus, expected):
    found = ask({**MICRO, **settings, "rollout.tensor_model_parallel_size": 1}, gpus=gpus)
    assert (found.settings.gpus, found.settings.nodes) == expected
    assert not found.warnings


def test_capacity(ask):
    assert ask(MICRO, gpu="H100").capacity == pytest.approx(79.15 * 2**30, rel=0.001)
    assert ask(MICRO, gpu=None).capacity is None
    assert ask(MICRO, gpu=None).verdict == "unknown"
    assert ask(MICRO, gpu=None, memory_gb=80).capacity < ask(MICRO, gpu="H100").capacity * 1.01
    assert ask(MICRO, gpu="Something new", memory_gb=100).capacity == pytest.approx(100e9 - 2**29)


def test_nested_settings_are_the_same_as_dotted_ones(ask):
    nested = {"actor_rollout_ref": {"actor": {"ppo_micro_batch_size_per_gpu": 2}}, "rollout.n": 4}
    assert ask(nested).settings == ask({**MICRO, "rollout.n": 4}).settings


def test_null_means_nothing_or_the_default(ask):
    found = ask(
        {**MICRO, "model.enable_gradient_checkpointing": None, "rollout.n": None, "rollout.name": None}
    )
    assert found.settings.actor.checkpointing is False
    assert found.settings.actor.mini_batch == 256
    assert not found.warnings


# What is wrong.
ERRORS = [
    ({"fsdp.fsdp_size": 3}, "fsdp_config.fsdp_size", Code.wrong_value, "does not divide the 8 GPUs"),
    (
        {"fsdp.ulysses_sequence_parallel_size": 3},
        "ulysses_sequence_parallel_size",
        Code.wrong_value,
        "8 GPUs",
    ),
    (
        {"fsdp.ulysses_sequence_parallel_size": 8},
        "ulysses_sequence_parallel_size",
        Code.wrong_value,
        "28 attention heads",
    ),
    (
        {"rollout.tensor_model_parallel_size": 3},
        "rollout.tensor_model_parallel_size",
        Code.wrong_value,
        "8 GPUs",
    ),
    (
        {"rollout.tensor_model_parallel_size": 8},
        "rollout.tensor_model_parallel_size",
        Code.wrong_value,
        "28 attention heads",
    ),
    (
        {"megatron.context_parallel_size": 16},
        "megatron.tensor_model_parallel_size",
        Code.wrong_value,
        "TP × PP × CP is 16",
    ),
    (
        {"megatron.expert_model_parallel_size": 16},
        "megatron.expert_model_parallel_size",
        Code.wrong_value,
        "EP × ETP × PP is 16",
    ),
    (
        {
            "megatron.pipeline_model_parallel_size": 2,
            "megatron.override_transformer_config.num_layers_in_first_pipeline_stage": 28,
        },
        "megatron.pipeline_model_parallel_size",
        Code.wrong_value,
        "28 layers cannot be shared out so among 2 stages",
    ),
    (
        {"rollout.gpu_memory_utilization": 0},
        "rollout.gpu_memory_utilization",
        Code.wrong_value,
        "above 0 and up to 1",
    ),
    ({"rollout.gpu_memory_utilization": 1.2}, "rollout.gpu_memory_utilization", Code.wrong_value, "got 1.2"),
    (
        {"rollout.gpu_memory_utilization": "most"},
        "rollout.gpu_memory_utilization",
        Code.wrong_type,
        "expected a number",
    ),
    ({"rollout.n": "four"}, "rollout.n", Code.wrong_type, "expected a whole number, got 'four'"),
    ({"rollout.n": 0}, "rollout.n", Code.wrong_value, "at least 1, got 0"),
    ({"rollout.n": 1.5}, "rollout.n", Code.wrong_value, "whole number of at least 1, got 1.5"),
    ({"rollout.n": True}, "rollout.n", Code.wrong_type, "got True"),
    ({"data.train_batch_size": 10**13}, "data.train_batch_size", Code.wrong_value, "got 1"),
    ({"fsdp.param_offload": "yes"}, "fsdp_config.param_offload", Code.wrong_type, "expected true or false"),
    ({"critic.enable": "yes"}, "critic.enable", Code.wrong_type, "expected true or false"),
    (
        {"fsdp.model_dtype": "float23"},
        "fsdp_config.model_dtype",
        Code.unknown_value,
        "'float23' is not a value",
    ),
    ({"actor.strategy": "fsdp3"}, "actor.strategy", Code.unknown_value, "'fsdp3' is not a value"),
    (
        {"actor.ppo_micro_batch_size": 4},
        "actor.ppo_micro_batch_size",
        Code.wrong_value,
        "leave none for each of 8",
    ),
    ({"model.target_modules": 7}, "model.target_modules", Code.wrong_type, "expected 'all-linear' or a list"),
]


@pytest.mark.parametrize(
    ("settings", "key", "code", "text"),
    ERRORS,
    ids=[f"{next(iter(item[0]))}={next(iter(item[0].values()))}" for item in ERRORS],
)
def test_settings_that_leave_no_estimate(ask, settings, key, code, text):
    with pytest.raises(NoAnswerError) as caught:
        ask({**MICRO, **settings} if "actor.ppo_micro_batch_size" not in settings else settings)
    errors = [problem for problem in caught.value.diagnostics if problem.is_error]
    assert len(errors) == 1
    assert errors[0].place.key.endswith(key)
    assert errors[0].code is code
    assert text in errors[0].message
    assert text in str(caught.value)


def test_values_that_look_like_others_are_offered(ask):
    with pytest.raises(NoAnswerError) as caught:
        ask({**MICRO, "actor.strategy": "megatrom"})
    assert "'megatron'" in caught.value.diagnostics[0].remedy


def test_experts_that_cannot_be_shared_out(ask):
    settings = {**MICRO, "megatron.expert_model_parallel_size": 3}
    with pytest.raises(NoAnswerError, match="128 experts"):
        ask(settings, model="Qwen/Qwen3-30B-A3B", gpus=12)


@pytest.mark.parametrize(
    ("stages", "first", "last", "good"),
    [
        (2, None, None, True),
        (2, 10, 18, True),
        (2, 10, 17, False),
        (2, 28, None, False),
        (4, 26, 1, False),
        (4, 25, 1, True),
        (4, None, 26, False),
        (8, None, None, True),
        (32, None, None, False),
    ],
)
def test_layers_have_to_go_on_the_stages(ask, stages, first, last, good):
    transformer = "megatron.override_transformer_config.num_layers_in"
    settings = {**MICRO, "megatron.pipeline_model_parallel_size": stages}
    settings |= {f"{transformer}_first_pipeline_stage": first, f"{transformer}_last_pipeline_stage": last}
    if good:
        assert ask(settings, gpus=32).peak > 0
    else:
        with pytest.raises(NoAnswerError, match="cannot be shared out"):
            ask(settings, gpus=32)


def test_sizes_of_the_critic_are_looked_at_too(ask):
    settings = {**MICRO, "algorithm.adv_estimator": "gae", "critic.fsdp.ulysses_sequence_parallel_size": 8}
    with pytest.raises(NoAnswerError) as caught:
        ask(settings)
    assert caught.value.diagnostics[0].place.key == "critic.fsdp.ulysses_sequence_parallel_size"


def test_several_problems_are_told_together(ask):
    with pytest.raises(NoAnswerError) as caught:
        ask({**MICRO, "rollout.n": "x", "rollout.gpu_memory_utilization": 3, "fsdp.fsdp_size": 5})
    assert len(caught.value.diagnostics) == 3


WARNINGS = [
    ({}, "actor.ppo_micro_batch_size_per_gpu", Code.missing_key, "nothing sets the micro-batch", "dynamic"),
    (
        {"actor.ppo_micro_batch_size_per_gpu": 64},
        "actor.ppo_micro_batch_size_per_gpu",
        Code.wrong_value,
        "larger than the mini-batch of a GPU, 32",
        "mini-batch",
    ),
    (
        {**MICRO, "data.max_prompt_length": 1024, "data.max_response_length": 200_000},
        "data.max_response_length",
        Code.wrong_value,
        "up to 201,024 tokens, and the model has 131,072 positions",
        "shorten",
    ),
    (
        {**MICRO, "model.target_modules": "all-linear"},
        "model.target_modules",
        Code.wrong_value,
        "rank is 0",
        "lora_rank",
    ),
    (
        {**MICRO, "model.lora_rank": 8, "model.target_modules": ["query"]},
        "model.target_modules",
        Code.wrong_value,
        "'query'",
        "q_proj",
    ),
    ({**MICRO, "rollout.name": "vlmm"}, "rollout.name", Code.wrong_value, "'vlmm' is not modelled", "vllm"),
    (
        {**MICRO, "rollout.n": "${other}"},
        "rollout.n",
        Code.unresolved,
        "refers to another setting",
        "write the value",
    ),
    (
        {**MICRO, "trainer.nnodes": 3, "trainer.n_gpus_per_node": 3},
        "trainer.n_gpus_per_node",
        Code.wrong_value,
        "3 × 3 GPUs contradict the 8",
        "correct",
    ),
    (
        {**MICRO, "actor.fsdp_config.parm_offload": True},
        "actor.fsdp_config.parm_offload",
        Code.unknown_key,
        "no such key",
        "param_offload",
    ),
    (
        {**MICRO, "rollout.gpu_memory_utilization": 0.1},
        "rollout.gpu_memory_utilization",
        Code.wrong_value,
        "less than one sequence",
        "raise it",
    ),
]


@pytest.mark.parametrize(
    ("settings", "key", "code", "text", "hint"), WARNINGS, ids=[item[3] for item in WARNINGS]
)
def test_settings_that_are_doubtful(ask, settings, key, code, text, hint):
    (problem,) = ask(settings).warnings
    assert problem.place.key.endswith(key)
    assert (problem.code, problem.severity) == (code, Severity.WARNING)
    assert text in problem.message
    assert hint in problem.remedy


def test_room_for_the_cache_follows_the_engines_keys(ask):
    tight = {**MICRO, "rollout.gpu_memory_utilization": 0.2, "rollout.tensor_model_parallel_size": 1}
    assert ask(tight).warnings
    assert not ask(
        {
            **tight,
            "rollout.max_model_len": 2048,
            "rollout.max_num_seqs": 16,
            "rollout.max_num_batched_tokens": 2048,
            "rollout.gpu_memory_utilization": 0.25,
        }
    ).warnings
    texts = {
        ask({**tight, "rollout.gpu_memory_utilization": 0.22, **more}).warnings[0].message
        for more in ({}, {"rollout.max_num_seqs": 64}, {"rollout.max_num_batched_tokens": 2048})
    }
    assert len(texts) == 3


def test_unknown_models(ask):
    with pytest.raises(NoAnswerError) as caught:
        ask(MICRO, model="Qwen/Qwen2.5-7b-Instrukt")
    (problem,) = caught.value.diagnostics
    assert (problem.place.key, problem.code) == ("model", Code.unknown_model)
    assert "Qwen/Qwen2.5-7B-Instruct" in problem.remedy


def test_unknown_cards(ask):
    found = ask(MICRO, gpu="H10")
    assert found.capacity is None
    assert found.warnings[0].code is Code.unknown_gpu
    assert "H100" in found.warnings[0].remedy


@pytest.mark.parametrize("gpus", [0, -3])
def test_no_gpus(ask, gpus):
    with pytest.raises(NoAnswerError) as caught:
        ask(MICRO, gpus=gpus)
    assert caught.value.diagnostics[0].place.key == "gpus"


@pytest.mark.parametrize("value", [[1], {"a": 1}, (), 1e400, -1, "", "x" * 5000, None, object()])
@pytest.mark.parametrize(
    "key",
    [
        "rollout.name",
        "model_engine",
        "actor.strategy",
        "critic.strategy",
        "model.target_modules",
        "rollout.n",
        "fsdp.model_dtype",
        "rollout.dtype",
        "optim.optimizer",
        "trainer.v1.trainer_mode",
    ],
)
def test_no_value_is_too_odd(registries, ask, key, value):
    try:
        told = ask({**MICRO, key: value}).warnings
    except NoAnswerError as error:
        told = error.diagnostics
    assert all(problem.message and len(problem.message) < 400 for problem in told)


def test_requests_can_be_asked_twice(registries):
    request = Request(
        "Qwen/Qwen2.5-7B",
        {
            "algorithm.adv_estimator": "grpo",
        },
        gpus=8,
    )
    assert estimate(request, registries) == estimate(request, registries)
