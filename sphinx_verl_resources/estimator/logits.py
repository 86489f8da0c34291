"""The tensors at the output head: logits, their gradients, the entropy, and the last hidden states.

Bytes follow verl's own order of operations, traced without data (``make oracle``). Up to v0.8.0 verl divides
logits by the temperature in place, in a view of the model's output: the backward pass of that division needs
four copies of the gradient. Since v0.9.0 the quotient is a separate tensor: the forward pass has both, the
backward pass has the quotient and its gradient. Megatron's logits are in fp32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from .allocations import Kind, allocate, of_constant
from .constants import (
    FUSED_KERNEL_TOKENS,
    LAST_NORM,
    LAST_NORM_MEGATRON,
    LOGITS_IN_LOGS,
    LOGITS_TRACED,
)
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .allocations import Allocations
    from .settings import Settings
    from .shape import Shape

Pass = Literal["old", "reference", "update"]
Entropy = Literal["none", "compiled", "eager", "recomputed", "chunked", "chunked and recomputed"]


class PerLogit(NamedTuple):
    """Bytes per token and vocabulary entry: for every token, and for each token of a chunk."""

    token: float
    chunk: float = 0.0


#: Passes without gradients: with logits divided in place, and with the quotient as a second copy.
_INFERENCE: Mapping[Entropy, tuple[PerLogit, PerLogit]] = {
    "none": (PerLogit(2), PerLogit(4)),
    "compiled": (PerLogit(2), PerLogit(4)),
    "eager": (PerLogit(14), PerLogit(16)),
    "chunked": (PerLogit(2, 12), PerLogit(4, 12)),
}
_TRACED_IN_LOGS = PerLogit(8)
#: Updates: with logits divided in place in a view, and without. Chunks keep copies in fp32 for the backward
#: pass, so they cost more than one compiled kernel.
_UPDATE: Mapping[Entropy, tuple[PerLogit, PerLogit]] = {
    "none": (PerLogit(8), PerLogit(4)),
    "compiled": (_TRACED_IN_LOGS, PerLogit(6)),
    "eager": (PerLogit(28), PerLogit(26)),
    "recomputed": (PerLogit(28), PerLogit(30)),
    "chunked": (PerLogit(12, 12), PerLogit(10, 20)),
    "chunked and recomputed": (PerLogit(12, 12), PerLogit(14, 12)),
}
#: At the loss of an update with chunks: since v0.9.0, wider than the backward pass of many chunks.
_CHUNKS_AT_LOSS = PerLogit(12, 4)
#: Megatron, up to v0.5.0 and since v0.6.0; for each, passes without gradients and updates.
_MEGATRON: Mapping[Entropy, tuple[tuple[PerLogit, PerLogit], tuple[PerLogit, PerLogit]]] = {
    "none": ((PerLogit(6), PerLogit(6)), (PerLogit(6), PerLogit(8))),
    "eager": ((PerLogit(8), PerLogit(8)), (PerLogit(12), PerLogit(12))),
    "chunked": ((PerLogit(8), PerLogit(8)), (PerLogit(8, 4), PerLogit(12))),
}
#: Fused kernels: bytes per token of a chunk and vocabulary entry, at the gradient of the logits and at the
#: gradient of the head. For a pass without gradients, and for updates without and with an entropy bonus.
_FUSED = {"inference": (12, 0), "none": (20, 14), "entropy": (28, 18)}


def logits(name: Pass, shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """Return the vocabulary-wide tensors of a pass, and the last hidden states in an update."""
    actor = settings.actor
    megatron = actor.megatron if actor.backend == "megatron" else None
    sharers = megatron.tensor if megatron else 1
    if settings.fused_kernels:
        found = _fused(name, shape, settings, sharers)
    else:
        rows = min(float(settings.entropy_chunk), tokens)
        spread, each = LOGITS_TRACED.spread, per_logit(name, settings, tokens, rows)
        if each is _TRACED_IN_LOGS and settings.lengths.known and settings.version < (0, 8, 0):
            spread, each = LOGITS_IN_LOGS.spread, PerLogit(LOGITS_IN_LOGS.value)
        entries = {"tokens": tokens, "vocabulary": shape.vocabulary}
        found = (allocate(Kind.LOGITS, "measured", entries, each.token, sharers, "TP", spread=spread),)
        if each.chunk:
            entries = {"tokens of a chunk": rows, "vocabulary": shape.vocabulary}
            found += (
                allocate(Kind.ENTROPY_CHUNK, "measured", entries, each.chunk, sharers, "TP", spread=spread),
            )
    if name == "update":
        hidden = {"tokens": tokens, "hidden size": shape.hidden}
        constant = LAST_NORM_MEGATRON if megatron else LAST_NORM
        parts = sharers if megatron and megatron.sequence_parallel else 1
        found += (of_constant(Kind.LAST_HIDDEN, constant, hidden, parts),)
    return found


def logits_gradient(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """Return the gradient of the logits, in the backward pass of the head."""
    if settings.fused_kernels:
        return ()
    each, sharers = (2, 1) if settings.actor.backend != "megatron" else (4, settings.actor.megatron.tensor)
    entries = {"tokens": tokens, "vocabulary": shape.vocabulary}
    return (allocate(Kind.LOGITS, "measured", entries, each, sharers, "TP", spread=LOGITS_TRACED.spread),)


def per_logit(name: Pass, settings: Settings, tokens: float, rows: float) -> PerLogit:
    """Return the bytes per token and vocabulary entry in a pass; chunks have ``rows`` tokens."""
    entropy, update = _entropy(name, settings), name == "update"
    if settings.actor.backend == "megatron":
        return _MEGATRON[entropy][settings.version >= (0, 6, 0)][update]
    copied = behaviour(settings.version).second_logits_copy
    if not update:
        return _INFERENCE[entropy][copied]
    found = _UPDATE[entropy][copied or not settings.actor.remove_padding]  # padded logits are not a view
    if entropy != "chunked":
        return found
    return max(found, _CHUNKS_AT_LOSS, key=lambda each: each.token * tokens + each.chunk * rows)


def _entropy(name: Pass, settings: Settings) -> Entropy:
    """Return how a pass computes the entropy."""
    update, actor = name == "update", settings.actor
    computed = settings.computes_entropy if update else name == "old" and not settings.entropy_free
    if not computed:
        return "none"
    megatron = actor.backend == "megatron"
    recomputed = settings.entropy_recomputed and update and not megatron
    if settings.entropy_chunk:
        return "chunked and recomputed" if recomputed else "chunked"
    # It is never compiled for padded batches, nor in Megatron's vocabulary-parallel kernels.
    if settings.compiled_entropy and actor.remove_padding and not megatron:
        return "compiled"
    return "recomputed" if recomputed else "eager"


def _fused(name: Pass, shape: Shape, settings: Settings, sharers: int) -> Allocations:
    """Return a chunk of logits in fp32, and in an update the gradient of the head, briefly in two copies.

    Source: ``verl/utils/experimental/torch_functional.py`` at 1dda039b9, traced.
    """
    update, rows = name == "update", FUSED_KERNEL_TOKENS.value
    kind = ("entropy" if settings.computes_entropy else "none") if update else "inference"
    of_logits, of_head = _FUSED[kind]
    copies = 1
    if update and (of_logits - of_head) * rows < 2 * shape.hidden:
        of_logits, copies = of_head, 2
    entries = {"tokens of a chunk": rows, "vocabulary": shape.vocabulary}
    spread = LOGITS_TRACED.spread
    found: Allocations = (
        allocate(Kind.LOGITS_CHUNK, "measured", entries, of_logits, sharers, "TP", spread=spread),
    )
    if update:
        head = {"parameters of the head": shape.head, "copies": copies}
        found += (allocate(Kind.FUSED_HEAD_GRADIENT, "measured", head, 2, sharers, "TP"),)
    return found
