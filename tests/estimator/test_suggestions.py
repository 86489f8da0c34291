"""The one setting that lowers the peak most."""

from __future__ import annotations

import pytest

A, M, R = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
FULL = {"actor.use_dynamic_bsz": True, "rollout.n": 8}


@pytest.mark.parametrize(
    ("settings", "others", "phase", "setting"),
    [
        (
            {**FULL, "actor.entropy_coeff": 0.1, "actor.use_torch_compile": False},
            {},
            "update-forward",
            f"{M}.use_fused_kernels=True",
        ),
        (
            {
                **FULL,
                "rollout.gpu_memory_utilization": 0.8,
                "data.max_response_length": 64,
                "actor.ppo_max_token_len_per_gpu": 600,
            },
            {},
            "rollout",
            f"{R}.gpu_memory_utilization=0.7",
        ),
        (
            {**FULL, "model.enable_gradient_checkpointing": False},
            {},
            "update-forward",
            f"{M}.enable_gradient_checkpointing=True",
        ),
        (
            {
                **FULL,
                "model.lora_rank": 8,
                "fsdp.param_offload": True,
                "fsdp.optimizer_offload": True,
                "actor.ppo_max_token_len_per_gpu": 1024,
                "rollout.gpu_memory_utilization": 0.3,
            },
            {"model": "Qwen/Qwen2.5-72B", "gpus": 64},
            "weight-sync",
            f"{R}.layered_summon=True {R}.load_format=safetensors",
        ),
        ({**FULL, "rollout.free_cache_engine": False}, {}, "update-forward", f"{R}.free_cache_engine=True"),
        (
            {**FULL, "actor.strategy": "megatron"},
            {},
            "update-forward",
            " ".join(
                f"{A}.megatron.override_transformer_config.recompute_{value}"
                for value in ("granularity=full", "method=uniform", "num_layers=1")
            ),
        ),
    ],
    ids=["logits", "pool", "checkpointing", "adapters", "sleep", "megatron"],
)
def test_what_relieves_a_phase(ask, settings, others, phase, setting):
    found = ask(settings, **others)
    assert found.peak_phase.name == phase
    assert found.suggestion.setting == setting
    assert found.suggestion.peak == pytest.approx(found.peak - found.suggestion.saves)


def test_nothing_is_offered_that_saves_next_to_nothing(ask):
    found = ask(FULL)
    assert all(suggestion.saves > 0.01 * found.peak for suggestion in found.suggestions)
    assert found.suggestion in list(found.suggestions)


def test_an_engine_is_not_starved(ask):
    """Less memory for an engine that has just room for its weights and a sequence is no relief."""
    tight = {**FULL, "rollout.gpu_memory_utilization": 0.25, "rollout.tensor_model_parallel_size": 1}
    tight |= {"fsdp.param_offload": True, "fsdp.optimizer_offload": True}
    offered = [suggestion.setting for suggestion in ask(tight).suggestions]
    assert not [setting for setting in offered if "gpu_memory_utilization" in setting]


def test_what_is_on_already_is_not_offered(ask):
    settings = {
        **FULL,
        "model.use_fused_kernels": True,
        "fsdp.param_offload": True,
        "fsdp.optimizer_offload": True,
        "rollout.enforce_eager": True,
    }
    offered = {suggestion.setting.partition("=")[0] for suggestion in ask(settings).suggestions}
    assert not {f"{M}.use_fused_kernels", f"{A}.fsdp_config.param_offload", f"{R}.enforce_eager"} & offered


def test_halves_are_never_less_than_a_sequence(ask):
    one = {**FULL, "actor.ppo_max_token_len_per_gpu": 1500, "model.use_fused_kernels": True}
    assert not [suggestion for suggestion in ask(one).suggestions if "max_token_len" in suggestion.setting]
    fixed = ask({"actor.ppo_micro_batch_size_per_gpu": 1})
    assert not [suggestion for suggestion in fixed.suggestions if "micro_batch" in suggestion.setting]


def test_fixed_micro_batches_are_halved(ask):
    settings = {"actor.ppo_micro_batch_size_per_gpu": 32, "rollout.log_prob_micro_batch_size_per_gpu": 2}
    settings |= {"rollout.gpu_memory_utilization": 0.3}
    # Two micro-batches would keep whole gradients otherwise, which take as much as they save.
    settings |= {"fsdp.use_no_sync_for_gradient_accumulation": False}
    offered = [suggestion.setting for suggestion in ask(settings).suggestions]
    assert f"{A}.ppo_micro_batch_size_per_gpu=16" in offered


def test_the_critic_can_be_what_to_change(ask):
    settings = {**FULL, "algorithm.adv_estimator": "gae", "actor.ppo_max_token_len_per_gpu": 1024}
    settings |= {"critic.ppo_infer_max_token_len_per_gpu": 200_000, "data.max_response_length": 8192}
    offered = {suggestion.setting for suggestion in ask(settings).suggestions}
    assert "critic.ppo_infer_max_token_len_per_gpu=100000" in offered
