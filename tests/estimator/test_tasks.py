"""Tasks, and the settings that follow from the number of GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.estimator.estimate import estimate
from sphinx_verl_resources.estimator.request import Request
from sphinx_verl_resources.estimator.tasks import MEGATRON_SAVING, SAVING, TASKS, fitted, known_task

A, M, R = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
BUDGET = f"{A}.ppo_max_token_len_per_gpu"


def request(model="Qwen/Qwen2.5-7B", task="GRPO", gpu="H100", **changes):
    return replace(Request(model, {**SAVING, **TASKS[task]}, gpu=gpu), **changes)


@pytest.mark.parametrize(
    ("model", "tensor"), [("Qwen/Qwen2.5-7B", 1), ("Qwen/Qwen2.5-32B", 4), ("Qwen/Qwen2.5-72B", 8)]
)
def test_the_engines_tp_leaves_room_for_a_cache(registries, model, tensor):
    config = fitted(request(model, gpus=8), registries).config
    assert config[f"{R}.tensor_model_parallel_size"] == tensor
    found = estimate(fitted(request(model, gpus=8), registries), registries)
    assert not [
        problem for problem in found.warnings if "cache" in problem.message or "hold" in problem.message
    ]


def test_tp_divides_the_heads(registries):
    """Qwen2.5-7B has 28 heads."""
    asked = request(gpus=8)
    asked = replace(asked, config={**asked.config, f"{R}.gpu_memory_utilization": 0.05})
    assert fitted(asked, registries).config[f"{R}.tensor_model_parallel_size"] == 4


def test_budgets_hold_one_sequence(registries):
    asked = request(gpus=8)
    asked = replace(asked, config={**asked.config, "data.max_response_length": 3000})
    config = fitted(asked, registries).config
    assert config[BUDGET] == 3512
    assert config["critic.ppo_infer_max_token_len_per_gpu"] == 3512
    kept = fitted(replace(asked, config={**asked.config, BUDGET: 9000}), registries).config
    assert kept[BUDGET] == 9000


def test_tasks():
    # GRPO compares the responses to one prompt; a single response would teach nothing.
    responses = {name: settings.get(f"{R}.n", 1) for name, settings in TASKS.items()}
    assert responses == {"GRPO": 5, "GRPO-LoRA": 5, "PPO": 1, "DAPO": 16}
    with pytest.raises(NoAnswerError, match="unknown task 'sft'"):
        known_task("sft")


def test_ppo_with_megatron_divides_the_critic_too(registries):
    """The critic has the actor's tensor parallelism and its distributed optimizer, though only TP is recorded."""
    sizes = {f"{role}.megatron.tensor_model_parallel_size": 8 for role in (A, "critic")}
    asked = request("Qwen/Qwen2.5-72B", "PPO", gpus=8, backend="megatron")
    tensor = estimate(fitted(asked.having({**MEGATRON_SAVING, **sizes}), registries), registries)
    actor, critic = tensor.settings.actor.megatron, tensor.settings.critic.megatron
    assert (actor.sequence_parallel, actor.distributed_optimizer) == (True, True)
    assert critic == actor
    phases = {phase.name: {part.key: part.size for part in phase.trainer} for phase in tensor.phases}
    inputs = phases["critic-backward"]["critic-layer-inputs"]
    assert inputs == pytest.approx(2 * 1024 * 8192 * 80 / 8)
    states = sum(size for key, size in phases["critic-optimizer-step"].items() if key.startswith("critic-"))
    assert states == pytest.approx(6 * tensor.shape.critic_parameters / 8, rel=0.001)
