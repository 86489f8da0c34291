"""The limits of an answer's settings: the largest token budget, the longest response."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sphinx_verl_resources.fit.answer import answer
from sphinx_verl_resources.fit.question import Question
from sphinx_verl_resources.memory.engine import cache_tokens
from sphinx_verl_resources.memory.estimate import estimate
from sphinx_verl_resources.memory.registries import EstimatorContext

DATA = EstimatorContext()
A, R = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
FITTING = [
    Question("Qwen/Qwen2.5-7B", 8, "H100"),
    Question("Qwen/Qwen2.5-7B", 8, "RTX-4090"),
    Question("Qwen/Qwen2.5-32B", 8, "H100", prompt=1000, response=3000),
    Question("Qwen/Qwen2.5-72B", 8, "H100", "PPO", 32),
]


@pytest.mark.parametrize("question", FITTING, ids=lambda question: question.model)
def test_budget_and_response_are_the_largest_that_fit(question):
    result = answer(question, DATA)
    own, prompt = result.best.estimate, question.prompt or 512
    keys = [key for key in result.best.request.config if key.endswith("max_token_len_per_gpu")]
    usual = own.settings.actor.micro_batch.tokens

    def fits(tokens, **others):
        return estimate(result.best.request.having({**dict.fromkeys(keys, tokens), **others}), DATA).fits

    def fits_response(response):
        return fits(max(usual, prompt + response), **{"data.max_response_length": response})

    budget, longest = result.largest_token_budget, result.longest_response
    assert budget >= usual
    assert (fits(budget), fits(budget + 1)) == (True, False)
    assert longest > (question.response or 512)
    assert fits_response(longest)
    positions = own.shape.architecture.max_position_embeddings
    assert longest + prompt == positions or not fits_response(longest + 1)


def test_no_token_budget_or_one_that_holds_a_step(ask):
    assert ask("Qwen/Qwen2.5-72B", 1).largest_token_budget is None
    by_sequences = {f"{A}.use_dynamic_bsz": False, f"{A}.ppo_micro_batch_size_per_gpu": 1}
    assert ask(overrides=by_sequences).largest_token_budget is None
    result = ask("Qwen/Qwen2.5-0.5B", overrides={"data.train_batch_size": 32})
    assert result.largest_token_budget == 32 * 5 * 1024 // 8


def test_no_response_is_longer_than_the_positions(ask):
    """They are those of the checkpoint that is named, or those that the run sets."""
    longer = {"actor_rollout_ref.model.override_config.max_position_embeddings": 40_000}
    result = ask("Qwen/Qwen2.5-0.5B", gpu="B200", overrides=longer)
    assert (result.longest_response, result.best.estimate.warnings) == (40_000 - 512, ())
    assert ask("Qwen/Qwen3-4B", gpu="H200").longest_response == 40_960 - 512
    assert ask("Qwen/Qwen3-4B-Instruct-2507", gpu="H200").longest_response > 50_000


def test_responses_are_no_longer_than_the_cache_of_the_engine(ask):
    little = {f"{R}.gpu_memory_utilization": 0.1, f"{R}.tensor_model_parallel_size": 1}
    result = ask("Qwen/Qwen2.5-3B", overrides=little)
    room = cache_tokens(result.best.estimate.shape, result.best.estimate.settings)
    assert result.longest_response == int(room) - 512 < ask("Qwen/Qwen2.5-3B").longest_response


def test_shorter_responses_are_found_where_these_do_not_fit(ask):
    question = Question("Qwen/Qwen2.5-3B", 1, "RTX-4090", lora=32, response=60_000, prompt=100)
    result = answer(question, DATA)
    assert result.verdict != "fits"
    assert result.longest_response < 60_000
    assert answer(replace(question, response=result.longest_response), DATA).verdict == "fits"
    assert ask("Qwen/Qwen2.5-72B", 1).longest_response is None
