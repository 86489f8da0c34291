"""Plain fine-tuning without a rollout engine: the training part of the model alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..diagnostics import Code, NoAnswerError, suggest_or
from . import kinds
from .allocations import allocate, fixed, per_token, sharded
from .constants import (
    COMMUNICATOR,
    COMPILED,
    CONTEXT,
    LOGITS_CHUNKED_LOSS,
    LOGITS_FUSED_LOSS,
    LOGITS_TORCH_LOSS,
    LORA_INPUTS,
    LOSS_HIDDEN,
)
from .parameters import lora_parameters
from .peaks import TRAINING, Peaks, range_of
from .phases import phase_of
from .registries import capacity_of
from .request import error_at

if TYPE_CHECKING:
    from .allocations import Allocation, Allocations
    from .parameters import Targets
    from .peaks import Range
    from .phases import Phase
    from .registries import Registries
    from .shape import Shape


_LOSSES = {"fused": LOGITS_FUSED_LOSS, "chunked": LOGITS_CHUNKED_LOSS}


@dataclass(frozen=True)
class Training:
    """Settings of a fine-tuning run, as the case files have them.

    Attributes:
        model: Hugging Face name of the checkpoint.
        lora_rank: 0 for full fine-tuning.
        parameter_bytes: per stored parameter of the model.
        autocast: compute runs under bf16 autocast; adapters are then kept in fp32.
        optimizer: ``adamw-foreach``, ``adamw-fused``, ``adamw-8bit``.
        shard: GPUs that one copy of the states is divided among.
        tokens: of one micro-batch on one GPU.
        recompute: every layer is recomputed in the backward pass.
        loss: ``torch``, ``fused`` or ``liger``.
        kernels: fused kernels and compilation, in words.
    """

    model: str
    lora_rank: int
    targets: Targets
    parameter_bytes: int
    autocast: bool
    optimizer: str
    shard: int
    tokens: float
    recompute: bool
    loss: str
    kernels: str = ""
    gpus: int = 1
    gpu: str | None = None
    memory_gb: float | None = None


@dataclass(frozen=True)
class TrainingEstimate(Peaks):
    """What a fine-tuning run takes. All sizes are bytes per GPU."""

    shape: Shape
    phases: tuple[Phase, ...]
    range: Range
    capacity: float | None


def estimate_training(training: Training, registries: Registries) -> TrainingEstimate:
    """The memory of a fine-tuning run.

    Raises:
        NoAnswerError: the model is not known.

    >>> from sphinx_verl_resources.cli.data import load_registries
    >>> run = Training("mistralai/Mistral-7B-v0.1", 0, (), 2, False, "adamw-foreach", 1, 16384, True, "liger")
    >>> round(estimate_training(run, load_registries([])).torch_peak / 2**30, 1)  # parameters × 10 bytes
    67.4
    """
    shape = registries.shape(training.model)
    if shape is None:
        hint = suggest_or(training.model, registries.architectures.names, "add it to architectures.yaml")
        message = f"no architecture is recorded for {training.model[:200]!r}"
        raise NoAnswerError(error_at("model", message, hint, Code.unknown_model))
    gpu = registries.gpus.get(training.gpu) if training.gpu else None
    capacity = capacity_of(gpu) if gpu else None
    return TrainingEstimate(shape, training_phases(shape, training), range_of(TRAINING, registries), capacity)


def training_phases(shape: Shape, training: Training) -> tuple[Phase, ...]:
    """Loss, backward pass and optimizer step."""
    lora, shard = bool(training.lora_rank), training.shard
    trained = shape.parameters
    trained_bytes = training.parameter_bytes
    resident: Allocations = (sharded(kinds.WEIGHTS.actor, shape.parameters, training.parameter_bytes, shard),)
    if lora:
        trained = lora_parameters(shape.architecture, training.lora_rank, training.targets)
        trained_bytes = 4 if training.autocast else training.parameter_bytes
        resident += (sharded(kinds.ADAPTERS, trained, trained_bytes, shard, "adapters"),)
    symbol = "adapters" if lora else "parameters"
    moments = 2.0 if "8bit" in training.optimizer else 2.0 * trained_bytes
    resident += (sharded(kinds.OPTIMIZER_STATES.actor, trained, moments, shard, symbol),)
    gradients = sharded(kinds.GRADIENTS.actor, trained, trained_bytes, shard, symbol)
    root: Allocations = ()
    layer: Allocations = ()
    if shard > 1:
        outside_layers = (("parameters outside layers", float(shape.root)),)
        root = (allocate(kinds.GATHERED_ROOT.actor, "measured", outside_layers, 2),)
        one = (("parameters of a layer", float(shape.unit)),)
        layer = (allocate(kinds.GATHERED_LAYER.actor, "measured", one, 2),)
    head: Allocations = ()
    if not lora:
        count = (("parameters of the head", float(shape.head)),)
        head = (allocate(kinds.HEAD_GRADIENT.actor, "measured", count, 2),)
    kept, remaining_activations, working = _activations(shape, training)
    start_or_end = max(remaining_activations, gradients, key=lambda component: component.size)
    moments_of = [
        ("update-forward", (*resident, *root, kept, *_loss(shape, training))),
        ("update-backward", (*resident, *root, *layer, *head, start_or_end, working)),
        ("optimizer-step", (*resident, gradients, *_step(training, trained, trained_bytes, symbol))),
    ]
    runtime_overhead = _beside(training)
    return tuple(phase_of(name, trainer, "asleep", (), runtime_overhead) for name, trainer in moments_of)


def _activations(shape: Shape, training: Training) -> tuple[Allocation, Allocation, Allocation]:
    """What the forward pass keeps, what of it is behind the last layer at work, and that layer."""
    tokens, layers = training.tokens, float(shape.layers)
    fused = any(word in training.kernels for word in ("liger", "foak", "fast"))
    working, saved = shape.working, shape.saved
    if training.lora_rank and training.autocast and fused:
        working *= LORA_INPUTS.value
    elif training.lora_rank and not fused:
        working, saved = shape.adapted(training.targets)
    elif fused and not training.lora_rank:  # fused norms keep no copies in fp32
        working, saved = working - 8 * shape.hidden, saved - 8 * shape.hidden
    if "compile" in training.kernels:
        saved *= COMPILED.value
    at_work = per_token(kinds.WORKING_SET.actor, "exact", tokens, max(working, saved), "bytes of a layer")
    if training.recompute:
        variables = (("tokens", tokens), ("hidden size", float(shape.hidden)), ("layers", layers))
        kept = allocate(kinds.LAYER_INPUTS.actor, "exact", variables, 2)
        return kept, kept, at_work
    kept, remaining_activations = (
        allocate(
            kinds.ACTIVATIONS.actor,
            "exact",
            (("tokens", tokens), ("bytes a layer keeps", saved), ("layers", count)),
            unit="",
        )
        for count in (layers, layers - 1)
    )
    return kept, remaining_activations, at_work


def _loss(shape: Shape, training: Training) -> Allocations:
    """Logits and what the loss makes of them; a fused linear cross-entropy never stores them."""
    if training.loss == "liger":
        return ()
    constant = _LOSSES.get(training.loss, LOGITS_TORCH_LOSS)
    return (
        per_token(
            kinds.LOGITS,
            constant.evidence,
            training.tokens,
            shape.vocabulary,
            "vocabulary",
            constant.value,
        ),
        per_token(
            kinds.LAST_HIDDEN,
            "measured",
            training.tokens,
            shape.hidden,
            "hidden size",
            LOSS_HIDDEN.value,
        ),
    )


def _step(training: Training, trained: float, size: float, symbol: str) -> Allocations:
    if "foreach" not in training.optimizer:
        return ()
    return (sharded(kinds.STEP_BUFFER.actor, trained, size, training.shard, symbol),)


def _beside(training: Training) -> Allocations:
    found = [fixed(kinds.CUDA_CONTEXT, "measured", CONTEXT.value, "context")]
    if training.gpus > 1:
        found.append(fixed(kinds.COMMUNICATORS, "measured", COMMUNICATOR.value, "buffers"))
    return tuple(found)
