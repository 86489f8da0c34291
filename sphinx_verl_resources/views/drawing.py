"""Charts as inline SVG with the colours and fonts of the page, and the shapes that all charts share.

A chart has no style attribute and no style sheet, so that a strict content security policy allows it. It has
no size in pixels: the style sheet makes it as wide as a phone, and little wider on a larger screen, so that
one layout serves both. Labels repeat the meaning of colours.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from docutils import nodes
from docutils.utils import column_width

from ..breakdown import Category
from ..units import short_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CHART_CLASS = "verl-chart"


class Paint(NamedTuple):
    """The colour of a category in charts, the letter on it, and the colour of the letter."""

    colour: str
    letter: str
    ink: str


#: Colours have a contrast of at least 3 to 1 with white and with the dark backgrounds of common themes.
PAINTS: Mapping[Category, Paint] = {
    Category.WEIGHTS: Paint("#5160ae", "W", "#fff"),
    Category.GRADIENTS: Paint("#d67207", "G", "#000"),
    Category.OPTIMIZER: Paint("#994cea", "O", "#fff"),
    Category.ACTIVATIONS: Paint("#368ea7", "A", "#000"),
    Category.LOGITS: Paint("#c4568f", "L", "#000"),
    Category.GATHERED: Paint("#7d88cf", "U", "#000"),
    Category.ROLLOUT_ENGINE: Paint("#92562b", "R", "#fff"),
    Category.RUNTIME_OVERHEAD: Paint("#878b70", "X", "#000"),
}
#: Units of the drawing. A unit is 0.86 to 1.13 pixels, so that text has 12 to 16.
WIDTH, FONT, GAP = 360, 14, 2
#: Height of a line of text, and of a bar.
LINE, BAR = 18, 16
#: Placeholder for the name of a drawing in its parts; no text contains this character.
_NAME = "\0"
#: Widths of characters in parts of the font size, rounded up: wide ones, capitals, narrow ones, others.
_WIDE, _CAPITAL, _NARROW, _OTHER = 1.0, 0.75, 0.38, 0.61


@dataclass(frozen=True)
class Drawing:
    """A chart, which must be followed by a table with the same numbers.

    Attributes:
        title: its name.
        description: its content in words, with the numbers.
        height: its height in units.
        parts: SVG elements, in painting order.
    """

    title: str
    description: str
    height: float
    parts: tuple[str, ...]

    def svg(self, name: str) -> str:
        """Return the chart as an SVG element whose ids begin with ``name``."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {short(self.height)}" role="img" '
            f'aria-labelledby="{name}--title {name}--desc" '
            f'direction="ltr" font-size="{FONT}" font-family="inherit" fill="currentColor">'
            f'<title id="{name}--title">{escape(self.title)}</title>'
            f'<desc id="{name}--desc">{escape(self.description)}</desc>'
            f"{''.join(self.parts).replace(_NAME, name)}</svg>"
        )


class verl_chart(nodes.raw):  # noqa: N801 - docutils names nodes in lower case
    """A chart on a page. Builders without a visitor for it skip it like any raw HTML.

    Attributes:
        drawing: the chart.
    """


def short(number: float) -> str:
    """Write a coordinate, rounded to a tenth."""
    return f"{number:.1f}".removesuffix(".0")


def text(x: float, y: float, content: str, *, anchor: str = "start", bold: bool = False) -> str:
    """Write a line of text; ``anchor`` as in SVG."""
    at = f' x="{short(x)}"' if x else ""
    aligned = f' text-anchor="{anchor}"' if anchor != "start" else ""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text{at} y="{short(y)}"{aligned}{weight}>{escape(content, quote=False)}</text>'


def headings(lines: Iterable[tuple[float, Sequence[str], str, bool]]) -> str:
    """Write the words above bars: labels on the left, values on the right.

    Args:
        lines: for each bar, the base of the first line, the label's lines, the value, and whether it is bold.
    """
    left, right = "", ""
    for y, label, value, bold in lines:
        left += "".join(text(0, y + index * LINE, line, bold=bold) for index, line in enumerate(label))
        right += text(0, y, value, bold=bold)
    return f'{left}<g transform="translate({WIDTH})" text-anchor="end">{right}</g>'


def bar(start: float, end: float, y: float) -> str:
    """Return a bar as path data, at least one unit long; ``thick`` sets its width."""
    left = round(start)
    return f"M{left} {short(y + BAR / 2)}h{max(round(end) - left, 1)}"


def path(d: Sequence[str] | str, attributes: str) -> str:
    """Write one element for many shapes; nothing if there are none."""
    return f'<path {attributes} d="{"".join(d)}"/>' if d else ""


def hatched(d: Sequence[str]) -> str:
    """Hatch bars that are over a capacity; nothing if there are none."""
    if not d:
        return ""
    return (
        f'<pattern id="{_NAME}--over" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path d="M0 0v6" stroke="currentColor" stroke-width="2"/>'
        f"</pattern>{path(d, HATCH)}"
    )


def thick(colour: str) -> str:
    """Return the attributes that paint bars."""
    return f'stroke-width="{BAR}" stroke="{colour}"'


#: The attributes of hatched bars; ``hatched`` draws their pattern.
HATCH = thick(f"url(#{_NAME}--over)")


def letters(paints: Iterable[tuple[Paint, Sequence[tuple[float, float]]]]) -> str:
    """Write the letter of each paint at its places, each the middle of a piece of a bar."""
    svg = ""
    for paint, places in paints:
        if places:
            xs, ys = (" ".join(map(short, numbers)) for numbers in zip(*places, strict=True))
            svg += f'<text x="{xs}" y="{ys}" fill="{paint.ink}">{paint.letter * len(places)}</text>'
    return f'<g text-anchor="middle">{svg}</g>' if svg else ""


def ticks(most: float) -> list[float]:
    """Return at most six round numbers, from 0 to at least ``most``.

    >>> ticks(79.2), ticks(0.31)
    ([0.0, 20.0, 40.0, 60.0, 80.0], [0.0, 0.1, 0.2, 0.3, 0.4])
    """
    size = 10.0 ** math.floor(math.log10(most)) if most > 0 else 1.0
    steps = (size * factor for factor in (0.1, 0.2, 0.25, 0.5, 1, 2, 5))
    step = next(step for step in steps if step * 5 >= most * (1 - 1e-9))
    return [round(step * index, 10) for index in range(max(1, math.ceil(most / step - 1e-9)) + 1)]


def axis(y: float, marks: Sequence[float], unit: str) -> str:
    """Draw a line from edge to edge, with the numbers of ``marks`` below it; the first has the unit."""
    scale = WIDTH / marks[-1]
    lines = "".join(f"M{short(mark * scale)} {short(y)}v5" for mark in marks[1:-1])
    svg = path(f"M0 {short(y + 5)}v-5h{WIDTH}v5{lines}", 'fill="none" stroke="currentColor"')
    for mark in marks:
        anchor = "start" if mark == 0 else "end" if mark == marks[-1] else "middle"
        number = short_number(mark)
        svg += text(mark * scale, y + LINE, number if mark else f"{number} {unit}", anchor=anchor)
    return svg


#: The attributes of a line across bars.
UPRIGHT = 'stroke="currentColor" stroke-width="3"'


def upright(x: float, tops: Iterable[float]) -> str:
    """Draw a line across the bars that begin at ``tops``, but not across the words between them."""
    inside = short(min(max(x, 1.5), WIDTH - 1.5))
    return path([f"M{inside} {short(top - 1)}v{BAR + 3}" for top in tops], UPRIGHT)


def flowing(y: float, words: Iterable[str]) -> tuple[list[tuple[float, float]], str, float]:
    """Lay out a legend; return the places of the signs, the words as SVG, and the lower edge.

    A sign is as large as a bar is thick.

    Args:
        y: its upper edge.
        words: the words of each entry.
    """
    places: list[tuple[float, float]] = []
    svg, x = "", 0.0
    for entry in words:
        shown = clip(entry, WIDTH - LINE - 4)
        needed = LINE + 4 + width_of(shown)
        if x and x + needed > WIDTH:
            x, y = 0.0, y + LINE + 3
        places.append((round(x), y))
        svg += text(round(x) + LINE + 4, y + 13, shown)
        x += needed + FONT
    return places, svg, y + LINE


def width_of(content: str) -> float:
    """Return the width in units of a line of text in a rather wide font."""
    return sum(map(_width, content)) * FONT


def wrap(content: str, beside: float) -> list[str]:
    """Break a text into lines: at spaces, words at dots, and their parts at underscores.

    Args:
        content: the text; a part that is too long for a line and cannot break ends with an ellipsis.
        beside: the units of the first line that are already used.

    >>> wrap("model.enable_gradient_checkpointing=True", 90)
    ['model.', 'enable_gradient_checkpointing=True']
    """
    lines = [""]

    def place(piece: str, breaks: str) -> None:
        room = WIDTH - (beside if len(lines) == 1 else 0.0)
        if width_of((lines[-1] + piece).rstrip()) <= room:
            lines[-1] += piece
        elif breaks and (not lines[-1] or width_of(piece) > WIDTH):
            for part in re.split(f"(?<={re.escape(breaks[0])})", piece):
                place(part, breaks[1:])
        elif lines[-1]:
            lines.append("")
            place(piece, breaks)
        else:
            lines[-1] = clip(piece, room)

    place(content, " ._")
    return [line.rstrip() for line in lines]


def clip(content: str, room: float) -> str:
    """Cut a text to ``room`` units, ending with an ellipsis if it is too long.

    >>> clip("actor.use_dynamic_bsz", 100)
    'actor.use_d…'
    """
    if width_of(content) <= room:
        return content
    left, kept = room / FONT - _WIDE, 0
    while kept < len(content) and left >= _width(content[kept]):
        left -= _width(content[kept])
        kept += 1
    return content[:kept].rstrip() + "…"


def _width(character: str) -> float:
    if column_width(character) > 1 or character in "MWmw%@—…":
        return _WIDE
    if character.isupper():
        return _CAPITAL
    return _NARROW if character in " ijlftr.,:;|()" else _OTHER
