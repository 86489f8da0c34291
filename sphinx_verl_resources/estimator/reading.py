"""Settings that need more than the value of one key: rules of verl, of its versions, of Megatron."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..diagnostics import did_you_mean
from .reader import OF_CRITIC
from .request import ACTOR, DATA_TYPES, MODEL, REFERENCE, ROLLOUT

if TYPE_CHECKING:
    from .reader import Reader
    from .request import Backend
    from .shape import Targets

#: The rollout engines that are modelled.
ENGINES = ("vllm", "sglang", "trtllm", "hf")
#: Optimizers with two moments, in lower case: with 8-bit moments, and with a Kahan summation buffer.
EIGHT_BIT = ("adam8bit", "adamw8bit", "pagedadamw8bit")
KAHAN = ("adamw_bf16", "anyprecisionadamw")
ADAMS = ("adam", "adamw", *EIGHT_BIT, *KAHAN)
#: verl's advantage estimators; the first needs a critic.
ESTIMATORS = (
    "gae", "gdpo", "gpg", "grpo", "grpo_passk", "grpo_vectorized", "opo", "optimal_token_baseline",
    "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "rloo", "rloo_vectorized",
    "tir_optimal_token_baseline",
)  # fmt: skip
BACKENDS = ("fsdp", "fsdp2", "megatron")
#: Backends of verl without formulas here.
_OTHER_BACKENDS = ("automodel", "fsdp_turbo", "torchtitan", "veomni")


# -- the run as a whole


def actor_backend(reader: Reader) -> Backend:
    """Return the training backend, from the strategy, the engine, the source, or keys of Megatron."""
    named = strategy(reader, f"{ACTOR}.strategy")
    engine = reader.any("model_engine")
    if engine not in (None, "dp", "megatron"):
        return _other_backend(reader, "model_engine")
    of_megatron = engine == "megatron" or any(key.startswith(f"{ACTOR}.megatron.") for key in reader.config)
    if named:
        return named
    if engine != "megatron" and reader.request.backend in BACKENDS:
        return reader.request.backend  # type: ignore[return-value]
    return "megatron" if of_megatron else "fsdp"


def strategy(reader: Reader, key: str) -> Backend | None:
    """Return the backend that a key selects; None if unset."""
    if not reader.is_set(key):
        return None
    if reader.any(key) in _OTHER_BACKENDS:
        return _other_backend(reader, key)
    return reader.choice(key, BACKENDS)  # type: ignore[return-value]


def _other_backend(reader: Reader, key: str) -> Backend:
    """Warn that the backend is not modelled, and return the most similar one."""
    message = f"the training backend {str(reader.any(key))[:80]!r} is not modelled: its memory is unknown"
    reader.warning(key, message, f"use one of {', '.join(BACKENDS)}")
    return "fsdp2"


def has_critic(reader: Reader) -> bool:
    """Return whether there is a critic, from its own key, the advantage estimator, or the task."""
    if reader.is_set("critic.enable"):
        return reader.flag("critic.enable")
    key, task = "algorithm.adv_estimator", reader.request.task
    if task and not reader.is_set(key):
        return task.lower().startswith("ppo")
    name = reader.any(key)
    if name not in ESTIMATORS:
        hint = did_you_mean(str(name), ESTIMATORS, "if it needs a critic, set critic.enable=True")
        message = f"unknown advantage estimator {str(name)[:80]!r}: no critic is assumed"
        reader.warning(key, message, hint, "unknown_value")
    return bool(name == "gae")


def is_easyr1(reader: Reader) -> bool:
    """Detect EasyR1, which computes no entropy and subtracts the freed engine from PyTorch's counter."""
    return reader.request.framework.lower().startswith("easyr1")


def unstated(reader: Reader) -> frozenset[str]:
    """Return the names of settings that a partial source does not quote although scripts often set them."""
    if not reader.request.partial:
        return frozenset()
    part = "megatron" if reader.backend == "megatron" else "fsdp_config"
    keys = {
        "padding": [f"{MODEL}.use_remove_padding"],
        "length": [f"{ROLLOUT}.max_model_len"],
        "recompute": [f"{ACTOR}.megatron.override_transformer_config.recompute_granularity"],
        "offload": [f"{ACTOR}.{part}.{name}_offload" for name in ("param", "optimizer")],
    }
    return frozenset(name for name, found in keys.items() if not any(map(reader.is_set, found)))


# -- roles


def unless_false(reader: Reader, key: str) -> bool:
    """Return whether a switch is on; null counts as on."""
    return reader.any(key) is not False


def all_on(reader: Reader, *keys: str) -> bool:
    """Return whether all switches are on."""
    return all(reader.flags(*keys))


def unless_on(reader: Reader, key: str) -> bool:
    """Return whether a switch is off."""
    return not reader.flag(key)


def shard_size(reader: Reader, key: str) -> int:
    """Return the number of GPUs that share one copy of FSDP's states; all GPUs if no size is set."""
    size = reader.optional(key, -1)
    shard = size if size and 0 < size < reader.gpus else reader.gpus
    return shard if reader.must_divide(key, shard) else reader.gpus


def is_divided(reader: Reader, key: str) -> bool:
    """Return whether a size above 1 is set; the default, -1 for all GPUs, does not count."""
    return (reader.optional(key, -1) or -1) > 1


def ulysses_size(reader: Reader, key: str, older: str) -> int:
    """Return the Ulysses size; the older key wins if above 1, for the critic only before v0.8.0."""
    if older.startswith(REFERENCE):
        older = reader.first_set(older, f"{ACTOR}.ulysses_sequence_parallel_size")
    has_effect = reader.traits.critic_reads_own_keys or not older.startswith(OF_CRITIC.role)
    if has_effect and reader.whole(older) > 1:
        key = older
    size = reader.whole(key)
    return size if reader.must_divide(key, size) else 1


def defers_sync(reader: Reader, key: str) -> bool:
    """Return whether gradients are sharded only after the last micro-batch; the default is the version's."""
    return reader.flag(key) if reader.is_set(key) else reader.traits.unsharded_gradients


def pad_bucket(reader: Reader, size: str, *switches: str) -> int:
    """Return the multiple that packed micro-batches are padded up to; 1 for no padding.

    FSDP's keys follow those of the role; those of the reference policy follow the actor.
    """
    if not reader.pads:
        return 1
    if size.startswith(REFERENCE):
        size = reader.first_set(size, ACTOR + size.removeprefix(REFERENCE))
        switches += (f"{REFERENCE}.pad_to_length",)
    if size.startswith((REFERENCE, f"{ACTOR}.fsdp_config")):
        switches += (f"{ACTOR}.pad_to_length",)
    bucket = reader.whole(size)
    return bucket if reader.flag(reader.first_set(*switches)) else 1


def lora_rank(reader: Reader, backend: Backend) -> int:
    """Return the actor's LoRA rank; Megatron has a separate key."""
    rank = reader.whole(f"{MODEL}.lora_rank", 0)
    if backend == "megatron":
        others, rank = rank, reader.whole(f"{MODEL}.lora.rank", 0)
        if others and not rank:
            message = "Megatron ignores this key and trains the whole model"
            reader.warning(f"{MODEL}.lora_rank", message, f"set {MODEL}.lora.rank")
    key = f"{MODEL}.target_modules"
    if not rank and reader.is_set(key):
        rank_key = "lora.rank" if backend == "megatron" else "lora_rank"
        hint = f"set {MODEL}.{rank_key}, or remove the targets"
        reader.warning(key, "the LoRA rank is 0: there are no adapters", hint)
    return rank


def targets(reader: Reader, key: str) -> Targets:
    """Return the modules that get adapters."""
    value: Any = reader.any(key)
    if isinstance(value, str):
        return "all-linear" if value == "all-linear" else (value,)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if value is not None:
        reader.error(key, "expected 'all-linear' or a list of module names", code="wrong_type")
    return "all-linear"


def optimizer(reader: Reader, prefix: str, backend: Backend, parameter_bytes: int) -> tuple[int, float]:
    """Return the number of parameter-sized buffers in the step, and the bytes of states per parameter."""
    name = str(reader.any(f"{prefix}.optimizer") or "AdamW").lower()
    if name == "muon" and backend != "megatron":
        message = "PyTorch's Muon trains only matrices, not a whole model: Adam is assumed"
        reader.warning(f"{prefix}.optimizer", message, "use AdamW, or Megatron as the strategy")
    fused = reader.flag(f"{prefix}.override_optimizer_config.fused")
    one_by_one = reader.any(f"{prefix}.override_optimizer_config.foreach") is False
    copies = 0 if fused or one_by_one or backend != "fsdp" else 1
    if name in EIGHT_BIT:
        return copies, 2.0
    return copies, parameter_bytes * (3.0 if name in KAHAN else 2.0)


# -- the reference policy and the loss


def has_reference(reader: Reader, *keys: str) -> bool:
    """Return whether a switch requests a reference policy, or this version of verl always has one."""
    return any(reader.flags(*keys)) or reader.traits.reference_resident


def reference_bytes(reader: Reader, key: str) -> int:
    """Return the bytes of a parameter of the reference policy in host memory."""
    return reader.data_type(key) if reader.is_set(key) else reader.traits.reference_bytes


def reference_offload(reader: Reader, *keys: str) -> bool:
    """Return whether the reference policy is offloaded; with Megatron only on request."""
    return reader.backend != "megatron" or reader.flag(reader.first_set(*keys))


def computes_entropy(reader: Reader, coefficient: str, key: str) -> bool:
    """Return whether the update computes the entropy of the logits."""
    asked = reader.number(coefficient, -1e9, 1e9) != 0 or reader.flag(key)
    return (asked or reader.traits.entropy_always) and not is_easyr1(reader)


def entropy_chunk(reader: Reader, name: str, size: str) -> int:
    """Return the tokens per chunk of the entropy, 0 without chunks, from the actor's or engine's keys."""
    engine = f"{ACTOR}.{'megatron' if reader.backend == 'megatron' else 'fsdp_config'}"
    chunked = reader.flags(f"{ACTOR}.{name}", f"{engine}.{name}")
    tokens = reader.whole(reader.first_set(f"{engine}.{size}", f"{ACTOR}.{size}"))
    return tokens if any(chunked) else 0


def recomputes_entropy(reader: Reader, *keys: str) -> bool:
    """Return whether the backward pass recomputes the entropy, which Megatron never does."""
    return any(reader.flags(*keys)) and reader.backend != "megatron"


def compiles(reader: Reader, *keys: str) -> bool:
    """Return whether torch.compile is on, which its older or newer key can switch off."""
    return not any(reader.is_set(key) and not reader.flag(key) for key in keys)


# -- the rollout engine


def engine(reader: Reader, key: str) -> str:
    """Return the rollout engine, from its key, otherwise from the source."""
    name = reader.any(key) if reader.is_set(key) else reader.request.engine or reader.any(key)
    if name is None or name in ENGINES:
        return name or "vllm"
    hint = did_you_mean(str(name), ENGINES, f"use one of {', '.join(ENGINES)}")
    reader.warning(key, f"the rollout engine {str(name)[:80]!r} is not modelled: vLLM is assumed", hint)
    return "vllm"


def rollout_tensor(reader: Reader, key: str) -> int:
    """Return the TP size; 1 instead of verl's default, 2, if that does not divide the GPUs."""
    tensor = reader.whole(key)
    if reader.rollout_gpus % tensor and not reader.is_set(key):
        return 1
    return tensor if reader.must_divide(key, tensor, gpus=reader.rollout_gpus) else 1


def stages_wake_up(reader: Reader, key: str, name: str) -> bool:
    """Return whether weights wake up before the KV cache; SGLang does so only since a later version."""
    return reader.flag(key) or reader.traits.sglang_stages or engine(reader, name) != "sglang"


def bucket(reader: Reader, key: str, name: str) -> int:
    """Return the bytes of the weight transfer bucket; 0 in versions without one."""
    traits = reader.traits
    size = traits.sglang_bucket if engine(reader, name) == "sglang" else traits.vllm_bucket
    return reader.whole(key) * 2**20 if reader.is_set(key) and size else size


def element_bytes(reader: Reader, data_type: str, quantization: str) -> float:
    """Return the bytes per weight; 1 is assumed for quantized weights."""
    name = reader.any(data_type)
    if reader.any(quantization) is not None:
        return 1.0
    return float(DATA_TYPES.get(name, 2) if isinstance(name, str) else 2)
