"""The tensors as wide as the vocabulary: logits, their gradients and the entropy.

Bytes follow verl's own order of operations, traced without data (``make oracle``). Up to v0.8.0 verl divides
logits by the temperature in place, in a view of the model's output: the backward pass of that division needs
four copies of the gradient. Since v0.9.0 the quotient is a separate tensor: the forward pass has both, the
backward pass has the quotient and its gradient. Megatron's logits are in fp32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .allocations import Kind, allocate
from .constants import LOGITS_IN_LOGS
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .allocations import Allocations
    from .settings import Settings
    from .shape import Shape

Pass = Literal["old", "reference", "update"]
Entropy = Literal["none", "compiled", "eager", "recomputed", "chunked", "chunked and recomputed"]
#: Bytes per token and vocabulary entry: for every token, and for each token of a chunk.
PerLogit = tuple[float, float]

#: With logits divided in place, and with the quotient as a second copy.
_INFERENCE: Mapping[Entropy, tuple[PerLogit, PerLogit]] = {
    "none": ((2, 0), (4, 0)),
    "compiled": ((2, 0), (4, 0)),
    "eager": ((14, 0), (16, 0)),
    "chunked": ((2, 12), (4, 12)),
}
#: The same in updates. Chunks keep copies in fp32 for the backward pass, so they cost more than one compiled
#: kernel.
_UPDATE: Mapping[Entropy, tuple[PerLogit, PerLogit]] = {
    "none": ((8, 0), (4, 0)),
    "compiled": ((8, 0), (6, 0)),
    "eager": ((28, 0), (26, 0)),
    "recomputed": ((28, 0), (30, 0)),
    "chunked": ((12, 12), (10, 20)),
    "chunked and recomputed": ((12, 12), (14, 12)),
}
#: At the loss of an update with chunks: since v0.9.0, wider than the backward pass of many chunks.
_CHUNKS_AT_LOSS: PerLogit = (12, 4)
#: Megatron, up to v0.5.0 and since v0.6.0; for each, passes without gradients and updates.
_MEGATRON: Mapping[Entropy, tuple[tuple[PerLogit, PerLogit], tuple[PerLogit, PerLogit]]] = {
    "none": (((6, 0), (6, 0)), ((6, 0), (8, 0))),
    "eager": (((8, 0), (8, 0)), ((12, 0), (12, 0))),
    "chunked": (((8, 0), (8, 0)), ((8, 4), (12, 0))),
}
#: The fused kernel has chunks of 512 tokens: without gradients, in updates without and with an entropy bonus.
_FUSED_TOKENS, _FUSED = 512, {"inference": 12, "none": 20, "entropy": 28}


def logits(name: Pass, shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """Return the vocabulary-wide tensors of a pass."""
    actor, update = settings.actor, name == "update"
    sharers = actor.megatron.tensor if actor.backend == "megatron" else 1
    rows = min(float(settings.entropy_chunk), tokens)
    if settings.fused_kernels:
        kind = ("entropy" if settings.computes_entropy else "none") if update else "inference"
        each: PerLogit = (0, _FUSED[kind])
        rows = _FUSED_TOKENS
    elif settings.trains_alone and (actor.megatron.fused_loss or actor.megatron.fused_activation):
        each = (2, 0)  # plain training whose source states fused kernels; verl computes its own loss
    else:
        each = per_logit(name, settings, tokens, rows)
    parts = (("tokens", tokens, each[0]), ("tokens of a chunk", rows, each[1]))
    return tuple(
        allocate(
            Kind.LOGITS,
            {symbol: count, "vocabulary": shape.vocabulary},
            size,
            sharers,
            "TP",
            evidence="measured",
        )
        for symbol, count, size in parts
        if size
    )


def logits_gradient(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """Return the gradient of the logits, in the backward pass of the head."""
    if settings.fused_kernels:
        return ()
    each, sharers = (2, 1) if settings.actor.backend != "megatron" else (4, settings.actor.megatron.tensor)
    entries = {"tokens": tokens, "vocabulary": shape.vocabulary}
    return (allocate(Kind.LOGITS, entries, each, sharers, "TP", evidence="measured"),)


def per_logit(name: Pass, settings: Settings, tokens: float, rows: float) -> PerLogit:
    """Return the bytes per token and vocabulary entry in a pass; chunks have ``rows`` tokens."""
    entropy, update = _entropy(name, settings), name == "update"
    if settings.actor.backend == "megatron":
        return _MEGATRON[entropy][settings.version >= (0, 6, 0)][update]
    copied = behaviour(settings.version).second_logits_copy
    if not update:
        return _INFERENCE[entropy][copied]
    each = _UPDATE[entropy][copied or not settings.actor.remove_padding]  # padded logits are not a view
    if entropy == "compiled" and settings.lengths.known and settings.version < (0, 8, 0):
        return LOGITS_IN_LOGS.value, 0
    choices = (each, _CHUNKS_AT_LOSS) if entropy == "chunked" else (each,)
    return max(choices, key=lambda pair: pair[0] * tokens + pair[1] * rows)


def _entropy(name: Pass, settings: Settings) -> Entropy:
    """Return how a pass computes the entropy."""
    update, actor = name == "update", settings.actor
    computed = settings.computes_entropy if update else name == "old" and not settings.entropy_free
    if not computed:
        return "none"
    recomputed = settings.entropy_recomputed and update
    if settings.entropy_chunk:
        return "chunked and recomputed" if recomputed else "chunked"
    # It is never compiled for padded batches, nor in Megatron's vocabulary-parallel kernels.
    if settings.compiled_entropy and actor.remove_padding and actor.backend != "megatron":
        return "compiled"
    return "recomputed" if recomputed else "eager"
