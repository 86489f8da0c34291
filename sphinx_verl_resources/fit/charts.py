"""The bars of an estimate, one for each phase of a step, for pages and for terminals."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ..charts import Bar, Drawing, Piece
from ..i18n import _
from ..units import GIB, Category, gib
from .words import COUNTERS, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..memory.estimate import Estimate
    from ..memory.phases import Phase
    from ..records import Measured


def phase_chart(estimate: Estimate, title: str, measured: Measured | None = None) -> Drawing:
    """Draw a bar for each phase against the GPU's capacity, with the numbers of the table by phase.

    Args:
        estimate: the estimate of a run.
        title: the name of the chart.
        measured: the figure that the run reported, if any.
    """
    capacity = estimate.capacity or 0.0
    limit, bars = [Piece(capacity, capacity, "limit")] if capacity else [], []
    for phase in estimate.phases:
        is_peak, label = phase.name == estimate.peak_phase.name, _(phase.label)
        label = _("{phase} (peak)").format(phase=label) if is_peak else label
        ends = [Piece(estimate.low, estimate.high, "range")] if is_peak else []
        bars.append(Bar(label, f"{whole(phase.total)} GiB", [*_pieces(phase), *ends, *limit], is_peak))
    if measured and measured.gib:
        size, label = (
            measured.gib * GIB,
            _("Measured: {counter}").format(counter=_(COUNTERS[measured.counter])),
        )
        bars.append(Bar(label, gib(size), [Piece(0, size, "outline"), *limit]))
    used = [each for each in Category if any(phase.sizes[each] for phase in estimate.phases)]
    keys = [Bar(_(each.heading), "", [Piece(0, 1, each.colour, each.letter)]) for each in used]
    span = _("Range of the peak: {low} to {high} GiB")
    span = span.format(low=whole(estimate.low), high=whole(estimate.high))
    keys.append(Bar(span, "", [Piece(0, 1, "range")]))
    if capacity:
        keys.append(
            Bar(_("GPU capacity: {size} GiB").format(size=whole(capacity)), "", [Piece(0.4, 1, "limit")])
        )
    return Drawing(title, bars, keys)


def _pieces(phase: Phase) -> Iterator[Piece]:
    end = 0.0
    for category, size in phase.sizes.items():
        if size:
            yield Piece(end, end := end + size, category.colour, category.letter)


def phase_bars_text(estimate: Estimate, width: int) -> str:
    """Return the same bars as text: a line for each phase, a letter for each category, and the legend.

    Args:
        estimate: the estimate of a run.
        width: the characters of a line; 60 are the least.
    """
    drawing, width, lines = phase_chart(estimate, ""), max(60, width), []
    labels = max(len(bar.label) for bar in drawing.bars)
    room, most = width - labels - 13, max(piece.end for bar in drawing.bars for piece in bar.pieces)
    for label, value, pieces, _bold in drawing.bars:
        text = ""
        for piece in pieces:
            place = round(piece.end / most * room)
            if piece.paint == "limit":
                text = f"{text[:place]:<{place}}|{text[place + 1 :]}"
            text = text.ljust(place, _sign(piece))
        lines.append(f"{label:<{labels}} {text:<{room + 1}}{value:>11}")
    keys = ", ".join(f"{_sign(key.pieces[0])}\xa0{key.label}" for key in drawing.legend)
    return "\n".join([*lines, textwrap.fill(keys, width).replace("\xa0", " ")])


def _sign(piece: Piece) -> str:
    return {"range": "-", "limit": "|"}.get(piece.paint, piece.letter)
