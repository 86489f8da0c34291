"""Allocations: the memory of one GPU, piece by piece, and the kinds of pieces."""

from __future__ import annotations

import math
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..i18n import N_
from ..units import Category, Component, Evidence, Factor, short_number
from .constants import EXACT, HOST_BASE, UNMODELLED, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .constants import Constant


_OUTSIDE = {Category.ROLLOUT_ENGINE, Category.RUNTIME_OVERHEAD}


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
    FP8_WEIGHTS = "fp8-weights", Category.WEIGHTS, N_("Weights in FP8"), N_("Critic: weights in FP8")
    ADAPTERS = "adapters", Category.WEIGHTS, "Adapters"
    REFERENCE = "reference", Category.WEIGHTS, N_("Reference policy")

    GRADIENTS = "gradients", Category.GRADIENTS, N_("Gradients"), N_("Critic: gradients")
    UNDIVIDED_GRADIENTS = (
        "undivided-gradients",
        Category.GRADIENTS,
        N_("Unsharded gradients"),
        N_("Critic: unsharded gradients"),
    )
    ROOT_GRADIENT = (
        "root-gradient",
        Category.GRADIENTS,
        N_("Gradient of embedding and head, in 16 and 32 bits"),
        N_("Critic: gradient of embedding and head, in 16 and 32 bits"),
    )
    HEAD_GRADIENT = "head-gradient", Category.GRADIENTS, N_("Gradient of the head")
    FUSED_HEAD_GRADIENT = "fused-head-gradient", Category.GRADIENTS, N_("Gradient of the head, fused kernel")

    OPTIMIZER_STATES = (
        "optimizer-states",
        Category.OPTIMIZER,
        N_("Optimizer states"),
        N_("Critic: optimizer states"),
    )
    EXPERT_OPTIMIZER_STATES = (
        "optimizer-states-experts",
        Category.OPTIMIZER,
        N_("Optimizer states of experts"),
        N_("Critic: optimizer states of experts"),
    )
    MUON_STATES = (
        "muon-states",
        Category.OPTIMIZER,
        N_("Optimizer states (Muon)"),
        N_("Critic: optimizer states (Muon)"),
    )
    EXPERT_MUON_STATES = (
        "muon-states-experts",
        Category.OPTIMIZER,
        N_("Optimizer states of experts (Muon)"),
        N_("Critic: optimizer states of experts (Muon)"),
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
    REFERENCE_ROOT = (
        "reference-root",
        Category.GATHERED,
        N_("Reference policy: gathered embedding and head"),
    )
    GATHERED_LAYERS = (
        "gathered-layers",
        Category.GATHERED,
        N_("Gathered layers"),
        N_("Critic: gathered layers"),
    )
    GATHERED_LAYER = (
        "gathered-layer",
        Category.GATHERED,
        N_("Gathered layer, in use"),
        N_("Critic: gathered layer, in use"),
    )
    SUMMONED_LAYER = "summoned-layer", Category.GATHERED, N_("One full layer")
    SUMMONED_MODEL = "summoned-model", Category.GATHERED, N_("Full model")
    STATE_DICT = "state-dict", Category.GATHERED, N_("Copy of the weights in the state dict")
    LARGEST_TENSOR = "largest-tensor", Category.GATHERED, N_("Largest full tensor")

    LAYER_INPUTS = "layer-inputs", Category.ACTIVATIONS, N_("Layer inputs"), N_("Critic: layer inputs")
    OFFLOADED_INPUTS = "layer-inputs", Category.ACTIVATIONS, N_("Offloaded layer inputs")
    KEPT_EMBEDDINGS = "kept-embeddings", Category.ACTIVATIONS, N_("Embeddings of earlier micro-batches")
    ACTIVATIONS = "activations", Category.ACTIVATIONS, N_("Activations"), N_("Critic: activations")
    WORKING_SET = (
        "working-set",
        Category.ACTIVATIONS,
        N_("Activations of the current layer"),
        N_("Critic: activations of the current layer"),
    )
    LAST_HIDDEN = "last-norm", Category.ACTIVATIONS, N_("Last hidden states")
    LOGITS = "logits", Category.LOGITS, N_("Logits and loss")
    LOGITS_CHUNK = "logits", Category.LOGITS, N_("Logits of a chunk")
    ENTROPY_CHUNK = "entropy-chunk", Category.LOGITS, N_("Entropy of a chunk")

    ROLLOUT_WEIGHTS = "rollout-weights", Category.ROLLOUT_ENGINE, N_("Rollout engine: weights")
    ROLLOUT_POOL = "rollout-pool", Category.ROLLOUT_ENGINE, N_("Rollout engine: weights and KV cache")
    ROLLOUT_CACHE = "rollout-pool", Category.ROLLOUT_ENGINE, N_("Rollout engine: KV cache")
    CUDA_GRAPHS = "cuda-graphs", Category.ROLLOUT_ENGINE, N_("CUDA graphs")
    BUCKET = "bucket", Category.ROLLOUT_ENGINE, N_("Weight transfer bucket")
    SLEEPING_WEIGHTS = (
        "sleeping-weights",
        Category.ROLLOUT_ENGINE,
        N_("Weights of the sleeping rollout engine"),
    )

    CUDA_CONTEXT = "context", Category.RUNTIME_OVERHEAD, N_("CUDA context")
    COMMUNICATORS = "communicators", Category.RUNTIME_OVERHEAD, N_("Communicators")
    EXCHANGE_BUFFERS = "exchange-buffers", Category.RUNTIME_OVERHEAD, N_("Token exchange buffers")
    ENGINE_CONTEXT = "engine-context", Category.RUNTIME_OVERHEAD, N_("CUDA context of the engine")
    UNEVEN_CACHE = "uneven-cache", Category.RUNTIME_OVERHEAD, N_("Cached blocks, uneven experts")
    FRAGMENTATION = "fragmentation", Category.RUNTIME_OVERHEAD, N_("Fragmentation")
    HOST_PROCESSES = "base", Category.RUNTIME_OVERHEAD, HOST_BASE.name

    def __init__(self, key: str, category: Category, label: str, critic_label: str = "") -> None:
        self.key, self.category, self.label, self.critic_label = key, category, label, critic_label
        self.group, self.outside = category.name, category in _OUTSIDE


class Ends(NamedTuple):
    """Both ends of a range, in bytes."""

    low: float
    high: float


class Allocation(NamedTuple):
    """One piece of memory on one GPU, made by ``allocate``.

    An estimate makes dozens of these and most are never shown, so the formula is made on demand.

    Attributes:
        kind: its kind, which decides names and category.
        evidence: the evidence for the formula.
        size: its size in bytes.
        variables: the factors, as symbols and values.
        each: bytes per unit of the product; None if a variable is in bytes.
        sharers: the number of GPUs or ranks that share the product.
        name_of_sharers: the name of the sharers, ``GPUs`` for example.
        critic: whether it belongs to the critic.
        spread: the range of the size.
    """

    kind: Kind
    evidence: Evidence
    size: float
    variables: Mapping[str, float]
    each: float | None
    sharers: float
    name_of_sharers: str
    critic: bool
    spread: Spread

    @property
    def key(self) -> str:
        """Its machine-readable name."""
        return f"critic-{self.kind.key}" if self.critic else self.kind.key

    @property
    def component(self) -> Component:
        """The allocation with its formula, which gives the same size."""
        label = (self.critic and self.kind.critic_label) or self.kind.label
        factors = [Factor(symbol, value) for symbol, value in self.variables.items()]
        if self.each is not None:
            factors.append(Factor(f"{short_number(self.each)} bytes", self.each))
        if self.sharers != 1:
            factors.append(Factor(self.name_of_sharers, self.sharers, "÷"))
        return Component(self.key, label, self.kind.category, tuple(factors), self.evidence)

    def ends(self, widening: float) -> Ends:
        """Return both ends of the range; a widening of 2 doubles their distance from the size.

        Only allocations of the training process are widened: engines keep to their budget, and errors in the
        training process are no evidence about contexts and communicators.

        >>> allocate(Kind.LOGITS, "assumed", {"tokens": 1000}, 10, spread=Spread(0.75, 1.5)).ends(2)
        Ends(low=5000.0, high=20000.0)
        """
        if self.kind.outside:
            widening = 1
        size, (low, high) = self.size, self.spread
        low = size * (1 - (1 - low) * widening)
        ends: Ends = _new_tuple(Ends, (low if low > 0 else 0.0, size * (1 + (high - 1) * widening)))
        return ends


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


#: Three times as fast as a named tuple's constructor.
_new_tuple: Any = tuple.__new__
_SIZE: Callable[[Allocation], float] = attrgetter("size")


def allocate(
    kind: Kind,
    evidence: Evidence,
    variables: Mapping[str, float],
    each: float | None = None,
    sharers: float = 1,
    name_of_sharers: str = "GPUs",
    critic: bool = False,
    spread: Spread = EXACT,
) -> Allocation:
    """Return the allocation of a product: variables × bytes of each ÷ sharers.

    >>> allocate(Kind.GRADIENTS, "exact", {"parameters": 1000}, 4, 8).size
    500.0
    """
    size = 1.0  # multiply in the order of the formula, so that both give exactly the same result
    for value in variables.values():
        size *= value
    if each is not None:
        size *= each
    if sharers != 1:
        size *= 1 / sharers
    values = (kind, evidence, size, variables, each, sharers, name_of_sharers, critic, spread)
    made: Allocation = _new_tuple(Allocation, values)
    return made


def of_constant(
    kind: Kind, constant: Constant, variables: Mapping[str, float], sharers: float = 1
) -> Allocation:
    """Return the allocation of variables × a constant, with the constant's evidence and range.

    >>> from sphinx_verl_resources.estimator.constants import LAST_NORM
    >>> of_constant(Kind.LAST_HIDDEN, LAST_NORM, {"tokens": 1000, "hidden size": 10}).size
    80000.0
    """
    return allocate(kind, constant.evidence, variables, constant.value, sharers, "TP", spread=constant.spread)


def fixed(kind: Kind, symbol: str, constant: Constant) -> Allocation:
    """Return an allocation with the size of a constant.

    >>> fixed(Kind.HOST_PROCESSES, "base", HOST_BASE).component.symbols
    'base'
    """
    return allocate(kind, constant.evidence, {symbol: constant.value}, spread=constant.spread)


def size_of(allocations: Allocations) -> float:
    """Add up the bytes of allocations."""
    return sum(map(_SIZE, allocations))


def ends_of(allocations: Allocations, widening: float, counted: float) -> Ends:
    """Return both ends of the sum of allocations.

    Allocations of one category share their errors, so the distances from size to end add up. The errors of
    different categories are independent, so the squares of their distances add up, as does the square of the
    share for tensors without a formula.

    Args:
        allocations: the allocations on one GPU at one moment.
        widening: the factor on all distances from size to end.
        counted: bytes of the training process; ``UNMODELLED`` is a share of them.

    >>> logits = allocate(Kind.LOGITS, "assumed", {"tokens": 30}, 1, spread=Spread(0.9, 1.1))
    >>> graphs = allocate(Kind.CUDA_GRAPHS, "assumed", {"graphs": 40}, spread=Spread(0.9, 1.1))
    >>> weights = allocate(Kind.WEIGHTS, "exact", {"parameters": 15}, 2)
    >>> ends_of((weights, logits, graphs), 1, 0)
    Ends(low=95.0, high=105.0)
    """
    total = 0.0
    below: dict[str, float] = {}
    above: dict[str, float] = {}
    for item in allocations:
        size = item.size
        total += size
        if item.spread is not EXACT:
            low, high = item.ends(widening)
            category = item.kind.group
            below[category] = below.get(category, 0.0) + (size - low)
            above[category] = above.get(category, 0.0) + (high - size)
    rest = UNMODELLED.value * counted * widening
    least = total - math.hypot(rest, *below.values())
    ends: Ends = _new_tuple(Ends, (max(0.0, least), total + math.hypot(rest, *above.values())))
    return ends
