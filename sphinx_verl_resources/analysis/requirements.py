"""The number of GPUs that a model needs by the analysis, compared with the original requirement lists."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..catalog.names import COMPONENTS
from ..diagnostics import NoAnswerError
from ..units import GB, MIB
from .analysis import analyse, assumptions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..catalog.analysis import Analysis
    from ..catalog.models.analysis import Claim, Requirement

Judgement = Literal["holds", "too few", "more than needed", "never fits"]
#: Ways to derive a number of GPUs. ``chain``: the smallest power of two with which each GPU stays below the
#: limit. ``original chain``: the same with the original figures and the GPU's nominal size. ``pooled``: the
#: smallest power of two whose GPUs together can hold the total. ``doubled``: twice the minimum in the lists.
Derivation = Literal["chain", "original chain", "pooled", "doubled"]


@dataclass(frozen=True)
class JudgedClaim:
    """A claim about one GPU, and its judgement by the analysis. Sizes are bytes.

    Attributes:
        claim: the entry of the original list.
        gpu: the name of the GPU.
        limit: the part of its memory that may be used.
        per_gpu: the memory of a GPU with the claimed number, after all steps.
        counts: the number of GPUs by each derivation; None if no number is enough, or a figure is missing.
        judgement: the judgement of the claim, by the chain of optimisations.
        deciding: a number of GPUs that shows why, and the memory of each GPU with it; None if one GPU is
            enough. ``holds``: half of the claimed number; ``more than needed``: the smallest sufficient
            number; otherwise the claimed number. For ``never fits``, the memory is the part that more GPUs do
            not reduce.
    """

    claim: Claim
    gpu: str
    limit: float
    per_gpu: float
    counts: Mapping[Derivation, int | None]
    judgement: Judgement
    deciding: tuple[int, float] | None

    @property
    def follows(self) -> tuple[Derivation, ...]:
        """The derivations that give the claimed number of GPUs."""
        return tuple(name for name, number in self.counts.items() if number == self.claim.count)


def judge(analysis: Analysis, requirement: Requirement) -> tuple[JudgedClaim, ...]:
    """Judge each claim about a model, for each GPU in it.

    Raises:
        NoAnswerError: the model or a GPU is unknown.
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
        message = f"unknown GPU {gpu_name!r} in the requirements of {name!r}"
        raise NoAnswerError.because(message, "add it to gpus.yaml")
    share = assumptions_of(analysis).memory_limit
    limit = share * gpu.memory_mib * MIB
    smallest = smallest_count(analysis, name, limit)
    per_gpu = _per_gpu(analysis, name, claim.count)
    judgement, deciding = _judgement(analysis, name, claim.count, smallest, fits=per_gpu < limit)
    counts: dict[Derivation, int | None] = {
        "chain": smallest,
        "original chain": original_count(analysis, name, share * gpu.memory_gb * GB),
        "pooled": power_of_two(analyse(analysis, name).start.total / limit),
        "doubled": 2 * minimum if minimum and claim.level != "minimum" else None,
    }
    return JudgedClaim(claim, gpu.name, limit, per_gpu, counts, judgement, deciding)


def _judgement(
    analysis: Analysis, name: str, count: int, smallest: int | None, *, fits: bool
) -> tuple[Judgement, tuple[int, float] | None]:
    """Return the judgement of a number of GPUs, and ``JudgedClaim.deciding``."""
    if smallest is None:
        return "never fits", (count, undivided(analysis, name))
    judgement: Judgement
    if not fits:
        judgement, deciding = "too few", count
    elif count > smallest:
        judgement, deciding = "more than needed", smallest
    else:
        judgement, deciding = "holds", smallest // 2
    return judgement, (deciding, _per_gpu(analysis, name, deciding)) if deciding else None


def _per_gpu(analysis: Analysis, name: str, gpus: int) -> float:
    return analyse(analysis, name, gpus=gpus).end.total


def undivided(analysis: Analysis, name: str) -> float:
    """Return the bytes per GPU that more GPUs do not reduce, after all steps."""
    end, divided = analyse(analysis, name).end, _divided(analysis)
    return end.of(component.key for component in end.components if component.key not in divided)


def _divided(analysis: Analysis) -> set[str]:
    """Return the components that the GPUs share."""
    steps = (step for step in analysis.steps.values() if step.divide_by == "gpus")
    return {component for step in steps for component in step.components}


def smallest_count(analysis: Analysis, name: str, limit: float) -> int | None:
    """Return the smallest power of two with which each GPU stays below ``limit`` bytes, after all steps.

    Return None if no number is enough.
    """
    return _smallest(lambda gpus: _per_gpu(analysis, name, gpus), limit)


def original_count(analysis: Analysis, name: str, limit: float) -> int | None:
    """Return the smallest count by the original figures; None if one is missing, or no count is enough."""
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
    """Return the smallest power of two with ``per_gpu`` below ``limit``; None above 2^20."""
    counts = (1 << exponent for exponent in range(21))
    return next((count for count in counts if per_gpu(count) < limit), None)


def power_of_two(number: float) -> int:
    """Return the smallest power of two that is at least ``number``, and at least 1."""
    return 1 << max(0, math.ceil(number) - 1).bit_length()
