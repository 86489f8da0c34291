"""Estimates as text, for terminals."""

from __future__ import annotations

import re
import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING

from ..answer.suggestions import best_suggestion
from ..memory.recorded import credible
from ..units import MINUS, gib, gib_number
from .verdicts import of_mean, reason, short, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..memory.estimate import Estimate
    from ..memory.phases import Phase
    from ..memory.request import Verdict

_ESTIMATES = "Case | Verdict | Peak GiB> | Range> | GPU GiB> | Metric GiB> | Phase | Largest saving, GiB"
_PHASES = "Phase | GiB> | Largest part, GiB"
_COMPONENTS = "Component | GiB> | Formula, in bytes | Evidence"


def plain_table(headings: str, rows: Iterable[Sequence[str]], width: int = 0) -> str:
    """Return the text of a table.

    Args:
        headings: the headings of the columns, with bars between; a ``>`` after a heading aligns it right.
        rows: the cells, as they are shown.
        width: maximum characters per line; cells wrap between words, and if that is not enough the last
            columns are left out. 0 for no limit.
    """
    columns = headings.split(" | ")
    table = [[name.rstrip(">") for name in columns], *rows]
    widths = _fitting([_widths(column) for column in zip(*table, strict=True)], width)
    head, *body = (_lines(row, widths, columns) for row in table)
    rule = "  ".join("-" * size for size in widths)
    return "\n".join([*head, rule, *(line for lines in body for line in lines)])


def _lines(row: Sequence[str], widths: Sequence[int], columns: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a row, with wrapped cells."""
    cells = [textwrap.wrap(cell, size) for cell, size in zip(row, widths, strict=False)]
    for parts in zip_longest(*cells, fillvalue=""):
        sides = zip(parts, widths, columns, strict=False)
        texts = (part.rjust(size) if name.endswith(">") else part.ljust(size) for part, size, name in sides)
        yield "  ".join(texts).rstrip()


def _widths(cells: Sequence[str]) -> tuple[int, int]:
    """Return the characters of the longest word of a column, and of its longest cell."""
    words = (word for cell in cells for word in re.split(r"\s+(?=\S)|(?<=\w-)(?=\w)", cell))
    return max(1, *map(len, words)), max(1, *map(len, cells))


def _fitting(columns: Sequence[tuple[int, int]], most: int) -> list[int]:
    """Return column widths that fit into ``most`` characters, with two blanks between columns.

    Args:
        columns: the least width and the full width of each.
        most: the maximum number of characters; 0 for no limit.

    >>> _fitting([(5, 10), (8, 40), (8, 30)], 60), _fitting([(20, 20), (20, 20), (20, 20)], 50)
    ([10, 23, 23], [20, 20])
    """
    kept = list(columns)
    while most and len(kept) > 1 and sum(least for least, _ in kept) + 2 * (len(kept) - 1) > most:
        kept.pop()
    widths = [full for _, full in kept]
    while most and sum(widths) + 2 * (len(widths) - 1) > most:
        shrinking = [index for index, (least, _) in enumerate(kept) if widths[index] > least]
        if not shrinking:
            break
        widths[max(shrinking, key=lambda index: widths[index])] -= 1
    return widths


def estimates_text(found: Sequence[tuple[str, Estimate | None, Verdict]], width: int = 0) -> str:
    """Return a row for each case.

    Args:
        found: ids, estimates (None if there is none), and verdicts.
        width: as for ``plain_table``.
    """
    table = plain_table(_ESTIMATES, (_row(*item) for item in found), width)
    ignored = sum(bool(estimate and estimate.unsupported) for _, estimate, _verdict in found)
    if not ignored:
        return table
    have = "1 case has settings" if ignored == 1 else f"{ignored} cases have settings"
    return f"{table}\n\n{have} that the estimate ignores; --format json lists them."


def _row(name: str, estimate: Estimate | None, found: Verdict) -> tuple[str, ...]:
    if estimate is None:
        return (name, "no estimate", *("",) * 6)
    verdict, shown = short(found, estimate.fits_up_to_tokens), credible(estimate)
    if shown is None:
        return (name, verdict, *("",) * 6)
    return (
        name,
        verdict,
        gib_number(shown.peak),
        f"{gib_number(shown.low)} to {gib_number(shown.high)}",
        "" if shown.capacity is None else gib_number(shown.capacity),
        gib_number(shown.torch_peak),
        shown.peak_phase.label,
        suggestion_text(shown),
    )


def suggestion_text(estimate: Estimate) -> str:
    """Return the setting that saves the most and its saving in GiB; empty if none saves memory."""
    suggestion = best_suggestion(estimate)
    if suggestion is None:
        return ""
    first, *more = suggestion.setting.split()
    dots = " …" if more else ""
    return f"{first}{dots} ({MINUS}{gib_number(suggestion.saves)})"


def case_text(name: str, estimate: Estimate, width: int = 0, *, verbose: bool = False) -> str:
    """Return verdict and reason of one case, the largest saving and, if verbose, phases and components."""
    lines = [f"{title(estimate.verdict)}: {name}.", reason(estimate)]
    lines += [f"Ignored: {text}" for text in estimate.unsupported]
    shown = credible(estimate)
    if shown is None:
        return "\n".join(wrapped(lines, width))
    if shown is not estimate:
        lines.append(of_mean(shown, estimate.fits_up_to_tokens))
    lines.append(f"The peak phase is “{shown.peak_phase.label}”.")
    if helps := suggestion_text(shown):
        lines.append(f"Largest saving, in GiB: {helps}.")
    lines.append(f"Host memory of a node: {gib(shown.host.total)}.")
    parts = ["\n".join(wrapped(lines, width))]
    if verbose:
        parts += estimate_details(shown, width)
    return "\n\n".join(parts)


def estimate_details(shown: Estimate, width: int = 0) -> Iterator[str]:
    """Yield the phases, and the parts of the peak."""
    yield phases_text(shown, width)
    yield f"{shown.peak_phase.label}:\n{components_text(shown.peak_phase, width)}"


def wrapped(lines: Iterable[str], width: int, indent: str = "") -> Iterator[str]:
    """Yield lines of at most ``width`` characters, 0 for no limit; keys and names are not broken."""
    for line in lines:
        yield from textwrap.wrap(
            line,
            width or len(line) + 1,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )


def phases_text(estimate: Estimate, width: int = 0) -> str:
    """Return a row for each phase; ``width`` as for ``plain_table``."""
    rows = []
    for phase in estimate.phases:
        largest = max(phase.breakdown.components, key=lambda component: component.size)
        mark = " (the peak)" if phase is estimate.peak_phase else ""
        part = f"{largest.label}, {gib_number(largest.size)}"
        rows.append((f"{phase.label}{mark}", gib_number(phase.total), part))
    return plain_table(_PHASES, rows, width)


def components_text(phase: Phase, width: int = 0) -> str:
    """Return a row for each component of a phase, with its formula and evidence; ``width`` as before."""
    rows = [
        (part.label, gib_number(part.size), part.numbers, part.evidence)
        for part in phase.breakdown.components
    ]
    return plain_table(_COMPONENTS, rows, width)
