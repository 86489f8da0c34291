"""The list of levers: what applies to an estimate, and the one that lowers the peak most."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as limited

from sphinx_verl_resources.fit import levers
from sphinx_verl_resources.memory.estimate import Estimate, attempt, estimate
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request

from .test_changes import requests

REGISTRIES = EstimatorContext()
A, M, R, REF = (f"actor_rollout_ref.{section}" for section in ("actor", "model", "rollout", "ref"))
FSDP, BUDGET, SHARE = f"{A}.fsdp_config", f"{A}.ppo_max_token_len_per_gpu", f"{R}.gpu_memory_utilization"
LOG_PROB, ULYSSES = f"{R}.log_prob_micro_batch_size_per_gpu", "fsdp_config.ulysses_sequence_parallel_size"
STAGES = f"{A}.megatron.pipeline_model_parallel_size"
TENSOR, NO_SYNC = f"{A}.megatron.tensor_model_parallel_size", f"{FSDP}.use_no_sync_for_gradient_accumulation"
FULL, FIXED = {f"{A}.use_dynamic_bsz": True, f"{R}.n": 8}, {f"{A}.ppo_micro_batch_size_per_gpu": 4}
OFFLOADED = {f"{FSDP}.{name}_offload": True for name in ("param", "optimizer")}
CRITIC = {**FULL, "critic.enable": True}
MEGATRON, EXPERTS = {f"{A}.strategy": "megatron"}, {"model": "Qwen/Qwen3-30B-A3B", "gpus": 16}
OLD, LARGE = {"version": (0, 8, 0)}, {"model": "Qwen/Qwen2.5-72B", "gpus": 64}
#: Settings, others, the phase with the peak, and the setting that saves most.
BEST = [
    ({**FULL, f"{A}.entropy_coeff": 0.1, f"{A}.use_torch_compile": False}, {}, "update-forward", f"{M}.use_fused_kernels=True"),
    ({**FULL, SHARE: 0.8, "data.max_response_length": 64, BUDGET: 600}, {}, "rollout", f"{SHARE}=0.2"),
    ({**FULL, f"{M}.enable_gradient_checkpointing": False}, {}, "update-forward", f"{M}.enable_gradient_checkpointing=True"),
    ({**FULL, **OFFLOADED, f"{M}.lora_rank": 8, BUDGET: 1024, SHARE: 0.3}, LARGE, "weight-sync", f"{R}.layered_summon=True {R}.load_format=safetensors"),
    ({**FULL, **OFFLOADED, BUDGET: 1024}, {"model": "Qwen/Qwen2.5-32B", **OLD}, "optimizer-step", f"{FSDP}.model_dtype=bfloat16"),
]  # fmt: skip
#: Settings, others, overrides that are offered, and beginnings of some that are not.
OFFERED = [
    ({**FULL, BUDGET: 5000}, {}, [f"{BUDGET}=2500", f"{BUDGET}=1250", f"{BUDGET}=1024"], f"{BUDGET}=6"),  # down to one sequence
    # All passes with larger micro-batches are capped.
    ({**FIXED, LOG_PROB: 4}, {}, [f"{A}.ppo_micro_batch_size_per_gpu=2 {LOG_PROB}=2"], LOG_PROB), ({**FIXED, LOG_PROB: 16}, {}, [f"{LOG_PROB}=8"], "x"),
    # v0.9.0 keeps unsharded gradients between micro-batches, later versions have a switch.
    (FULL, {}, [f"{BUDGET}=262144"], NO_SYNC), (FULL, OLD, [], f"{BUDGET}=262144"), ({**FULL, NO_SYNC: True}, {"version": (0, 10, 0)}, [f"{NO_SYNC}=False"], "x"),
    (CRITIC, {}, ["critic.ppo_infer_max_token_len_per_gpu=262144", "critic.fsdp.param_offload=True"], "critic.model.fsdp"),
    (CRITIC, {"version": (0, 5, 0)}, ["critic.model.fsdp_config.param_offload=True"], "critic.fsdp"),
    # Ulysses divides one sequence, for the reference too, needs packed ones, and must divide 28 heads.
    ({**FULL, f"{A}.use_kl_loss": True, "data.max_response_length": 3584, f"{M}.use_remove_padding": False}, {},
     [f"{A}.{ULYSSES}=4 {REF}.{ULYSSES}=4 {M}.use_remove_padding=True {BUDGET}=1024"], f"{A}.{ULYSSES}=8"),
    ({**FULL, SHARE: 0.35, f"{R}.tensor_model_parallel_size": 1, "data.max_response_length": 100_000}, {}, [], f"{SHARE}=0.2"),  # an engine that holds one sequence
    ({**FULL, **OFFLOADED}, {}, [f"{FSDP}.param_offload=False"], f"{FSDP}.param_offload=True"), ({**FULL, BUDGET: 262_144}, {}, [], f"{BUDGET}=262144"),
    ({**MEGATRON, TENSOR: 2}, EXPERTS, [f"{TENSOR}=8", f"{A}.megatron.expert_model_parallel_size=16 {A}.megatron.expert_tensor_parallel_size=1"], f"{TENSOR}=2"),
    # A pipeline size divides the layers: 64 of Qwen2.5-32B, and 61 of DeepSeek-V3.
    (MEGATRON, {"model": "Qwen/Qwen2.5-32B"}, [f"{STAGES}=8"], f"{STAGES}=16"), (MEGATRON, {**EXPERTS, "model": "deepseek-ai/DeepSeek-V3"}, [], STAGES),
    # L20 has no fast link.
    (MEGATRON, {"gpu": "L20"}, [f"{STAGES}=2"], TENSOR),
    # Fused kernels are CUDA's; what the reference keeps on the host is not offloaded with FSDP.
    (MEGATRON, {"gpu": "Ascend-A2"}, [f"{A}.megatron.param_offload=True"], f"{M}.use_fused_kernels"), (FULL, {}, [f"{M}.use_fused_kernels=True"], f"{REF}.fsdp_config.param_offload"),
    # The present value is unknown.
    (FULL, {"unread": frozenset({f"{FSDP}.param_offload"})}, [f"{FSDP}.optimizer_offload=True"], f"{FSDP}.param_offload"),
    (FULL, {"partial": True}, [f"{M}.use_fused_kernels=True"], f"{FSDP}.optimizer_offload"),
    (FULL, {}, [f"{A}.strategy=fsdp2 {FSDP}.offload_policy=True"], "x"), ({**FULL, f"{A}.strategy": "fsdp2"}, {}, [f"{FSDP}.offload_policy=True"], f"{A}.strategy"),
]  # fmt: skip


def ask(config, model="Qwen/Qwen2.5-7B", gpus=8, gpu="H100", **others):
    return estimate(
        Request(model, {"algorithm.adv_estimator": "grpo", **config}, gpus, gpu, **others), REGISTRIES
    )


@pytest.mark.parametrize(("settings", "others", "phase", "setting"), BEST)
def test_the_setting_that_saves_most(settings, others, phase, setting):
    own = ask(settings, **others)
    assert (own.peak_phase.name, levers.best_suggestion(own)) == (phase, setting)


@pytest.mark.parametrize(("settings", "others", "offered", "missing"), OFFERED)
def test_settings_that_are_offered(settings, others, offered, missing):
    steps = [step for option in levers.options_for(ask(settings, **others)) for step in option.steps]
    result = [" ".join(f"{key}={value}" for key, value in step.items()) for step in steps]
    assert ({*offered} - {*result}, [text for text in result if text.startswith(missing)]) == (set(), [])


@limited(max_examples=25)
@given(requests)
def test_a_lever_lowers_only_its_phases(request):
    result = attempt(request, REGISTRIES)
    if not isinstance(result, Estimate):
        return
    before = {phase.name: phase.total for phase in result.phases}
    assert all(lever.sentence for lever in levers.LEVERS)
    for lever, steps in levers.options_for(result):
        after = attempt(request.having(steps[-1]), REGISTRIES)
        if isinstance(after, Estimate) and not lever.phases & (levers.STARTUP | levers.HOST):
            lower = {phase.name for phase in after.phases if phase.total < 0.99 * before.get(phase.name, 0)}
            assert lower <= lever.phases, steps[-1]
