"""Charts as inline SVG with the colours and fonts of the page, and the shapes that all charts share.

A chart has no style attribute and no style sheet, so that a strict content security policy allows it. It has
no size in pixels: the style sheet makes it as wide as a phone, and little wider on a larger screen, so that
one layout serves both. Labels repeat the meaning of colours.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from docutils import nodes
from docutils.utils import column_width

from .analysis import Bar, StepTaken
from .breakdown import Category, Component
from .i18n import _
from .units import gb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
NAME = "\0"
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
    parts: Sequence[str]

    def node(self, name: str) -> nodes.raw:
        """Return the chart as HTML with the id ``name``, which other builders leave out."""
        svg = (
            f'<svg viewBox="0 0 {WIDTH} {short(self.height)}" role="img" '
            f'aria-labelledby="{name}--title {name}--desc" '
            f'direction="ltr" font-size="{FONT}" font-family="inherit" fill="currentColor">'
            f'<title id="{name}--title">{escape(self.title)}</title>'
            f'<desc id="{name}--desc">{escape(self.description)}</desc>'
            f"{''.join(self.parts).replace(NAME, name)}</svg>"
        )
        return nodes.raw("", svg, format="html", ids=[name], classes=[CHART_CLASS])


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
    """Write the words beside or above bars: labels on the left, values on the right.

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


def thick(colour: str) -> str:
    """Return the attributes that paint bars."""
    return f'stroke-width="{BAR}" stroke="{colour}"'


class Key(NamedTuple):
    """An entry of a legend: its words, and a function that draws its sign, given the upper left corner."""

    words: str
    sign: Callable[[float, float], str]


def bar_key(words: str, paint: str) -> Key:
    """Return the legend entry of a paint."""
    return Key(words, lambda x, y: path(bar(x, x + BAR, y), paint))


def draw_legend(y: float, keys: Sequence[Key]) -> tuple[list[tuple[float, float]], str, float]:
    """Draw signs and words; return the places of the signs, the drawing, and the lower edge.

    A sign is as large as a bar is thick.
    """
    places: list[tuple[float, float]] = []
    svg, x = "", 0.0
    for key in keys:
        shown = clip(key.words, WIDTH - LINE - 4)
        needed = LINE + 4 + width_of(shown)
        if x and x + needed > WIDTH:
            x, y = 0.0, y + LINE + 3
        places.append((round(x), y))
        svg += key.sign(*places[-1]) + text(round(x) + LINE + 4, y + 13, shown)
        x += needed + FONT
    return places, svg, y + LINE


def width_of(content: str) -> float:
    """Return the width in units of a line of text in a rather wide font."""
    return sum(map(_width, content)) * FONT


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


# -- the waterfall of the analysis

#: Units for labels and for values, and the height of a line.
_LABELS, _VALUES, _STEP = 178, 74, BAR + 7
#: The paint of a sum, and of a saving.
_SUM = f'{thick("currentColor")} stroke-opacity="0.6"'
_SAVED = f'{_SUM} stroke-dasharray="2 3"'


def waterfall(bars: Iterable[Bar], label_of: Callable[[Bar], str], title: str) -> Drawing:
    """Draw the analysis of a model, with the numbers of its table: label, bar and value on each line."""
    bars = list(bars)
    scale = (WIDTH - _LABELS - _VALUES) / (
        max(max(one.running, one.running - one.change) for one in bars) or 1
    )
    shapes: dict[str, list[str]] = {}  # one element per paint saves bytes
    words = []
    for number, one in enumerate(bars):
        ends = sorted((one.running - one.change if one.of else 0.0, one.running))
        paint = _SAVED if isinstance(one.of, StepTaken) else _SUM
        if isinstance(one.of, Component):
            paint = thick(PAINTS[one.of.category].colour)
        start, end = (_LABELS + size * scale for size in ends)
        shapes.setdefault(paint, []).append(bar(start, end, number * _STEP + 1))
        words.append((number * _STEP + FONT, [clip(label_of(one), _LABELS - GAP)], gb(one.shown), not one.of))
    sizes = _("; ").join(_("{part} {size}").format(part=label_of(one), size=gb(one.shown)) for one in bars)
    parts = [*(path(d, paint) for paint, d in shapes.items()), headings(words)]
    height: float = len(bars) * _STEP
    if _SAVED in shapes:
        _places, legend, height = draw_legend(height + LINE / 2, [bar_key(_("Saved"), _SAVED)])
        parts.append(legend)
    return Drawing(title, sizes, height, parts)
