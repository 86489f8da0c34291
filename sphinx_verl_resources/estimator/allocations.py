"""Allocations: the memory of one GPU, piece by piece, and the kinds of pieces that there are."""

from __future__ import annotations

from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ..breakdown import Category, Change, Component, Evidence, Formula
from ..i18n import N_
from .constants import HOST_BASE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Kind(Enum):
    """A kind of allocation.

    Attributes:
        key: its name for programs; that of a critic's begins with ``critic-``.
        category: its use.
        label: its name for people.
        critic_label: the same for a critic's. In many languages "Critic:" does not simply go before a name.
    """

    WEIGHTS = "weights", Category.WEIGHTS, N_("Weights"), N_("Critic: weights")
    FP8_WEIGHTS = "fp8-weights", Category.WEIGHTS, N_("Weights in FP8"), N_("Critic: weights in FP8")
    ADAPTERS = "adapters", Category.WEIGHTS, "Adapters"
    REFERENCE = "reference", Category.WEIGHTS, N_("Reference policy")

    GRADIENTS = "gradients", Category.GRADIENTS, N_("Gradients"), N_("Critic: gradients")
    UNDIVIDED_GRADIENTS = (
        "undivided-gradients",
        Category.GRADIENTS,
        N_("Undivided gradients"),
        N_("Critic: undivided gradients"),
    )
    HEAD_GRADIENT = "head-gradient", Category.GRADIENTS, N_("Gradient of the head")
    FUSED_HEAD_GRADIENT = "fused-head-gradient", Category.GRADIENTS, N_("Gradient of the head, in the kernel")

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
        N_("Buffer of the step"),
        N_("Critic: buffer of the step"),
    )
    HOST_OPTIMIZER = "host-optimizer", Category.OPTIMIZER, N_("Optimizer on the host")

    GATHERED_ROOT = (
        "gathered-root",
        Category.GATHERED,
        N_("Embedding and head, gathered"),
        N_("Critic: embedding and head, gathered"),
    )
    GATHERED_LAYERS = (
        "gathered-layers",
        Category.GATHERED,
        N_("Layers, gathered"),
        N_("Critic: layers, gathered"),
    )
    GATHERED_LAYER = (
        "gathered-layer",
        Category.GATHERED,
        N_("Layer at work, gathered"),
        N_("Critic: layer at work, gathered"),
    )
    SUMMONED_LAYER = "summoned-layer", Category.GATHERED, N_("One layer, whole")
    SUMMONED_MODEL = "summoned-model", Category.GATHERED, N_("The whole model")
    STATE_DICT = "state-dict", Category.GATHERED, N_("Copy of the weights in the state dict")
    LARGEST_TENSOR = "largest-tensor", Category.GATHERED, N_("Largest tensor, whole")

    LAYER_INPUTS = "layer-inputs", Category.ACTIVATIONS, N_("Layer inputs"), N_("Critic: layer inputs")
    OFFLOADED_INPUTS = "layer-inputs", Category.ACTIVATIONS, N_("Offloaded layer inputs")
    ACTIVATIONS = "activations", Category.ACTIVATIONS, N_("Activations"), N_("Critic: activations")
    WORKING_SET = (
        "working-set",
        Category.ACTIVATIONS,
        N_("Layer at work, activations"),
        N_("Critic: layer at work, activations"),
    )
    LAST_HIDDEN = "last-norm", Category.ACTIVATIONS, N_("Last hidden states")
    LOGITS = "logits", Category.LOGITS, N_("Logits and loss")
    LOGITS_CHUNK = "logits", Category.LOGITS, N_("Logits of a chunk")
    ENTROPY_CHUNK = "entropy-chunk", Category.LOGITS, N_("Entropy of a chunk")

    ROLLOUT_WEIGHTS = "rollout-weights", Category.ROLLOUT_ENGINE, N_("Rollout engine: weights")
    ROLLOUT_POOL = "rollout-pool", Category.ROLLOUT_ENGINE, N_("Rollout engine: weights and KV cache")
    ROLLOUT_CACHE = "rollout-pool", Category.ROLLOUT_ENGINE, N_("Rollout engine: KV cache")
    CUDA_GRAPHS = "cuda-graphs", Category.ROLLOUT_ENGINE, N_("CUDA graphs")
    BUCKET = "bucket", Category.ROLLOUT_ENGINE, N_("Bucket for weights")
    SLEEPING_WEIGHTS = (
        "sleeping-weights",
        Category.ROLLOUT_ENGINE,
        N_("Weights of the sleeping rollout engine"),
    )

    CUDA_CONTEXT = "context", Category.RUNTIME_OVERHEAD, N_("CUDA context")
    COMMUNICATORS = "communicators", Category.RUNTIME_OVERHEAD, N_("Communicators")
    ENGINE_CONTEXT = "engine-context", Category.RUNTIME_OVERHEAD, N_("CUDA context of the engine")
    FRAGMENTATION = "fragmentation", Category.RUNTIME_OVERHEAD, N_("Fragmentation")
    HOST_PROCESSES = "base", Category.RUNTIME_OVERHEAD, HOST_BASE.name

    def __init__(self, key: str, category: Category, label: str, critic_label: str = "") -> None:
        self.key, self.category, self.label, self.critic_label = key, category, label, critic_label


class Allocation(NamedTuple):
    """One thing in the memory of one GPU, made by ``allocate``.

    An estimate makes some dozens of them, and most are never shown: the formula is made on demand.

    Attributes:
        kind: decides names and category.
        evidence: of the formula.
        size: bytes.
        variables: symbols and values that are multiplied.
        each: bytes that the product is multiplied with; None where a variable is in bytes.
        sharers: how many share the result.
        name_of_sharers: ``GPUs``, or what else they are.
        critic: it is a critic's.
    """

    kind: Kind
    evidence: Evidence
    size: float
    variables: Mapping[str, float]
    each: float | None
    sharers: float
    name_of_sharers: str
    critic: bool

    @property
    def key(self) -> str:
        """Its name for programs."""
        return f"critic-{self.kind.key}" if self.critic else self.kind.key

    @property
    def component(self) -> Component:
        """The allocation with its formula, which gives the same size."""
        label = (self.critic and self.kind.critic_label) or self.kind.label
        constants = () if self.each is None else ((self.each, "bytes"),)
        changes = () if self.sharers == 1 else (Change("÷", self.sharers, self.name_of_sharers),)
        formula = Formula(tuple(self.variables.items()), constants, changes)
        return Component(self.key, label, self.kind.category, formula, self.evidence)


Allocations = tuple[Allocation, ...]
_SIZE: Callable[[Allocation], float] = attrgetter("size")


def allocate(
    kind: Kind,
    evidence: Evidence,
    variables: Mapping[str, float],
    each: float | None = None,
    sharers: float = 1,
    name_of_sharers: str = "GPUs",
    critic: bool = False,
) -> Allocation:
    """Multiply the variables and the bytes of each, and divide by those that share the result.

    >>> allocate(Kind.GRADIENTS, "exact", {"parameters": 1000}, 4, 8).size
    500.0
    """
    size = 1.0
    for value in variables.values():
        size *= value
    if each is not None:
        size *= each
    if sharers != 1:
        size *= 1 / sharers
    # Twice as fast as the constructor.
    return Allocation._make((kind, evidence, size, variables, each, sharers, name_of_sharers, critic))


def size_of(allocations: Allocations) -> float:
    """Add up the bytes of allocations."""
    return sum(map(_SIZE, allocations))
