"""Plain training without a rollout engine: evidence for the formulas that runs of verl share with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.estimator.allocations import Kind, allocate, of_constant, size_of
from sphinx_verl_resources.estimator.architectures import TRAINING
from sphinx_verl_resources.estimator.backtest import score, score_of
from sphinx_verl_resources.estimator.constants import COMMUNICATOR, LOGITS_TORCH_LOSS, Constant
from sphinx_verl_resources.estimator.peak import FixedEstimate, widening_of
from sphinx_verl_resources.estimator.phases import CUDA_CONTEXT, phase_of
from sphinx_verl_resources.estimator.recorded import estimate_case
from sphinx_verl_resources.estimator.registries import capacity_of
from sphinx_verl_resources.estimator.request import DATA_TYPES, error_at
from sphinx_verl_resources.estimator.shape import adapter_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx_verl_resources.diagnostics import Diagnostic
    from sphinx_verl_resources.estimator.allocations import Allocations
    from sphinx_verl_resources.estimator.backtest import Score
    from sphinx_verl_resources.estimator.case_records import Case, Training
    from sphinx_verl_resources.estimator.peak import AnyEstimate
    from sphinx_verl_resources.estimator.phases import Phase
    from sphinx_verl_resources.estimator.registries import Registries
    from sphinx_verl_resources.estimator.shape import Shape, Targets

_PER_LOGIT, _PER_HIDDEN = "bytes per token and vocabulary entry", "bytes per token and hidden unit"
_LOSSES = {
    "fused": Constant(
        "logits, fused cross-entropy in fp32", 8, 8, 8.3, _PER_LOGIT, "measured",
        "slopes of fms-a100_80gb_liger-L10/-L11, -L42/-L43, -L66/-L67, -L74/-L75",
    ),
    "chunked": Constant(
        "logits, loss over chunks", 4, 4, 4, _PER_LOGIT, "assumed",
        "counted: the logits of all chunks in 16 bits, and their gradients",
    ),
}  # fmt: skip
LOSS_HIDDEN = Constant(
    "last hidden states at the loss, fused norm", 4, 4, 8, _PER_HIDDEN, "measured",
    "slopes of the same rows as for the fused cross-entropy",
)  # fmt: skip
LORA_INPUTS = Constant(
    "fused kernels of adapters in fp32, working set", 1.94, 1.91, 1.97, "times", "measured",
    "fms-a100_80gb_liger-L46…L48, -L78…L80, -L142…L144, -L174…L176",
)  # fmt: skip
COMPILED = Constant(
    "saved tensors of compiled or fused layers", 0.69, 0.69, 1, "times", "measured",
    "torchtune-3.2-3B-280 to -283",
)  # fmt: skip


def estimate_any(case: Case, registries: Registries) -> AnyEstimate:
    """Estimate a case of verl or of plain training.

    Raises:
        NoAnswerError: its settings cannot be estimated.
    """
    if case.training is None or case.config is not None:
        return estimate_case(case, registries)
    if problems := tuple(_problems(case.training)):
        raise NoAnswerError(*problems)
    shape = registries.known_shape(case.model, "add it to architectures.yaml")
    phases = training_phases(shape, case.training, case.gpus.count or 1)
    gpu = registries.gpus.get(case.gpus.type or "")
    capacity = capacity_of(gpu) if gpu else None
    return FixedEstimate(shape, phases, TRAINING, widening_of(TRAINING, registries), capacity)


def score_any(case: Case, registries: Registries) -> Score:
    """Compare the estimate of a case of verl or of plain training with the observed value."""
    if case.config is None:
        return score_of(case, estimate_any(case, registries), "counter")
    return score(case, registries)


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
    resident: Allocations = (allocate(Kind.WEIGHTS, "exact", trained, size, shard),)
    head = _in_16_bits(Kind.HEAD_GRADIENT, "parameters of the head", shape.head)
    if adapters and targets:
        trained = {"adapters": adapter_parameters(shape, adapters.rank, targets)}
        size = 4 if run.autocast else size  # autocast keeps adapters in fp32
        resident += (allocate(Kind.ADAPTERS, "exact", trained, size, shard),)
        head = ()
    moments = 2.0 if "8bit" in optimizer else 2.0 * size
    resident += (allocate(Kind.OPTIMIZER_STATES, "exact", trained, moments, shard),)
    gradients: Allocations = (allocate(Kind.GRADIENTS, "exact", trained, size, shard),)
    step = gradients
    if "foreach" in optimizer:
        step += (allocate(Kind.STEP_BUFFER, "exact", trained, size, shard),)
    root: Allocations = ()
    layer: Allocations = ()
    if shard > 1:
        root = _in_16_bits(Kind.GATHERED_ROOT, "parameters outside layers", shape.counts.root)
        layer = _in_16_bits(Kind.GATHERED_LAYER, "parameters of a layer", shape.counts.largest_layer)
    saved, remaining, working = _activations(shape, run, tokens, targets)
    # Saved activations are freed while gradients appear.
    halfway = max(remaining, gradients, key=size_of)
    of_layers = root + layer + head + halfway + working
    at_the_end: Allocations = gradients
    if root and head:  # the root's gradient is sharded last, see ``sharding``
        each = 6 if size == 4 else 6 + 4 / shard
        of_root = {"parameters outside layers": shape.counts.root}
        at_the_end += (allocate(Kind.ROOT_GRADIENT, "exact", of_root, each),)
    trainer = {
        "update-forward": root + saved + _loss(shape, run.loss or "torch", tokens),
        "update-backward": max(of_layers, at_the_end, key=size_of),
        "optimizer-step": step,
    }
    overhead: Allocations = (CUDA_CONTEXT,)
    if gpus > 1:
        overhead += (of_constant(Kind.COMMUNICATORS, COMMUNICATOR, {"groups": 2}),)
    return tuple(phase_of(name, resident + own, "asleep", (), overhead) for name, own in trainer.items())


def _in_16_bits(kind: Kind, symbol: str, count: float) -> Allocations:
    """Return unsharded parameters or gradients in 16 bits."""
    return (allocate(kind, "measured", {symbol: count}, 2),)


def _activations(
    shape: Shape, run: Training, tokens: float, targets: Targets | None
) -> tuple[Allocations, Allocations, Allocations]:
    """Return saved activations, those left during the last layer's backward pass, and that layer's own."""
    kernels = run.kernels or ""
    fused = any(word in kernels for word in ("liger", "foak", "fast"))
    working, saved = shape.backward(None if fused else targets)
    if targets and run.autocast and fused:
        working *= LORA_INPUTS.value
    elif fused and not targets:  # fused norms keep no copies in fp32
        working, saved = working - 8 * shape.hidden, saved - 8 * shape.hidden
    if "compile" in kernels:
        saved *= COMPILED.value
    variables = {"tokens": tokens, "bytes of a layer": max(working, saved)}
    at_work = (allocate(Kind.WORKING_SET, shape.evidence, variables, spread=shape.spread),)
    if (run.recompute or "full") == "full":
        variables = {"tokens": tokens, "hidden size": shape.hidden, "layers": shape.layers}
        inputs = (allocate(Kind.LAYER_INPUTS, "exact", variables, 2),)
        return inputs, inputs, at_work

    def of_layers(count: int) -> Allocations:
        variables = {"tokens": tokens, "bytes a layer keeps": saved, "layers": count}
        return (allocate(Kind.ACTIVATIONS, shape.evidence, variables, spread=shape.spread),)

    return of_layers(shape.layers), of_layers(shape.layers - 1), at_work


def _loss(shape: Shape, loss: str, tokens: float) -> Allocations:
    """Return logits and their copies at the loss; Liger's fused output layer never stores them."""
    if loss == "liger":
        return ()
    logits = _LOSSES.get(loss, LOGITS_TORCH_LOSS)
    return (
        of_constant(Kind.LOGITS, logits, {"tokens": tokens, "vocabulary": shape.vocabulary}),
        of_constant(Kind.LAST_HIDDEN, LOSS_HIDDEN, {"tokens": tokens, "hidden size": shape.hidden}),
    )
