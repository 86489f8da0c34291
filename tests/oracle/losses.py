"""Logits and losses after the last hidden states, with the tensors that each way of computing them makes.

Kernels missing in PyTorch on the CPU are imitated by the tensors that they allocate. ``V`` is the vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable


class _FusedLinear(torch.autograd.Function):
    """Output layer and cross-entropy in one, reduced to one gradient of the hidden states and of the weight."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(hidden, weight)
        return hidden.new_empty((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        hidden, weight = ctx.saved_tensors
        return torch.empty_like(hidden), torch.empty_like(weight) if ctx.needs_input_grad[1] else None


class _FusedCrossEntropy(torch.autograd.Function):
    """Cross-entropy in one kernel: it keeps two numbers per token; the gradient replaces the logits or is a new tensor."""

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
    """The entropy as a compiler fuses it: it keeps three numbers per token, and backward makes one gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor) -> torch.Tensor:
        rows = [logits.new_empty(logits.shape[:-1], dtype=torch.float32) for _ in range(4)]
        ctx.save_for_backward(logits, *rows[1:])
        return rows[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(ctx.saved_tensors[0])


class _LogSumExp(torch.autograd.Function):
    """``logsumexp`` with the temporaries of its kernel, which a dispatch mode does not see."""

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


class _ChunkedLinear(torch.autograd.Function):
    """verl's output layer, log-probabilities and entropy in one (``FusedLinearForPPO``), by chunks of rows."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, chunk: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(hidden, weight)
        ctx.chunk = chunk
        log_probs, entropy = torch.zeros(hidden.shape[0]), hidden.new_zeros(hidden.shape[0])
        for i in range(0, hidden.shape[0], chunk):
            part = _ChunkedLinear._chunk(hidden[i : i + chunk], weight)
            log_probs[i : i + chunk], entropy[i : i + chunk] = part
        return log_probs, entropy

    @staticmethod
    def _chunk(hidden: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = (hidden @ weight.t()) / 1.0
        logits = logits.float()
        probability = logits.softmax(-1)
        entropy = _LogSumExp.apply(logits) - torch.sum(probability * logits, dim=-1)
        return cross_entropy_kernel(logits, False), entropy

    @staticmethod
    def backward(
        ctx: Any, of_chosen: torch.Tensor | None, of_entropy: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        hidden, weight = ctx.saved_tensors
        of_hidden, of_weight = torch.zeros_like(hidden), torch.zeros_like(weight)
        for i in range(0, hidden.shape[0], ctx.chunk):
            rows = slice(i, i + ctx.chunk)
            each = [None if gradient is None else gradient[rows] for gradient in (of_chosen, of_entropy)]
            first, second = _ChunkedLinear._gradients(hidden[rows], weight, *each)
            of_hidden[rows] += first
            of_weight += second
        return of_hidden, of_weight, None

    @staticmethod
    def _gradients(
        hidden: torch.Tensor,
        weight: torch.Tensor,
        of_chosen: torch.Tensor | None,
        of_entropy: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = (hidden @ weight.t()) / 1.0
        logits = logits.float()
        probability = logits.softmax(-1)
        gradient: Any = 0
        if of_chosen is not None:
            one_hot = torch.zeros_like(logits)
            gradient += of_chosen.unsqueeze(-1) * (one_hot - probability)
        if of_entropy is not None:
            log_probability = logits.log_softmax(-1)
            entropy = _LogSumExp.apply(logits) - torch.sum(probability * logits, dim=-1)
            gradient += (
                probability * (log_probability + entropy.unsqueeze(-1)) * (-of_entropy.float().unsqueeze(-1))
            )
        gradient = gradient.bfloat16() / 1.0
        return gradient @ weight, gradient.t() @ hidden


class _ParallelCrossEntropy(torch.autograd.Function):
    """Megatron's cross-entropy of fp32 logits: in place, the logits become their softmax, then their gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor) -> torch.Tensor:
        highest = logits.amax(-1)
        logits -= highest.unsqueeze(-1)
        torch.exp(logits, out=logits)
        total = logits.sum(-1)
        logits.div_(total.unsqueeze(-1))
        ctx.save_for_backward(logits)
        return total.log()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return ctx.saved_tensors[0].mul_(gradient.unsqueeze(-1))


class _ParallelEntropy(torch.autograd.Function):
    """verl's entropy for Megatron: it keeps a softmax next to the logits, which becomes the gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor) -> torch.Tensor:
        highest = logits.amax(-1, keepdim=True)
        softmax = (logits - highest).exp_()
        total = softmax.sum(-1, keepdim=True)
        softmax.div_(total)
        mean = torch.empty_like(total)  # product and sum are compiled into one
        ctx.save_for_backward(logits, softmax, mean)
        return (highest + total.log() - mean).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        logits, softmax, mean = ctx.saved_tensors
        logits.sub_(mean)
        softmax.mul_(logits).mul_(gradient.unsqueeze(-1))
        logits.add_(mean)
        return softmax.mul_(-1)


def cross_entropy_kernel(logits: torch.Tensor, in_place: bool) -> torch.Tensor:
    """Return flash-attn's cross-entropy."""
    return _FusedCrossEntropy.apply(logits, in_place)


def compiled_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return the entropy as with ``torch.compile``."""
    return _CompiledEntropy.apply(logits)


def eager_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return the entropy, operation by operation."""
    # Under CUDA's autocast softmax and logsumexp each make their own fp32 copy of the logits.
    probability = torch.softmax(logits.float(), dim=-1)
    return _LogSumExp.apply(logits.float()) - torch.sum(probability * logits, dim=-1)


def chunked_entropy(logits: torch.Tensor, chunk: int) -> torch.Tensor:
    """Return the entropy, operation by operation and by chunks of rows, with one fp32 copy per chunk."""
    entropy = torch.zeros(logits.shape[0])
    for i in range(0, logits.shape[0], chunk):
        rows = logits[i : i + chunk].float()
        probability = torch.softmax(rows, dim=-1)
        part = _LogSumExp.apply(rows) - torch.sum(probability * rows, dim=-1)
        entropy[i : i + chunk] = part
    return entropy


def log_probs_by_row(logits: torch.Tensor) -> torch.Tensor:
    """Return log-probabilities as without flash-attn: an fp32 softmax for each row."""
    log_probs = []
    for row in logits:
        every = functional.log_softmax(row.float(), dim=-1)
        log_probs.append(every.gather(-1, torch.zeros(1, dtype=torch.long)).squeeze(-1))
    return torch.stack(log_probs)


def parallel_cross_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return Megatron's ``vocab_parallel_cross_entropy``."""
    return _ParallelCrossEntropy.apply(logits)


def parallel_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return verl's ``vocab_parallel_entropy``."""
    return _ParallelEntropy.apply(logits)


def chunked_linear(
    hidden: torch.Tensor, weight: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropy as in verl's fused kernel."""
    return _ChunkedLinear.apply(hidden, weight, chunk)


def fused_linear(hidden: torch.Tensor, head: nn.Linear) -> torch.Tensor:
    """Return a loss without any logits."""
    return _FusedLinear.apply(hidden, head.weight)


def cross_entropy(hidden: torch.Tensor, head: nn.Linear) -> torch.Tensor:
    """Return the loss of transformers: ``cross_entropy`` of an fp32 copy of the logits."""
    logits = head(hidden)
    labels = torch.empty(hidden.shape[1], dtype=torch.long)
    return functional.cross_entropy(logits.float().flatten(0, 1), labels)


def log_prob(hidden: torch.Tensor, head: nn.Linear) -> torch.Tensor:
    """Return the loss of verl's update without entropy since v0.9, with logits divided out of place."""
    return cross_entropy_kernel(head(hidden).squeeze(0) / 1.0, True).mean()


def log_prob_entropy(hidden: torch.Tensor, head: nn.Linear) -> torch.Tensor:
    """Return the loss of verl's update with a compiled entropy bonus since v0.9."""
    logits = head(hidden).squeeze(0) / 1.0
    entropy = compiled_entropy(logits)
    return cross_entropy_kernel(logits, False).mean() - entropy.mean()


def value(hidden: torch.Tensor, head: nn.Linear) -> torch.Tensor:
    """Return a critic's loss: one number per token, without a vocabulary."""
    return head(hidden).squeeze(0).squeeze(-1).float().mean()


#: The losses by their names in cases.
LOSSES: dict[str, Callable[[torch.Tensor, nn.Linear], torch.Tensor]] = {
    "fused-linear": fused_linear,
    "cross-entropy": cross_entropy,
    "log-prob": log_prob,
    "log-prob-entropy": log_prob_entropy,
    "value": value,
}
