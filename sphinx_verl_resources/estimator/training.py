"""Plain fine-tuning without a rollout engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..catalog.names import TRAINING
from .allocations import Kind, allocate, of_constant, size_of
from .constants import (
    COMMUNICATOR,
    COMPILED,
    LOGITS_CHUNKED_LOSS,
    LOGITS_FUSED_LOSS,
    LOGITS_TORCH_LOSS,
    LORA_INPUTS,
    LOSS_HIDDEN,
)
from .peak import FixedEstimate, widening_of
from .phases import CUDA_CONTEXT, phase_of
from .registries import capacity_of
from .shape import adapter_parameters

if TYPE_CHECKING:
    from .allocations import Allocations
    from .lora import Targets
    from .phases import Phase
    from .registries import Registries
    from .shape import Shape

_LOSSES = {"fused": LOGITS_FUSED_LOSS, "chunked": LOGITS_CHUNKED_LOSS}


@dataclass(frozen=True)
class Training:
    """The settings of a fine-tuning run, as in case files.

    Attributes:
        model: the Hugging Face name of the checkpoint.
        lora_rank: the rank of the adapters; 0 for full fine-tuning.
        parameter_bytes: bytes per stored parameter of the model.
        autocast: whether it computes under bf16 autocast, which keeps adapters in fp32.
        optimizer: ``adamw-foreach``, ``adamw-fused`` or ``adamw-8bit``.
        shard: the number of GPUs that share one copy of the states.
        tokens: the tokens of one micro-batch on one GPU.
        recompute: whether every layer is recomputed in the backward pass.
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


def estimate_training(training: Training, registries: Registries) -> FixedEstimate:
    """Estimate the memory of a fine-tuning run.

    Raises:
        NoAnswerError: the model is unknown.

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> run = Training("mistralai/Mistral-7B-v0.1", 0, (), 2, False, "adamw-foreach", 1, 16384, True, "liger")
    >>> round(estimate_training(run, read_data([]).registries).torch_peak / 2**30, 1)  # parameters × 10 bytes
    67.4
    """
    shape = registries.known_shape(training.model, "add it to architectures.yaml")
    gpu = registries.gpus.get(training.gpu) if training.gpu else None
    capacity = capacity_of(gpu) if gpu else None
    widening = widening_of(TRAINING, registries)
    return FixedEstimate(shape, training_phases(shape, training), TRAINING, widening, capacity)


def training_phases(shape: Shape, training: Training) -> tuple[Phase, ...]:
    """Return the phases: loss, backward pass and optimizer step."""
    size, shard = training.parameter_bytes, training.shard
    trained: dict[str, float] = {"parameters": shape.parameters}
    resident: Allocations = (allocate(Kind.WEIGHTS, "exact", trained, size, shard),)
    head = _in_16_bits(Kind.HEAD_GRADIENT, "parameters of the head", shape.head)
    if training.lora_rank:
        trained = {"adapters": adapter_parameters(shape, training.lora_rank, training.targets)}
        size = 4 if training.autocast else size
        resident += (allocate(Kind.ADAPTERS, "exact", trained, size, shard),)
        head = ()
    moments = 2.0 if "8bit" in training.optimizer else 2.0 * size
    resident += (allocate(Kind.OPTIMIZER_STATES, "exact", trained, moments, shard),)
    gradients: Allocations = (allocate(Kind.GRADIENTS, "exact", trained, size, shard),)
    step = gradients
    if "foreach" in training.optimizer:
        step += (allocate(Kind.STEP_BUFFER, "exact", trained, size, shard),)
    root: Allocations = ()
    layer: Allocations = ()
    if shard > 1:
        root = _in_16_bits(Kind.GATHERED_ROOT, "parameters outside layers", shape.counts.root)
        layer = _in_16_bits(Kind.GATHERED_LAYER, "parameters of a layer", shape.counts.largest_layer)
    saved, remaining, working = _activations(shape, training)
    # Saved activations are freed while gradients appear.
    halfway = max(remaining, gradients, key=size_of)
    of_layers = root + layer + head + halfway + working
    at_the_end: Allocations = gradients
    if root and head:  # the root's gradient is sharded last, see ``sharding``
        each = 6 if size == 4 else 6 + 4 / shard
        of_root = {"parameters outside layers": shape.counts.root}
        at_the_end += (allocate(Kind.ROOT_GRADIENT, "exact", of_root, each),)
    trainer = {
        "update-forward": root + saved + _loss(shape, training),
        "update-backward": max(of_layers, at_the_end, key=size_of),
        "optimizer-step": step,
    }
    overhead: Allocations = (CUDA_CONTEXT,)
    if training.gpus > 1:
        overhead += (of_constant(Kind.COMMUNICATORS, COMMUNICATOR, {"groups": 2}),)
    return tuple(phase_of(name, resident + own, "asleep", (), overhead) for name, own in trainer.items())


def _in_16_bits(kind: Kind, symbol: str, count: float) -> Allocations:
    """Return unsharded parameters or gradients in 16 bits."""
    return (allocate(kind, "measured", {symbol: count}, 2),)


def _activations(shape: Shape, training: Training) -> tuple[Allocations, Allocations, Allocations]:
    """Return saved activations, those left during the last layer's backward pass, and that layer's own."""
    tokens, adapters = {"tokens": training.tokens}, bool(training.lora_rank)
    fused = any(word in training.kernels for word in ("liger", "foak", "fast"))
    working, saved = shape.backward(training.targets if adapters and not fused else None)
    if adapters and training.autocast and fused:
        working *= LORA_INPUTS.value
    elif fused and not adapters:  # fused norms keep no copies in fp32
        working, saved = working - 8 * shape.hidden, saved - 8 * shape.hidden
    if "compile" in training.kernels:
        saved *= COMPILED.value
    variables = {**tokens, "bytes of a layer": max(working, saved)}
    at_work = (allocate(Kind.WORKING_SET, shape.evidence, variables, spread=shape.spread),)
    if training.recompute:
        variables = {**tokens, "hidden size": shape.hidden, "layers": shape.layers}
        inputs = (allocate(Kind.LAYER_INPUTS, "exact", variables, 2),)
        return inputs, inputs, at_work

    def of_layers(count: int) -> Allocations:
        variables = {**tokens, "bytes a layer keeps": saved, "layers": count}
        return (allocate(Kind.ACTIVATIONS, shape.evidence, variables, spread=shape.spread),)

    return of_layers(shape.layers), of_layers(shape.layers - 1), at_work


def _loss(shape: Shape, training: Training) -> Allocations:
    """Return logits and their copies at the loss; a fused linear cross-entropy never stores them."""
    if training.loss == "liger":
        return ()
    tokens, logits = {"tokens": training.tokens}, _LOSSES.get(training.loss, LOGITS_TORCH_LOSS)
    return (
        of_constant(Kind.LOGITS, logits, {**tokens, "vocabulary": shape.vocabulary}),
        of_constant(Kind.LAST_HIDDEN, LOSS_HIDDEN, {**tokens, "hidden size": shape.hidden}),
    )
