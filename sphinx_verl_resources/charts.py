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
from .nodes import recorded
from .units import gb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .analysis import Line

#: The width of a drawing, the size of its text and the height of a bar, in its own units. A unit is 0.86 to
#: 1.13 pixels, so that text has 12 to 16.
WIDTH, FONT, BAR = 360, 14, 16
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
        return nodes.raw("", svg, format="html", ids=[name], classes=["verl-chart"])


def short(number: float) -> str:
    """Write a coordinate, rounded to a tenth."""
    return f"{number:.1f}".removesuffix(".0")


def text(x: float, y: float, content: str, *, anchor: str = "start", bold: bool = False) -> str:
    """Write a line of text; ``anchor`` as in SVG."""
    at = f' x="{short(x)}"' if x else ""
    aligned = f' text-anchor="{anchor}"' if anchor != "start" else ""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text{at} y="{short(y)}"{aligned}{weight}>{escape(content, quote=False)}</text>'


#: Units for labels and for values of a waterfall, the letters of a label, and the height of a line.
_LABELS, _VALUES, _LETTERS, _STEP = 178, 74, 24, BAR + 7


def waterfall(lines: Sequence[Line], title: str) -> Drawing:
    """Draw the analysis of a model, with the numbers of its table: label, bar and value on each line."""
    scale = (WIDTH - _LABELS - _VALUES) / (max(line.now.total for line in lines) or 1)
    parts, sizes = list[str](), list[str]()
    for index, line in enumerate(lines):
        total, y, is_sum = line.now.total, index * _STEP, not line.parts
        start, end = sorted((0.0 if is_sum else total - line.change, total))
        paint = 'fill-opacity="0.6"'
        if line.step:
            paint = 'fill="none" stroke="currentColor" stroke-dasharray="2 3"'
        elif line.parts:
            paint = f'fill="{line.parts[0].category.colour}"'
        x, width = short(_LABELS + start * scale), short(max((end - start) * scale, 1))
        size, label = gb(total if is_sum else line.change), line.label
        shown = label if len(label) <= _LETTERS else f"{label[: _LETTERS - 1]}…"
        parts += [
            text(0, y + FONT, shown, bold=is_sum),
            f'<rect x="{x}" y="{y + 1}" width="{width}" height="{BAR}" {paint}/>',
            text(WIDTH, y + FONT, size, anchor="end", bold=is_sum),
        ]
        sizes.append(_("{part} {size}").format(part=label, size=size))
    return Drawing(title, _("; ").join(sizes), len(lines) * _STEP, parts)


# -- formulas


def formula(content: str) -> nodes.paragraph:
    """Make a paragraph with a formula."""
    return recorded("", nodes.inline("", content, classes=["verl-formula"]))


def formula_list(items: Iterable[tuple[nodes.term, Sequence[nodes.paragraph]]]) -> nodes.definition_list:
    """Make a list of terms, each with paragraphs such as formulas."""
    # "simple" keeps sphinx_rtd_theme from styling the terms as signatures.
    found = nodes.definition_list(classes=["verl-formulas", "simple"])
    for term, paragraphs in items:
        found += nodes.definition_list_item("", term, nodes.definition("", *paragraphs))
    return found
