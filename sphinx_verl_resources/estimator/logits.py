"""What the vocabulary-wide outputs of a micro-batch take: logits, their gradient, entropy."""

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
    from .settings import Settings
    from .shape import Shape


def update_logits(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """At the loss of an update: logits, loss, entropy if it is wanted, and the gradient of the logits."""
    if settings.fused_kernels:
        return (_chunk(shape, settings), _head_gradient(shape, settings), _hidden(shape, tokens))
    copy = _copy(settings, settings.computes_entropy)
    if not settings.computes_entropy:
        constant, copy = LOGITS_PLAIN, 0.0  # it has the second copy in it
    elif settings.entropy_recomputed:
        constant = LOGITS_ENTROPY_RECOMPUTED
    elif settings.entropy_chunk:
        whole = _logits(shape, settings, tokens, LOGITS_PLAIN, 0.0)
        return (whole, *_entropy_chunk(shape, settings, tokens), _hidden(shape, tokens))
    else:
        constant = LOGITS_ENTROPY if settings.compiled_entropy else LOGITS_EAGER
    return _logits(shape, settings, tokens, constant, copy), _hidden(shape, tokens)


def old_logits(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """In an old-log-prob pass, which asks for the entropy whatever the settings say; EasyR1 does not."""
    if settings.fused_kernels:
        return (_chunk(shape, settings),)
    copy = _copy(settings, not settings.entropy_free)
    if settings.entropy_free:
        return (_logits(shape, settings, tokens, LOGITS_REFERENCE, copy),)
    if settings.entropy_chunk:
        whole = _logits(shape, settings, tokens, LOGITS_REFERENCE, copy)
        return (whole, *_entropy_chunk(shape, settings, tokens))
    constant = LOGITS_OLD if settings.compiled_entropy else LOGITS_OLD_EAGER
    return (_logits(shape, settings, tokens, constant, copy),)


def reference_logits(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    """In a reference pass, without entropy."""
    if settings.fused_kernels:
        return (_chunk(shape, settings),)
    return (_logits(shape, settings, tokens, LOGITS_REFERENCE, _copy(settings, entropy=False)),)


def _copy(settings: Settings, entropy: bool) -> float:
    """A second copy of the logits; Megatron divides them in place, and clones them for the entropy only."""
    if not behaviour(settings.version).second_logits_copy:
        return 0.0
    return LOGITS_COPY.value if entropy or settings.actor.backend != "megatron" else 0.0


def _logits(shape: Shape, settings: Settings, tokens: float, constant: Constant, more: float) -> Allocation:
    evidence: Evidence = "assumed" if more else constant.evidence
    variables = (("tokens", tokens), ("vocabulary", float(shape.vocabulary)))
    return allocate(kinds.LOGITS, evidence, variables, constant.value + more, "bytes", _share(settings), "TP")


def _hidden(shape: Shape, tokens: float) -> Allocation:
    return per_token(kinds.LAST_HIDDEN, "measured", tokens, shape.hidden, "hidden size", LAST_NORM.value)


def _entropy_chunk(shape: Shape, settings: Settings, tokens: float) -> Allocations:
    chunk = min(float(settings.entropy_chunk), tokens)
    variables = (("tokens of a chunk", chunk), ("vocabulary", float(shape.vocabulary)))
    return (
        allocate(kinds.ENTROPY_CHUNK, "assumed", variables, ENTROPY.value, "bytes", _share(settings), "TP"),
    )


def _chunk(shape: Shape, settings: Settings) -> Allocation:
    """Fused kernels never store the logits: three chunks in fp32."""
    variables = (("tokens of a chunk", FUSED_KERNEL_TOKENS.value), ("vocabulary", float(shape.vocabulary)))
    return allocate(kinds.LOGITS_CHUNK, "assumed", variables, 12, "bytes", _share(settings), "TP")


def _head_gradient(shape: Shape, settings: Settings) -> Allocation:
    """Their backward pass makes the gradient of the whole head."""
    head = (("parameters of the head", float(shape.head)),)
    return allocate(kinds.FUSED_HEAD_GRADIENT, "assumed", head, 2, "bytes", _share(settings), "TP")


def _share(settings: Settings) -> int:
    actor = settings.actor
    return actor.megatron.tensor if actor.backend == "megatron" else 1
