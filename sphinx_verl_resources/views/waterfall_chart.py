"""A waterfall chart: bars that add up to a total, and bars that take something off it again."""

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

#: The paint of a sum, of what a step takes away, and of what a step adds.
SUM = f'{thick("currentColor")} stroke-opacity="0.6"'
TAKEN = f'{thick("currentColor")} stroke-opacity="0.6" stroke-dasharray="2 3"'
ADDED = thick(PAINTS[Category.GRADIENTS].colour)


@dataclass(frozen=True)
class Line:
    """A line of a waterfall.

    Attributes:
        label: its name.
        value: its size, with the unit.
        start, end: of its bar, in any unit; 0 is at the left.
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
    lines = [_line(shown) for shown in bars]
    sizes = _("; ").join(_("{part} {size}").format(part=line.label, size=line.value) for line in lines)
    most = max((line.end for line in lines), default=0) or 1
    return Drawing(title, sizes, ROW * len(lines), tuple(waterfall_lines(lines, WIDTH / most)))


def waterfall_lines(lines: Sequence[Line], scale: float, top: float = 0) -> list[str]:
    """Draw each line with its bar below it.

    Args:
        lines: from top to bottom.
        scale: units of the drawing in a unit of the lines.
        top: the upper edge of the first line.
    """
    made, shown = [], []
    for index, line in enumerate(lines):
        y = top + index * ROW
        made.append(path(bar(line.start * scale, line.end * scale, y + FONT + 5), line.paint))
        shown.append((y + FONT, line.label, line.value, line.bold))
    return [*made, headings(shown)]


def _line(shown: Bar) -> Line:
    before = 0.0 if shown.is_sum else shown.running - shown.change
    start, end = sorted((before, shown.running))
    paint = thick(PAINTS[shown.category].colour) if shown.category else SUM if shown.is_sum else TAKEN
    return Line(bar_label(shown), _value(shown), start, end, paint, shown.is_sum)


def _value(shown: Bar) -> str:
    size = gb(abs(shown.shown))
    return f"{MINUS}{size}" if shown.shown < 0 else size
