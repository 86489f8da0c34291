"""The numbers of the estimator that do not follow from a shape: name, range, evidence and source.

Sizes are bytes unless the unit says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..i18n import N_
from ..units import GIB

if TYPE_CHECKING:
    from ..breakdown import Evidence


@dataclass(frozen=True)
class Constant:
    """One number.

    Attributes:
        name: for people.
        value: used in formulas.
        low: the smallest value that the evidence allows.
        high: the largest.
        unit: of all three.
        evidence: how well it is known.
        source: where it comes from.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    evidence: Evidence
    source: str


_PER_LOGIT = "bytes a token and vocabulary entry"
_PER_HIDDEN = "bytes a token and hidden unit"
_TRACED = "traced (make oracle)"
_COUNTED = "counted in the source of verl at 1dda039b9, confirmed by no measurement"

LOGITS_ENTROPY = Constant(
    "logits and entropy, update",
    10,
    6,
    12,
    _PER_LOGIT,
    "measured",
    "seven logs of GRPO with LoRA (verl-data-*): the two of 0.5B, where it is nearly everything, want 10; "
    "the others leave 6 to 10 open. Traced, compiled entropy takes 6, and 4 more with a softmax in fp32",
)
LOGITS_COPY = Constant("second copy of the logits, from v0.9.0", 2, 2, 2, _PER_LOGIT, "assumed", _COUNTED)
LOGITS_PLAIN = Constant(
    "logits without entropy, update",
    6,
    4,
    8,
    _PER_LOGIT,
    "assumed",
    f"{_TRACED}: 4 for logits and their gradient; 2 for the model's output while it is alive, or "
    "from v0.9.0 on for the copy that is divided by the temperature",
)
LOGITS_EAGER = Constant(
    "logits and entropy, update, without torch.compile",
    28,
    14,
    28,
    _PER_LOGIT,
    "assumed",
    f"{_TRACED}: softmax, logsumexp and products in fp32, and their gradients",
)
LOGITS_OLD_EAGER = Constant(
    "logits and entropy, old log-prob, without torch.compile", 14, 9, 14, _PER_LOGIT, "assumed", _TRACED
)
LOGITS_ENTROPY_RECOMPUTED = Constant(
    "logits, entropy recomputed in the backward pass", 6, 4, 8, _PER_LOGIT, "assumed", _COUNTED
)
ENTROPY = Constant(
    "softmax and products of the entropy", 7, 7, 7, _PER_LOGIT, "assumed", "verl, docs/perf/perf_tuning.rst"
)
LOGITS_OLD = Constant("logits and entropy, old log-prob", 9, 9, 11, _PER_LOGIT, "assumed", _COUNTED)
LOGITS_REFERENCE = Constant("logits, reference log-prob", 2, 2, 4, _PER_LOGIT, "assumed", _COUNTED)
LOGITS_FUSED_LOSS = Constant(
    "logits, fused cross-entropy in fp32",
    8,
    8,
    8.3,
    _PER_LOGIT,
    "measured",
    "slopes of fms-a100_80gb_liger-L10/-L11, -L42/-L43, -L66/-L67, -L74/-L75",
)
LOGITS_TORCH_LOSS = Constant(
    "logits, loss of transformers",
    12,
    12,
    16,
    _PER_LOGIT,
    "assumed",
    "counted: float copy, shifted copy and softmax",
)
LOGITS_CHUNKED_LOSS = Constant(
    "logits, loss over chunks",
    4,
    4,
    4,
    _PER_LOGIT,
    "assumed",
    "counted: the chunks' logits in 16 bits all exist, and their gradients",
)
LOSS_HIDDEN = Constant(
    "last hidden states at the loss, fused norm", 4, 4, 8, _PER_HIDDEN, "measured", "the same rows"
)
LAST_NORM = Constant(
    "last hidden states at the loss",
    8,
    4,
    8,
    _PER_HIDDEN,
    "measured",
    f"{_TRACED}: in fp32, normalised, and the output",
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
LORA_INPUTS = Constant(
    "fused kernels of adapters in fp32, working set",
    1.94,
    1.91,
    1.97,
    "times",
    "measured",
    "fms-a100_80gb_liger-L46…L48, -L78…L80, -L142…L144, -L174…L176",
)
COMPILED = Constant(
    "saved tensors of compiled or fused layers",
    0.69,
    0.69,
    1,
    "times",
    "measured",
    "torchtune-3.2-3B-280 to -283",
)
EXPERT_IMBALANCE = Constant(
    "tokens of the fullest expert group over the mean", 1.2, 1, 1.5, "times", "assumed", "no measurement"
)
LENGTH_SPREAD = Constant(
    "fullest micro-batch: spread over the square root of its sequences",
    1,
    0.5,
    1.5,
    "of the mean length",
    "assumed",
    "a standard deviation of half the mean, two deviations above it; in the seven logs the fullest rank of a "
    "step holds up to 1.16 times the mean, and micro-batches vary more",
)
TYPICAL_LENGTH = Constant(
    "shortest mean length of real data, for the lower end where none is known",
    0.24,
    0.24,
    0.46,
    "of the longest",
    "measured",
    "the seven logs: 0.24 to 0.46",
)
POOL_OFFSET = Constant(
    "part of the rollout budget that is not in PyTorch's pool",
    2 * GIB,
    0,
    8 * GIB,
    "bytes",
    "measured",
    "a round guess: for the seven logs 2 to 4 GiB are about equal; single ones would want up to 8",
)
CUDA_GRAPHS = Constant(
    "CUDA graphs of the rollout engine",
    2 * GIB,
    1 * GIB,
    3 * GIB,
    "bytes",
    "assumed",
    "outside the budget and never freed (verl, docs/perf/best_practices.rst); a few gigabytes by "
    "NVIDIA-NeMo/Megatron-Bridge, docs/performance-guide.md",
)
CONTEXT = Constant(
    "CUDA context and workspaces",
    1 * GIB,
    0.9 * GIB,
    1.5 * GIB,
    "bytes a process",
    "measured",
    "19 rows on one GPU (fms-a100_80gb_liger): the driver counts at least 0.9 GiB more than PyTorch",
)
SECOND_CONTEXT = Constant(
    "CUDA context of an engine in its own process",
    0.5 * GIB,
    0.4 * GIB,
    1 * GIB,
    "bytes",
    "assumed",
    "no measurement",
)
COMMUNICATOR = Constant(
    "first communicator",
    1 * GIB,
    0.5 * GIB,
    2 * GIB,
    "bytes",
    "assumed",
    "40 rows on two and four GPUs (fms-a100_80gb_liger): the driver counts at least 3.5 GiB more than torch, "
    "which context, communicator and fragments share here",
)
NEXT_COMMUNICATOR = Constant(
    "each further communicator", 0.5 * GIB, 0.3 * GIB, 1 * GIB, "bytes", "assumed", "no measurement"
)
FRAGMENTATION = Constant(
    "fragmentation",
    0.04,
    0,
    0.08,
    "of what the training process allocates",
    "assumed",
    "with the constants above, the smallest difference between driver and PyTorch in those rows",
)
DRIVER_RESERVE = Constant(
    "memory that CUDA does not offer",
    0.5 * GIB,
    0.4 * GIB,
    0.9 * GIB,
    "bytes",
    "measured",
    "GPUs in gpus.yaml whose driver figure and CUDA total are both known",
)
HOST_BASE = Constant(
    N_("Ray, data and Python"),
    20 * GIB,
    7 * GIB,
    25 * GIB,
    "bytes a node",
    "measured",
    "the two logs of Qwen2.5-0.5B: 13 and 24 GiB in all, about 5 of them the model's states",
)
