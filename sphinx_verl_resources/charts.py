"""Breakdowns as charts and as formulas.

A chart is inline SVG with the colours and fonts of the page. It has no style attribute and no style sheet, so
that a strict content security policy allows it. It has no size in pixels: the style sheet makes it as wide as
a phone, and little wider on a larger screen, so that one layout serves both.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from docutils import nodes

from .i18n import _
from .nodes import recorded, titled
from .units import gb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .analysis import Line

CHART_CLASS = "verl-chart"
FORMULA_CLASS, FORMULAS_CLASS = "verl-formula", "verl-formulas"
#: Units of the drawing. A unit is 0.86 to 1.13 pixels, so that text has 12 to 16.
WIDTH, FONT = 360, 14
#: Height of a line of text, and of a bar.
LINE, BAR = 18, 16
#: Placeholder for the name of a drawing in its parts; no text contains this character.
NAME = "\0"


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


#: Units for labels and for values of a waterfall, the letters of a label, and the height of a line.
_LABELS, _VALUES, _LETTERS, _STEP = 178, 74, 24, BAR + 7
_SUM = f'{thick("currentColor")} stroke-opacity="0.6"'


def waterfall(lines: Sequence[Line], title: str) -> Drawing:
    """Draw the analysis of a model, with the numbers of its table: label, bar and value on each line."""
    scale = (WIDTH - _LABELS - _VALUES) / (max(line.now.total for line in lines) or 1)
    shapes, labels, values, sizes = "", "", "", []
    for index, line in enumerate(lines):
        total, y = line.now.total, index * _STEP
        start, end = sorted((total - line.change if line.parts else 0.0, total))
        paint = f'{_SUM} stroke-dasharray="2 3"' if line.step else _SUM
        if line.parts and not line.step:
            paint = thick(line.parts[0].category.colour)
        shapes += path(bar(_LABELS + start * scale, _LABELS + end * scale, y + 1), paint)
        size, label = gb(line.change if line.parts else total), line.label
        shown = label if len(label) <= _LETTERS else f"{label[: _LETTERS - 1]}…"
        labels += text(0, y + FONT, shown, bold=not line.parts)
        values += text(0, y + FONT, size, bold=not line.parts)
        sizes.append(_("{part} {size}").format(part=label, size=size))
    parts = [shapes, labels, at_right(values)]
    return Drawing(title, _("; ").join(sizes), len(lines) * _STEP, parts)


def at_right(texts: str) -> str:
    """Align texts, which have no place across, at the right edge."""
    return f'<g transform="translate({WIDTH})" text-anchor="end">{texts}</g>'


# -- formulas


def formula_list(
    items: Iterable[tuple[str, Sequence[tuple[str, str]], Sequence[nodes.Node], str]],
) -> nodes.definition_list:
    """Make a list of formulas.

    Args:
        items: for each item its term, pairs of a title, which may be empty, and a formula, nodes after the
            term, and a recorded sentence about the term, which may be empty.
    """
    # "simple" keeps sphinx_rtd_theme from styling the terms as signatures.
    found = nodes.definition_list(classes=[FORMULAS_CLASS, "simple"])
    for term, formulas, after, sentence in items:
        definition = nodes.definition("", *([recorded(sentence)] if sentence else []))
        for title, formula in formulas:
            inline = nodes.inline("", formula, classes=[FORMULA_CLASS])
            definition += recorded("", *(titled(title, [inline]) if title else [inline]))
        found += nodes.definition_list_item("", nodes.term("", term, *after), definition)
    return found
