"""Allocations: the memory of one GPU, piece by piece, and the kinds of pieces."""

from __future__ import annotations

from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ..i18n import N_
from ..units import Category, Component, Evidence, Factor, short_number
from .constants import HOST_BASE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .constants import Constant


class Kind(Enum):
    """A kind of allocation.

    Attributes:
        key: its machine-readable name; ``Allocation.key`` adds ``critic-`` for a critic.
        category: its use.
        label: its display name.
        critic_label: the display name for a critic; many languages cannot simply put "Critic:" before the
            label.
    """

    WEIGHTS = "weights", Category.WEIGHTS, N_("Weights"), N_("Critic: weights")
    REFERENCE = "reference", Category.WEIGHTS, N_("Reference policy")
    GRADIENTS = "gradients", Category.GRADIENTS, N_("Gradients"), N_("Critic: gradients")
    UNSHARDED = (
        "unsharded-gradients",
        Category.GRADIENTS,
        N_("Unsharded gradients"),
        N_("Critic: unsharded gradients"),
    )
    ROOT_GRADIENT = (
        "root-gradient",
        Category.GRADIENTS,
        N_("Gradient of embedding and head, unsharded"),
        N_("Critic: gradient of embedding and head, unsharded"),
    )
    DUMMY_GRADIENTS = (
        "dummy-gradients",
        Category.GRADIENTS,
        N_("Buffers of TransformerEngine for fused gradients"),
        N_("Critic: buffers of TransformerEngine for fused gradients"),
    )
    OPTIMIZER = "optimizer-states", Category.OPTIMIZER, N_("Optimizer states"), N_("Critic: optimizer states")
    EXPERT_OPTIMIZER = (
        "optimizer-states-experts",
        Category.OPTIMIZER,
        N_("Optimizer states of experts"),
        N_("Critic: optimizer states of experts"),
    )
    STEP_BUFFER = (
        "step-buffer",
        Category.OPTIMIZER,
        N_("Optimizer step buffer"),
        N_("Critic: optimizer step buffer"),
    )
    HOST_OPTIMIZER = "host-optimizer", Category.OPTIMIZER, N_("Host optimizer")
    GATHERED_ROOT = (
        "gathered-root",
        Category.GATHERED,
        N_("Gathered embedding and head"),
        N_("Critic: gathered embedding and head"),
    )
    REFERENCE_ROOT = "reference-root", Category.GATHERED, N_("Reference policy: gathered embedding and head")
    GATHERED_LAYERS = (
        "gathered-layers",
        Category.GATHERED,
        N_("Gathered layers"),
        N_("Critic: gathered layers"),
    )
    WEIGHT_COPIES = "weight-copies", Category.GATHERED, N_("Copies of weights for the rollout engine")
    LAYER_INPUTS = "layer-inputs", Category.ACTIVATIONS, N_("Layer inputs"), N_("Critic: layer inputs")
    ACTIVATIONS = "activations", Category.ACTIVATIONS, N_("Activations"), N_("Critic: activations")
    WORKING_SET = (
        "working-set",
        Category.ACTIVATIONS,
        N_("Activations of the current layer"),
        N_("Critic: activations of the current layer"),
    )
    GATHER_BUFFER = "gather-buffer", Category.ACTIVATIONS, N_("Buffer of sequence parallelism")
    LOGITS = "logits", Category.LOGITS, N_("Logits and loss")
    ROLLOUT_WEIGHTS = "rollout-weights", Category.ROLLOUT_ENGINE, N_("Rollout engine: weights")
    ROLLOUT_POOL = "rollout-pool", Category.ROLLOUT_ENGINE, N_("Rollout engine: weights and KV cache")
    ROLLOUT_CACHE = "rollout-pool", Category.ROLLOUT_ENGINE, N_("Rollout engine: KV cache")
    CUDA_GRAPHS = "cuda-graphs", Category.ROLLOUT_ENGINE, N_("CUDA graphs")
    BUCKET = "bucket", Category.GATHERED, N_("Weight transfer bucket")
    SLEEPING_WEIGHTS = (
        "sleeping-weights",
        Category.ROLLOUT_ENGINE,
        N_("Weights of the sleeping rollout engine"),
    )
    OVERHEAD = "contexts", Category.RUNTIME_OVERHEAD, N_("CUDA contexts and communicators")
    FRAGMENTATION = "fragmentation", Category.RUNTIME_OVERHEAD, N_("Fragmentation")
    HOST_PROCESSES = "base", Category.RUNTIME_OVERHEAD, HOST_BASE.name

    def __init__(self, key: str, category: Category, label: str, critic_label: str = "") -> None:
        self.key, self.category, self.label, self.critic_label = key, category, label, critic_label


class Allocation(NamedTuple):
    """One piece of memory on one GPU, made by ``allocate``.

    An estimate makes dozens of these and most are never shown, so the formula is made on demand.

    Attributes:
        kind: its kind, which decides names and category.
        size: its size in bytes.
        variables: the factors, as symbols and values.
        each: bytes per unit of the product; None if a variable is in bytes.
        sharers: the number of GPUs or ranks that share the product.
        name_of_sharers: the name of the sharers, ``GPUs`` for example.
        critic: whether it belongs to the critic.
        evidence: the evidence for the formula.
    """

    kind: Kind
    size: float
    variables: Mapping[str, float]
    each: float | None
    sharers: float
    name_of_sharers: str
    critic: bool
    evidence: Evidence

    @property
    def key(self) -> str:
        """Its machine-readable name."""
        return f"critic-{self.kind.key}" if self.critic else self.kind.key

    @property
    def component(self) -> Component:
        """The allocation with its formula, which gives the same size."""
        factors = [Factor(symbol, value) for symbol, value in self.variables.items()]
        if self.each is not None:
            factors.append(Factor(f"{short_number(self.each)} bytes", self.each))
        if self.sharers != 1:
            factors.append(Factor(self.name_of_sharers, self.sharers, "÷"))
        label = (self.critic and self.kind.critic_label) or self.kind.label
        return Component(self.key, label, self.kind.category, tuple(factors), self.evidence)


Allocations = tuple[Allocation, ...]


class Update(NamedTuple):
    """The moments of an update, without the vocabulary-wide tensors.

    Attributes:
        loss: after the forward pass of all layers.
        at_head: the backward pass of the output head.
        backward: the widest other moment of the backward pass.
        step: the optimizer step.
    """

    loss: Allocations
    at_head: Allocations
    backward: Allocations
    step: Allocations


def allocate(
    kind: Kind,
    variables: Mapping[str, float],
    each: float | None = None,
    sharers: float = 1,
    name_of_sharers: str = "GPUs",
    critic: bool = False,
    evidence: Evidence = "exact",
) -> Allocation:
    """Return the allocation of a product: variables × bytes of each ÷ sharers.

    >>> allocate(Kind.GRADIENTS, {"parameters": 1000}, 4, 8).size
    500.0
    """
    size = 1.0  # multiply in the order of the formula, so that both give exactly the same result
    for value in variables.values():
        size *= value
    if each is not None:
        size *= each
    if sharers != 1:
        size *= 1 / sharers
    return Allocation(kind, size, variables, each, sharers, name_of_sharers, critic, evidence)


def fixed(kind: Kind, *constants: Constant) -> Allocations:
    """Return an allocation for each of some constants, with its size.

    >>> fixed(Kind.HOST_PROCESSES, HOST_BASE)[0].component.symbols
    'Ray, data and Python'
    """
    return tuple(
        allocate(kind, {constant.name: constant.value}, evidence=constant.evidence) for constant in constants
    )


_SIZE: Callable[[Allocation], float] = attrgetter("size")


def size_of(allocations: Allocations) -> float:
    """Add up the bytes of allocations."""
    return sum(map(_SIZE, allocations))
