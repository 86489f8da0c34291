"""The settings that save memory, and the one that lowers the peak most."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.estimator.suggestions import FILLS_HOST, ROUNDS, override_text

A, M, R = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
REF = "actor_rollout_ref.ref"
FULL = {"actor.use_dynamic_bsz": True, "rollout.n": 8}
BF16 = {"fsdp.model_dtype": "bf16"}
RECOMPUTE = {
    f"{A}.megatron.override_transformer_config.recompute_{name}": value
    for name, value in {"granularity": "full", "method": "uniform", "num_layers": 1}.items()
}


@pytest.fixture
def offered(ask):
    """Return the suggestions for settings: costs and caveats by the text of all steps."""

    def found(settings, **others):
        reliefs = ask(settings, **others).reliefs
        return {override_text(step): (item.cost, item.caveat) for item in reliefs for step in item.steps}

    return found


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
            f"{R}.gpu_memory_utilization=0.2",
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
        ({**FULL, "actor.strategy": "megatron"}, {}, "update-forward", override_text(RECOMPUTE)),
        (
            {
                **FULL,
                "fsdp.param_offload": True,
                "fsdp.optimizer_offload": True,
                "actor.ppo_max_token_len_per_gpu": 1024,
            },
            {"model": "Qwen/Qwen2.5-32B", "version": (0, 8, 0)},
            "optimizer-step",
            f"{A}.fsdp_config.model_dtype=bfloat16",
        ),
    ],
    ids=["logits", "pool", "checkpointing", "adapters", "sleep", "megatron", "states"],
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


def test_an_engine_is_not_starved(ask, offered):
    """An engine that just has room for its weights and a sequence is not offered less memory."""
    tight = {**FULL, "rollout.gpu_memory_utilization": 0.25, "rollout.tensor_model_parallel_size": 1}
    assert not [setting for setting in offered(tight) if "gpu_memory_utilization" in setting]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (
            {
                **FULL,
                **BF16,
                "model.use_fused_kernels": True,
                "model.enable_activation_offload": True,
                "fsdp.param_offload": True,
                "fsdp.optimizer_offload": True,
                "rollout.enforce_eager": True,
            },
            {"ulysses_sequence_parallel_size", "ppo_max_token_len_per_gpu", "gpu_memory_utilization"},
        ),
        (
            {
                "actor.strategy": "megatron",
                **RECOMPUTE,
                "megatron.param_offload": True,
                "megatron.optimizer_offload": True,
                "optim.override_optimizer_config.optimizer_cpu_offload": True,
                "optim.override_optimizer_config.optimizer_offload_fraction": 1,
                "model.use_fused_kernels": True,
                "rollout.enforce_eager": True,
            },
            {"use_dynamic_bsz", "gpu_memory_utilization"},
        ),
    ],
    ids=["fsdp", "megatron"],
)
def test_what_is_on_already_is_not_offered(offered, settings, names):
    first = {setting.partition("=")[0].rpartition(".")[2] for setting in offered(settings)}
    assert first == {*names, "tensor_model_parallel_size"}


def test_halves_go_down_to_a_sequence(ask, offered):
    budgets = {**FULL, "actor.ppo_max_token_len_per_gpu": 5000}
    halved = [text for text in offered(budgets) if text.startswith(f"{A}.ppo_max_token_len_per_gpu")]
    assert [text.partition("=")[2] for text in halved] == ["2500", "1250", "1024", "262144"]
    fixed = ask({"actor.ppo_micro_batch_size_per_gpu": 1})
    assert not [suggestion for suggestion in fixed.suggestions if "micro_batch" in suggestion.setting]


def test_log_prob_passes_follow_or_have_their_own(offered):
    own = {"actor.ppo_micro_batch_size_per_gpu": 4, "rollout.log_prob_micro_batch_size_per_gpu": 4}
    key, log_prob = f"{A}.ppo_micro_batch_size_per_gpu", f"{R}.log_prob_micro_batch_size_per_gpu"
    assert f"{key}=2 {log_prob}=2" in offered(own)
    others = offered({**own, "rollout.log_prob_micro_batch_size_per_gpu": 16})
    assert {f"{key}=2", f"{log_prob}=8"} <= others.keys()
    assert f"{key}=2" in offered({"actor.ppo_micro_batch_size_per_gpu": 4})


def test_whole_gradients_are_avoided_by_one_micro_batch(ask, offered):
    """verl v0.9.0 keeps unsharded gradients between micro-batches; later versions have a switch."""
    budget, switch = f"{A}.ppo_max_token_len_per_gpu=262144", "use_no_sync_for_gradient_accumulation=False"
    assert offered(FULL)[budget] == ("none", "")
    assert not [setting for setting in offered(FULL) if setting.endswith(switch)]
    fixed = {"actor.ppo_micro_batch_size_per_gpu": 4, "rollout.n": 8}
    assert f"{A}.use_dynamic_bsz=True {budget}" in offered(fixed)
    critic = {"algorithm.adv_estimator": "gae", "critic.ppo_infer_max_token_len_per_gpu": 2048}
    assert "critic.ppo_infer_max_token_len_per_gpu=32768" in offered({**FULL, **critic, "rollout.n": 1})
    later = {**FULL, "fsdp.use_no_sync_for_gradient_accumulation": True}
    assert [setting for setting in offered(later, version=(0, 10, 0)) if setting.endswith(switch)]
    assert budget not in offered(FULL, version=(0, 8, 0))


def test_the_critic_can_be_what_to_change(offered):
    settings = {**FULL, "algorithm.adv_estimator": "gae", "actor.ppo_max_token_len_per_gpu": 1024}
    settings |= {"critic.ppo_infer_max_token_len_per_gpu": 200_000, "data.max_response_length": 8192}
    found = offered(settings)
    assert "critic.ppo_infer_max_token_len_per_gpu=100000" in found
    assert found["critic.fsdp.model_dtype=bfloat16"] == ("none", ROUNDS)


def test_ulysses_divides_one_sequence_and_needs_packed_ones(offered):
    settings = {**FULL, "actor.use_kl_loss": True, "data.max_response_length": 3584}
    size = "fsdp_config.ulysses_sequence_parallel_size=4"
    text = f"{A}.{size} {REF}.{size} {A}.ppo_max_token_len_per_gpu=1024"
    assert text in offered(settings)
    padded = offered({**settings, "model.use_remove_padding": False})
    assert text.replace(f" {A}.ppo", f" {M}.use_remove_padding=True {A}.ppo") in padded
    heads = [setting for setting in padded if "fsdp_config.ulysses_sequence_parallel_size=8" in setting]
    assert not heads, "28 heads"


def test_versions_have_the_names_of_their_time(offered):
    settings = {**FULL, "algorithm.adv_estimator": "gae"}
    before = offered(settings, version=(0, 5, 0))
    assert "critic.model.fsdp_config.param_offload=True" in before
    assert not [setting for setting in before if "model_dtype" in setting]
    assert "critic.fsdp.param_offload=True" in offered(settings)


def test_what_leaves_the_gpu_fills_the_host(offered):
    found = offered({**FULL, "actor.strategy": "fsdp2"})
    assert found[f"{A}.fsdp_config.offload_policy=True"] == ("much", FILLS_HOST)
    assert found[f"{A}.fsdp_config.param_offload=True"] == ("little", FILLS_HOST)
    assert found[f"{M}.use_fused_kernels=True"] == ("none", "")


def test_parallel_sizes_grow_where_some_are_set(offered):
    experts = {"actor.strategy": "megatron", "megatron.tensor_model_parallel_size": 2}
    found = offered(experts, model="Qwen/Qwen3-30B-A3B", gpus=16)
    tensor = [text for text in found if text.startswith(f"{A}.megatron.tensor_model_parallel_size")]
    assert [text[-1] for text in tensor] == ["4", "8"]
    whole = f"{A}.megatron.expert_model_parallel_size=16 {A}.megatron.expert_tensor_parallel_size=1"
    assert whole in found
    without = offered({"actor.strategy": "megatron"}, model="Qwen/Qwen3-30B-A3B", gpus=16)
    assert not [text for text in without if ".megatron." in text and "parallel_size" in text]
