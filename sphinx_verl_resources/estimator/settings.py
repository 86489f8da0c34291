"""Resolved settings: everything that decides memory, and the tokens of a micro-batch that follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .constants import LENGTH_SPREAD

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


def tokens_of(lengths: Lengths, micro: MicroBatch, most: int, divide: int, *, padded: bool) -> float:
    """Return the tokens on one GPU in the fullest micro-batch.

    A fixed size counts sequences. Their lengths vary, and vary more between small micro-batches: the fullest
    holds 1 + spread ÷ √sequences times the mean. A dynamic size counts tokens; it is at least the longest
    sequence and at most everything there is.

    Args:
        lengths: of the sequences.
        micro: how the pass is cut.
        most: sequences that a rank has in one mini-batch or step.
        divide: GPUs that a sequence is divided among.
        padded: every sequence takes its configured limit.

    >>> from sphinx_verl_resources.estimator.settings import Lengths, MicroBatch
    >>> tokens_of(Lengths(512, 512, 512, False), MicroBatch(8, False, 0), 64, 2, padded=False)
    2048.0
    >>> tokens_of(Lengths(512, 512, 512, False), MicroBatch(None, True, 4096), 64, 1, padded=False)
    4096.0
    """
    limit = lengths.limit if padded else lengths.longest
    if micro.dynamic:
        everything = fullest(lengths, most, padded=padded)
        return min(max(float(micro.tokens), limit / divide), everything / divide)
    return fullest(lengths, min(micro.sequences or 1, most), padded=padded) / divide


def fullest(lengths: Lengths, sequences: int, *, padded: bool) -> float:
    """Return the tokens of so many sequences in the fullest micro-batch.

    >>> from sphinx_verl_resources.estimator.settings import Lengths
    >>> fullest(Lengths(100, 1000, 1000, True), 4, padded=False)
    600.0
    """
    if padded:
        return sequences * lengths.limit
    mean = lengths.mean * (1 + LENGTH_SPREAD.value / math.sqrt(sequences))
    return sequences * min(mean, lengths.longest)


def data_parallel(backend: Backend, fsdp: Fsdp, megatron: Megatron, gpus: int) -> int:
    """Return the number of ranks that sequences are divided among."""
    if backend == "megatron":
        return max(1, gpus // (megatron.tensor * megatron.pipeline * megatron.context))
    return max(1, gpus // fsdp.ulysses)


def ranks_of(role: Role, gpus: int) -> int:
    """Return the number of ranks that sequences are divided among."""
    return data_parallel(role.backend, role.fsdp, role.megatron, gpus)


def sequence_divisor(role: Role) -> int:
    """Return the number of GPUs that share a sequence: Ulysses, or context parallelism."""
    return role.megatron.context if role.backend == "megatron" else role.fsdp.ulysses


def update_tokens(settings: Settings, role: Role) -> float:
    """Return the tokens on one GPU in the fullest micro-batch of an update."""
    most = max(1, min(role.mini_batch, settings.sequences) // ranks_of(role, settings.gpus))
    divide = sequence_divisor(role)
    return tokens_of(settings.lengths, role.micro_batch, most, divide, padded=not role.remove_padding)


def old_tokens(settings: Settings) -> float:
    """Return the tokens on one GPU in the fullest micro-batch of the old log-prob pass."""
    return _log_prob_tokens(settings, settings.old_micro_batch, settings.actor.fsdp.ulysses)


def reference_tokens(settings: Settings) -> float:
    """Return the tokens on one GPU in the fullest micro-batch of the reference pass."""
    return _log_prob_tokens(settings, settings.reference_micro_batch, settings.reference_fsdp.ulysses)


def _log_prob_tokens(settings: Settings, micro: MicroBatch, ulysses: int) -> float:
    """Return the tokens of a log-prob pass, which runs over the whole step."""
    actor, divide, ranks = settings.actor, ulysses, settings.gpus // ulysses
    if actor.backend == "megatron":
        divide, ranks = sequence_divisor(actor), ranks_of(actor, settings.gpus)
    most = max(1, settings.sequences // max(1, ranks))
    return tokens_of(settings.lengths, micro, most, divide, padded=not actor.remove_padding)


def micro_batches(settings: Settings, role: Role) -> int:
    """Return the number of micro-batches per optimizer step, at least one."""
    most = max(1, min(role.mini_batch, settings.sequences) // ranks_of(role, settings.gpus))
    if not role.micro_batch.dynamic:
        return -(-most // max(1, role.micro_batch.sequences or 1))
    divide = sequence_divisor(role)
    mean = settings.lengths.mean if role.remove_padding else settings.lengths.limit
    return max(1, math.ceil(most * mean / divide / max(1, role.micro_batch.tokens)))
