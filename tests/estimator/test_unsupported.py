"""Every recorded key that changes memory either changes a result or is reported as unsupported."""

from __future__ import annotations

from itertools import product

import pytest

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.estimator.context import EstimatorContext
from sphinx_verl_resources.estimator.resolve import is_harmless, modelled_keys
from sphinx_verl_resources.estimator.versions import CURRENT, RELEASES, version_text

KEYS = {key.name: key for key in EstimatorContext().registries.config_keys}
DEFAULTS = EstimatorContext().registries.defaults(CURRENT)
MODEL = "Qwen/Qwen3-30B-A3B"
A, R = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

#: A model with experts, a critic and a reference on two nodes.
COMMON = {
    "critic.enable": True,
    "actor.use_kl_loss": True,
    "actor.ppo_micro_batch_size_per_gpu": 2,
    "rollout.name": "vllm",
    "trainer.nnodes": 2,
    "trainer.n_gpus_per_node": 8,
}
SEEN = {"observed": {"prompt_length_mean": 50, "response_length_mean": 60}}
#: A cache so small that a warning gives its tokens.
TIGHT = {"rollout.gpu_memory_utilization": 0.4, "rollout.max_model_len": 200_000}
RECOMPUTE = "megatron.override_transformer_config.recompute"
MEGATRON = {
    **COMMON,
    "actor.strategy": "megatron",
    **{
        f"{role}.{name}_model_parallel_size": 2
        for role in ("megatron", "critic.megatron")
        for name in ("tensor", "pipeline")
    },
}
#: Settings in which keys can show their effect, by training backend.
CONTEXTS = {
    "fsdp": [
        (COMMON, {}),
        (COMMON, SEEN),
        ({**COMMON, "actor.use_dynamic_bsz": True}, {}),
        ({**COMMON, "actor.use_dynamic_bsz": True, "data.train_batch_size": 4096}, SEEN),
        (
            {
                **COMMON,
                "critic.enable": None,
                "actor.use_kl_loss": False,
                "actor.ppo_micro_batch_size_per_gpu": None,
            },
            {},
        ),
        ({**COMMON, "model.lora_rank": 32, "rollout.layered_summon": True}, {}),
        ({**COMMON, "actor.entropy_coeff": 0.01, "actor.entropy_from_logits_with_chunking": True}, {}),
        ({**COMMON, **TIGHT}, {}),
        ({**COMMON, "model.mtp.enable": True}, {}),
        (
            {
                **COMMON,
                **{f"{part}.pad_to_length": True for part in ("fsdp", "ref.fsdp_config", "critic.fsdp")},
            },
            SEEN,
        ),
        ({**COMMON, "algorithm.adv_estimator": "gae", "critic.enable": None}, {}),
        ({**COMMON, "critic.ppo_infer_max_token_len_per_gpu": 512, "data.train_batch_size": 4096}, SEEN),
    ],
    "megatron": [
        (MEGATRON, {}),
        (MEGATRON, SEEN),
        ({**MEGATRON, "actor.use_dynamic_bsz": True, "actor.entropy_coeff": 0.01}, {}),
        ({**MEGATRON, f"{RECOMPUTE}_granularity": "full", f"critic.{RECOMPUTE}_granularity": "full"}, {}),
        ({**MEGATRON, "optim.use_precision_aware_optimizer": True}, {}),
        ({**MEGATRON, "optim.exp_avg_dtype": "bf16"}, {}),
        ({**MEGATRON, **TIGHT}, {}),
        ({**MEGATRON, "model.mtp.enable": True}, {}),
        ({**MEGATRON, "optim.optimizer": "muon"}, {}),
        ({**MEGATRON, f"{RECOMPUTE}_granularity": "selective"}, {}),
        (
            {
                **MEGATRON,
                "actor.use_dynamic_bsz": True,
                "megatron.pad_to_length": True,
                "critic.megatron.pad_to_length": True,
            },
            SEEN,
        ),
        ({**MEGATRON, "actor.ppo_micro_batch_size_per_gpu": None, "actor.use_kl_loss": False}, {}),
        ({**MEGATRON, "model.lora.rank": 32, "megatron.param_offload": True}, {}),
        ({**MEGATRON, "critic.enable": None}, {}),
        ({**MEGATRON, "actor.entropy_coeff": 0.01, "actor.entropy_from_logits_with_chunking": True}, {}),
    ],
}
CONTEXTS["fsdp2"] = [({**config, "actor.strategy": "fsdp2"}, others) for config, others in CONTEXTS["fsdp"]]
#: Values other than the default: the named choices of a key, or some values of its type.
VALUES = {
    f"{A}.strategy": ["fsdp2", "megatron", "veomni"],
    "critic.strategy": ["fsdp2", "megatron"],
    "model_engine": ["megatron", "torchtitan"],
    "algorithm.adv_estimator": ["grpo"],
    "trainer.v1.trainer_mode": ["separate_async", "colocate_async"],
    f"{R}.name": ["sglang", "trtllm", "hf"],
    f"{R}.dtype": ["float32"],
    f"{A}.optim.optimizer": ["AdamW8bit", "SGD", "muon"],
    **{
        f"{role}.megatron.override_transformer_config.recompute_{name}": values
        for role in (A, "critic")
        for name, values in (
            ("granularity", ["full", "selective"]),
            ("method", ["block"]),
            ("num_layers", [2]),
        )
    },
    f"{A}.fsdp_config.fsdp_size": [2, 8],
    f"{A}.optim.override_optimizer_config": [{"offload": True}],
    f"{A}.megatron.expert_tensor_parallel_size": [1],
    f"{A}.megatron.override_transformer_config.fp8": ["e4m3"],
    f"{A}.megatron.override_transformer_config.recompute_modules": [["moe_act"]],
    "critic.megatron.expert_tensor_parallel_size": [1],
    f"{R}.tensor_model_parallel_size": [4],
    f"{R}.quantization": ["fp8"],
    # If unset, they follow the version: the newest release waits for the last micro-batch.
    f"{A}.fsdp_config.use_no_sync_for_gradient_accumulation": [False],
    "critic.fsdp.use_no_sync_for_gradient_accumulation": [False],
    **{
        key: ["bf16"]
        for key in KEYS
        if key.endswith(("model_dtype", "_avg_dtype", "_avg_sq_dtype", "grads_dtype"))
    },
}
OF_TYPE = {
    "bool": [True, False],
    "int": [2, 64, 4096],
    "float": [0.3],
    "str": ["something"],
    "list": [["q_proj"]],
    "dict": [{"a": 1}],
    "str or list": [["q_proj"]],
}
#: Keys without effect with some backends that the registry does not exclude, and the reason.
NO_EFFECT = {
    "actor_rollout_ref.model.path": ("the request names the model", "fsdp", "fsdp2", "megatron"),
    "model_engine": ("the strategy counts where it is set", "fsdp2", "megatron"),
    f"{A}.ulysses_sequence_parallel_size": ("FSDP's", "megatron"),
    "actor_rollout_ref.ref.ulysses_sequence_parallel_size": ("FSDP's", "megatron"),
    f"{A}.pad_to_length": ("FSDP's", "megatron"),
    "actor_rollout_ref.ref.pad_to_length": ("FSDP's", "megatron"),
    f"{R}.layered_summon": ("Megatron has no units to gather", "megatron"),
    "critic.fsdp.offload_policy": ("as the actor's: FSDP2 only", "fsdp"),
    **{
        f"{pool}.{size}": ("counts GPUs that do not train", "fsdp", "fsdp2", "megatron")
        for pool in (R, "rollout", "distillation")
        for size in ("nnodes", "n_gpus_per_node")
    },
    "reward.reward_model.enable_resource_pool": (
        "counts GPUs that do not train",
        "fsdp",
        "fsdp2",
        "megatron",
    ),
    "critic.model.enable_gradient_checkpointing": ("as the actor's: Megatron ignores it", "megatron"),
    "critic.model.enable_activation_offload": ("as the actor's: FSDP only", "megatron"),
}
IMPOSSIBLE = ((["AdamW8bit"], "megatron"),)


def candidates(key):
    """Return values to try, in groups; one value per group must have an effect. Each word is its own group."""
    if key.name in VALUES:
        return [[value] for value in VALUES[key.name]]
    return [[value for value in OF_TYPE[key.type] if value != DEFAULTS.get(key.name)]]


def backends_of(key):
    """Return the backends that read a key according to the registry."""
    found = []
    for name in CONTEXTS:
        if key.backends and name not in key.backends and not (name == "fsdp2" and "fsdp" in key.backends):
            continue
        elsewhere = (".fsdp_config.", ".fsdp.") if name == "megatron" else (".megatron.",)
        if any(part in key.name for part in elsewhere) or key.status.startswith("no-op"):
            continue
        if key.group == "megatron" and name != "megatron":
            continue
        if name in NO_EFFECT.get(key.name, ()):
            continue
        found.append(name)
    return found


@pytest.fixture(scope="module")
def result(ask):
    """Return all numbers and warnings of an estimate."""
    kept = {}

    def found(config, others):
        name = repr((config, others))
        if name not in kept:
            estimate = ask(config, model=MODEL, gpus=None, **others)
            phases = {
                phase.name: [(part.key, part.size) for part in phase.breakdown.components]
                for phase in estimate.phases
            }
            host = [(part.key, part.size) for part in estimate.host.components]
            told = (phases, host, estimate.torch_peak, [problem.message for problem in estimate.warnings])
            kept[name] = told, estimate.unsupported
        return kept[name]

    return found


CASES = [
    (key, values, backend)
    for key in KEYS.values()
    if key.phases or key.host_memory
    for values in candidates(key)
    for backend in backends_of(key)
    if values != [backend] and (values, backend) not in IMPOSSIBLE
]
SHORT = {
    f"{A}.fsdp_config": "fsdp",
    f"{A}.megatron": "megatron",
    f"{A}.optim": "optim",
    A: "actor",
    R: "rollout",
}
SHORT["actor_rollout_ref.model"] = "model"


def names_of(key):
    """Return a key and its abbreviation in the contexts above."""
    short = (new + key.removeprefix(old) for old, new in SHORT.items() if key.startswith(f"{old}."))
    return {key, *short}


def counts(result, key, values, backend):
    """Return whether a key changes a result, is rejected or is reported in some context."""
    for (config, others), value in product(CONTEXTS[backend], values):
        without = {name: given for name, given in config.items() if name not in names_of(key.name)}
        without[key.name] = ...
        before, _ = result(without, others)
        try:
            after, unsupported = result({**without, key.name: value}, others)
        except NoAnswerError:  # rejected, with a reason
            continue
        told = any(text.startswith((f"{key.name}:", f"{key.name}.")) for text in unsupported)
        if told or before != after:
            return True
    return False


@pytest.mark.parametrize("name", dict.fromkeys(key.name for key, _, _ in CASES))
def test_every_key_counts_or_is_told(result, name):
    silent = [case[1:] for case in CASES if case[0].name == name and not counts(result, *case)]
    assert silent == []


def test_most_keys_are_looked_at():
    names = {key.name for key, _, _ in CASES}
    left_out = {key.name for key in KEYS.values() if key.phases or key.host_memory} - names
    without_effect = {name for name in left_out if KEYS[name].status.startswith("no-op") or name in NO_EFFECT}
    without_effect |= {name for name in left_out if KEYS[name].backends and not backends_of(KEYS[name])}
    assert left_out == without_effect
    assert len(names) > 100


def test_what_an_estimate_says_of_ignored_settings(ask):
    found = ask(
        {
            "actor.ppo_micro_batch_size_per_gpu": 2,
            "fsdp.mixed_precision": {"reduce_dtype": "bf16"},
            "optim.optimizer": "SGD",
            "data.shuffle": False,
            "fsdp.forward_prefetch": False,
            "actor.something_new": 1,
            "megatron.use_remove_padding": ...,
        }
    )
    assert found.unsupported == (
        f"{A}.fsdp_config.mixed_precision.reduce_dtype: not modelled",
        f"{A}.optim.optimizer: 'SGD' is not modelled; computed as Adam",
        f"{A}.something_new: its effect on memory is unknown",
    )


def test_keys_that_only_repeat_others_are_not_told(ask):
    settings = {
        "actor.ppo_micro_batch_size_per_gpu": 2,
        "actor.strategy": "megatron",
        "data.max_prompt_length": 600,
    }
    settings |= {"megatron.tensor_model_parallel_size": 2, "ref.megatron.tensor_model_parallel_size": 2}
    found = ask({**settings, "rollout.prompt_length": 600, "ref.strategy": "megatron"})
    assert found.unsupported == ()
    other = ask({**settings, "rollout.prompt_length": 700, "ref.megatron.tensor_model_parallel_size": 4})
    assert len(other.unsupported) == 2


@pytest.mark.parametrize("backend", ["fsdp", "megatron"])
def test_keys_of_the_other_backend_are_not_told(ask, backend):
    settings = {"actor.ppo_micro_batch_size_per_gpu": 2, "actor.strategy": backend}
    other = {
        "fsdp": {"megatron.virtual_pipeline_model_parallel_size": 2, "megatron.use_megatron_fsdp": True},
        "megatron": {"fsdp.forward_prefetch": True, "fsdp.mixed_precision": {"reduce_dtype": "bf16"}},
    }[backend]
    assert ask({**settings, **other}).unsupported == ()


def test_nothing_that_changes_memory_is_called_harmless():
    assert [
        key.name for key in KEYS.values() if (key.phases or key.host_memory) and is_harmless(key.name)
    ] == []


@pytest.mark.parametrize("version", [version for _, version in RELEASES], ids=version_text)
def test_modelled_keys_are_those_of_every_backend_in_a_version(registries, version):
    keys = modelled_keys(version, registries)
    assert keys >= {
        "actor_rollout_ref.model.path",
        "algorithm.adv_estimator",
        "critic.megatron.tensor_model_parallel_size",
        f"{A}.calculate_entropy",
        f"{A}.fsdp_config.fsdp_size",
        f"{A}.megatron.expert_tensor_parallel_size",
        f"{A}.optim.exp_avg_dtype",
        f"{A}.optim.override_optimizer_config.optimizer_offload_fraction",
        f"{R}.checkpoint_engine.update_weights_bucket_megabytes",
    }
    assert ("critic.use_dynamic_bsz" in keys) == (version < (0, 8, 0))
    assert ("critic.ppo_infer_max_token_len_per_gpu" in keys) == (version >= (0, 9, 0))
    assert "critic.ppo_max_token_len_per_gpu" in keys
    assert f"{A}.fsdp_config.forward_prefetch" not in keys


def test_every_key_that_is_read_is_one_of_verls(registries):
    unknown = {key for key in modelled_keys(CURRENT, registries) if registries.known_key(key) is None}
    others = {
        key for key in unknown if not key.startswith(("critic.fsdp.", "critic.megatron.", "critic.optim."))
    }
    assert others == {
        "easyr1.dtype",
        f"{A}.use_torch_compile",
        f"{A}.megatron.override_transformer_config.num_layers_in_last_pipeline_stage",
        "actor_rollout_ref.ref.fsdp_config.fsdp_size",
        "actor_rollout_ref.ref.fsdp_config.ulysses_sequence_parallel_size",
        f"{A}.megatron.entropy_from_logits_chunk_size",
    }
