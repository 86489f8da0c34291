"""Write data/accuracy.yaml, the errors for each kind of run and the resulting ranges: ``make accuracy``.

The error of a range is split-conformal: with n sources, the ⌈(n + 1) × 0.9⌉-th of the errors that were made,
one vote a source, among the cases of a kind that are compared with the same figure: PyTorch's counter or the
GPU's peak. A kind with fewer than nine sources has too few for that; it gets the error of all kinds together,
and if these have too few, that of both figures together.
"""

from __future__ import annotations

import math
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from training import score_any

from sphinx_verl_resources.commands import given_data
from sphinx_verl_resources.memory.registries import TRAINING, Accuracy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sphinx_verl_resources.memory.cases import Case
    from sphinx_verl_resources.memory.recorded import Score
    from sphinx_verl_resources.memory.registries import EstimatorContext

#: The share of sources that ranges should hold for, the fewest sources that give it, and the least error.
COVERAGE, FEWEST, LEAST = 0.9, 9, 0.05


def error_for(scores: Iterable[Score]) -> float:
    """Return the error that a run from a new source stays within with a chance of 90 %; at least 5 %.

    Each source has one vote, divided among its cases. An error is relative to the computed figure, as the
    ends of a range are.
    """
    by_source: dict[str, list[float]] = {}
    for item in scores:
        by_source.setdefault(source_of(item.case), []).append(abs(item.observed / item.computed - 1))
    votes = sorted((error, 1 / len(errors)) for errors in by_source.values() for error in errors)
    needed = min(len(by_source), (len(by_source) + 1) * COVERAGE) - 1e-9
    counted = accumulate(vote for _, vote in votes)
    within = (error for (error, _), count in zip(votes, counted, strict=True) if count >= needed)
    return max(LEAST, next(within, math.inf))


def summaries(scores: Iterable[Score]) -> tuple[Accuracy, ...]:
    """Return the errors of each kind that has any, without contested and unscored cases.

    Cases of low confidence, with guessed lengths or a peak that is "probably a full GPU", set no range.
    """
    compared = [item for item in scores if item.case.is_scored and item.deviation is not None]
    sure = [item for item in compared if item.case.confidence != "low"]
    kinds: dict[str, list[Score]] = {}
    for item in sorted(sure, key=lambda item: item.estimate.kind):
        kinds.setdefault(item.estimate.kind, []).append(item)
    return tuple(_summary(kind, own, sure) for kind, own in kinds.items())


def _summary(kind: str, own: Sequence[Score], everything: Sequence[Score]) -> Accuracy:
    voters = {of_torch: _voters(own, everything, of_torch) for of_torch in (False, True)}
    errors = [abs(item.deviation) for item in own]
    without = [error_for(_others(voters[item.of_torch], source_of(item.case))) for item in own]
    inside = [
        abs(item.observed / item.computed - 1) <= error for item, error in zip(own, without, strict=True)
    ]
    return Accuracy(
        name=kind,
        compared=_compared(own),
        cases=len(own),
        setups=len(
            {(item.case.model, item.case.gpus.count, item.case.gpus.type, item.case.train) for item in own}
        ),
        sources=len(_sources(own)),
        mean_error=fmean(errors),
        worst_error=max(errors),
        needed_more=sum(item.observed > item.computed for item in own),
        error=error_for(voters[False]),
        counter_error=error_for(voters[True]),
        inside=sum(inside) / len(own),
    )


def _voters(own: Sequence[Score], everything: Sequence[Score], of_torch: bool) -> Sequence[Score]:
    """Return the cases whose errors give the range of a figure."""
    pools = ([item for item in scores if item.of_torch == of_torch] for scores in (own, everything))
    return next((pool for pool in pools if len(_sources(pool)) >= FEWEST), everything)


def _sources(scores: Iterable[Score]) -> set[str]:
    return {source_of(item.case) for item in scores}


def _compared(scores: Sequence[Score]) -> str:
    """Return in words what ran, and which figures were compared."""
    runs = "fine-tuning" if scores[0].group == TRAINING else "reinforcement learning"
    states = sorted({"with" if _offloads(item.case) else "without" for item in scores})
    figures = {"PyTorch's counter" if item.of_torch else "the GPU's peak": None for item in scores}
    return f"{runs}, {' and '.join(states)} offloading; {' and '.join(figures)}"


def _offloads(case: Case) -> bool:
    return any(key.endswith("offload") and value is True for key, value in (case.config or {}).items())


def source_of(case: Case) -> str:
    """Return the source of a case: cases from the same document or directory of logs are not independent."""
    source = case.source
    path = source.path
    if path and path.endswith(".log"):
        path = path.rpartition("/")[0]
    return " ".join(str(part) for part in (source.repo, source.issue or path or source.where) if part)


def _others(scores: Iterable[Score], source: str) -> list[Score]:
    return [item for item in scores if source_of(item.case) != source]


def accuracy_of(cases: Iterable[Case], registries: EstimatorContext) -> tuple[Accuracy, ...]:
    """Return the record of accuracy that follows from the cases."""
    return tuple(map(_rounded, summaries([score_any(case, registries) for case in cases])))


def _rounded(entry: Accuracy) -> Accuracy:
    figures = {name: round(value, 3) + 0.0 for name, value in entry if type(value) is float}
    return entry.model_copy(update=figures)


_HEAD = """\
# yaml-language-server: $schema=schema/accuracy.json
# The estimator's errors on the cases in cases/, and the error that its ranges allow for. Written by
# `make accuracy`; a test fails if the estimator does worse than this.
accuracy:
"""


def accuracy_text(entries: Iterable[Accuracy]) -> str:
    """Return the text of ``accuracy.yaml``, the same on every run."""
    lines = []
    for entry in entries:
        first, *others = (f"{name}: {_text(value)}" for name, value in entry)
        lines += [f"  - {first}", *(f"    {line}" for line in others)]
    return _HEAD + "\n".join(lines) + "\n"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    data = given_data([str(root / "data")])
    cases = data.cases.by_id.values()
    (root / "data/accuracy.yaml").write_text(accuracy_text(accuracy_of(cases, data)), "utf-8")
