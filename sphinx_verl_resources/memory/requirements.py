"""How many GPUs a model needs by the analysis, beside what the requirement lists claim."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..units import MIB
from .analysis import analyse
from .shapes import AnalysisError, assumptions_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.analysis import Analysis
    from ..catalog.models.analysis import Claim, Requirement

Judgement = Literal["holds", "too few", "more than needed", "never fits"]
#: Ways to arrive at a number of GPUs. doubled: twice what the lists call the minimum.
Reading = Literal["chain", "pooled", "doubled"]


@dataclass(frozen=True)
class Verdict:
    """One claim about one card. Sizes are bytes.

    Attributes:
        level: minimum, recommended or optimal.
        claim: the entry as printed.
        unknown: cards it names that were never made.
        count: the number of GPUs claimed.
        gpu: name of the card.
        limit: the share of its memory to stay below.
        per_gpu: memory of a GPU at the number claimed, with all steps.
        undivided: the part of it that more GPUs do not make smaller.
        total: memory without any step.
        smallest: the smallest power of two at which a GPU stays below the limit; None if there is none.
        pooled: the smallest power of two whose GPUs together could hold the total below the limit.
        minimum: the number of GPUs that the lists call the minimum with the same cards; None if they do not.
    """

    level: str
    claim: str
    unknown: tuple[str, ...]
    count: int
    gpu: str
    limit: float
    per_gpu: float
    undivided: float
    total: float
    smallest: int | None
    pooled: int
    minimum: int | None

    @property
    def judgement(self) -> Judgement:
        """Whether the claim is true by the chain of optimisations."""
        if self.smallest is None:
            return "never fits"
        if self.count < self.smallest:
            return "too few"
        return "holds" if self.count == self.smallest else "more than needed"

    @property
    def follows(self) -> tuple[Reading, ...]:
        """The readings whose number of GPUs the claim names."""
        readings: tuple[tuple[Reading, int | None], ...] = (
            ("chain", self.smallest),
            ("pooled", self.pooled),
            ("doubled", 2 * self.minimum if self.minimum and self.level != "minimum" else None),
        )
        return tuple(reading for reading, number in readings if number == self.count)


def judge(analysis: Analysis, requirement: Requirement) -> tuple[Verdict, ...]:
    """Each claim about a model, for each card that it names.

    Raises:
        AnalysisError: the model or a card is not known.
    """
    name = requirement.name
    minimum = {claim.gpus: claim.count for claim in requirement.claims if claim.level == "minimum"}
    return tuple(
        verdict
        for claim in requirement.claims
        for verdict in _judge(analysis, name, claim, minimum.get(claim.gpus))
    )


def _judge(analysis: Analysis, name: str, claim: Claim, minimum: int | None) -> Iterator[Verdict]:
    share = assumptions_of(analysis).memory_limit
    total = analyse(analysis, name).start.total
    per_gpu = analyse(analysis, name, gpus=claim.count).end.total
    for gpu_name in claim.gpus:
        gpu = analysis.gpus.get(gpu_name)
        if gpu is None:
            raise AnalysisError(f"the requirements of {name!r} name an unknown GPU {gpu_name!r}")
        limit = share * gpu.memory_mib * MIB
        yield Verdict(
            claim.level, claim.text, claim.unknown, claim.count, gpu.name, limit, per_gpu,
            undivided(analysis, name), total, smallest_count(analysis, name, limit),
            power_of_two(total / limit), minimum,
        )  # fmt: skip


def undivided(analysis: Analysis, name: str) -> float:
    """Bytes per GPU that stay, however many GPUs there are, with all steps."""
    end = analyse(analysis, name).end
    divided = {
        component
        for step in analysis.steps.values()
        if step.divide_by == "gpus"
        for component in step.components
    }
    return end.of(component.key for component in end.components if component.key not in divided)


def smallest_count(analysis: Analysis, name: str, limit: float) -> int | None:
    """The smallest power of two of GPUs at which each stays below ``limit`` bytes, with all steps.

    None if no number is enough.
    """
    if undivided(analysis, name) >= limit:
        return None
    count = 1
    while analyse(analysis, name, gpus=count).end.total >= limit:
        if count > 2**30:  # a hair below the limit, which no cluster reaches
            return None
        count *= 2
    return count


def power_of_two(number: float) -> int:
    """The smallest power of two that is at least ``number``, and at least 1."""
    return 1 << max(0, math.ceil(number) - 1).bit_length()
