"""Settings that prevent an estimate or make it doubtful, and the message for each."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.diagnostics import NoAnswerError, Severity

MICRO = {"actor.ppo_micro_batch_size_per_gpu": 2}
LAYERS = "megatron.override_transformer_config.num_layers_in"
ERRORS = [
    ({"fsdp.fsdp_size": 3}, "fsdp_config.fsdp_size", "wrong_value", "does not divide the 8 GPUs"),
    ({"fsdp.ulysses_sequence_parallel_size": 3}, "ulysses_sequence_parallel_size", "wrong_value", "8 GPUs"),
    ({"fsdp.ulysses_sequence_parallel_size": 8}, "ulysses_sequence_parallel_size", "wrong_value", "28 attention heads"),
    ({"rollout.tensor_model_parallel_size": 3}, "rollout.tensor_model_parallel_size", "wrong_value", "8 GPUs"),
    ({"rollout.tensor_model_parallel_size": 8}, "rollout.tensor_model_parallel_size", "wrong_value", "28 attention heads"),
    ({"megatron.context_parallel_size": 16}, "megatron.tensor_model_parallel_size", "wrong_value", "TP × PP × CP is 16"),
    ({"megatron.expert_model_parallel_size": 16}, "megatron.expert_model_parallel_size", "wrong_value", "EP × ETP × PP is 16"),
    ({"rollout.gpu_memory_utilization": 1.2}, "rollout.gpu_memory_utilization", "wrong_value", "above 0 and up to 1, got 1.2"),
    ({"rollout.gpu_memory_utilization": "most"}, "rollout.gpu_memory_utilization", "wrong_type", "expected a number"),
    ({"rollout.n": "four"}, "rollout.n", "wrong_type", "expected a whole number, got 'four'"),
    ({"rollout.n": 0}, "rollout.n", "wrong_value", "at least 1, got 0"),
    ({"rollout.n": 1.5}, "rollout.n", "wrong_value", "whole number of at least 1, got 1.5"),
    ({"data.train_batch_size": 10**13}, "data.train_batch_size", "wrong_value", "got 1"),
    ({"fsdp.param_offload": "yes"}, "fsdp_config.param_offload", "wrong_type", "expected true or false"),
    ({"fsdp.model_dtype": "float23"}, "fsdp_config.model_dtype", "unknown_value", "unknown value 'float23'"),
    ({"actor.ppo_micro_batch_size": 4}, "actor.ppo_micro_batch_size", "wrong_value", "are fewer than one for each of 8"),
    ({"model.target_modules": 7}, "model.target_modules", "wrong_type", "expected 'all-linear' or a list"),
]  # fmt: skip


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
    settings = {**MICRO, "megatron.pipeline_model_parallel_size": stages}
    settings |= {f"{LAYERS}_first_pipeline_stage": first, f"{LAYERS}_last_pipeline_stage": last}
    if good:
        assert ask(settings, gpus=32).peak > 0
    else:
        with pytest.raises(NoAnswerError, match="cannot be divided"):
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


LONG = {"data.max_prompt_length": 1024, "data.max_response_length": 200_000}
WARNINGS = [
    ({}, "actor.ppo_micro_batch_size_per_gpu", "missing_key", "no micro-batch size is set", "dynamic"),
    ({"actor.ppo_micro_batch_size_per_gpu": 64}, "actor.ppo_micro_batch_size_per_gpu", "wrong_value",
     "larger than a GPU's mini-batch of 32", "lower it"),
    ({**MICRO, **LONG}, "data.max_response_length", "wrong_value",
     "up to 201,024 tokens, but the model only has 131,072 positions", "shorten"),
    ({**MICRO, "model.target_modules": "all-linear"}, "model.target_modules", "wrong_value", "rank is 0", "lora_rank"),
    ({**MICRO, "model.lora_rank": 8, "model.target_modules": ["query"]}, "model.target_modules", "wrong_value", "'query'", "q_proj"),
    ({**MICRO, "rollout.name": "vlmm"}, "rollout.name", "wrong_value", "'vlmm' is not modelled", "vllm"),
    ({**MICRO, "rollout.n": "${other}"}, "rollout.n", "unresolved", "refers to another setting", "write the value"),
    ({**MICRO, "trainer.nnodes": 3, "trainer.n_gpus_per_node": 3}, "trainer.n_gpus_per_node", "wrong_value",
     "3 nodes × 3 GPUs contradict the 8", "correct"),
    ({**MICRO, "actor.fsdp_config.parm_offload": True}, "actor.fsdp_config.parm_offload", "unknown_key", "no such key", "param_offload"),
    ({**MICRO, "rollout.gpu_memory_utilization": 0.1}, "rollout.gpu_memory_utilization", "wrong_value",
     "less than one sequence", "raise it"),
]  # fmt: skip


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
    assert (problem.place.key, problem.code) == ("model", "unknown_model")
    assert "Qwen/Qwen2.5-7B-Instruct" in problem.remedy


def test_unknown_cards(ask):
    found = ask(MICRO, gpu="H10")
    assert found.capacity is None
    assert found.warnings[0].code == "unknown_gpu"
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
