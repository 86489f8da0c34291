"""Settings that decide memory and are unknown make the verdict unknown; ignored ones are reported."""

from __future__ import annotations

from itertools import product

import pytest

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.memory.estimate import estimate
from sphinx_verl_resources.memory.keys import is_harmless
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request
from sphinx_verl_resources.memory.settings import MODELLED

A, M, R = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
MICRO, MEGATRON = {f"{A}.ppo_micro_batch_size_per_gpu": 2}, {f"{A}.strategy": "megatron"}
G = f"{A}.megatron"
MEGATRON_FSDP, RECOMPUTE = f"{G}.use_megatron_fsdp", f"{G}.override_transformer_config.recompute_granularity"
#: Settings, further fields of the request, and the keys that leave the verdict unknown.
UNDECIDED = [
    ({}, {}, []), ({"critic.strategy": "veomni"}, {}, []), ({"critic.strategy": "veomni", "critic.enable": True}, {}, ["critic.strategy"]),
    ({"model_engine": "torchtitan"}, {}, ["model_engine"]), ({f"{A}.strategy": "automodel"}, {}, [f"{A}.strategy"]), ({f"{R}.name": "trtllm"}, {}, [f"{R}.name"]),
    ({}, {"engine": "hf"}, [f"{R}.name"]), ({f"{A}.strategy": "megatrom"}, {}, [f"{A}.strategy"]), ({f"{A}.strategy": "FSDP2", f"{R}.name": "SGLang", f"{A}.optim.optimizer": "AdamW"}, {}, [f"{A}.strategy", f"{R}.name"]), ({**MEGATRON, MEGATRON_FSDP: True}, {}, [MEGATRON_FSDP]), ({f"{A}.strategy": "fsdp", MEGATRON_FSDP: True}, {}, []),
    ({"data.max_response_length": "${LENGTH}"}, {}, ["data.max_response_length"]), ({"data.seed": "${SEED}"}, {}, []),
    ({"trainer.nnodes": "${NODES}"}, {"gpus": None}, ["trainer.nnodes"]), ({"trainer.nnodes": "${NODES}"}, {"gpus": 8}, []),
    ({}, {"unread": {"data.max_prompt_length", "data.seed", f"{M}.path"}}, ["data.max_prompt_length"]), ({}, {"task": "PRIME"}, ["reward_model"]),
    ({}, {"unread": {"critic.model.fsdp_config.fsdp_size"}}, ["critic.fsdp.fsdp_size"]), ({}, {"incomplete": ("a.sh:3: a loop",)}, ["a.sh"]),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "others", "undecided"), UNDECIDED)
def test_settings_that_decide_memory_but_are_unknown(ask, settings, others, undecided):
    output = ask({**MICRO, **settings}, **others)
    assert [text.partition(":")[0] for text in output.undecided] == undecided
    assert (output.verdict == "unknown") == bool(undecided)


SFT = "settings of verl's trainer for supervised fine-tuning, which are not modelled"
FOREIGN = [
    ({"worker.actor.n": 1, "worker": {"rollout": {"n": 5}}, "data.seed": 1}, "worker: settings of EasyR1, which are not modelled"),
    ({"model.partial_pretrain": "a"}, f"model: {SFT}"), ({"optim.lr": 1e-5}, f"optim: {SFT}"), ({"engine.tp_size": 2}, f"engine: {SFT}"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "reason"), FOREIGN)
def test_settings_of_a_fork_or_of_the_sft_trainer_make_the_verdict_unknown(registries, config, reason):
    output = estimate(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), registries)
    assert (output.verdict, output.undecided) == ("unknown", (reason,))


SAME = {f"actor_rollout_ref.{role}.megatron.tensor_model_parallel_size": 2 for role in ("actor", "ref")}
#: Settings, and a part of the only reason.
UNSUPPORTED = [
    ({f"{A}.fsdp_config.mixed_precision": {"reduce_dtype": "bf16"}}, "mixed_precision.reduce_dtype: not modelled"), ({f"{A}.strategy": "fsdp2", f"{M}.use_liger": True}, "use_liger: not"),
    ({f"{A}.optim.optimizer": "SGD"}, "optim.optimizer: 'SGD' is not modelled; computed as Adam"), ({f"{A}.new": 1}, "new: its effect on memory is unknown"),
    ({f"{A}.optim.optimizer": "AdamW8bit"}, "'AdamW8bit' is not modelled; computed as Adam"), ({f"{M}.enable_activation_offload": True}, "enable_activation_offload: not modelled"),
    ({"data.shuffle": False, f"{A}.fsdp_config.forward_prefetch": False, f"{R}.load_format": "safetensors"}, None), ({"reward_model.enable": False}, None),
    ({"reward_model.enable": True}, "enable: not modelled; the reward model's memory comes on top"), ({f"{R}.load_format": "npcache"}, "computed as auto"),
    ({**MEGATRON, RECOMPUTE: "selective"}, "'selective' is not modelled; computed as no recomputation"), ({**MEGATRON, RECOMPUTE: "full"}, None),
    ({"critic.ppo_micro_batch_size_per_gpu": 2}, "critic.ppo_micro_batch_size_per_gpu: verl ignores it"), ({f"{A}.strategy": "veomni"}, "'veomni' is not modelled"),
    ({**MEGATRON, f"{A}.megatron.grad_offload": True}, "grad_offload: verl ignores it"), ({**MEGATRON, f"{A}.fsdp_config.forward_prefetch": True}, None),
    ({**MEGATRON, "critic.enable": True, "critic.megatron.grad_offload": True}, "critic.megatron.grad_offload: verl ignores it"),
    ({"critic.optim.optimizer": "SGD", "critic.megatron.use_mbridge": False, "critic.profiler.enable": True}, None),
    ({"data.max_prompt_length": 600, f"{R}.prompt_length": 600}, None), ({f"{R}.prompt_length": 700}, "rollout.prompt_length: not modelled"),
    ({**MEGATRON, **SAME}, None), ({**MEGATRON, **SAME, f"{G}.tensor_model_parallel_size": 4}, "ref.megatron.tensor_model_parallel_size: not modelled"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "expected"), UNSUPPORTED)
def test_ignored_settings(ask, settings, expected):
    output = ask({**MICRO, **settings}).unsupported
    assert len(output) == (expected is not None)
    assert expected is None or expected in output[0]


DATA = EstimatorContext()
#: Keys that change memory, without those of other backends, of pools, and the model's name.
KEYS = [
    key for key in DATA.config_keys if (key.phases or key.host_memory) and not key.status.startswith("no-op")
    and (not key.backends or {"fsdp", "fsdp2", "megatron"} & {*key.backends})
    and not key.name.endswith(("nnodes", "n_gpus_per_node", "resource_pool", "ref.model.path"))
]  # fmt: skip
COMMON = {**MICRO, "critic.enable": True, f"{A}.use_kl_loss": True, f"{R}.name": "vllm", "trainer.nnodes": 2}
SIZES = {f"{x}.megatron.{y}_model_parallel_size": 2 for x in (A, "critic") for y in ("tensor", "pipeline")}
BASES = [COMMON, {**COMMON, f"{A}.strategy": "fsdp2"}, {**COMMON, **MEGATRON, **SIZES}]
MORE = [
    {}, {f"{A}.use_dynamic_bsz": True, f"{A}.entropy_coeff": 0.01}, {"critic.enable": None, f"{A}.use_kl_loss": False},
    {f"{M}.lora_rank": 32, f"{R}.layered_summon": True}, {f"{A}.entropy_coeff": 0.01, f"{A}.entropy_from_logits_with_chunking": True},
    {f"{R}.gpu_memory_utilization": 0.4, f"{R}.max_model_len": 200_000, f"{A}.optim.use_precision_aware_optimizer": True},
    {f"{A}.ppo_micro_batch_size_per_gpu": None, "critic.ppo_infer_max_token_len_per_gpu": 512},
]  # fmt: skip
SEEN = {"observed": {"prompt_length_mean": 50, "response_length_mean": 60}}
#: Values of a key or a type, each of which must have an effect, or lists of which one must.
VALUES = {
    f"{A}.strategy": ["fsdp2", "megatron", "veomni"], "model_engine": ["megatron", "torchtitan"], "algorithm.adv_estimator": ["gae"],
    "trainer.v1.trainer_mode": ["separate_async", "colocate_async"], f"{R}.name": ["sglang", "trtllm", "hf"], f"{A}.optim.optimizer": ["AdamW8bit", "SGD", "muon"],
    f"{A}.fsdp_config.fsdp_size": [2, 8], f"{R}.tensor_model_parallel_size": [4], f"{A}.megatron.expert_tensor_parallel_size": [1],
    "critic.megatron.expert_tensor_parallel_size": [1], "list": [[["q_proj"]]], "dict": [[{"a": 1}]], "str or list": [[["q_proj"]]],
    "bool": [[True, False]], "int": [[2, 64, 4096]], "float": [[0.3]], "str": [["something", "bf16", "full", "block", "fp8", "float32", "megatron"]],
}  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_key_that_changes_memory_counts_or_is_reported(ask, key):
    def result(config, others, **own):
        config = {name: item for name, item in config.items() if name != key.name} | own
        output = ask(config, model="Qwen/Qwen3-30B-A3B", gpus=None, **others)
        sizes = [(part.key, part.size) for phase in output.phases for part in phase.allocations]
        return sizes, output.host, output.warnings, output.unsupported

    before = {}

    def counts(value):
        for at, (base, more, others) in enumerate(product(BASES, MORE, ({}, SEEN))):
            before[at] = before.get(at) or result({**base, **more}, others)
            try:
                if before[at] != result({**base, **more}, others, **{key.name: value}):
                    return True
            except NoAnswerError:  # rejected, with a reason
                continue
        return False

    for value in VALUES.get(key.name) or VALUES[key.type]:
        assert any(map(counts, value)) if isinstance(value, list) else counts(value), value


def test_harmless_and_modelled_keys():
    assert (len(KEYS) > 100, [key.name for key in KEYS if is_harmless(key.name)]) == (True, [])
    assert {"critic.optim.exp_avg_dtype", f"{R}.engine_kwargs.vllm.dtype"} <= MODELLED
    assert MODELLED.isdisjoint({"critic.model.use_fused_kernels", "data.seed"})
