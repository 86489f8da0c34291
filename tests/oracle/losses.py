"""What follows the last hidden states: logits and a loss, with the tensors that each way of computing it makes.

Kernels that PyTorch on the CPU does not have are imitated by the tensors that they allocate. ``V`` is the vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable


class _FusedLinear(torch.autograd.Function):
    """Output layer and cross-entropy in one, by chunks: no logits, one gradient of the hidden states and the weight."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(hidden, weight)
        return hidden.new_empty((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        hidden, weight = ctx.saved_tensors
        return torch.empty_like(hidden), torch.empty_like(weight) if ctx.needs_input_grad[1] else None


class _FusedCrossEntropy(torch.autograd.Function):
    """Cross-entropy in one kernel: two numbers a token are kept, the gradient overwrites the logits or is a new tensor."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, in_place: bool) -> torch.Tensor:
        loss, log_sum = (logits.new_empty(logits.shape[:-1], dtype=torch.float32) for _ in range(2))
        ctx.save_for_backward(logits, log_sum)
        ctx.in_place = in_place
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits = ctx.saved_tensors[0]
        return logits if ctx.in_place else torch.empty_like(logits), None


class _CompiledEntropy(torch.autograd.Function):
    """The entropy as a compiler fuses it: three numbers a token are kept, backward writes one gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor) -> torch.Tensor:
        rows = [logits.new_empty(logits.shape[:-1], dtype=torch.float32) for _ in range(4)]
        ctx.save_for_backward(logits, *rows[1:])
        return rows[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(ctx.saved_tensors[0])


class _LogSumExp(torch.autograd.Function):
    """``logsumexp`` with the temporaries that its kernel makes out of a dispatch mode's sight."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor) -> torch.Tensor:
        highest = logits.amax(-1, keepdim=True)
        out = (logits - highest).exp_().sum(-1).log_().add_(highest.squeeze(-1))
        ctx.save_for_backward(logits, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        logits, out = ctx.saved_tensors
        shifted = logits - out.unsqueeze(-1)
        probability = shifted.exp()
        return gradient.unsqueeze(-1) * probability


def _eager_entropy(logits: torch.Tensor) -> torch.Tensor:
    # Under CUDA's autocast softmax and logsumexp each make their own fp32 copy of the logits.
    probability = torch.softmax(logits.float(), dim=-1)
    return _LogSumExp.apply(logits.float()) - torch.sum(probability * logits, dim=-1)


def fused_linear(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """No logits at all (``use_fused_kernels``)."""
    return _FusedLinear.apply(hidden, weight)


def cross_entropy(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The loss of transformers: an fp32 copy of the logits and ``cross_entropy``."""
    logits = functional.linear(hidden, weight)
    labels = torch.empty(hidden.shape[1], dtype=torch.long)
    return functional.cross_entropy(logits.float().flatten(0, 1), labels)


def log_prob(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """verl's update without entropy: temperature divided in place, fused cross-entropy in place."""
    logits = functional.linear(hidden, weight).div_(1.0)
    return _FusedCrossEntropy.apply(logits, True).mean()


def log_prob_entropy(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """verl's update with an entropy bonus, the entropy compiled."""
    logits = functional.linear(hidden, weight).div_(1.0)
    return _FusedCrossEntropy.apply(logits, False).mean() - _CompiledEntropy.apply(logits).mean()


def log_prob_eager_entropy(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """verl's update with an entropy bonus, the entropy computed operation by operation under autocast."""
    logits = functional.linear(hidden, weight).div_(1.0)
    return _FusedCrossEntropy.apply(logits, False).mean() - _eager_entropy(logits).mean()


#: By the name that a case gives.
LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "fused-linear": fused_linear,
    "cross-entropy": cross_entropy,
    "log-prob": log_prob,
    "log-prob-entropy": log_prob_entropy,
    "log-prob-eager-entropy": log_prob_eager_entropy,
}
