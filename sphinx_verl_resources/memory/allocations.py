"""Allocations: the memory of one GPU, piece by piece, and the kinds of pieces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from ..i18n import N_, _
from ..units import GIB, Category, Component, Evidence, Factor, short_number


class Constant(NamedTuple):
    """One number.

    Attributes:
        name: its display name.
        value: the value in formulas.
        source: the source of the evidence.
        unit: its unit.
        evidence: the kind of evidence.
    """

    name: str
    value: float
    source: str
    unit: str = "bytes"
    evidence: Evidence = "assumed"


LENGTH_SPREAD = Constant(
    "excess of the fullest micro-batch over the mean, times the square root of its sequences",
    1,
    "two standard deviations of half the mean; in seven logs, the fullest rank of a step has 1.16 times it",
    "of the mean length; 0 at the low end",
)
TYPICAL_LENGTH = Constant(
    "shortest mean length of real data, for the low end if the lengths are unknown",
    0.24,
    "seven logs: 0.24 to 0.46",
    "of the longest sequence",
    "measured",
)
POOL_OFFSET = Constant(
    "part of the rollout budget outside PyTorch's pool",
    3 * GIB,
    "vLLM reserves 1 to 2 GiB outside PyTorch, and 1 to 6 GiB for activations of its largest batch",
)
ENGINE_LEAST = Constant(
    "least memory of the awake rollout engine, relative to its budget",
    0.92,
    "the KV cache fills the budget, but up to 5 GiB for activations and the sampler are not always in use",
    "times",
)
ENGINE_MOST = Constant(
    "most memory of the awake rollout engine, relative to its budget",
    1.01,
    "the budget is a limit; small allocations outside it",
    "times",
)
CUDA_GRAPHS = Constant(
    "CUDA graphs of the rollout engine",
    2 * GIB,
    "never freed (verl, docs/perf/best_practices.rst); a few GB (Megatron-Bridge, docs/performance-guide.md)",
)
CONTEXT = Constant(
    "CUDA context and workspaces",
    1 * GIB,
    "19 rows on one GPU (fms-a100_80gb_liger): the driver reports at least 0.9 GiB more than PyTorch",
    "bytes per process",
    "measured",
)
COMMUNICATORS = Constant(
    "communicators of FSDP's groups of GPUs",
    1 * GIB,
    "NCCL 2.30: 12 MiB of buffers per channel and neighbour; up to 24 channels on NVLink, 4 without",
)
FRAGMENTATION = Constant(
    "fragmentation",
    0.05,
    "PyTorch releases free blocks when memory is short",
    "of activations, logits and gathered parameters, which come and go",
)
ABOVE = Constant(
    "memory outside PyTorch that may come on top",
    2 * GIB,
    "contexts, communicators and caches are 5 to 6 GiB in the runs with the driver's figure",
)
BELOW = Constant("memory outside PyTorch that may be absent", 1 * GIB, "as above")
DRIVER_RESERVE = Constant(
    "memory that CUDA does not offer to programs",
    0.5 * GIB,
    "0.4 to 0.9 GiB for the GPUs in gpus.yaml with both the driver's figure and CUDA's total",
    evidence="measured",
)
HOST = Constant(
    N_("Ray, data and Python"),
    20 * GIB,
    "two logs of Qwen2.5-0.5B: 13 and 24 GiB in total, about 5 of them for the model's states",
    "bytes per node",
    "measured",
)


class Kind(Enum):
    """A kind of allocation.

    Attributes:
        key: its machine-readable name; ``Allocation.key`` adds ``critic-`` for a critic.
        category: its use.
        label: its display name.
    """

    WEIGHTS = "weights", Category.WEIGHTS, N_("Weights")
    REFERENCE = "reference", Category.WEIGHTS, N_("Reference policy")
    GRADIENTS = "gradients", Category.GRADIENTS, N_("Gradients")
    UNSHARDED = "unsharded-gradients", Category.GRADIENTS, N_("Unsharded gradients")
    ROOT_GRADIENT = "root-gradient", Category.GRADIENTS, N_("Gradient of embedding and head, unsharded")
    DUMMY_GRADIENTS = "dummy-gradients", Category.GRADIENTS, N_("Buffers for fused gradients")
    OPTIMIZER = "optimizer-states", Category.OPTIMIZER, N_("Optimizer states")
    EXPERT_OPTIMIZER = "optimizer-states-experts", Category.OPTIMIZER, N_("Optimizer states of experts")
    STEP_BUFFER = "step-buffer", Category.OPTIMIZER, N_("Optimizer step buffer")
    HOST_OPTIMIZER = "host-optimizer", Category.OPTIMIZER, N_("Host optimizer")
    GATHERED_ROOT = "gathered-root", Category.GATHERED, N_("Gathered embedding and head")
    REFERENCE_ROOT = "reference-root", Category.GATHERED, N_("Reference policy: gathered embedding and head")
    GATHERED_LAYERS = "gathered-layers", Category.GATHERED, N_("Gathered layers")
    WEIGHT_COPIES = "weight-copies", Category.GATHERED, N_("Copies of weights for the rollout engine")
    LAYER_INPUTS = "layer-inputs", Category.ACTIVATIONS, N_("Layer inputs")
    ACTIVATIONS = "activations", Category.ACTIVATIONS, N_("Activations")
    WORKING_SET = "working-set", Category.ACTIVATIONS, N_("Activations of the current layer")
    GATHER_BUFFER = "gather-buffer", Category.ACTIVATIONS, N_("Buffer of sequence parallelism")
    LOGITS = "logits", Category.LOGITS, N_("Logits and loss")
    ROLLOUT_WEIGHTS = "rollout-weights", Category.ROLLOUT_ENGINE, N_("Rollout engine: weights")
    ROLLOUT_POOL = "rollout-pool", Category.ROLLOUT_ENGINE, N_("Rollout engine: weights and KV cache")
    CUDA_GRAPHS = "cuda-graphs", Category.ROLLOUT_ENGINE, N_("CUDA graphs")
    BUCKET = "bucket", Category.GATHERED, N_("Weight transfer bucket")
    SLEEPING = "sleeping-weights", Category.ROLLOUT_ENGINE, N_("Weights of the sleeping rollout engine")
    OVERHEAD = "contexts", Category.RUNTIME_OVERHEAD, N_("CUDA contexts and communicators")
    FRAGMENTATION = "fragmentation", Category.RUNTIME_OVERHEAD, N_("Fragmentation")
    HOST_PROCESSES = "base", Category.RUNTIME_OVERHEAD, HOST.name

    def __init__(self, key: str, category: Category, label: str) -> None:
        self.key, self.category, self.label = key, category, label


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
        # The only label with two parts is translated here: what shows it translates whole labels.
        label = _("Critic: {label}").format(label=_(self.kind.label)) if self.critic else self.kind.label
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
    # Multiply in the order of the formula, so that both give exactly the same result.
    size = math.prod((*variables.values(), 1 if each is None else each, 1 / sharers), start=1.0)
    return Allocation(kind, size, variables, each, sharers, name_of_sharers, critic, evidence)


def fixed(kind: Kind, *constants: Constant) -> Allocations:
    """Return an allocation for each of some constants, with its size.

    >>> fixed(Kind.HOST_PROCESSES, HOST)[0].component.symbols
    'Ray, data and Python'
    """
    return tuple(
        allocate(kind, {constant.name: constant.value}, evidence=constant.evidence) for constant in constants
    )


def size_of(allocations: Allocations) -> float:
    """Add up the bytes of allocations."""
    return sum([allocation.size for allocation in allocations])
