"""Verl's keys as fields of settings, and the message for every wrong or doubtful value."""

from __future__ import annotations

from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.memory.reader import Reader
from sphinx_verl_resources.memory.registries import capacity_range
from sphinx_verl_resources.memory.request import Request

MICRO, UNSIZED = ({"actor.ppo_micro_batch_size_per_gpu": size} for size in (2, None))
GAE, UNSET = ({"algorithm.adv_estimator": name} for name in ("gae", None))
KL, LORA, BYTES = {"actor.use_kl_loss": True}, {"model.lora_rank": 8}, {"optim.main_grads_dtype": "bf16"}
MEGATRON, RECOMPUTE = {"actor.strategy": "megatron"}, "megatron.override_transformer_config.recompute"
AWARE, OPTIM = {**MEGATRON, "optim.use_precision_aware_optimizer": True}, "optim.override_optimizer_config"
HYBRID, FRACTION = {**MEGATRON, f"{OPTIM}.optimizer_cpu_offload": True}, f"{OPTIM}.optimizer_offload_fraction"
CHUNKED, EXPERTS = {"actor.entropy_from_logits_with_chunking": True}, "megatron.expert_model_parallel_size"
FIRST = "megatron.override_transformer_config.num_layers_in_first_pipeline_stage"
STAGES = {**MEGATRON, "megatron.pipeline_model_parallel_size": 4, FIRST: 25}
TENSOR, SHARE = "rollout.tensor_model_parallel_size", "rollout.gpu_memory_utilization"
OLDER, NEWER = "actor.ulysses_sequence_parallel_size", "fsdp.ulysses_sequence_parallel_size"
NODES, EACH = "trainer.nnodes", "trainer.n_gpus_per_node"
#: By field: settings, with fields of the request after @, and the value.
READ = {
    "critic": [({}, None), ({**GAE, "critic.enable": False}, None), ({**UNSET, "@task": "GRPO-LoRA"}, None)], "critic.lora_rank": [(GAE, 0), ({**UNSET, "@task": "ppo"}, 0)],
    "critic.backend": [(GAE, "fsdp"), ({**GAE, "actor.strategy": "fsdp2"}, "fsdp2"), ({**GAE, "critic.strategy": "megatron"}, "megatron")],
    "critic.fsdp.shard": [({**GAE, "critic.model.fsdp_config.fsdp_size": 2, **new}, shard) for new, shard in (({}, 2), ({"critic.fsdp.fsdp_size": 4}, 4))],
    "reference": [({}, False), (KL, True), ({"algorithm.use_kl_in_reward": True}, True), ({"@version": (0, 2, 0)}, True), ({**KL, **LORA}, False)],
    "reference_offload": [(MEGATRON, False), ({**MEGATRON, "ref.megatron.param_offload": True}, True), ({**MEGATRON, "megatron.param_offload": True}, True)],
    "reference_fsdp.ulysses": [({**KL, OLDER: 2}, 2), ({**KL, "ref.ulysses_sequence_parallel_size": 4}, 4), ({**KL, NEWER: 2}, 1)],
    "actor.backend": [({}, "fsdp"), ({"actor.strategy": "fsdp2"}, "fsdp2"), ({"model_engine": "megatron"}, "megatron"), ({"model_engine": "dp"}, "fsdp"),
                      ({"megatron.param_offload": True}, "megatron"), ({"@backend": "megatron"}, "megatron"), ({"actor.strategy": "fsdp", "@backend": "megatron"}, "fsdp")],
    "rollout.tensor": [({}, 2), ({"@gpus": 1}, 1), ({TENSOR: 4}, 4)], "old_micro_batch.most": [({"rollout.n": None}, 128), ({"rollout.n": 4, "data": {"train_batch_size": 100}}, 50)],
    "rollout.engine": [({"@engine": "sglang"}, "sglang"), ({"rollout.name": "sglang", "@engine": "vllm"}, "sglang")], "gpus": [({"@gpus": None}, 8), ({"@gpus": 16}, 16)],
    "nodes": [({"@gpus": 16}, 2), ({NODES: 4, "@gpus": 16}, 4), ({EACH: 4, "@gpus": 16}, 4), ({"@gpus": 3}, 1), ({NODES: 1, EACH: 8, "@gpus": 64}, 8), ({NODES: 2, "@gpus": 1}, 1)],
    "rollout.utilization": [({SHARE: None}, 0.5), ({SHARE: 0.6, "rollout.engine_kwargs.vllm.gpu_memory_utilization": None}, 0.6)], "actor.fsdp.parameter_bytes": [({"easyr1.dtype": "bf16"}, 2)],
    "actor.fsdp.shard": [({}, 8), ({"fsdp.fsdp_size": 2}, 2), ({"fsdp.fsdp_size": 8}, 8), ({"fsdp.fsdp_size": 16}, 8)],
    "actor.fsdp.reshards_root": [({"fsdp.fsdp_size": size}, size == 8) for size in (-1, 1, 8)], "actor.fsdp.reshard": [({"fsdp.reshard_after_forward": None}, True)],
    "actor.fsdp.ulysses": [({OLDER: 1, NEWER: 4}, 4), ({OLDER: 2, NEWER: 4}, 2)], "actor.checkpointing": [({"model.enable_gradient_checkpointing": None}, False)], "actor.fsdp.defers_sync": [({"fsdp.use_no_sync_for_gradient_accumulation": False}, False)],
    "actor.moments": [({}, 8), ({"fsdp.model_dtype": "bf16"}, 4), ({"optim.optimizer": "adamw_bf16"}, 12), ({"easyr1.dtype": "bf16 with adamw_bf16"}, 6)],
    "actor.step_copies": [({}, 1), ({"actor.strategy": "fsdp2"}, 0), *(({f"{OPTIM}.{key}": value}, 0) for key, value in (("fused", True), ("foreach", False)))],
    "actor.megatron.optimizer_bytes": [(MEGATRON, 12), (AWARE, 10), ({**AWARE, "@version": (0, 5, 0)}, 12), ({**AWARE, "optim.exp_avg_dtype": "bf16"}, 8),
                                       ({**HYBRID, FRACTION: 1}, 4), ({**HYBRID, **AWARE, FRACTION: 0.75}, 3)],
    "actor.megatron.cpu_optimizer": [(HYBRID, 0), ({**HYBRID, FRACTION: 0.75}, 0.75), ({**MEGATRON, FRACTION: 0.75}, 0)],
    "actor.megatron.gradient_bytes": [({**MEGATRON, **BYTES}, 4), ({**AWARE, **BYTES}, 2), ({**MEGATRON, "megatron.override_ddp_config.grad_reduce_in_fp32": False}, 2)],
    "actor.megatron.recompute": [({**MEGATRON, f"{RECOMPUTE}_granularity": "full", f"{RECOMPUTE}_method": how}, how != "block") for how in (None, "uniform", "block")],
    "actor.megatron.expert_tensor": [*(({"megatron.tensor_model_parallel_size": 4, EXPERTS: size}, tensor) for size, tensor in ((2, 4), (8, 1)))], "actor.targets": [({**LORA, "model.target_modules": ["q_proj"]}, ("q_proj",))],
    "actor.lora_rank": [({**MEGATRON, "model.lora.rank": 16}, 16), ({**MEGATRON, **LORA}, 0), (LORA, 8)], "entropy_recomputed": [({"actor.entropy_checkpointing": True}, True)],
    "computes_entropy": [({}, False), ({"@version": (0, 3, 0)}, True), ({"actor.calculate_entropy": True}, True), ({"actor.entropy_coeff": 0.1, "@framework": "EasyR1"}, False)],
    "entropy_chunk": [({}, 0), (CHUNKED, 2048), *(({**CHUNKED, **backend, f"{of}.entropy_from_logits_chunk_size": 512}, 512) for of in ("fsdp", "megatron") for backend in [{"fsdp": {}, "megatron": MEGATRON}[of]])] + [({"actor.strategy": strategy, f"{of}.entropy_from_logits_with_chunking": True}, 0) for strategy, of in (("megatron", "fsdp"), ("fsdp", "megatron"))],
    "entropy_free": [({"@framework": name}, name == "EasyR1") for name in ("verl", "EasyR1")], "actor.megatron.first_layers": [(STAGES, 25)],
    "compiled_entropy": [({}, True), ({"fsdp.use_torch_compile": False}, False), ({"actor.use_torch_compile": False}, False)],
    "unstated": [({}, set()), ({"@partial": True}, {"padding", "length", "recompute", "offload"}),
                 ({"@partial": True, "fsdp.param_offload": True, "rollout.max_model_len": 9}, {"padding", "recompute"}),
                 ({"@partial": True, **MEGATRON, "fsdp.optimizer_offload": False}, {"padding", "length", "recompute", "offload"}),
                 ({"@partial": True, "fsdp.optimizer_offload": False}, {"padding", "length", "recompute"})],
}  # fmt: skip


@pytest.fixture
def ask_of(ask):
    def ask_of(settings):
        others = {key[1:]: item for key, item in settings.items() if key.startswith("@")}
        return ask(MICRO | {key: item for key, item in settings.items() if not key.startswith("@")}, **others)

    return ask_of


@pytest.mark.parametrize(("field", "settings", "value"), [(key, *row) for key in READ for row in READ[key]])
def test_a_setting_is_read_as(ask_of, field, settings, value):
    assert attrgetter(field)(ask_of(settings).settings) == value


#: By verl's key: the value, and the names of the option in vLLM and SGLang.
OPTIONS = {
    "gpu_memory_utilization": (0.3, "gpu_memory_utilization", "mem_fraction_static"), "max_model_len": (999, "max_model_len", "context_length"),
    "max_num_seqs": (7, "max_num_seqs", "max_running_requests"), "enforce_eager": (True, "enforce_eager", "disable_cuda_graph"),
    "dtype": ("float32", "dtype", "dtype"), "quantization": ("fp8", "quantization", "quantization"),
    "tensor_model_parallel_size": (4, "tensor_parallel_size", "tp_size"), "max_num_batched_tokens": (999, "max_num_batched_tokens"),
}  # fmt: skip


@pytest.mark.parametrize("key", OPTIONS)
def test_engine_kwargs_are_read_as_the_option_of_that_name(ask, key):
    """They override verl's own key, and those of another engine have no effect."""
    value, *options = OPTIONS[key]
    for engine, other, option in zip(("vllm", "sglang"), ("sglang", "vllm"), options, strict=False):
        own, kwargs = {**MICRO, "rollout.name": engine}, {f"rollout.engine_kwargs.{engine}.{option}": value}
        result = ask({**own, f"rollout.{key}": None, **kwargs})
        assert (result.settings, result.unsupported) == (ask({**own, f"rollout.{key}": value}).settings, ())
        assert result.settings != ask(own).settings
        unchanged = {**own, "rollout.name": other}
        assert ask({**unchanged, **kwargs}).settings == ask(unchanged).settings


#: Settings, the wrong key, the message: errors, which prevent an estimate, and warnings.
ERRORS = [
    ({"fsdp.fsdp_size": 3}, "fsdp_config.fsdp_size", "3 does not divide the 8 GPUs"), ({NEWER: 8}, "actor.fsdp_config.ulysses_sequence_parallel_size", "28 attention heads"),
    ({NEWER: 3}, "actor.fsdp_config.ulysses_sequence_parallel_size", "8 GPUs"), ({TENSOR: 8}, TENSOR, "8 does not divide the model's 28 attention heads"),
    ({**GAE, "critic.fsdp.ulysses_sequence_parallel_size": 8}, "critic.fsdp.ulysses_sequence_parallel_size", "28 attention heads"),
    ({"megatron.context_parallel_size": 16}, "megatron.tensor_model_parallel_size", "TP × PP × CP = 16"), ({EXPERTS: 16}, EXPERTS, "EP × ETP × PP = 16"),
    ({"rollout.gpu_memory_utilization": 1.2}, "rollout.gpu_memory_utilization", "expected a number from 0 to 1, got 1.2"), ({"rollout.n": 1.5}, "rollout.n", "got 1.5"),
    ({"rollout.n": "four"}, "rollout.n", "expected a whole number from 1 to 10^12, got 'four'"), ({"rollout.n": 0}, "rollout.n", "got 0"),
    ({"data.train_batch_size": 10**13}, "data.train_batch_size", "got 10000000000000"),
    ({"fsdp.param_offload": "yes"}, "fsdp_config.param_offload", "expected true or false, got 'yes'"), ({"model.target_modules": 7}, "model.target_modules", "or a list"),
    ({"fsdp.model_dtype": "f23"}, "fsdp_config.model_dtype", "half, got 'f23'"),
    ({**STAGES, FIRST: 26}, "megatron.pipeline_model_parallel_size", "28 layers cannot be divided this way among 4 stages"),
    ({**UNSIZED, "actor.ppo_micro_batch_size": 4}, "actor.ppo_micro_batch_size", "fewer than one for each of 8"), ({"@gpus": 0}, "gpus", "at least one GPU, got 0"),
    ({**MEGATRON, "transformer.gradient_accumulation_fusion": "false"}, "gradient_accumulation_fusion", "expected true or false, got 'false'"),
    ({EXPERTS: 3, "@model": "Qwen/Qwen3-30B-A3B", "@gpus": 12}, EXPERTS, "3 does not divide the model's 128 experts"),
]  # fmt: skip
WARNINGS = [
    (UNSIZED, "ppo_micro_batch_size_per_gpu", "no micro-batch size is set: one sequence is assumed"), ({"@gpu": "H10"}, "gpus", "H100"), ({"@gpu": None}, "gpus", "no GPU is"),
    ({"actor.ppo_micro_batch_size_per_gpu": 33}, "ppo_micro_batch_size_per_gpu", "33 sequences is larger than a GPU's mini-batch of 32"),
    ({"data.max_response_length": 200_000}, "data.max_response_length", "up to 200,512 tokens, but the model only has 131,072 positions"),
    ({**LORA, "model.target_modules": ["query"]}, "model.target_modules", "no module 'query'"),
    ({**GAE, "critic.model.lora_rank": 8, "critic.model.target_modules": ["query"]}, "critic.model.target_modules", "no module 'query'"),
    ({**MEGATRON, **LORA}, "model.lora_rank", "Megatron ignores this key"), ({"rollout.n": "${other}"}, "rollout.n", "refers to another setting: verl's default is used"),
    ({NODES: 3, EACH: 3}, EACH, "3 nodes × 3 GPUs differ from the 8"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "key", "text"), [*ERRORS, *WARNINGS])
def test_wrong_and_doubtful_settings(ask_of, settings, key, text):
    is_error = (settings, key, text) in ERRORS
    try:
        problems = ask_of(settings).warnings
    except NoAnswerError as error:
        problems = [problem for problem in error.diagnostics if problem.is_error]
    (result,) = problems
    assert (result.is_error, result.place.key.endswith(key)) == (is_error, True)
    assert text in result.text


def test_capacity(ask, registries):
    assert ask({"actor.ppo_micro_batch_size_per_gpu": 32}).warnings == ()
    assert ask(MICRO, gpu="H10").verdict == "unknown" != ask(MICRO).verdict
    of_80_gb = [ask(MICRO, gpu=gpu.name).capacity for gpu in registries.gpus if gpu.memory_gb == 80]
    assert ask(MICRO, gpu=None, memory_gb=80).capacity == min(of_80_gb) < max(of_80_gb)
    assert ask(MICRO, gpu="Something new", memory_gb=100).capacity == capacity_range(100)[0]


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.lists(st.none()) | st.just("x" * 5000)
TYPES = {"flag": bool, "whole": int, "optional": int | None, "data_type": int, "share": float, "any": object}


@given(ODD, st.sampled_from([*TYPES]))
def test_no_value_is_too_odd(registries, value, name):
    """The result has the right type, and every message is short."""
    reader = Reader(Request("", {"data.seed": value}), registries)
    assert isinstance(getattr(reader, name)("data.seed"), TYPES[name])
    assert all(problem.is_error and len(problem.text) < 1200 for problem in reader.diagnostics)
