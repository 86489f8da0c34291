"""The record of accuracy: the estimator's errors for each kind of run, and the ranges that follow from them.

Fitted values are tested on cases from other sources: leave one source out, fit to the rest, and measure the
errors on the source that was left out.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from ..catalog.catalog import Registry
from ..catalog.dataset import no_progress
from ..catalog.models.registries import Accuracy, AccuracyPart
from ..catalog.names import CASE_GROUPS, EASYR1, FSDP, FSDP_TODAY, MEGATRON
from .allocations import Ends, size_of
from .backtest import score
from .constants import LOGITS_IN_LOGS
from .estimate import Estimate, likeness

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..catalog.dataset import Progress
    from ..catalog.models.case import Case
    from .backtest import Score
    from .registries import Registries

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
    errors = [abs(item.deviation or 0) for item in own]
    widening = _widening(own, everything, needed)
    others = {source: _others(own, source) for source in {source_of(item.case) for item in own}}
    of_others = {
        source: _widening(found, _others(everything, source), needed) for source, found in others.items()
    }
    inside = [needed[item.case.id] <= of_others[source_of(item.case)] for item in own]
    widths = [_half_width(item, widening) for item in own]
    return Accuracy(
        name=kind,
        cases=len(own),
        mean_error=statistics.fmean(errors),
        median_error=statistics.median(errors),
        worst_error=max(errors),
        out_of_fold=_out_of_fold(own),
        inside=sum(inside) / len(own),
        half_width=statistics.median(widths),
        widening=widening,
        parts=_parts(own),
    )


def _parts(scores: Iterable[Score]) -> tuple[AccuracyPart, ...]:
    """Return the errors for groups of similar runs of verl."""
    errors: dict[tuple[bool, bool, bool], list[float]] = {}
    for item in scores:
        if isinstance(item.estimate, Estimate) and item.group != EASYR1:
            errors.setdefault(likeness(item.estimate), []).append(abs(item.deviation or 0))
    return tuple(
        AccuracyPart(
            today=today,
            lora=lora,
            experts=experts,
            cases=len(found),
            mean_error=round(statistics.fmean(found), 3),
        )
        for (today, lora, experts), found in sorted(errors.items())
    )


def source_of(case: Case) -> str:
    """Return the source of a case: cases from the same document or directory of logs are not independent."""
    source = case.source
    if source is None:
        return case.id
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
        low, high = (low, middle) if ends.low <= (item.observed or 0) <= ends.high else (middle, high)
    return high


def _ends(item: Score, widening: float) -> Ends:
    """Return the range of the compared figure with a widening."""
    found = item.compared
    if found is None:
        return Ends(0.0, math.inf)
    return found.torch_peak_ends(widening) if item.figure == "counter" else found.peak_ends(widening)


def _half_width(item: Score, widening: float) -> float:
    low, high = _ends(item, widening)
    return (high - low) / 2 / (item.computed or 1)


def _widening(own: Sequence[Score], everything: Sequence[Score], needed: dict[str, float]) -> float:
    """Return the smallest widening with which 90 % of the ranges contain the observed value."""
    cases = own if len(own) >= _FEWEST else [item for item in everything if item.group in _OF_VERL]
    ordered = sorted(needed[item.case.id] for item in cases)
    found = ordered[math.ceil(COVERAGE * len(ordered)) - 1] if ordered else 1.0
    return math.ceil(max(_NARROWEST, found) * 1000) / 1000


def _out_of_fold(scores: Sequence[Score]) -> float:
    """Return the mean error with ``LOGITS_IN_LOGS`` fitted to the logs of other sources."""
    errors = []
    for source in dict.fromkeys(source_of(item.case) for item in scores):
        best = fitted(_others(scores, source))
        errors += [error_with(best, item) for item in scores if source_of(item.case) == source]
    return statistics.fmean(errors)


def fitted(scores: Sequence[Score]) -> float:
    """Return the candidate for ``LOGITS_IN_LOGS`` with the smallest mean error."""
    return min(CANDIDATES, key=lambda each: math.fsum(error_with(each, item) for item in scores))


def error_with(each: float, item: Score) -> float:
    """Return the error of a log with other bytes per logit in its update."""
    found = item.compared
    if found is None or not item.observed or not item.computed:
        return 0.0
    factor, fitted_here = each / LOGITS_IN_LOGS.value - 1, LOGITS_IN_LOGS.spread
    changed = [
        phase.counted + factor * size_of(tuple(part for part in phase.trainer if part.spread is fitted_here))
        for phase in found.phases
    ]
    computed = item.computed + max(changed) - max(phase.counted for phase in found.phases)
    return abs(computed / item.observed - 1)


def accuracy_of(
    cases: Sequence[Case],
    registries: Registries,
    progress: Progress = no_progress,
) -> tuple[tuple[Score, ...], tuple[Accuracy, ...]]:
    """Score every case with ranges fitted to these cases, and return the scores and the record of accuracy.

    Args:
        cases: the observations.
        registries: the registries, whose record of accuracy is ignored.
        progress: reports progress over the cases.
    """
    found = tuple(map(_rounded, summaries(score(case, registries) for case in progress(cases, "cases"))))
    refitted = replace(registries, accuracy=Registry(found))
    return tuple(score(case, refitted) for case in progress(cases, "cases")), found


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
