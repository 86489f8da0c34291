"""Single changes ("moves") for a run that ran out of memory, with values computed from its settings.

A move returns None if the run already has the setting, or if the change is not possible.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..fit.levers import lower_utilizations
from ..memory.recorded import ENGINE_LENGTH, ENGINE_SHARE, ENGINE_TP
from ..memory.request import ACTOR, MODEL, REFERENCE, ROLLOUT
from ..memory.roles import LIMITS
from ..memory.versions import CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..fit.levers import Cost
    from ..memory.estimate import Estimate
    from ..memory.versions import Version
    from .failure import Failure

    #: Function that returns a change, or None if it does not apply.
    Move = Callable[["Situation"], "Remedy | None"]

_BUCKET = f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
_SAVED = f"{ACTOR}.checkpoint.save_contents"
_ALLOCATOR = "ray_kwargs.ray_init.runtime_env.env_vars.PYTORCH_CUDA_ALLOC_CONF"
_NPU_ALLOCATOR = _ALLOCATOR.replace("CUDA", "NPU")
#: verl's defaults that the registry of keys does not contain, at 1dda039b9.
_MORE_DEFAULTS = {
    f"{ROLLOUT}.agent.num_workers": 8,  # verl/trainer/config/rollout/rollout.yaml:242
    "data.dataloader_num_workers": 8,  # verl/trainer/config/data/legacy_data.yaml:74
}
#: Limits of proposed shares; larger ones leave no room for contexts and communicators.
_MOST_SHARE, _LEAST_SHARE = 0.9, 0.2
#: Memory counts as fragmented if PyTorch's unused reserve exceeds this share of the GPU.
FRAGMENTED = 0.05
#: Largest share of a GPU that a sleeping engine keeps: context, CUDA graphs, communicators.
SLEEPING = 0.1
#: Versions whose sleep mode leaks host memory with several responses per prompt; verl issue 429.
_LEAKS = re.compile(r"0\.7\.")


@dataclass(frozen=True)
class Remedy:
    """A proposed change.

    Attributes:
        overrides: values by verl's dotted keys; empty if no setting of verl does it.
        text: a phrase about its effect; without overrides, the instruction.
        cost: its cost in time.
    """

    overrides: Mapping[str, Any]
    text: str
    cost: Cost = "none"


@dataclass(frozen=True)
class Situation:
    """The known facts about a run that ran out of memory. Sizes are bytes per GPU.

    Attributes:
        failure: its failure.
        config: its settings under today's names; empty if unknown.
        defaults: verl's defaults.
        packages: versions of packages, by name.
        version: the version of verl.
        estimate: the estimate of the run, if there is one.
    """

    failure: Failure
    config: Mapping[str, Any]
    defaults: Mapping[str, Any]
    packages: Mapping[str, str]
    version: Version = CURRENT
    estimate: Estimate | None = None

    def value(self, key: str) -> Any:
        """Return the value of a setting, or verl's default if it is unset."""
        return self.config.get(key, {**_MORE_DEFAULTS, **self.defaults}.get(key))

    def number(self, key: str) -> float:
        """Return the value of a setting if it is a number, otherwise 0."""
        value = self.value(key)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0

    @property
    def of_default(self) -> str:
        """The remark that a value is computed from verl's default; empty if the settings are known."""
        return "" if self.config else " (from verl's default)"

    @property
    def capacity(self) -> float | None:
        """The memory of the GPU."""
        return self.failure.capacity or (self.estimate.capacity if self.estimate else None)

    @property
    def is_megatron(self) -> bool:
        """True if Megatron trains."""
        if self.estimate:
            return self.estimate.settings.actor.backend == "megatron"
        named = {str(self.config.get(key)).lower() for key in (f"{ACTOR}.strategy", "model_engine")}
        if "megatron" in named or f"{ACTOR}.megatron.tensor_model_parallel_size" in self.config:
            return True
        return self.failure.of_megatron and f"{ACTOR}.strategy" not in self.config

    @property
    def shares_gpus(self) -> bool:
        """True if the rollout engine runs on the GPUs that train."""
        return not (self.estimate and self.estimate.settings.rollout.separate)

    @property
    def sequence(self) -> int:
        """The tokens of the longest sequence on one GPU."""
        divide = self.number(f"{ACTOR}.ulysses_sequence_parallel_size")
        if self.is_megatron:
            divide = self.number(f"{ACTOR}.megatron.context_parallel_size")
        return math.ceil(sum(map(self.number, LIMITS)) / max(1, divide))


# -- the rollout engine


def raise_share(of: Situation) -> Remedy | None:
    """Give the engine more of the GPU: the amount in its message, or a tenth."""
    share, more = of.number(ENGINE_SHARE), 0.1
    needs, has = of.failure.tried, of.failure.free  # for the KV cache
    if needs and has is not None and of.capacity:
        more = (needs - has) / of.capacity
    to = math.ceil(round((share + more) * 20, 3)) / 20
    if not share or to > _MOST_SHARE:
        return None
    text = f"gives the engine more memory for weights and KV cache{of.of_default}"
    return Remedy({ENGINE_SHARE: to}, text)


def lower_share(of: Situation) -> Remedy | None:
    """Take a tenth of the GPU from the engine, or reduce its share to the memory free at its start."""
    share = of.number(ENGINE_SHARE)
    to: float | None = round(share - 0.1, 2)
    if of.failure.form == "not-enough-free-at-start" and of.failure.free and of.failure.capacity:
        to = math.floor(of.failure.free / of.failure.capacity * 20) / 20
    elif of.estimate:
        to = next(lower_utilizations(of.estimate.shape, of.estimate.settings), None)
    if not to or to < _LEAST_SHARE or to >= share:
        return None
    text = f"leaves more memory for everything except the engine{of.of_default}"
    return Remedy({ENGINE_SHARE: to}, text, "little")


def shorter_model_length(of: Situation) -> Remedy | None:
    """Limit the engine to the sequence length of this run rather than the model's maximum."""
    holds = _cache_holds(of.failure.text)
    wanted, now = int(sum(map(of.number, LIMITS))), of.number(ENGINE_LENGTH)
    if holds and (not of.config or wanted > holds):
        text = "the longest sequence that fits in the KV cache according to the message; longer ones are cut"
        return Remedy({ENGINE_LENGTH: holds}, text)
    if not of.config or 0 < now <= wanted:
        return None
    return Remedy({ENGINE_LENGTH: wanted}, "limits the engine to the length of prompt and response")


def _cache_holds(text: str) -> int | None:
    """Return the longest sequence that fits in the KV cache according to vLLM's message."""
    match = re.search(r"(?:maximum model length is|stored in KV cache \()\s*(\d{1,9})", text)
    return int(match[1]) if match else None


def more_rollout_gpus(of: Situation) -> Remedy | None:
    """Shard the engine's weights over twice as many GPUs."""
    tensor = int(of.number(ENGINE_TP)) * 2
    if not tensor or tensor > (of.number("trainer.n_gpus_per_node") or 8):
        return None
    return Remedy({ENGINE_TP: tensor}, f"halves the engine's weights on each GPU{of.of_default}", "little")


def _halves(key: str, least: int, text: str, cost: Cost = "little") -> Move:
    def halved(of: Situation) -> Remedy | None:
        half = int(of.number(key)) // 2
        return Remedy({key: half}, f"{text}{of.of_default}", cost) if half >= least else None

    return halved


def _sets(key: str, value: Any, text: str, cost: Cost = "none") -> Move:
    def changed(of: Situation) -> Remedy | None:
        return Remedy({key: value}, text, cost) if of.value(key) != value else None

    return changed


fewer_sequences = _halves(f"{ROLLOUT}.max_num_seqs", 8, "fewer sequences at once in the engine")
fewer_batched_tokens = _halves(
    f"{ROLLOUT}.max_num_batched_tokens", 1024, "smaller activations in the engine's profiling run"
)
eager = _sets(
    f"{ROLLOUT}.enforce_eager", True, "no CUDA graphs in the engine; generation is slower", "little"
)
release_engine = _sets(f"{ROLLOUT}.free_cache_engine", True, "the engine frees its memory during training")
smaller_bucket = _halves(_BUCKET, 128, "a smaller bucket for sending weights to the engine")


# -- the trainer


def _sections(of: Situation, role: str) -> str:
    """Return the section of a role's backend: actor, reference or critic."""
    if of.is_megatron:
        return f"{role}.megatron"
    return "critic.fsdp" if role == "critic" else f"{role}.fsdp_config"


def _offloads(role: str, what: str, text: str) -> Move:
    def offloaded(of: Situation) -> Remedy | None:
        key = f"{_sections(of, role)}.{what}_offload"
        return None if of.value(key) is True else Remedy({key: True}, f"{text} to host memory", "little")

    return offloaded


offload_optimizer = _offloads(ACTOR, "optimizer", "moves unused optimizer states")
offload_parameters = _offloads(ACTOR, "param", "moves unused parameters")
_offload_reference = _offloads(REFERENCE, "param", "moves the reference policy")
offload_critic = _offloads("critic", "optimizer", "moves the critic's optimizer states")
offload_critic_parameters = _offloads("critic", "param", "moves the critic's parameters")


def offload_reference(of: Situation) -> Remedy | None:
    """Offload the reference policy; FSDP always does (engine/fsdp/transformer_impl.py:404 at 1dda039b9)."""
    return _offload_reference(of) if of.is_megatron else None


def step_on_host(of: Situation) -> Remedy | None:
    """Run the optimizer step on the host."""
    if of.is_megatron:
        key = f"{ACTOR}.optim.override_optimizer_config.optimizer_"
        if of.value(f"{key}cpu_offload") is True:
            return None
        return Remedy(
            {f"{key}cpu_offload": True, f"{key}offload_fraction": 1},
            "runs the optimizer step on the host",
            "much",
        )
    if of.value(f"{ACTOR}.fsdp_config.offload_policy") is True:
        return None
    return Remedy(
        {f"{ACTOR}.strategy": "fsdp2", f"{ACTOR}.fsdp_config.offload_policy": True},
        "runs the optimizer step on the host",
        "much",
    )


def _smaller(prefix: str, name: str, budget: str, dynamic: str) -> Move:
    """Return the move that halves the micro-batch of a pass, to no less than one sequence."""

    def smaller(of: Situation) -> Remedy | None:
        flag = of.config.get(f"{prefix}.{dynamic}", of.config.get(f"{ACTOR}.use_dynamic_bsz"))
        for key in (f"{prefix}.{name}_micro_batch_size_per_gpu", f"{prefix}.{name}_micro_batch_size"):
            if flag is not True and (size := int(of.number(key))):
                return Remedy({key: size // 2}, "a smaller micro-batch", "little") if size > 1 else None
        key, text = f"{prefix}.{budget}", f"a smaller micro-batch{of.of_default}"
        to = max(int(of.number(key)) // 2, of.sequence)
        if to >= of.number(key):
            return None
        overrides = {key: to} if flag is True else {f"{prefix}.{dynamic}": True, key: to}
        return Remedy(overrides, text, "little")

    return smaller


smaller_update = _smaller(ACTOR, "ppo", "ppo_max_token_len_per_gpu", "use_dynamic_bsz")
smaller_critic = _smaller("critic", "ppo", "ppo_max_token_len_per_gpu", "use_dynamic_bsz")
_LOG_PROB = ("log_prob", "log_prob_max_token_len_per_gpu", "log_prob_use_dynamic_bsz")
smaller_old, smaller_reference = _smaller(ROLLOUT, *_LOG_PROB), _smaller(REFERENCE, *_LOG_PROB)
chunk_entropy = _sets(
    f"{ACTOR}.entropy_from_logits_with_chunking",
    True,
    "computes the entropy from the logits in chunks",
    "little",
)
fuse_logits = _sets(f"{MODEL}.use_fused_kernels", True, "never keeps all logits in memory")
checkpoint_layers = _sets(
    f"{MODEL}.enable_gradient_checkpointing", True, "recomputes layers in the backward pass", "little"
)
remove_padding = _sets(f"{MODEL}.use_remove_padding", True, "uses no memory for padding")


def expand_segments(of: Situation) -> Remedy | None:
    """Let PyTorch grow its segments if much of its reserved memory is fragmented."""
    knows_engine = any(key.startswith(ROLLOUT) for key in of.config)
    if not is_fragmented(of.failure) or (knows_engine and of.shares_gpus):
        return None  # vLLM's sleep mode rejects it; verl enables it around its weight sync
    text = "reduces fragmentation; vLLM's sleep mode rejects it on GPUs shared with training"
    key = _NPU_ALLOCATOR if of.failure.form == "npu" else _ALLOCATOR
    return Remedy({key: "expandable_segments:True"}, text)


def stop_others(of: Situation) -> Remedy | None:
    """Stop processes on the GPU that do not belong to the run."""
    return Remedy({}, "stop processes of earlier runs; nvidia-smi lists them")


def is_fragmented(failure: Failure) -> bool:
    """Return whether PyTorch's reserve is large enough for the allocation, but fragmented."""
    reserve, tried = failure.reserved_unallocated or 0.0, failure.tried or 0.0
    return reserve > max(tried, FRAGMENTED * (failure.capacity or 0.0))


# -- the host, and checkpoints


def keeps_on_gpu(role: str, what: str) -> Move:
    """Return the move that stops offloading; it is also proposed if the settings are unknown."""

    def kept(of: Situation) -> Remedy | None:
        key = f"{_sections(of, role)}.{what}_offload"
        if of.config and of.value(key) is not True:
            return None
        return Remedy({key: False}, "stops offloading to host memory; the state must fit on the GPU")

    return kept


def less_swap(of: Situation) -> Remedy | None:
    """Keep vLLM from reserving host memory for swapping."""
    key = f"{ROLLOUT}.swap_space"
    return Remedy({key: 0}, "reserves no host memory for swapping") if of.number(key) else None


def newer_vllm(of: Situation) -> Remedy | None:
    """Upgrade vLLM 0.7, which leaks host memory."""
    if not _LEAKS.match(of.packages.get("vllm", "")):
        return None
    return Remedy({}, "upgrade to vLLM 0.8.3 or newer: vLLM 0.7 leaks host memory in every step")


fewer_agents = _halves(
    f"{ROLLOUT}.agent.num_workers", 1, "fewer processes that keep sequences in host memory"
)
fewer_loaders = _halves("data.dataloader_num_workers", 1, "fewer processes that read data", "none")
smaller_batch = _halves("data.train_batch_size", 8, "fewer sequences in host memory at once")


def save_less(of: Situation) -> Remedy | None:
    """Leave the optimizer out of checkpoints."""
    saved = of.value(_SAVED) or ()
    rest = tuple(item for item in saved if item != "optimizer")
    text = "saves no optimizer states; training cannot be resumed exactly"
    return Remedy({_SAVED: rest}, text) if rest and rest != tuple(saved) else None


def is_shared(failure: Failure) -> bool:
    """Return whether other processes use more of the GPU than a sleeping engine does."""
    return bool(failure.others and failure.capacity and failure.others > SLEEPING * failure.capacity)
