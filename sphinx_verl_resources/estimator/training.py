"""Plain fine-tuning without a rollout engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import kinds
from .allocations import allocate, fixed, per_token, sharded, size_of
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
from .peaks import TRAINING, AnyEstimate, range_of
from .phases import phase_of
from .registries import capacity_of

if TYPE_CHECKING:
    from .allocations import Allocations
    from .kinds import Kind
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
class TrainingEstimate(AnyEstimate):
    """The memory of a fine-tuning run. Sizes are bytes per GPU."""

    shape: Shape
    phases: tuple[Phase, ...]
    range: Range
    capacity: float | None


def estimate_training(training: Training, registries: Registries) -> TrainingEstimate:
    """Estimate the memory of a fine-tuning run.

    Raises:
        NoAnswerError: the model is not known.

    >>> from sphinx_verl_resources.cli.data import load_registries
    >>> run = Training("mistralai/Mistral-7B-v0.1", 0, (), 2, False, "adamw-foreach", 1, 16384, True, "liger")
    >>> round(estimate_training(run, load_registries([])).torch_peak / 2**30, 1)  # parameters × 10 bytes
    67.4
    """
    shape = registries.known_shape(training.model, "add it to architectures.yaml")
    gpu = registries.gpus.get(training.gpu) if training.gpu else None
    capacity = capacity_of(gpu) if gpu else None
    return TrainingEstimate(shape, training_phases(shape, training), range_of(TRAINING, registries), capacity)


def training_phases(shape: Shape, training: Training) -> tuple[Phase, ...]:
    """Return the phases: loss, backward pass and optimizer step."""
    shard, adapters = training.shard, bool(training.lora_rank)
    trained, trained_bytes, symbol = shape.parameters, training.parameter_bytes, "parameters"
    resident: Allocations = (sharded(kinds.WEIGHTS.actor, shape.parameters, training.parameter_bytes, shard),)
    head = _parameters(kinds.HEAD_GRADIENT.actor, "parameters of the head", shape.head)
    if adapters:
        trained, symbol = (
            lora_parameters(shape.architecture, training.lora_rank, training.targets),
            "adapters",
        )
        trained_bytes = 4 if training.autocast else training.parameter_bytes
        resident += (sharded(kinds.ADAPTERS, trained, trained_bytes, shard, symbol),)
        head = ()
    moment_bytes = 2.0 if "8bit" in training.optimizer else 2.0 * trained_bytes
    resident += (sharded(kinds.OPTIMIZER_STATES.actor, trained, moment_bytes, shard, symbol),)
    step: Allocations = (sharded(kinds.GRADIENTS.actor, trained, trained_bytes, shard, symbol),)
    root: Allocations = ()
    layer: Allocations = ()
    if shard > 1:
        root = _parameters(kinds.GATHERED_ROOT.actor, "parameters outside layers", shape.root)
        layer = _parameters(kinds.GATHERED_LAYER.actor, "parameters of a layer", shape.unit)
    saved, remaining, working = _activations(shape, training)
    # Saved activations go while the gradients come.
    halfway = max(remaining, step, key=size_of)
    if "foreach" in training.optimizer:
        step += (sharded(kinds.STEP_BUFFER.actor, trained, trained_bytes, shard, symbol),)
    trainer = {
        "update-forward": root + saved + _loss(shape, training),
        "update-backward": root + layer + head + halfway + working,
        "optimizer-step": step,
    }
    overhead: Allocations = (fixed(kinds.CUDA_CONTEXT, "measured", CONTEXT.value, "context"),)
    if training.gpus > 1:
        overhead += (fixed(kinds.COMMUNICATORS, "measured", COMMUNICATOR.value, "buffers"),)
    return tuple(phase_of(name, resident + own, "asleep", (), overhead) for name, own in trainer.items())


def _parameters(kind: Kind, symbol: str, count: int) -> Allocations:
    """Return undivided parameters or gradients in 16 bits."""
    return (allocate(kind, "measured", ((symbol, float(count)),), 2),)


def _activations(shape: Shape, training: Training) -> tuple[Allocations, Allocations, Allocations]:
    """Return saved activations, those that remain while the last layer is at work, and that layer's."""
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
        inputs = (allocate(kinds.LAYER_INPUTS.actor, "exact", variables, 2),)
        return inputs, inputs, (at_work,)

    def of_layers(count: float) -> Allocations:
        variables = (("tokens", tokens), ("bytes a layer keeps", saved), ("layers", count))
        return (allocate(kinds.ACTIVATIONS.actor, "exact", variables, unit=""),)

    return of_layers(layers), of_layers(layers - 1), (at_work,)


def _loss(shape: Shape, training: Training) -> Allocations:
    """Return logits and copies of the loss; a fused linear cross-entropy never stores them."""
    if training.loss == "liger":
        return ()
    tokens, logits = training.tokens, _LOSSES.get(training.loss, LOGITS_TORCH_LOSS)
    return (
        per_token(kinds.LOGITS, logits.evidence, tokens, shape.vocabulary, "vocabulary", logits.value),
        per_token(kinds.LAST_HIDDEN, "measured", tokens, shape.hidden, "hidden size", LOSS_HIDDEN.value),
    )
