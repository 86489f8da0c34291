"""The bytes per token and vocabulary entry after the last hidden states, in each pass of each engine of verl.

The operations are verl's, in its order, rewritten (`prepare_model_outputs` of the FSDP engine,
`_lm_head_logits_processor` of the Megatron engine). GPU kernels are imitated by their allocations, see ``losses.py``.
"""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from live_bytes import LiveBytes
from losses import (
    chunked_entropy,
    chunked_linear,
    compiled_entropy,
    cross_entropy_kernel,
    eager_entropy,
    log_probs_by_row,
    parallel_cross_entropy,
    parallel_entropy,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

VOCABULARY, HIDDEN, CHUNK = 2**20, 8, 64
ENTROPIES = {
    "none": None,
    "compiled": compiled_entropy,
    "eager": eager_entropy,
    "chunked": chunked_entropy,
}


@dataclasses.dataclass(frozen=True)
class Logits:
    """One way from the last hidden states to the loss.

    Args:
        engine: "v0.8" (logits divided by the temperature in place) or "v0.9" (out of place, and the entropy comes before
            the log-probabilities) for FSDP, "fused" for its fused kernel, or "megatron".
        entropy: a name in ``ENTROPIES``.
        recomputed: True if the entropy is recomputed in the backward pass.
        by_row: True if log-probabilities are computed row by row, as without flash-attn.
        gradients: False for old and reference log-probabilities.
    """

    engine: str
    entropy: str = "none"
    recomputed: bool = False
    by_row: bool = False
    gradients: bool = True


def cases() -> Iterator[Logits]:
    """Yield every combination that verl supports."""
    for engine, entropy, gradients in product(("v0.8", "v0.9"), ENTROPIES, (False, True)):
        yield Logits(engine, entropy, gradients=gradients)
    for engine, entropy in product(("v0.8", "v0.9"), ("compiled", "eager", "chunked")):
        yield Logits(engine, entropy, recomputed=True)
    for engine, gradients in product(("v0.8", "v0.9"), (False, True)):
        yield Logits(engine, by_row=True, gradients=gradients)
    for engine, entropy, gradients in product(("fused", "megatron"), ("none", "compiled"), (False, True)):
        yield Logits(engine, entropy, gradients=gradients)
    # Megatron's chunks do not work with gradients: saved chunks are changed in place.
    yield Logits("megatron", "chunked", gradients=False)


class Output:
    """The output of a model, which keeps the logits alive."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits


def fsdp(case: Logits, output: Output) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return log-probabilities and entropy as in the FSDP engine."""
    rows = output.logits.squeeze(0)
    temperature = rows.new_empty(rows.shape[0], 1)
    if case.engine == "v0.9":
        rows = rows / temperature
    else:
        rows.div_(temperature)
    entropy = None
    if case.engine == "v0.9":
        entropy = entropy_of(case, rows)
    log_probs = log_probs_by_row(rows) if case.by_row else cross_entropy_kernel(rows, case.entropy == "none")
    if case.engine == "v0.8":
        entropy = entropy_of(case, rows)
    return log_probs, entropy


def entropy_of(case: Logits, rows: torch.Tensor) -> torch.Tensor | None:
    """Return the entropy, recomputed or not."""
    function = ENTROPIES[case.entropy]
    if function is None:
        return None
    arguments = (rows, CHUNK) if case.entropy == "chunked" else (rows,)
    return checkpoint(function, *arguments, use_reentrant=True) if case.recomputed else function(*arguments)


def megatron(case: Logits, output: Output) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return log-probabilities and entropy of fp32 logits as in the Megatron engine."""
    logits, entropy = output.logits, None
    logits.div_(logits.new_empty(*logits.shape[:2], 1))
    before = logits
    if case.entropy != "none":
        before = logits.clone()
        step = CHUNK if case.entropy == "chunked" else logits.shape[1]
        entropy = torch.zeros(logits.shape[:2])
        for i in range(0, logits.shape[1], step):
            entropy[:, i : i + step] = parallel_entropy(logits[:, i : i + step, :])
    return parallel_cross_entropy(before), entropy


def forward(case: Logits, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute the loss from the last hidden states."""
    if case.engine == "fused":
        log_probs, entropy = chunked_linear(hidden.squeeze(0), weight, CHUNK)
    elif case.engine == "megatron":
        log_probs, entropy = megatron(case, Output(functional.linear(hidden, weight).float()))
    else:
        log_probs, entropy = fsdp(case, Output(functional.linear(hidden, weight)))
    return (
        log_probs.mean() if entropy is None or case.entropy == "none" else log_probs.mean() - entropy.mean()
    )


def peaks(case: Logits, tokens: int) -> dict[str, int]:
    """Return the largest number of bytes in the forward and in the backward pass of the loss."""
    with FakeTensorMode():
        hidden = torch.empty(1, tokens, HIDDEN, dtype=torch.bfloat16, requires_grad=case.gradients)
        weight = torch.empty(
            VOCABULARY, HIDDEN, dtype=torch.bfloat16, requires_grad=case.engine == "fused" and case.gradients
        )
        live = LiveBytes()
        live.track(weight, "parameters")
        live.phase = "forward"
        with live, torch.set_grad_enabled(case.gradients):
            loss = forward(case, hidden, weight)
            if case.gradients:
                live.phase = "backward"
                live.gradient_shapes = {(VOCABULARY, HIDDEN)}
                loss.backward()
    return {phase: live.largest[phase, "activations"] for phase in live.peaks}


def trace_logits(case: Logits) -> dict[str, Any]:
    """Return the record of a case: bytes per token and vocabulary entry, for all tokens and for those of a chunk."""
    few, many = (peaks(case, tokens) for tokens in (4 * CHUNK, 8 * CHUNK))
    record: dict[str, Any] = dataclasses.asdict(case)
    for phase in few:
        slope = (many[phase] - few[phase]) / (4 * CHUNK)
        record[phase] = round(slope / VOCABULARY, 2)
        record[f"{phase}_chunk"] = round((few[phase] - 4 * CHUNK * slope) / CHUNK / VOCABULARY, 2)
    return record
