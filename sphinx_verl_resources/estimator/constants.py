"""The estimator's constants, which do not follow from a model's shape: name, range, evidence and source.

Sizes are bytes unless the unit says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ..i18n import N_
from ..units import GIB

if TYPE_CHECKING:
    from ..units import Evidence


class Spread(NamedTuple):
    """Both ends of a range, as factors of the computed size."""

    low: float
    high: float


EXACT = Spread(1.0, 1.0)


@dataclass(frozen=True)
class Constant:
    """One number.

    Attributes:
        name: its display name.
        value: the value in formulas.
        low: the smallest value that the evidence allows.
        high: the largest value that the evidence allows.
        unit: the unit of all three.
        evidence: the kind of evidence.
        source: the source of the evidence.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    evidence: Evidence
    source: str

    @cached_property
    def spread(self) -> Spread:
        """Both ends as factors of the value."""
        return Spread(self.low / self.value, self.high / self.value)


_PER_LOGIT = "bytes per token and vocabulary entry"
_PER_HIDDEN = "bytes per token and hidden unit"
_TRACED = "traced (make oracle)"

UNMODELLED = Constant(
    "tensors and moments without a formula",
    0.04,
    0.02,
    0.07,
    "of the training process's allocations, in both directions",
    "measured",
    "logs of verl 0.8 and later whose formulas are almost all exact are 2 to 7 % off: a first step without "
    "Adam states, small tensors, moments between the computed ones",
)
LOGITS_TRACED = Constant(
    "logits, their gradients and entropy, relative to the traced size",
    1,
    1,
    1.25,
    "times",
    "measured",
    f"{_TRACED}; one more copy in 16 bits without flash-attention's cross-entropy, or if torch.compile does "
    "not fuse everything",
)
LOGITS_IN_LOGS = Constant(
    "logits and entropy in the update, for logs up to v0.7.1",
    10,
    9,
    11,
    _PER_LOGIT,
    "measured",
    "fitted to seven logs; each is tested on a fit to the others. The trace gives 8. "
    "PyTorch's counter is never reset, so a log shows the peak of its longest step next to the lengths of "
    "another step",
)
LOGITS_TORCH_LOSS = Constant(
    "logits, loss of transformers",
    12,
    12,
    16,
    _PER_LOGIT,
    "assumed",
    "counted: fp32 copy, shifted copy and softmax",
)
LAST_NORM = Constant(
    "last hidden states at the loss",
    8,
    4,
    8,
    _PER_HIDDEN,
    "measured",
    f"{_TRACED}: the fp32 copy, the normalised states and the output",
)
LAST_NORM_MEGATRON = Constant(
    "last hidden states at the loss, Megatron",
    4,
    4,
    8,
    _PER_HIDDEN,
    "assumed",
    "the inputs of the last norm and of the head, in 16 bits",
)
FUSED_KERNEL_TOKENS = Constant(
    "chunk of the fused linear cross-entropy",
    512,
    512,
    512,
    "tokens",
    "exact",
    "verl/utils/experimental/torch_functional.py",
)
GATHERED_LAYER = Constant(
    "layers that FSDP gathers at the same time, relative to the traced size",
    1,
    0.5,
    1.5,
    "times",
    "measured",
    f"{_TRACED} while a layer computes; less without prefetching, more while its gradient is sharded",
)
WIDTHS = Constant(
    "activations of a dense layer",
    1,
    0.95,
    1.05,
    "times",
    "measured",
    f"{_TRACED}: within 2 %; kernels of other versions keep different copies",
)
MEGATRON_WIDTHS = Constant(
    "activations of Megatron's dense layers",
    1,
    0.85,
    1.15,
    "times",
    "assumed",
    "read from the autograd functions of Megatron-Core and TransformerEngine, not traced",
)
UNUSUAL_WIDTHS = Constant(
    "activations of layers with experts, of latent or linear attention, of vision towers",
    1,
    0.7,
    1.3,
    "times",
    "assumed",
    "experts are traced, but their tokens are unevenly spread; the others are inferred from similar layers",
)
EXPERT_IMBALANCE = Constant(
    "tokens of the fullest expert group, relative to the mean",
    1.2,
    1,
    1.5,
    "times",
    "assumed",
    "no measurement",
)
LENGTH_SPREAD = Constant(
    "excess of the fullest micro-batch over the mean, times the square root of its sequences",
    1,
    0.5,
    1.5,
    "of the mean length",
    "assumed",
    "two standard deviations, each assumed to be half the mean; in the seven logs the fullest rank of a step "
    "has up to 1.16 times the mean, and micro-batches vary more",
)
TYPICAL_LENGTH = Constant(
    "shortest mean length of real data, for the low end if the lengths are unknown",
    0.24,
    0.24,
    0.46,
    "of the longest sequence",
    "measured",
    "the seven logs: 0.24 to 0.46",
)
POOL_OFFSET = Constant(
    "part of the rollout budget outside PyTorch's pool",
    3 * GIB,
    1 * GIB,
    8 * GIB,
    "bytes",
    "assumed",
    "vLLM reserves 1 to 2 GiB for memory outside PyTorch, and 1 to 6 GiB for the activations and the sampler "
    "of its largest batch",
)
ENGINE_BUDGET = Constant(
    "memory of the awake rollout engine, relative to its budget",
    1,
    0.92,
    1.01,
    "times",
    "assumed",
    "vLLM and SGLang fill their budget with the KV cache; up to 5 GiB reserved for activations and the "
    "sampler are not always in use",
)
CUDA_GRAPHS = Constant(
    "CUDA graphs of the rollout engine",
    2 * GIB,
    1 * GIB,
    3 * GIB,
    "bytes",
    "assumed",
    "outside the budget and never freed (verl, docs/perf/best_practices.rst); a few gigabytes according to "
    "NVIDIA-NeMo/Megatron-Bridge, docs/performance-guide.md",
)
CONTEXT = Constant(
    "CUDA context and workspaces",
    1 * GIB,
    0.9 * GIB,
    1.5 * GIB,
    "bytes per process",
    "measured",
    "19 rows on one GPU (fms-a100_80gb_liger): the driver reports at least 0.9 GiB more than PyTorch",
)
SECOND_CONTEXT = Constant(
    "CUDA context and communicators of an engine in its own process",
    1 * GIB,
    0.5 * GIB,
    2 * GIB,
    "bytes",
    "assumed",
    "vLLM measures its budget after both exist",
)
COMMUNICATOR = Constant(
    "communicator of a group of GPUs",
    0.55 * GIB,
    0.05 * GIB,
    1.1 * GIB,
    "bytes per group",
    "assumed",
    "NCCL 2.30: 12 MiB of buffers per channel and neighbour; 24 channels with ring and tree on NVLink, 4 "
    "without NVLink",
)
ALL_TO_ALL = Constant(
    "buffers between two GPUs of a node that exchange tokens",
    0.375 * GIB,
    0.1 * GIB,
    0.375 * GIB,
    "bytes per pair",
    "assumed",
    "NCCL 2.30: 32 channels of 12 MiB to every other GPU on NVLink",
)
FRAGMENTATION = Constant(
    "fragmentation",
    0.05,
    0,
    0.1,
    "of the training process's allocations",
    "assumed",
    "with the constants above, the smallest difference between driver and PyTorch in the 19 rows on one GPU; "
    "PyTorch releases free blocks when memory is short",
)
IDLE_FRAGMENTATION = Constant(
    "fragmentation of an idle training process",
    FRAGMENTATION.value,
    0,
    0.2,
    "of the training process's allocations",
    "measured",
    "an idle trainer (lab-qwen3-8b-grpo-4h20-8k-device): 0 on one GPU, 0.2 on another",
)
UNEVEN_CACHE = Constant(
    "blocks that PyTorch caches if experts exchange tokens",
    0.25,
    0,
    0.8,
    "of activations and logits",
    "assumed",
    "simulated with PyTorch's allocator for four shapes of layers whose experts' tokens vary by 10 to 30 % "
    "(tests/estimator/test_allocator.py). The low end is 0 because PyTorch releases blocks before memory "
    "runs out",
)
DRIVER_RESERVE = Constant(
    "memory that CUDA does not offer to programs",
    0.5 * GIB,
    0.4 * GIB,
    0.9 * GIB,
    "bytes",
    "measured",
    "GPUs in gpus.yaml for which both the driver's figure and CUDA's total are recorded",
)
HOST_BASE = Constant(
    N_("Ray, data and Python"),
    20 * GIB,
    7 * GIB,
    25 * GIB,
    "bytes per node",
    "measured",
    "two logs of Qwen2.5-0.5B: 13 and 24 GiB in total, about 5 of them for the model's states",
)
