"""Plans: the smallest number of GPUs, the largest micro-batch, and Megatron's layouts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.estimator.estimate import estimate
from sphinx_verl_resources.estimator.planner import (
    COUNTS,
    best_layout,
    largest_micro_batch,
    layout_of,
    plan,
    with_megatron,
)
from sphinx_verl_resources.estimator.request import Request
from sphinx_verl_resources.estimator.tasks import TASKS, fitted, task_settings

A, M, R = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
BUDGET = f"{A}.ppo_max_token_len_per_gpu"


def request(model="Qwen/Qwen2.5-7B", task="GRPO", gpu="H100", **changes):
    return replace(Request(model, dict(task_settings(task)), gpu=gpu), **changes)


@pytest.mark.parametrize(
    ("model", "task"),
    [
        ("Qwen/Qwen2.5-0.5B", "GRPO"),
        ("Qwen/Qwen2.5-7B", "GRPO"),
        ("Qwen/Qwen2.5-7B", "PPO"),
        ("Qwen/Qwen2.5-72B", "GRPO-LoRA"),
    ],
)
def test_the_number_of_gpus_is_the_smallest_that_fits(registries, model, task):
    asked = request(model, task)
    found = plan(asked, registries)
    assert found.gpus in COUNTS
    assert found.estimate.verdict == "fits"
    assert found.estimate.high <= found.estimate.capacity
    assert found.estimate.settings.gpus == found.gpus
    for count in COUNTS[: COUNTS.index(found.gpus)]:
        best = best_layout(replace(asked, gpus=count), registries)
        assert best is None or best[1].verdict != "fits"


@pytest.mark.parametrize(
    ("config", "unit"),
    [({}, "tokens"), ({f"{A}.use_dynamic_bsz": False, f"{A}.ppo_micro_batch_size_per_gpu": 1}, "sequences")],
)
@pytest.mark.parametrize("gpus", [2, 8])
def test_the_micro_batch_is_the_largest_that_fits(registries, config, unit, gpus):
    asked = request("Qwen/Qwen2.5-3B", gpus=gpus)
    asked = replace(asked, config={**asked.config, f"{R}.n": 8, **config})
    size, found_unit = largest_micro_batch(asked, registries)
    assert found_unit == unit
    prefix = "max_token_len_per_gpu" if unit == "tokens" else "micro_batch_size_per_gpu"
    keys = [f"{A}.ppo_{prefix}", f"{R}.log_prob_{prefix}", f"actor_rollout_ref.ref.log_prob_{prefix}"]

    def verdict(count):
        settings = {**asked.config, **dict.fromkeys(keys, count)}
        return estimate(fitted(replace(asked, config=settings), registries), registries).verdict

    assert verdict(size) == "fits"
    assert verdict(size + 1) != "fits"


def test_no_micro_batch_fits(registries):
    assert largest_micro_batch(request("Qwen/Qwen2.5-72B", gpus=1), registries) == (None, "tokens")


def test_what_does_not_fit_anywhere(registries):
    asked = request("deepseek-ai/DeepSeek-V3", gpus=8)
    found = plan(asked, registries)
    assert found.gpus is None
    assert found.micro_batch is None
    assert found.estimate.verdict != "fits"


def test_what_fsdp_would_need_is_told(registries):
    found = plan(request("Qwen/Qwen2.5-72B", "GRPO"), registries)
    backend = found.estimate.settings.actor.backend
    if backend == "megatron":
        assert found.with_fsdp is None or found.with_fsdp > found.gpus
    else:
        assert found.with_fsdp is None
    named = request("Qwen/Qwen2.5-72B", "GRPO", backend="fsdp")
    alone = plan(named, registries)
    assert alone.estimate.settings.actor.backend == "fsdp"
    assert alone.gpus == (found.with_fsdp or found.gpus)


def test_a_given_number_is_kept(registries):
    found = plan(request(gpus=16), registries)
    assert found.gpus == 16


def test_what_settings_say_of_gpus_does_not_bind_a_plan(registries):
    asked = request()
    asked = replace(asked, config={**asked.config, "trainer.nnodes": 4, "trainer.n_gpus_per_node": 8})
    found = plan(asked, registries)
    assert found.gpus == plan(request(), registries).gpus
    assert not found.estimate.warnings


def test_nothing_to_plan(registries):
    with pytest.raises(NoAnswerError) as caught:
        plan(request("nobody/knows-it"), registries)
    assert caught.value.diagnostics[0].place.key == "model"
    with pytest.raises(NoAnswerError) as caught:
        plan(replace(request(gpus=8), config={f"{R}.n": "x"}), registries)
    assert caught.value.diagnostics[0].place.key == f"{R}.n"


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
    """Qwen2.5-7B has 28 of them."""
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
    assert set(TASKS) == {"GRPO", "GRPO-LoRA", "PPO", "DAPO"}
    assert task_settings("dapo")["algorithm.adv_estimator"] == "grpo"
    assert task_settings("ppo")["critic.fsdp.param_offload"] is True
    with pytest.raises(NoAnswerError, match="unknown task 'sft'"):
        task_settings("sft")


def test_layouts_of_megatron(registries):
    asked = request("Qwen/Qwen2.5-72B", gpus=16)
    layouts = [found for _, found in with_megatron(asked, registries)]
    names = [layout_of(found) for found in layouts]
    assert names[0] == "Megatron"
    assert "Megatron TP 8 PP 2" in names
    assert len(names) == len(set(names))
    products = [
        found.settings.actor.megatron.tensor * found.settings.actor.megatron.pipeline for found in layouts
    ]
    assert products == sorted(products)
    assert not [found.unsupported for found in layouts if found.unsupported]


def test_layouts_spread_experts(registries):
    asked = request("Qwen/Qwen3-30B-A3B", gpus=16)
    for _, found in with_megatron(asked, registries):
        megatron = found.settings.actor.megatron
        assert 128 % megatron.expert == 0
        assert 16 % (megatron.expert * megatron.pipeline) == 0


def test_adapters_keep_their_rank_with_megatron(registries):
    _, found = next(with_megatron(request(task="GRPO-LoRA", gpus=8), registries))
    assert found.settings.actor.lora_rank == 32
    assert not found.warnings


def test_ppo_with_megatron_divides_the_critic_too(registries):
    """The critic has the actor's tensor parallelism and its distributed optimizer, though only TP is recorded."""
    asked = request("Qwen/Qwen2.5-72B", "PPO", gpus=8)
    found = [estimate for _, estimate in with_megatron(asked, registries)]
    tensor = next(item for item in found if layout_of(item) == "Megatron TP 8")
    actor, critic = tensor.settings.actor.megatron, tensor.settings.critic.megatron
    assert (actor.sequence_parallel, actor.distributed_optimizer) == (True, True)
    assert critic == actor
    phases = {phase.name: {part.key: part.size for part in phase.trainer} for phase in tensor.phases}
    inputs = phases["critic-backward"]["critic-layer-inputs"]
    assert inputs == pytest.approx(2 * 1024 * 8192 * 80 / 8)
    states = sum(size for key, size in phases["critic-optimizer-step"].items() if key.startswith("critic-"))
    assert states == pytest.approx(6 * tensor.shape.critic_parameters / 8, rel=0.001)
