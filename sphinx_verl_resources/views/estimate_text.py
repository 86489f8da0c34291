"""Estimates as text, for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..units import MINUS, gib, gib_number
from .plain_table import plain_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..estimator.peaks import AnyEstimate
    from ..estimator.phases import Phase

_HEADINGS = ("Case", "Verdict", "Peak GiB", "Range", "GPU GiB", "Metric GiB", "Phase", "What helps most, GiB")
#: Text is aligned left, numbers right.
_ALIGNED = ("left", "left", "right", "right", "right", "right", "left", "left")


def estimates_text(named: Sequence[tuple[str, AnyEstimate | None]]) -> str:
    """Return a row for each case, and all details of a single case.

    Args:
        named: ids and estimates, None where there is none.
    """
    table = plain_table(_HEADINGS, [_row(name, estimate) for name, estimate in named], _ALIGNED)
    if len(named) == 1:
        return "\n".join([table, *(_details(named[0][1]) if named[0][1] else ())])
    ignored = sum(bool(estimate and estimate.unsupported) for _, estimate in named)
    if not ignored:
        return table
    have = "1 case has settings" if ignored == 1 else f"{ignored} cases have settings"
    return f"{table}\n\n{have} that the estimate ignores; --format json names them."


def _row(name: str, estimate: AnyEstimate | None) -> tuple[str, ...]:
    if estimate is None:
        return (name, "no estimate", *("",) * 6)
    return (
        name,
        estimate.verdict,
        gib_number(estimate.peak),
        f"{gib_number(estimate.low)} to {gib_number(estimate.high)}",
        "" if estimate.capacity is None else gib_number(estimate.capacity),
        gib_number(estimate.torch_peak),
        estimate.peak_phase.label,
        suggestion_text(estimate),
    )


def suggestion_text(estimate: AnyEstimate) -> str:
    """Return the setting that saves most and the GiB it saves; empty if none does."""
    suggestion = estimate.suggestion
    if suggestion is None:
        return ""
    first, *more = suggestion.setting.split()
    dots = " …" if more else ""
    return f"{first}{dots} ({MINUS}{gib_number(suggestion.saves)})"


def _details(estimate: AnyEstimate) -> Iterator[str]:
    """Yield the phases, the components of the peak phase, host memory and ignored settings."""
    yield f"\n{phases_text(estimate)}"
    yield f"\n{estimate.peak_phase.label}:"
    yield components_text(estimate.peak_phase)
    if estimate.host:
        yield f"\nHost memory of a node: {gib(estimate.host.total)}"
    for text in estimate.unsupported:
        yield f"Ignored: {text}"


def phases_text(estimate: AnyEstimate) -> str:
    """Return a row for each phase."""
    rows = []
    for phase in estimate.phases:
        largest = max(phase.breakdown.components, key=lambda component: component.size)
        mark = " (the peak)" if phase is estimate.peak_phase else ""
        part = f"{largest.label}, {gib_number(largest.size)}"
        rows.append((f"{phase.label}{mark}", gib_number(phase.total), part))
    return plain_table(("Phase", "GiB", "Largest part, GiB"), rows, ("left", "right", "left"))


def components_text(phase: Phase) -> str:
    """Return a row for each component of a phase, with its formula and evidence."""
    rows = [
        (part.label, gib_number(part.size), part.formula.numbers, part.evidence)
        for part in phase.breakdown.components
    ]
    headings = ("Component", "GiB", "Formula, in bytes", "Evidence")
    return plain_table(headings, rows, ("left", "right", "left", "left"))
