"""The bars of an estimate, one for each phase of a step, for pages and for terminals."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ..charts import Bar, Drawing, Piece
from ..i18n import _
from ..units import GIB, Category, gib
from .words import COUNTERS, whole

if TYPE_CHECKING:
    from ..memory.estimate import Estimate
    from ..records import Measured

#: The signs for pieces without a letter, in a terminal.
_SIGNS = {"range": "-", "limit": "|"}


def phase_chart(estimate: Estimate, title: str, measured: Measured | None = None) -> Drawing:
    """Draw a bar for each phase against the GPU's capacity, with the numbers of the table by phase.

    Args:
        estimate: the estimate of a run.
        title: the name of the chart.
        measured: the figure that the run reported, if any.
    """
    capacity, bars = estimate.capacity or 0.0, []
    limit = [Piece(capacity, capacity, "limit")] if capacity else []
    for phase in estimate.phases:
        label, pieces, end, is_peak = _(phase.label), list[Piece](), 0.0, phase is estimate.peak_phase
        for category, size in phase.sizes.items():
            if size:
                pieces.append(Piece(end, end := end + size, category.colour, category.letter))
        if is_peak:
            label = _("{phase} (peak)").format(phase=label)
            pieces.append(Piece(estimate.low, estimate.high, "range"))
        bars.append(Bar(label, f"{whole(phase.total)} GiB", [*pieces, *limit], is_peak))
    if measured and measured.gib:
        size, label = measured.gib * GIB, _("Measured: {counter}")
        label = label.format(counter=_(COUNTERS[measured.counter]))
        bars.append(Bar(label, gib(size), [Piece(0, size, "outline"), *limit]))
    used = [each for each in Category if any(phase.sizes[each] for phase in estimate.phases)]
    signs = [(_(each.heading), Piece(0, 1, each.colour, each.letter)) for each in used]
    span = _("Range of the peak: {low} to {high} GiB")
    signs.append((span.format(low=whole(estimate.low), high=whole(estimate.high)), Piece(0, 1, "range")))
    if capacity:
        text = _("GPU capacity: {size} GiB").format(size=whole(capacity))
        signs.append((text, Piece(0.4, 1, "limit")))
    return Drawing(title, bars, [Bar(text, "", [piece]) for text, piece in signs])


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
            text = text.ljust(place, _SIGNS.get(piece.paint, piece.letter))
        lines.append(f"{label:<{labels}} {text:<{room + 1}}{value:>11}")
    keys = [(key.label, key.pieces[0]) for key in drawing.legend]
    legend = ", ".join(f"{_SIGNS.get(piece.paint, piece.letter)}\xa0{label}" for label, piece in keys)
    return "\n".join([*lines, textwrap.fill(legend, width).replace("\xa0", " ")])
