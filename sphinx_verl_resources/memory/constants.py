"""The estimator's constants, which do not follow from a model's shape: name, value, evidence and source."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..i18n import N_
from ..units import GIB

if TYPE_CHECKING:
    from ..units import Evidence


class Constant(NamedTuple):
    """One number.

    Attributes:
        name: its display name.
        value: the value in formulas.
        unit: its unit.
        evidence: the kind of evidence.
        source: the source of the evidence.
    """

    name: str
    value: float
    unit: str
    evidence: Evidence
    source: str


LENGTH_SPREAD = Constant(
    "excess of the fullest micro-batch over the mean, times the square root of its sequences",
    1,
    "of the mean length; 0 at the low end",
    "assumed",
    "two standard deviations, each assumed to be half the mean; in seven logs the fullest rank of a step has "
    "up to 1.16 times the mean, and micro-batches vary more",
)
TYPICAL_LENGTH = Constant(
    "shortest mean length of real data, for the low end if the lengths are unknown",
    0.24,
    "of the longest sequence",
    "measured",
    "seven logs: 0.24 to 0.46",
)
LOGITS_IN_LOGS = Constant(
    "logits and entropy in an update with known lengths, up to v0.7.1",
    10,
    "bytes per token and vocabulary entry",
    "measured",
    "seven logs; the trace gives 8. PyTorch's counter is never reset, so a log shows the peak of its longest "
    "step next to the lengths of another step",
)
POOL_OFFSET = Constant(
    "part of the rollout budget outside PyTorch's pool",
    3 * GIB,
    "bytes",
    "assumed",
    "vLLM reserves 1 to 2 GiB for memory outside PyTorch, and 1 to 6 GiB for the activations and the sampler "
    "of its largest batch",
)
ENGINE_LEAST = Constant(
    "least memory of the awake rollout engine, relative to its budget",
    0.92,
    "times",
    "assumed",
    "vLLM and SGLang fill their budget with the KV cache; up to 5 GiB reserved for activations and the "
    "sampler are not always in use",
)
ENGINE_MOST = Constant(
    "most memory of the awake rollout engine, relative to its budget",
    1.01,
    "times",
    "assumed",
    "the budget is a limit; small allocations outside it",
)
CUDA_GRAPHS = Constant(
    "CUDA graphs of the rollout engine",
    2 * GIB,
    "bytes",
    "assumed",
    "outside the budget and never freed (verl, docs/perf/best_practices.rst); a few gigabytes according to "
    "NVIDIA-NeMo/Megatron-Bridge, docs/performance-guide.md",
)
CONTEXT = Constant(
    "CUDA context and workspaces",
    1 * GIB,
    "bytes per process",
    "measured",
    "19 rows on one GPU (fms-a100_80gb_liger): the driver reports at least 0.9 GiB more than PyTorch",
)
COMMUNICATORS = Constant(
    "communicators of FSDP's groups of GPUs",
    1 * GIB,
    "bytes",
    "assumed",
    "NCCL 2.30: 12 MiB of buffers per channel and neighbour; up to 24 channels on NVLink, 4 without",
)
MEGATRON_COMMUNICATORS = Constant(
    "communicators of Megatron's groups of GPUs",
    3 * GIB,
    "bytes",
    "assumed",
    "the same for its six groups or more; experts add buffers between all GPUs of a node",
)
FRAGMENTATION = Constant(
    "fragmentation",
    0.05,
    "of activations, logits and gathered parameters, which come and go",
    "assumed",
    "PyTorch releases free blocks when memory is short",
)
UNEVEN_EXPERTS = Constant(
    "fragmentation if experts exchange tokens",
    0.25,
    "of activations, logits and gathered parameters",
    "assumed",
    "simulated once with PyTorch's allocator for layers whose experts' tokens vary by 10 to 30 %",
)
ABOVE = Constant(
    "memory outside PyTorch that may come on top",
    2 * GIB,
    "bytes",
    "assumed",
    "contexts, communicators and caches are 5 to 6 GiB in the runs with the driver's figure",
)
BELOW = Constant(
    "memory outside PyTorch that may be absent",
    1 * GIB,
    "bytes",
    "assumed",
    "as above",
)
DRIVER_RESERVE = Constant(
    "memory that CUDA does not offer to programs",
    0.5 * GIB,
    "bytes",
    "measured",
    "0.4 to 0.9 GiB for the GPUs in gpus.yaml with both the driver's figure and CUDA's total",
)
HOST_BASE = Constant(
    N_("Ray, data and Python"),
    20 * GIB,
    "bytes per node",
    "measured",
    "two logs of Qwen2.5-0.5B: 13 and 24 GiB in total, about 5 of them for the model's states",
)
