"""Moves: single changes for a run that ran out of memory, with values computed from its settings.

A move returns None where the run has that setting already, or where there is no room for the change.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..estimator.request import ACTOR, MODEL, REFERENCE, ROLLOUT
from ..estimator.suggestions import lower_utilizations
from ..estimator.tasks import ENGINE_LENGTH, ENGINE_SHARE, ENGINE_TP, LIMITS
from ..estimator.versions import CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..estimator.estimate import Estimate
    from ..estimator.suggestions import Cost
    from ..estimator.versions import Version
    from .failure import Failure

    #: Returns a change where there is one to make.
    Move = Callable[["Situation"], "Remedy | None"]

_BUCKET = f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
_SAVED = f"{ACTOR}.checkpoint.save_contents"
_ALLOCATOR = "ray_kwargs.ray_init.runtime_env.env_vars.PYTORCH_CUDA_ALLOC_CONF"
_NPU_ALLOCATOR = _ALLOCATOR.replace("CUDA", "NPU")
#: The parts of verl's defaults that the registry of keys does not record, at 1dda039b9.
_MORE_DEFAULTS = {
    f"{ROLLOUT}.agent.num_workers": 8,  # verl/trainer/config/rollout/rollout.yaml:242
    "data.dataloader_num_workers": 8,  # verl/trainer/config/data/legacy_data.yaml:74
}
#: Larger shares leave nothing for contexts and communicators.
_MOST_SHARE, _LEAST_SHARE = 0.9, 0.2
#: PyTorch's reserve that it does not use, from which on memory counts as fragmented: as a share of the GPU.
FRAGMENTED = 0.05
#: The most of a GPU that a sleeping engine keeps: context, CUDA graphs, communicators.
SLEEPING = 0.1
#: vLLM's sleep mode with several responses a prompt leaked host memory before that; verl issue 429.
_LEAKS = re.compile(r"0\.7\.")


@dataclass(frozen=True)
class Remedy:
    """A change that is proposed.

    Attributes:
        overrides: verl's dotted keys; empty where no setting of verl does it.
        text: what it does, in a sentence; what to do where there are no overrides.
        cost: in time.
    """

    overrides: Mapping[str, Any]
    text: str
    cost: Cost = "none"


@dataclass(frozen=True)
class Situation:
    """The known facts about a run that ran out of memory. Sizes are bytes per GPU.

    Attributes:
        failure: how it ended.
        config: its settings under today's names; empty where they are not known.
        defaults: verl's.
        packages: versions of packages, by name.
        version: of verl.
        estimate: of the run; None without one.
    """

    failure: Failure
    config: Mapping[str, Any]
    defaults: Mapping[str, Any]
    packages: Mapping[str, str]
    version: Version = CURRENT
    estimate: Estimate | None = None

    def value(self, key: str) -> Any:
        """Return the value of a setting, verl's default where none is known."""
        return self.config.get(key, {**_MORE_DEFAULTS, **self.defaults}.get(key))

    def number(self, key: str) -> float:
        """Return a setting that is a number, 0 for any other."""
        value = self.value(key)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0

    @property
    def of_default(self) -> str:
        """The remark that a value is computed from verl's default; empty where the settings are known."""
        return "" if self.config else " (from verl's default)"

    @property
    def capacity(self) -> float | None:
        """The memory of the GPU."""
        return self.failure.capacity or (self.estimate.capacity if self.estimate else None)

    @property
    def is_megatron(self) -> bool:
        """True where Megatron trains."""
        if self.estimate:
            return self.estimate.settings.actor.backend == "megatron"
        named = {str(self.config.get(key)).lower() for key in (f"{ACTOR}.strategy", "model_engine")}
        if "megatron" in named or f"{ACTOR}.megatron.tensor_model_parallel_size" in self.config:
            return True
        return self.failure.of_megatron and f"{ACTOR}.strategy" not in self.config

    @property
    def shares_gpus(self) -> bool:
        """True where the rollout engine is on GPUs that train."""
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
    """Give the engine more of the GPU: as much as its message asks for, or a tenth."""
    share, more = of.number(ENGINE_SHARE), 0.1
    needs, has = of.failure.tried, of.failure.free  # of a KV cache
    if needs and has is not None and of.capacity:
        more = (needs - has) / of.capacity
    to = math.ceil(round((share + more) * 20, 3)) / 20
    if not share or to > _MOST_SHARE:
        return None
    text = f"more of the GPU for the engine's weights and KV cache{of.of_default}"
    return Remedy({ENGINE_SHARE: to}, text)


def lower_share(of: Situation) -> Remedy | None:
    """Take a tenth of the GPU from the engine, or what is not free at its start."""
    share = of.number(ENGINE_SHARE)
    to: float | None = round(share - 0.1, 2)
    if of.failure.form == "not-enough-free-at-start" and of.failure.free and of.failure.capacity:
        to = math.floor(of.failure.free / of.failure.capacity * 20) / 20
    elif of.estimate:
        to = next(lower_utilizations(of.estimate.shape, of.estimate.settings), None)
    if not to or to < _LEAST_SHARE or to >= share:
        return None
    text = f"leaves more of the GPU to everything but the engine{of.of_default}"
    return Remedy({ENGINE_SHARE: to}, text, "little")


def shorter_model_length(of: Situation) -> Remedy | None:
    """Let the engine reserve for the sequences of this run, not for the longest of the model."""
    holds = _cache_holds(of.failure.text)
    wanted, now = int(sum(map(of.number, LIMITS))), of.number(ENGINE_LENGTH)
    if holds and (not of.config or wanted > holds):
        text = "the longest sequence that the message says the KV cache holds; longer ones are cut off"
        return Remedy({ENGINE_LENGTH: holds}, text)
    if not of.config or 0 < now <= wanted:
        return None
    return Remedy({ENGINE_LENGTH: wanted}, "prompt and response; the engine plans for no longer sequence")


def _cache_holds(text: str) -> int | None:
    """Return the longest sequence that vLLM says the KV cache holds."""
    match = re.search(r"(?:maximum model length is|stored in KV cache \()\s*(\d{1,9})", text)
    return int(match[1]) if match else None


def more_rollout_gpus(of: Situation) -> Remedy | None:
    """Divide the engine's weights among twice as many GPUs."""
    tensor = int(of.number(ENGINE_TP)) * 2
    if not tensor or tensor > (of.number("trainer.n_gpus_per_node") or 8):
        return None
    return Remedy({ENGINE_TP: tensor}, f"half the weights on each GPU{of.of_default}", "little")


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
release_engine = _sets(f"{ROLLOUT}.free_cache_engine", True, "the engine frees its memory while others work")
smaller_bucket = _halves(_BUCKET, 128, "a smaller bucket for the weights that are sent to the engine")


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


offload_optimizer = _offloads(ACTOR, "optimizer", "moves optimizer states that are not in use")
offload_parameters = _offloads(ACTOR, "param", "moves parameters that are not in use")
_offload_reference = _offloads(REFERENCE, "param", "moves the reference policy")
offload_critic = _offloads("critic", "optimizer", "moves the critic's optimizer states")
offload_critic_parameters = _offloads("critic", "param", "moves the critic's parameters")


def offload_reference(of: Situation) -> Remedy | None:
    """Offload the reference policy; FSDP always does (engine/fsdp/transformer_impl.py:404 at 1dda039b9)."""
    return _offload_reference(of) if of.is_megatron else None


def step_on_host(of: Situation) -> Remedy | None:
    """Let the host's processors do the optimizer step."""
    if of.is_megatron:
        key = f"{ACTOR}.optim.override_optimizer_config.optimizer_"
        if of.value(f"{key}cpu_offload") is True:
            return None
        return Remedy(
            {f"{key}cpu_offload": True, f"{key}offload_fraction": 1}, "the step is done on the host", "much"
        )
    if of.value(f"{ACTOR}.fsdp_config.offload_policy") is True:
        return None
    return Remedy(
        {f"{ACTOR}.strategy": "fsdp2", f"{ACTOR}.fsdp_config.offload_policy": True},
        "the step is done on the host",
        "much",
    )


def _smaller(prefix: str, name: str, budget: str, dynamic: str) -> Move:
    """Return the move that halves the micro-batch of a pass, never below one sequence."""

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
    f"{ACTOR}.entropy_from_logits_with_chunking", True, "the entropy takes the logits in chunks", "little"
)
fuse_logits = _sets(f"{MODEL}.use_fused_kernels", True, "the logits are never whole in memory")
checkpoint_layers = _sets(
    f"{MODEL}.enable_gradient_checkpointing", True, "layers are recomputed in the backward pass", "little"
)
remove_padding = _sets(f"{MODEL}.use_remove_padding", True, "no memory for padding")


def expand_segments(of: Situation) -> Remedy | None:
    """Let PyTorch grow its segments, where much of what it reserved is in pieces too small to use."""
    knows_engine = any(key.startswith(ROLLOUT) for key in of.config)
    if not is_fragmented(of.failure) or (knows_engine and of.shares_gpus):
        return None  # vLLM's sleep mode refuses it; verl switches it on around its weight sync itself
    text = "less fragmentation; vLLM's sleep mode refuses it on GPUs that it shares with training"
    key = _NPU_ALLOCATOR if of.failure.form == "npu" else _ALLOCATOR
    return Remedy({key: "expandable_segments:True"}, text)


def stop_others(of: Situation) -> Remedy | None:
    """Free the GPU of processes that do not belong to the run."""
    return Remedy({}, "stop processes of earlier runs, which nvidia-smi lists")


def is_fragmented(failure: Failure) -> bool:
    """Tell whether PyTorch holds enough for the allocation that failed, in pieces too small for it."""
    reserve, tried = failure.reserved_unallocated or 0.0, failure.tried or 0.0
    return reserve > max(tried, FRAGMENTED * (failure.capacity or 0.0))


# -- the host, and checkpoints


def keeps_on_gpu(role: str, what: str) -> Move:
    """Return the move that stops offloading; of unknown settings it is proposed in case they offload."""

    def kept(of: Situation) -> Remedy | None:
        key = f"{_sections(of, role)}.{what}_offload"
        if of.config and of.value(key) is not True:
            return None
        return Remedy({key: False}, "offloaded state fills host memory; the GPU must have room for it")

    return kept


def less_swap(of: Situation) -> Remedy | None:
    """Keep vLLM from reserving host memory for swapping."""
    key = f"{ROLLOUT}.swap_space"
    return Remedy({key: 0}, "GiB of host memory for each engine") if of.number(key) else None


def newer_vllm(of: Situation) -> Remedy | None:
    """Name the leak of host memory in vLLM 0.7."""
    if not _LEAKS.match(of.packages.get("vllm", "")):
        return None
    return Remedy({}, "use vLLM 0.8.3 or newer: vLLM 0.7 leaks host memory in every step")


fewer_agents = _halves(
    f"{ROLLOUT}.agent.num_workers", 1, "fewer processes that hold sequences in host memory"
)
fewer_loaders = _halves("data.dataloader_num_workers", 1, "fewer processes that read data", "none")
smaller_batch = _halves("data.train_batch_size", 8, "fewer sequences in host memory at once")


def save_less(of: Situation) -> Remedy | None:
    """Leave the optimizer out of checkpoints."""
    saved = of.value(_SAVED) or ()
    rest = tuple(item for item in saved if item != "optimizer")
    text = "checkpoints without optimizer states; training cannot be resumed exactly"
    return Remedy({_SAVED: rest}, text) if rest and rest != tuple(saved) else None


def is_shared(failure: Failure) -> bool:
    """Tell whether other processes hold more of the GPU than an engine that sleeps."""
    return bool(failure.others and failure.capacity and failure.others > SLEEPING * failure.capacity)
