"""Write data/accuracy.yaml, the errors for each kind of run and the resulting ranges: ``make accuracy``.

Fitted values are tested on cases from other sources: leave one source out, fit to the rest, and measure the
errors on the source that was left out.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

from training import score_any

from sphinx_verl_resources.commands import given_data
from sphinx_verl_resources.estimator.allocations import Ends, size_of
from sphinx_verl_resources.estimator.architectures import (
    CASE_GROUPS,
    EASYR1,
    FSDP,
    FSDP_TODAY,
    MEGATRON,
    Accuracy,
    AccuracyPart,
)
from sphinx_verl_resources.estimator.constants import LOGITS_IN_LOGS
from sphinx_verl_resources.estimator.estimate import Estimate, likeness

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sphinx_verl_resources.estimator.backtest import Score
    from sphinx_verl_resources.estimator.case_records import Case
    from sphinx_verl_resources.estimator.registries import Registries

#: The share of measured values that ranges should contain.
COVERAGE = 0.9
#: The candidates for ``LOGITS_IN_LOGS``: the traced value and larger ones.
CANDIDATES = (8, 9, 10, 11, 12)
#: A kind with fewer cases gets the width of ranges from the cases of these kinds together.
_FEWEST, _OF_VERL = 4, (FSDP, FSDP_TODAY, MEGATRON)
#: The bounds of the widening.
_WIDEST, _NARROWEST = 8.0, 0.25


def summaries(scores: Iterable[Score]) -> tuple[Accuracy, ...]:
    """Return the errors of each kind that has any, without contested and unscored cases."""
    compared = [item for item in scores if item.case.is_scored and item.deviation is not None]
    needed = {item.case.id: needed_widening(item) for item in compared}
    kinds = {kind: [item for item in compared if item.group == kind] for kind in CASE_GROUPS}
    return tuple(_summary(kind, own, compared, needed) for kind, own in kinds.items() if own)


def _summary(
    kind: str, own: Sequence[Score], everything: Sequence[Score], needed: dict[str, float]
) -> Accuracy:
    errors = [abs(item.deviation) for item in own]
    widening = _widening(own, everything, needed)
    others = {source: _others(own, source) for source in {source_of(item.case) for item in own}}
    widest = {
        source: _widening(found, _others(everything, source), needed) for source, found in others.items()
    }
    inside = [needed[item.case.id] <= widest[source_of(item.case)] for item in own]
    ends = [(item, _ends(item, widening)) for item in own]
    return Accuracy(
        name=kind,
        cases=len(own),
        mean_error=fmean(errors),
        median_error=median(errors),
        worst_error=max(errors),
        out_of_fold=_out_of_fold(own),
        inside=sum(inside) / len(own),
        half_width=median((high - low) / 2 / item.computed for item, (low, high) in ends),
        widening=widening,
        parts=_parts(own),
    )


def _parts(scores: Iterable[Score]) -> tuple[AccuracyPart, ...]:
    """Return the errors for groups of similar runs of verl."""
    errors: dict[tuple[bool, bool, bool], list[float]] = {}
    for item in scores:
        if isinstance(item.estimate, Estimate) and item.group != EASYR1:
            errors.setdefault(likeness(item.estimate), []).append(abs(item.deviation))
    return tuple(
        AccuracyPart(today=now, lora=lora, experts=moe, cases=len(found), mean_error=round(fmean(found), 3))
        for (now, lora, moe), found in sorted(errors.items())
    )


def source_of(case: Case) -> str:
    """Return the source of a case: cases from the same document or directory of logs are not independent."""
    source = case.source
    path = source.path
    if path and path.endswith(".log"):
        path = path.rpartition("/")[0]
    return " ".join(str(part) for part in (source.repo, source.issue or path or source.where) if part)


def _others(scores: Iterable[Score], source: str) -> list[Score]:
    return [item for item in scores if source_of(item.case) != source]


def needed_widening(item: Score) -> float:
    """Return the smallest widening with which the range of a case contains the observed value."""
    low, high = 0.0, _WIDEST
    for _ in range(20):
        middle = (low + high) / 2
        ends = _ends(item, middle)
        low, high = (low, middle) if ends.low <= item.observed <= ends.high else (middle, high)
    return high


def _ends(item: Score, widening: float) -> Ends:
    """Return the range of the compared figure with a widening."""
    found = item.compared
    return found.torch_peak_ends(widening) if item.figure == "counter" else found.peak_ends(widening)


def _widening(own: Sequence[Score], everything: Sequence[Score], needed: dict[str, float]) -> float:
    """Return the smallest widening with which 90 % of the ranges contain the observed value."""
    cases = own if len(own) >= _FEWEST else [item for item in everything if item.group in _OF_VERL]
    ordered = sorted(needed[item.case.id] for item in cases)
    found = max(_NARROWEST, ordered[math.ceil(COVERAGE * len(ordered)) - 1])
    return math.ceil(found * 1000) / 1000


def _out_of_fold(scores: Sequence[Score]) -> float:
    """Return the mean error with ``LOGITS_IN_LOGS`` fitted to the logs of other sources."""
    errors = []
    for source in dict.fromkeys(source_of(item.case) for item in scores):
        best = fitted(_others(scores, source))
        errors += [error_with(best, item) for item in scores if source_of(item.case) == source]
    return fmean(errors)


def fitted(scores: Sequence[Score]) -> float:
    """Return the candidate for ``LOGITS_IN_LOGS`` with the smallest mean error."""
    return min(CANDIDATES, key=lambda each: math.fsum(error_with(each, item) for item in scores))


def error_with(each: float, item: Score) -> float:
    """Return the error of a log with other bytes per logit in its update."""
    found = item.compared
    factor, fitted_here = each / LOGITS_IN_LOGS.value - 1, LOGITS_IN_LOGS.spread
    changed = [
        phase.counted + factor * size_of(tuple(part for part in phase.trainer if part.spread is fitted_here))
        for phase in found.phases
    ]
    computed = item.computed + max(changed) - max(phase.counted for phase in found.phases)
    return abs(computed / item.observed - 1)


def accuracy_of(cases: Iterable[Case], registries: Registries) -> tuple[Accuracy, ...]:
    """Return the record of accuracy that follows from the cases."""
    return tuple(map(_rounded, summaries([score_any(case, registries) for case in cases])))


def _rounded(found: Accuracy) -> Accuracy:
    figures = {name: round(value, 3) + 0.0 for name, value in found if type(value) is float}
    return found.model_copy(update=figures)


_HEAD = """\
# yaml-language-server: $schema=schema/accuracy.json
# The estimator's errors on the cases in cases/, and the resulting width of its ranges. Written by
# `make accuracy`; a test fails if the estimator does worse than this.
accuracy:
"""


def accuracy_text(entries: Iterable[Accuracy]) -> str:
    """Return the text of ``accuracy.yaml``, the same on every run."""
    lines = []
    for entry in entries:
        values = {name: value for name, value in entry if value is not None and name != "parts"}
        first, *others = (f"{name}: {value}" for name, value in values.items())
        lines += [f"  - {first}", *(f"    {line}" for line in others)]
        lines += ["    parts:"] if entry.parts else []
        for part in entry.parts:
            inner = ", ".join(f"{name}: {str(value).lower()}" for name, value in part)
            lines.append(f"      - {{{inner}}}")
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    data = given_data([str(root / "data")])
    cases = (entry.case for entry in data.cases.by_id.values())
    (root / "data/accuracy.yaml").write_text(accuracy_text(accuracy_of(cases, data.registries)), "utf-8")
