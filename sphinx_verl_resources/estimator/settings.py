"""Resolved settings: everything that decides memory, as numbers and choices, with defaults filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .parameters import Targets
    from .versions import Version

Backend = Literal["fsdp", "fsdp2", "megatron"]


@dataclass(frozen=True)
class MicroBatch:
    """The micro-batches of a pass.

    Attributes:
        sequences: per micro-batch and data-parallel rank; None where it is not set.
        dynamic: the size is a number of tokens instead.
        tokens: the budget of one GPU if dynamic.
    """

    sequences: int | None
    dynamic: bool
    tokens: int


@dataclass(frozen=True)
class Fsdp:
    """FSDP keys of a role.

    Attributes:
        shard: GPUs that one copy of the states is divided among.
        ulysses: GPUs that a sequence is divided among.
        parameter_bytes: per stored parameter, gradient and moment.
    """

    shard: int
    ulysses: int
    parameter_bytes: int
    param_offload: bool
    optimizer_offload: bool
    offload_policy: bool
    reshard: bool


@dataclass(frozen=True)
class Megatron:
    """Megatron keys of a role.

    Attributes:
        tensor, pipeline, context, expert: parallel sizes.
        expert_tensor: of the experts.
        cpu_optimizer: share of the optimizer states that is kept and updated on the host.
        moment_bytes: per parameter: main parameter and both moments.
        granularity: of recomputation as set: ``full``, ``selective`` or None.
        recompute: layers are recomputed in the backward pass.
        first_layers, last_layers: layers of the first and last pipeline stage where they are set.
    """

    tensor: int
    pipeline: int
    context: int
    expert: int
    expert_tensor: int
    distributed_optimizer: bool
    param_offload: bool
    optimizer_offload: bool
    cpu_optimizer: float
    moment_bytes: float
    granularity: str | None
    recompute: bool
    recompute_layers: int
    first_layers: int | None
    last_layers: int | None
    sequence_parallel: bool


@dataclass(frozen=True)
class Role:
    """A model that is trained: the actor or the critic.

    Attributes:
        backend: which of ``fsdp`` and ``megatron`` is used.
        mini_batch: sequences of a mini-batch, of all ranks together.
        remove_padding: only real tokens are computed with.
        checkpointing: every layer is recomputed in the backward pass (FSDP).
        lora_rank: 0 for full fine-tuning.
        step_copies: parameter-sized buffers that the optimizer step needs.
        moments: bytes of the optimizer's states per trained parameter.
    """

    backend: Backend
    fsdp: Fsdp
    megatron: Megatron
    micro_batch: MicroBatch
    mini_batch: int
    remove_padding: bool
    checkpointing: bool
    activation_offload: bool
    lora_rank: int
    targets: Targets
    step_copies: int
    moments: float


@dataclass(frozen=True)
class Rollout:
    """The engine that generates.

    Attributes:
        utilization: share of the GPU's memory.
        tensor: GPUs that one copy of its weights is divided among.
        data: copies in one engine, which share out the experts.
        sequences: at once.
        batched_tokens: of one step of the engine.
        model_length: the longest sequence; None for that of the model.
        stages_wake_up: weights and KV cache return one after the other.
        bucket: bytes of the bucket that weights travel through.
        element_bytes: of a weight.
        separate: it has GPUs of its own.
    """

    engine: str
    utilization: float
    tensor: int
    data: int
    sequences: int
    batched_tokens: int
    model_length: int | None
    eager: bool
    frees_cache: bool
    stages_wake_up: bool
    layered_summon: bool
    merge_lora: bool
    bucket: int
    element_bytes: float
    separate: bool


@dataclass(frozen=True)
class Lengths:
    """Tokens of a sequence, prompt and response.

    Attributes:
        mean: of a typical sequence.
        longest: of the longest sequence.
        limit: the configured limit of prompt and response; padding fills up to it.
        known: mean and longest are observed.
    """

    mean: float
    longest: float
    limit: float
    known: bool


@dataclass(frozen=True)
class Settings:
    """All settings that the formulas read.

    Attributes:
        capacity: bytes that the GPU offers to programs; those of an 80 GB GPU if it is not known.
        capacity_known: the GPU or its memory is named.
        sequences: of one step.
        unstated: settings that a source leaves open: ``padding``, ``length``, ``recompute``, ``offload``.
        reference: there is a reference policy that is not the actor itself.
        reference_fsdp: its FSDP keys, with any backend of the actor.
        reference_bytes: per parameter of the reference policy in host memory.
        old_log_prob: the actor's log-probs are computed before the update.
        computes_entropy: the update computes the entropy of the logits.
        compiled_entropy: torch.compile makes one kernel of it.
        entropy_free: a fork that never computes it.
        counter_leaves_pool_out: PyTorch's counter of the training process does not include the rollout pool.
    """

    version: Version
    gpus: int
    nodes: int
    capacity: float
    capacity_known: bool
    sequences: int
    lengths: Lengths
    unstated: frozenset[str]
    actor: Role
    critic: Role | None
    rollout: Rollout
    reference: bool
    reference_fsdp: Fsdp
    reference_bytes: int
    reference_offload: bool
    old_log_prob: bool
    old_micro_batch: MicroBatch
    reference_micro_batch: MicroBatch
    computes_entropy: bool
    entropy_chunk: int
    entropy_recomputed: bool
    compiled_entropy: bool
    fused_kernels: bool
    entropy_free: bool
    counter_leaves_pool_out: bool
