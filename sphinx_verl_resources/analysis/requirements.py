"""How many GPUs a model needs by the analysis, beside what the requirement lists claim."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..catalog.names import COMPONENTS
from ..units import GB, MIB
from .analysis import analyse
from .shapes import AnalysisError, assumptions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..catalog.analysis import Analysis
    from ..catalog.models.analysis import Claim, Requirement

Judgement = Literal["holds", "too few", "more than needed", "never fits"]
#: Ways to arrive at a number of GPUs. printed chain: with the figures as they were printed. doubled: twice
#: what the lists call the minimum.
Reading = Literal["chain", "printed chain", "pooled", "doubled"]


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
        per_gpu_at_smallest: at the smallest number that is enough; None if there is none.
        per_gpu_below: at half of that; None if one GPU is enough.
        undivided: the part of it that more GPUs do not make smaller.
        smallest: the smallest power of two at which a GPU stays below the limit; None if there is none.
        pooled: the smallest power of two whose GPUs together could hold the total below the limit.
        printed_chain: like ``smallest``, by the printed figures and the size the card is sold by; None if no
            number is enough, or not all of them were printed.
        minimum: the number of GPUs that the lists call the minimum with the same cards; None if they do not.
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
    printed_chain: int | None
    minimum: int | None

    @property
    def judgement(self) -> Judgement:
        """Whether the claim is true by the chain of optimisations."""
        if self.smallest is None:
            return "never fits"
        if self.per_gpu >= self.limit:
            return "too few"
        return "more than needed" if self.count > self.smallest else "holds"

    @property
    def follows(self) -> tuple[Reading, ...]:
        """The readings whose number of GPUs is the one claimed."""
        readings: tuple[tuple[Reading, int | None], ...] = (
            ("chain", self.smallest),
            ("printed chain", self.printed_chain),
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
    for gpu_name in claim.gpus:
        gpu = analysis.gpus.get(gpu_name)
        if gpu is None:
            raise AnalysisError(
                f"the requirements of {name!r} name an unknown GPU {gpu_name!r}; add it to gpus.yaml"
            )
        limit = share * gpu.memory_mib * MIB
        smallest = smallest_count(analysis, name, limit)
        yield Verdict(
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
            pooled=power_of_two(total / limit),
            printed_chain=printed_count(analysis, name, share * gpu.memory_gb * GB),
            minimum=minimum,
        )


def _per_gpu(analysis: Analysis, name: str, gpus: int) -> float:
    return analyse(analysis, name, gpus=gpus).end.total


def undivided(analysis: Analysis, name: str) -> float:
    """Bytes per GPU that stay, however many GPUs there are, with all steps."""
    end, divided = analyse(analysis, name).end, _divided(analysis)
    return end.of(component.key for component in end.components if component.key not in divided)


def _divided(analysis: Analysis) -> set[str]:
    """The components that the GPUs share."""
    steps = (step for step in analysis.steps.values() if step.divide_by == "gpus")
    return {component for step in steps for component in step.components}


def smallest_count(analysis: Analysis, name: str, limit: float) -> int | None:
    """The smallest power of two of GPUs at which each stays below ``limit`` bytes, with all steps.

    None if no number is enough.
    """
    return _smallest(lambda gpus: _per_gpu(analysis, name, gpus), limit)


def printed_count(analysis: Analysis, name: str, limit: float) -> int | None:
    """The same with the figures as they were printed; None, too, if not all of them were."""
    printed = analysis.printed.get(name)
    values = {item.figure: item.value * GB for item in printed.figures} if printed else {}
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
    """The smallest power of two for which ``per_gpu`` is below ``limit``; None if no cluster has as many."""
    counts = (1 << exponent for exponent in range(21))
    return next((count for count in counts if per_gpu(count) < limit), None)


def power_of_two(number: float) -> int:
    """The smallest power of two that is at least ``number``, and at least 1."""
    return 1 << max(0, math.ceil(number) - 1).bit_length()
