"""The tokens of a micro-batch on one GPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .constants import LENGTH_SPREAD
from .roles import data_parallel

if TYPE_CHECKING:
    from .settings import Lengths, MicroBatch, Role, Settings


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
