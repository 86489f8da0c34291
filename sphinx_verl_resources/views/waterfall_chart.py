"""A waterfall as a drawing: what parts add up to, and what steps take off it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..breakdown import Category
from ..i18n import _
from ..units import MINUS, gb
from .drawing import FONT, PAINTS, ROW, WIDTH, Drawing, bar, headings, path, thick
from .memory import bar_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..analysis.analysis import Bar

_CATEGORIES = {
    "parameters": Category.WEIGHTS,
    "gradients": Category.GRADIENTS,
    "optimizer": Category.OPTIMIZER,
    "activations": Category.ACTIVATIONS,
    "kv-cache": Category.ROLLOUT_ENGINE,
}
#: How a line is painted: a sum, what a step takes away, what one adds; or a part of memory by its colour.
SUM = f'{thick("currentColor")} stroke-opacity="0.6"'
TAKEN = f'{thick("currentColor")} stroke-opacity="0.6" stroke-dasharray="2 3"'
ADDED = thick(PAINTS[Category.GRADIENTS].colour)


@dataclass(frozen=True)
class Line:
    """A line of a waterfall.

    Attributes:
        label: what it is.
        value: how much, in words.
        start, end: in any unit; 0 is at the left.
        paint: attributes of its bar.
        bold: whether it is a sum.
    """

    label: str
    value: str
    start: float
    end: float
    paint: str
    bold: bool = False


def waterfall_chart(bars: Sequence[Bar], title: str) -> Drawing:
    """Draw the analysis of a model, with the numbers of its table."""
    sized = _("{part} {size}")
    sizes = _("; ").join(sized.format(part=bar_label(found), size=_value(found)) for found in bars)
    lines = [_line(found) for found in bars]
    most = max((line.end for line in lines), default=0) or 1
    return Drawing(title, sizes, ROW * len(lines), tuple(waterfall_lines(lines, WIDTH / most)))


def waterfall_lines(lines: Sequence[Line], scale: float, top: float = 0) -> list[str]:
    """Each line with its bar below it.

    Args:
        lines: from top to bottom.
        scale: units of the drawing in a unit of the lines.
        top: where the first begins.
    """
    made, shown = [], []
    for index, line in enumerate(lines):
        y = top + index * ROW
        made.append(path(bar(line.start * scale, line.end * scale, y + FONT + 5), line.paint))
        shown.append((y + FONT, line.label, line.value, line.bold))
    return [*made, headings(shown)]


def _line(found: Bar) -> Line:
    before = 0.0 if found.is_sum else found.running - found.change
    start, end = sorted((before, found.running))
    return Line(bar_label(found), _value(found), start, end, _paint(found), found.is_sum)


def _paint(found: Bar) -> str:
    """Sums in the colour of the text, parts in their own, and what a step takes away in stripes."""
    if found.is_sum:
        return SUM
    category = _CATEGORIES.get(found.subject, Category.RUNTIME_OVERHEAD)
    return TAKEN if found.change < 0 else thick(PAINTS[category].colour)


def _value(found: Bar) -> str:
    size = gb(abs(found.shown))
    return f"{MINUS}{size}" if found.shown < 0 else size
