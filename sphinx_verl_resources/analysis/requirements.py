"""The number of GPUs that a model needs by the analysis, compared with the original requirement lists."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..catalog.names import COMPONENTS
from ..diagnostics import NoAnswerError
from ..units import GB, MIB
from .analysis import analyse
from .model_shape import assumptions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..catalog.analysis import Analysis
    from ..catalog.models.analysis import Claim, Requirement

Judgement = Literal["holds", "too few", "more than needed", "never fits"]
#: Ways to arrive at a number of GPUs. original chain: the chain with the figures of the original document.
#: doubled: twice what the lists call the minimum.
Derivation = Literal["chain", "original chain", "pooled", "doubled"]


@dataclass(frozen=True)
class JudgedClaim:
    """A claim about one GPU, and what follows from the analysis. Sizes are bytes.

    Attributes:
        level: minimum, recommended or optimal.
        claim: the entry of the original list.
        unknown: GPUs in it that were never made.
        count: the claimed number of GPUs.
        gpu: name of the GPU.
        limit: the share of its memory to stay below.
        per_gpu: memory of a GPU at the claimed number, with all steps.
        per_gpu_at_smallest: at the smallest number that is enough; None if there is none.
        per_gpu_below: at half of that; None if one GPU is enough.
        undivided: the part of it that more GPUs do not make smaller.
        smallest: the smallest power of two at which a GPU stays below the limit; None if there is none.
        pooled: the smallest power of two whose GPUs together could hold the total below the limit.
        original_chain: like ``smallest``, by the original figures and the GPU's marketed size; None if no
            number is enough, or a figure is missing.
        minimum: the number of these GPUs that the lists call the minimum; None if they do not.
    """

    level: str
    claim: str
    unknown: tuple[str, ...]
    count: int
    gpu: str
    limit: float
    per_gpu: float
    per_gpu_at_smallest: float | None
    per_gpu_below: float | None
    undivided: float
    smallest: int | None
    pooled: int
    original_chain: int | None
    minimum: int | None

    @property
    def judgement(self) -> Judgement:
        """Compare the claim with the chain of optimisations."""
        if self.smallest is None:
            return "never fits"
        if self.per_gpu >= self.limit:
            return "too few"
        return "more than needed" if self.count > self.smallest else "holds"

    @property
    def follows(self) -> tuple[Derivation, ...]:
        """Return the derivations that give the claimed number of GPUs."""
        derivations: tuple[tuple[Derivation, int | None], ...] = (
            ("chain", self.smallest),
            ("original chain", self.original_chain),
            ("pooled", self.pooled),
            ("doubled", 2 * self.minimum if self.minimum and self.level != "minimum" else None),
        )
        return tuple(name for name, number in derivations if number == self.count)


def judge(analysis: Analysis, requirement: Requirement) -> tuple[JudgedClaim, ...]:
    """Judge each claim about a model, for each GPU that it names.

    Raises:
        NoAnswerError: the model or a GPU is not known.
    """
    minimum = {claim.gpus: claim.count for claim in requirement.claims if claim.level == "minimum"}
    return tuple(
        _judge(analysis, requirement.name, claim, gpu_name, minimum.get(claim.gpus))
        for claim in requirement.claims
        for gpu_name in claim.gpus
    )


def _judge(analysis: Analysis, name: str, claim: Claim, gpu_name: str, minimum: int | None) -> JudgedClaim:
    gpu = analysis.gpus.get(gpu_name)
    if gpu is None:
        message = f"the requirements of {name!r} name an unknown GPU {gpu_name!r}"
        raise NoAnswerError.because(message, "add it to gpus.yaml")
    share = assumptions_of(analysis).memory_limit
    limit = share * gpu.memory_mib * MIB
    smallest = smallest_count(analysis, name, limit)
    return JudgedClaim(
        level=claim.level,
        claim=claim.text,
        unknown=claim.unknown,
        count=claim.count,
        gpu=gpu.name,
        limit=limit,
        per_gpu=_per_gpu(analysis, name, claim.count),
        per_gpu_at_smallest=_per_gpu(analysis, name, smallest) if smallest else None,
        per_gpu_below=_per_gpu(analysis, name, smallest // 2) if smallest and smallest > 1 else None,
        undivided=undivided(analysis, name),
        smallest=smallest,
        pooled=power_of_two(analyse(analysis, name).start.total / limit),
        original_chain=original_count(analysis, name, share * gpu.memory_gb * GB),
        minimum=minimum,
    )


def _per_gpu(analysis: Analysis, name: str, gpus: int) -> float:
    return analyse(analysis, name, gpus=gpus).end.total


def undivided(analysis: Analysis, name: str) -> float:
    """Return the bytes per GPU that more GPUs do not make smaller, with all steps."""
    end, divided = analyse(analysis, name).end, _divided(analysis)
    return end.of(component.key for component in end.components if component.key not in divided)


def _divided(analysis: Analysis) -> set[str]:
    """Return the components that the GPUs share."""
    steps = (step for step in analysis.steps.values() if step.divide_by == "gpus")
    return {component for step in steps for component in step.components}


def smallest_count(analysis: Analysis, name: str, limit: float) -> int | None:
    """Return the smallest power of two of GPUs at which each stays below ``limit`` bytes, with all steps.

    None: no number is enough.
    """
    return _smallest(lambda gpus: _per_gpu(analysis, name, gpus), limit)


def original_count(analysis: Analysis, name: str, limit: float) -> int | None:
    """Return the same by the figures of the original document; None, too, if one of them is missing there."""
    original = analysis.printed.get(name)
    values = {item.figure: item.value * GB for item in original.figures} if original else {}
    values["overhead"] = assumptions_of(analysis).overhead_gb * GB
    shared, whole = 0.0, 0.0
    for component in COMPONENTS:
        value = values.get(component)
        for step in analysis.steps.values():
            if component in step.components and step.divide_by != "gpus":
                value = values.get(f"{step.name}.{component}")
        if value is None:
            return None
        if component in _divided(analysis):
            shared += value
        else:
            whole += value
    return _smallest(lambda gpus: shared / gpus + whole, limit)


def _smallest(per_gpu: Callable[[int], float], limit: float) -> int | None:
    """Return the smallest power of two with ``per_gpu`` below ``limit``; None if no cluster has as many."""
    counts = (1 << exponent for exponent in range(21))
    return next((count for count in counts if per_gpu(count) < limit), None)


def power_of_two(number: float) -> int:
    """Return the smallest power of two that is at least ``number``, and at least 1."""
    return 1 << max(0, math.ceil(number) - 1).bit_length()
