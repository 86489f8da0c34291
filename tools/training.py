"""Plain training without a rollout engine: evidence for the formulas that runs of verl share with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_records import Training

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.memory.allocations import (
    COMMUNICATORS,
    CONTEXT,
    FRAGMENTATION,
    Kind,
    allocate,
    fixed,
    size_of,
)
from sphinx_verl_resources.memory.estimate import AnyEstimate, errors_of
from sphinx_verl_resources.memory.phases import Phase
from sphinx_verl_resources.memory.reader import DATA_TYPES
from sphinx_verl_resources.memory.recorded import estimate_case, score
from sphinx_verl_resources.memory.registries import TRAINING, capacity_of
from sphinx_verl_resources.memory.request import error_at
from sphinx_verl_resources.memory.shape import adapter_parameters
from sphinx_verl_resources.validation import try_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx_verl_resources.diagnostics import Diagnostic
    from sphinx_verl_resources.memory.allocations import Allocations
    from sphinx_verl_resources.memory.cases import Case
    from sphinx_verl_resources.memory.recorded import Score
    from sphinx_verl_resources.memory.registries import EstimatorContext
    from sphinx_verl_resources.memory.shape import Shape, Targets

#: Bytes per token and vocabulary entry. torch: counted: fp32 copy, shifted copy and softmax. fused: slopes of
#: fms-a100_80gb_liger-L10/-L11, -L42/-L43, -L66/-L67, -L74/-L75. chunked: counted: the logits of all chunks
#: in 16 bits, and their gradients.
LOSSES = {"torch": 12.0, "fused": 8.0, "chunked": 4.0}
#: Saved tensors of compiled layers, relative to others: torchtune-3.2-3B-280 to -283.
COMPILED = 0.69


def estimate_any(case: Case, registries: EstimatorContext) -> AnyEstimate:
    """Estimate a case of verl or of plain training.

    Raises:
        NoAnswerError: its settings cannot be estimated.
    """
    if case.training is None or case.config is not None:
        return estimate_case(case, registries)
    run, errors = try_model(dict(case.training), Training)
    keys = (".".join(("training", *map(str, error["loc"]))) for error in errors)
    problems = [error_at(key, error["msg"], "correct it") for key, error in zip(keys, errors, strict=True)]
    if run is None or (problems := [*_problems(run)]):
        raise NoAnswerError(*problems)
    shape = registries.known_shape(case.model)
    phases = training_phases(shape, run, case.gpus.count or 1)
    gpu = registries.gpus.get(case.gpus.type or "")
    capacity = capacity_of(gpu) if gpu else None
    errors = errors_of(TRAINING, registries)
    return AnyEstimate(phases=phases, kind=TRAINING, errors=errors, capacity=capacity)


def score_any(case: Case, registries: EstimatorContext) -> Score:
    """Compare the estimate of a case of verl or of plain training with the observed value."""
    return score(case, registries, estimate_any)


def _problems(run: Training) -> Iterator[Diagnostic]:
    """Yield missing numbers, and an unknown data type."""
    for name in ("micro_batch_per_gpu", "sequence_length"):
        if not getattr(run, name):
            yield error_at(f"training.{name}", f"{name} is required", "give a number", "missing_key")
    if run.parameter_dtype and run.parameter_dtype not in DATA_TYPES:
        message, remedy = f"unknown data type {run.parameter_dtype[:80]!r}", "write float32 or bfloat16"
        yield error_at("training.parameter_dtype", message, remedy, "unknown_value")


def training_phases(shape: Shape, run: Training, gpus: int) -> tuple[Phase, ...]:
    """Return the phases: loss, backward pass and optimizer step."""
    size, optimizer = DATA_TYPES[run.parameter_dtype or "bfloat16"], run.optimizer or "adamw-foreach"
    shard = max(1, (run.sharding.fsdp if run.sharding else None) or gpus)
    tokens = float((run.micro_batch_per_gpu or 1) * (run.sequence_length or 1))
    adapters = run.lora if run.lora and (run.method or "").lower() != "full" else None
    targets: Targets | None = (adapters.targets or "all-linear") if adapters else None
    trained: dict[str, float] = {"parameters": shape.parameters}
    resident = _one(Kind.WEIGHTS, trained, size, shard)
    head = _one(Kind.ROOT_GRADIENT, {"parameters of the head": shape.head}, 2)
    if adapters and targets:
        trained = {"adapters": adapter_parameters(shape, adapters.rank, targets)}
        size = 4 if run.autocast else size  # autocast keeps adapters in fp32
        resident += _one(Kind.WEIGHTS, trained, size, shard)
        head = ()
    resident += _one(Kind.OPTIMIZER, trained, 2.0 if "8bit" in optimizer else 2.0 * size, shard)
    gradients = _one(Kind.GRADIENTS, trained, size, shard)
    step = gradients + (_one(Kind.STEP_BUFFER, trained, size, shard) if "foreach" in optimizer else ())
    root: Allocations = ()
    layer: Allocations = ()
    if shard > 1:
        root = _one(Kind.GATHERED_ROOT, {"parameters outside layers": shape.counts.root}, 2)
        layer = _one(Kind.GATHERED_LAYERS, {"parameters of a layer": shape.counts.largest_layer}, 2)
    saved, remaining, working = _activations(shape, run, tokens, targets, reentrant=shard > 1)
    # Saved activations are freed while gradients appear.
    of_layers = root + layer + head + max(remaining, gradients, key=size_of) + working
    at_the_end = gradients
    if root and head:  # the root's gradient is sharded last
        each = 6 if size == 4 else 6 + 4 / shard
        at_the_end += _one(Kind.ROOT_GRADIENT, {"parameters outside layers": shape.counts.root}, each)
    trainer = {
        "update-forward": root + saved + _loss(shape, run.loss or "torch", tokens),
        "update-backward": max(of_layers, at_the_end, key=size_of),
        "optimizer-step": step,
    }
    overhead = fixed(Kind.OVERHEAD, CONTEXT, *([COMMUNICATORS] if gpus > 1 else []))
    return tuple(Phase.of(name, resident + own, overhead, FRAGMENTATION) for name, own in trainer.items())


def _one(kind: Kind, variables: dict[str, float], each: float | None, sharers: int = 1) -> Allocations:
    return (allocate(kind, variables, each, sharers, evidence="measured"),)


def _activations(
    shape: Shape, run: Training, tokens: float, targets: Targets | None, *, reentrant: bool
) -> tuple[Allocations, Allocations, Allocations]:
    """Return saved activations, those left during the last layer's backward pass, and that layer's own.

    With a frozen base, reentrant checkpointing under FSDP keeps 2 × hidden bytes per token for each layer but
    two in the backward pass: traced with torch 2.4.1 in a process group of several ranks; not with
    ``use_reentrant=False``, as verl has it, not on one GPU, and not with torch 2.15.
    """
    kernels = run.kernels or ""
    fused = any(word in kernels for word in ("liger", "foak", "fast"))
    working, saved = shape.backward(None if fused else targets)
    if fused and not targets:  # fused norms keep no copies in fp32
        working, saved = working - 8 * shape.hidden, saved - 8 * shape.hidden
    if "compile" in kernels:
        saved *= COMPILED
    recomputes = (run.recompute or "full") == "full"
    width = max(working, saved)
    if targets and recomputes and reentrant:
        width += 2 * shape.hidden * (shape.layers - 2)
    at_work = _one(Kind.WORKING_SET, {"tokens": tokens, "bytes of a layer": width}, None)
    if recomputes:
        inputs = _one(
            Kind.LAYER_INPUTS, {"tokens": tokens, "hidden size": shape.hidden, "layers": shape.layers}, 2
        )
        return inputs, inputs, at_work

    def of_layers(count: int) -> Allocations:
        return _one(Kind.ACTIVATIONS, {"tokens": tokens, "bytes a layer keeps": saved, "layers": count}, None)

    return of_layers(shape.layers), of_layers(shape.layers - 1), at_work


def _loss(shape: Shape, loss: str, tokens: float) -> Allocations:
    """Return logits and their copies at the loss; Liger's fused output layer never stores them."""
    if loss == "liger":
        return ()
    each = LOSSES.get(loss, LOSSES["torch"])
    return _one(Kind.LOGITS, {"tokens": tokens, "vocabulary": shape.vocabulary}, each) + _one(
        Kind.ACTIVATIONS, {"tokens": tokens, "hidden size": shape.hidden}, 4
    )
