"""Estimates as text, for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..units import MINUS, gib, gib_number
from .plain_table import plain_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..estimator.estimate import Estimate
    from ..estimator.phases import Phase
    from ..estimator.training import TrainingEstimate

    AnyEstimate = Estimate | TrainingEstimate

_HEADINGS = ("Case", "Verdict", "Peak GiB", "Range", "GPU GiB", "Metric GiB", "Phase", "What helps most, GiB")
#: Columns of text; all others hold numbers.
_WORDS = ("left", "left", "right", "right", "right", "right", "left", "left")


def estimates_text(named: Sequence[tuple[str, AnyEstimate | None]]) -> str:
    """One row per case, and of a single case all that is computed.

    Args:
        named: ids and estimates, None where there is none.
    """
    table = plain_table(_HEADINGS, [_row(name, found) for name, found in named], _WORDS)
    if len(named) == 1:
        return "\n".join([table, *(_details(named[0][1]) if named[0][1] else ())])
    ignored = sum(bool(getattr(found, "unsupported", ())) for _, found in named)
    if not ignored:
        return table
    have = "1 case has settings" if ignored == 1 else f"{ignored} cases have settings"
    return f"{table}\n\n{have} that the estimate ignores; --format json names them."


def _row(name: str, found: AnyEstimate | None) -> tuple[str, ...]:
    if found is None:
        return (name, "no estimate", *("",) * 6)
    return (
        name,
        found.verdict,
        gib_number(found.peak),
        f"{gib_number(found.low)} to {gib_number(found.high)}",
        "" if found.capacity is None else gib_number(found.capacity),
        gib_number(found.torch_peak),
        found.peak_phase.label,
        relief_text(found),
    )


def relief_text(found: AnyEstimate) -> str:
    """The setting that helps most and what it saves: ``key=value`` and GiB; empty if none does."""
    suggestion = getattr(found, "suggestion", None)
    if suggestion is None:
        return ""
    first, *more = suggestion.setting.split()
    dots = " …" if more else ""
    return f"{first}{dots} ({MINUS}{gib_number(suggestion.saves)})"


def _details(found: AnyEstimate) -> Iterator[str]:
    """By phase, by component in the phase that sets the peak, and what else there is to know."""
    yield f"\n{phases_text(found)}"
    yield f"\n{found.peak_phase.label}:"
    yield components_text(found.peak_phase)
    if host := getattr(found, "host", None):
        yield f"\nHost memory of a node: {gib(host.total)}"
    for text in getattr(found, "unsupported", ()):
        yield f"Ignored: {text}"


def phases_text(found: AnyEstimate) -> str:
    """A row for each phase."""
    rows = []
    for phase in found.phases:
        largest = max(phase.breakdown.components, key=lambda component: component.size)
        mark = " (the peak)" if phase is found.peak_phase else ""
        part = f"{largest.label}, {gib_number(largest.size)}"
        rows.append((f"{phase.label}{mark}", gib_number(phase.total), part))
    return plain_table(("Phase", "GiB", "Largest part, GiB"), rows, ("left", "right", "left"))


def components_text(phase: Phase) -> str:
    """A row for each component of a phase, with its formula and how well it is known."""
    rows = [
        (part.label, gib_number(part.size), part.formula.numbers, part.evidence)
        for part in phase.breakdown.components
    ]
    headings = ("Component", "GiB", "Formula, in bytes", "Evidence")
    return plain_table(headings, rows, ("left", "right", "left", "left"))
