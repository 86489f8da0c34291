"""The vocabulary-wide outputs of a micro-batch: logits, their gradient, entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import kinds
from .allocations import allocate, per_token
from .constants import (
    ENTROPY,
    FUSED_KERNEL_TOKENS,
    LAST_NORM,
    LOGITS_COPY,
    LOGITS_EAGER,
    LOGITS_ENTROPY,
    LOGITS_ENTROPY_RECOMPUTED,
    LOGITS_OLD,
    LOGITS_OLD_EAGER,
    LOGITS_PLAIN,
    LOGITS_REFERENCE,
)
from .versions import behaviour

if TYPE_CHECKING:
    from ..breakdown import Evidence
    from .allocations import Allocation, Allocations
    from .constants import Constant
    from .kinds import Kind
    from .settings import Settings
    from .shape import Shape


def update_logits(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """Return logits, loss, entropy if it is wanted, and the gradient of the logits, in an update."""
    if settings.fused_kernels:
        # The backward pass of the fused kernels makes the gradient of the whole head.
        head = (("parameters of the head", float(shape.head)),)
        kind, shards = kinds.FUSED_HEAD_GRADIENT, _shards(settings)
        gradient = allocate(kind, "assumed", head, 2, "bytes", shards, "TP")
        return (*_fused(shape, settings), gradient, _last_hidden(shape, tokens))
    copy = _second_copy(settings, entropy=settings.computes_entropy)
    chunk: Allocations = ()
    if not settings.computes_entropy:
        constant, copy = LOGITS_PLAIN, 0.0  # it includes the second copy
    elif settings.entropy_recomputed:
        constant = LOGITS_ENTROPY_RECOMPUTED
    elif settings.entropy_chunk:
        constant, copy, chunk = LOGITS_PLAIN, 0.0, _entropy_chunk(shape, settings, tokens)
    else:
        constant = LOGITS_ENTROPY if settings.compiled_entropy else LOGITS_EAGER
    return (*_logits(shape, settings, tokens, constant, copy), *chunk, _last_hidden(shape, tokens))


def old_logits(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """Return logits and entropy in an old-log-prob pass; only EasyR1 computes no entropy there."""
    if settings.fused_kernels:
        return _fused(shape, settings)
    copy = _second_copy(settings, entropy=not settings.entropy_free)
    if settings.entropy_free:
        return _logits(shape, settings, tokens, LOGITS_REFERENCE, copy)
    if settings.entropy_chunk:
        logits = _logits(shape, settings, tokens, LOGITS_REFERENCE, copy)
        return logits + _entropy_chunk(shape, settings, tokens)
    constant = LOGITS_OLD if settings.compiled_entropy else LOGITS_OLD_EAGER
    return _logits(shape, settings, tokens, constant, copy)


def reference_logits(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """Return the logits in a reference pass, without entropy."""
    if settings.fused_kernels:
        return _fused(shape, settings)
    return _logits(shape, settings, tokens, LOGITS_REFERENCE, _second_copy(settings, entropy=False))


def _second_copy(settings: Settings, *, entropy: bool) -> float:
    """Return the bytes of a second copy; Megatron divides in place, and clones for the entropy only."""
    if not behaviour(settings.version).second_logits_copy:
        return 0.0
    return LOGITS_COPY.value if entropy or settings.actor.backend != "megatron" else 0.0


def _logits(shape: Shape, settings: Settings, tokens: float, constant: Constant, copy: float) -> Allocations:
    evidence: Evidence = "assumed" if copy else constant.evidence
    variables = (("tokens", tokens), ("vocabulary", float(shape.vocabulary)))
    size, shards = constant.value + copy, _shards(settings)
    return (allocate(kinds.LOGITS, evidence, variables, size, "bytes", shards, "TP"),)


def _last_hidden(shape: Shape, tokens: float) -> Allocation:
    return per_token(kinds.LAST_HIDDEN, "measured", tokens, shape.hidden, "hidden size", LAST_NORM.value)


def _entropy_chunk(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    chunk = min(float(settings.entropy_chunk), tokens)
    return _of_chunk(kinds.ENTROPY_CHUNK, shape, settings, chunk, ENTROPY.value)


def _fused(shape: Shape, settings: Settings) -> Allocations:
    """Return three chunks of logits in fp32: fused kernels never store all of them."""
    return _of_chunk(kinds.LOGITS_CHUNK, shape, settings, FUSED_KERNEL_TOKENS.value, 12)


def _of_chunk(kind: Kind, shape: Shape, settings: Settings, tokens: float, size: float) -> Allocations:
    variables = (("tokens of a chunk", tokens), ("vocabulary", float(shape.vocabulary)))
    return (allocate(kind, "assumed", variables, size, "bytes", _shards(settings), "TP"),)


def _shards(settings: Settings) -> int:
    """Return the number of GPUs that share the vocabulary."""
    actor = settings.actor
    return actor.megatron.tensor if actor.backend == "megatron" else 1
