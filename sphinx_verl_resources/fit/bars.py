"""The phases of an estimate as bars, drawn on pages and written in terminals."""

from __future__ import annotations

import textwrap
from itertools import accumulate

from ..charts import Bar, Drawing, Piece
from ..i18n import _
from ..memory.estimate import Estimate
from ..units import Category
from .words import whole

#: The signs for pieces without a letter, in a terminal.
_SIGNS = {"range": "-", "limit": "|"}


def phase_chart(estimate: Estimate, title: str) -> Drawing:
    """Draw a bar for each phase against the GPU's capacity, with the numbers of the table by phase.

    Args:
        estimate: the estimate of a run.
        title: the name of the chart.
    """
    capacity, bars = estimate.capacity or 0.0, []
    limit = [Piece(capacity, capacity, "limit")] if capacity else []
    for phase in estimate.phases:
        label, is_peak, ends = _(phase.label), phase is estimate.peak_phase, accumulate(phase.sizes.values())
        parts = zip(Category, phase.sizes.values(), ends, strict=True)
        pieces = [Piece(end - size, end, each.colour, each.letter) for each, size, end in parts if size]
        if is_peak:
            label = _("{phase} (peak)").format(phase=label)
            pieces.append(Piece(estimate.low, estimate.high, "range"))
        bars.append(Bar(label, f"{whole(phase.total)} GiB", [*pieces, *limit], is_peak))
    categories = [each for each in Category if any(phase.sizes[each] for phase in estimate.phases)]
    legend = [Bar(_(each.heading), "", [Piece(0, 1, each.colour, each.letter)]) for each in categories]
    text = _("Range of the peak: {low} to {high} GiB")
    text = text.format(low=whole(estimate.low), high=whole(estimate.high))
    legend.append(Bar(text, "", [Piece(0, 1, "range")]))
    if capacity:
        text = _("GPU capacity: {size} GiB").format(size=whole(capacity))
        legend.append(Bar(text, "", [Piece(0.4, 1, "limit")]))
    return Drawing(title, bars, legend)


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
        for _start, end, paint, letter in pieces:
            place = round(end / most * room)
            if paint == "limit":
                text = f"{text[:place]:<{place}}|{text[place + 1 :]}"
            text = text.ljust(place, _SIGNS.get(paint, letter))
        lines.append(f"{label:<{labels}} {text:<{room + 1}}{value:>11}")
    signs = (_SIGNS.get(key.pieces[0].paint, key.pieces[0].letter) for key in drawing.legend)
    legend = ", ".join(f"{sign}\xa0{key.label}" for sign, key in zip(signs, drawing.legend, strict=True))
    return "\n".join([*lines, textwrap.fill(legend, width).replace("\xa0", " ")])
