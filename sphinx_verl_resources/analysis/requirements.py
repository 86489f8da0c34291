"""The number of GPUs that a model needs by the analysis, compared with the original requirement lists."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..diagnostics import NoAnswerError
from ..units import MIB
from .analysis import analyse, assumptions_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..analysis_records import Analysis, Claim, Requirement

Judgement = Literal["holds", "too few", "more than needed", "never fits"]
#: Ways to derive a number of GPUs. ``chain``: the smallest power of two with which each GPU stays below the
#: limit. ``pooled``: the smallest power of two whose GPUs together can hold the total. ``doubled``: twice the
#: minimum in the lists.
Derivation = Literal["chain", "pooled", "doubled"]


@dataclass(frozen=True)
class JudgedClaim:
    """A claim about one GPU, and its judgement by the analysis. Sizes are bytes.

    Attributes:
        claim: the entry of the original list.
        gpu: the name of the GPU.
        limit: the part of its memory that may be used.
        per_gpu: the memory of a GPU with the claimed number, after all steps.
        counts: the number of GPUs by each derivation; None if no number is enough.
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
    limit = assumptions_of(analysis).memory_limit * gpu.memory_mib * MIB
    smallest = smallest_count(analysis, name, limit)
    per_gpu = _per_gpu(analysis, name, claim.count)
    judgement, deciding = _judgement(analysis, name, claim.count, smallest, fits=per_gpu < limit)
    counts: dict[Derivation, int | None] = {
        "chain": smallest,
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

    Return None if none up to 2^20 is enough.
    """
    counts = (1 << exponent for exponent in range(21))
    return next((count for count in counts if _per_gpu(analysis, name, count) < limit), None)


def power_of_two(number: float) -> int:
    """Return the smallest power of two that is at least ``number``, and at least 1."""
    return 1 << max(0, math.ceil(number) - 1).bit_length()
