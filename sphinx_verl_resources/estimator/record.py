"""The record of how well the estimator does: made from the cases, read by every estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..catalog.catalog import Registry
from ..catalog.models.accuracy import Accuracy
from .backtest import Summary, ranges_from, score, summaries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..catalog.models.case import Case
    from .backtest import Score
    from .ranges import Range
    from .registries import Registries

_HEAD = """\
# yaml-language-server: $schema=schema/accuracy.json
# What the cases in cases/ say about the estimator, and the ranges that it prints because of them. Written by
# `make accuracy`; a test fails when the estimator does worse than this.
accuracy:
"""


def accuracy_of(
    cases: Sequence[Case], registries: Registries, watched: Callable[[Sequence[Case]], Iterable[Case]] = iter
) -> tuple[tuple[Score, ...], tuple[Accuracy, ...]]:
    """Every case scored with the ranges that the cases themselves give, and the record of it.

    Figures are rounded to three decimals. ``watched`` hands the cases on while somebody looks.
    """
    first = [score(case, registries) for case in watched(cases)]
    ranges = {found.kind: found for found in ranges_from(first)}
    rounded = {
        name: replace(
            found, low=max(1, int(found.low * 1000)) / 1000, high=-int(-found.high * 1000 - 0.999) / 1000
        )
        for name, found in ranges.items()
    }
    placeholder = (_entry(Summary(name, 1, 0, 0, 0, 0, 0), found) for name, found in rounded.items())
    accuracy = Registry([((entry.name,), entry) for entry in placeholder], str)
    with_ranges = type(registries)(
        registries.gpus, registries.architectures, registries.config_keys, accuracy
    )
    scores = tuple(score(case, with_ranges) for case in watched(cases))
    found = {summary.group: summary for summary in summaries(scores)}
    names = dict.fromkeys([*found, *rounded])
    empty = Summary("", 1, 0, 0, 0, 0, 0)
    return scores, tuple(
        _entry(found.get(name, replace(empty, group=name)), rounded.get(name)) for name in names
    )


def _entry(summary: Summary, found: Range | None) -> Accuracy:
    return Accuracy(
        name=summary.group,
        cases=summary.cases,
        mean_error=round(summary.mean, 3) + 0.0,
        median_error=round(summary.median, 3) + 0.0,
        worst_error=round(summary.worst, 3) + 0.0,
        inside=round(summary.inside, 3) + 0.0,
        half_width=round(summary.half_width, 3) + 0.0,
        low=found.low if found else None,
        high=found.high if found else None,
    )


def accuracy_text(entries: Iterable[Accuracy]) -> str:
    """The text of ``accuracy.yaml``, the same on every run."""
    lines = []
    for entry in entries:
        values = {name: value for name, value in entry if value is not None}
        first, *others = (f"{name}: {value}" for name, value in values.items())
        lines += [f"  - {first}", *(f"    {line}" for line in others)]
    return _HEAD + "\n".join(lines) + "\n"
