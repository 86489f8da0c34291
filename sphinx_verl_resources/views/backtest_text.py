"""Computed and observed figures of cases as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..estimator.backtest import GROUPS, summaries, verdict_shares
from ..units import gib_number, percent, share
from .plain_table import plain_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..estimator.backtest import Boundary, Score, Summary

#: Labels of the outcomes that verdicts are compared with.
_OUTCOMES = {"fits": "that ran", "oom": "that ran out of memory"}


def backtest_text(scores: Sequence[Score], limits: Sequence[Boundary]) -> str:
    """Return the cases, the errors of each group, the verdicts, and the largest batches."""
    headings = (
        "Case",
        "Computed GiB",
        "Observed GiB",
        "Error",
        "Range",
        "Inside",
        "Outcome",
        "Verdict",
        "Note",
    )
    sides = ("left", "right", "right", "right", "right", "left", "left", "left", "left")
    parts = [plain_table(headings, [_row(item) for item in scores], sides)]
    found = summaries(scores)
    if found:
        columns = ("Group", "Cases", "Mean error", "Median", "Worst", "Inside", "Half the range")
        parts.append(plain_table(columns, [_summary(item) for item in found], ("left", *("right",) * 6)))
    lines = [
        f"Cases {_OUTCOMES[outcome]}: the verdict of {agreed} of {total} does not contradict it."
        for outcome, (agreed, total) in verdict_shares(scores).items()
        if total
    ]
    lines += [
        f"Largest batch of {limit.name}: {limit.recorded} ran, {limit.computed} computed "
        f"({percent(limit.deviation)}){', contested' if limit.case.contested else ''}."
        for limit in limits
    ]
    lines += [f"No estimate of {item.case.id}: {item.error}." for item in scores if item.error]
    return "\n\n".join([*parts, *(["\n".join(lines)] if lines else [])])


def _row(item: Score) -> tuple[str, ...]:
    compared = item.computed is not None and item.low is not None and item.high is not None
    return (
        item.case.id,
        gib_number(item.computed) if item.computed is not None else "",
        gib_number(item.observed) if item.observed is not None else "",
        percent(item.deviation) if item.deviation is not None else "",
        f"{gib_number(item.low or 0)} to {gib_number(item.high or 0)}" if compared else "",
        {True: "yes", False: "no", None: ""}[item.inside],
        item.case.outcome or "",
        "no estimate" if item.error else item.verdict,
        _note(item),
    )


def _note(item: Score) -> str:
    """Return why a case does not count, or that its verdict is wrong."""
    if item.case.contested:
        return "contested"
    if item.case.not_scored:
        return "not scored"
    return "wrong verdict" if item.agrees is False else ""


def _summary(found: Summary) -> tuple[str, ...]:
    return (
        GROUPS[found.group],
        str(found.cases),
        share(found.mean),
        share(found.median),
        share(found.worst),
        share(found.inside),
        f"±{share(found.half_width)}",
    )
