"""Breakdowns as charts and as formulas.

A chart is a grid of labels, bars and values: the words are text of the page, a bar is inline SVG with lengths
in per cent, so that each is readable on a phone and on a wide screen. It has no style attribute, so that a
strict content security policy allows it; colours of lines and words are those of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from docutils import nodes

from .analysis import Line
from .nodes import recorded
from .units import gb

#: The height of a bar in pixels, and the per cent of a bar that a letter needs.
BAR, LETTER = 16, 8


class Piece(NamedTuple):
    """A piece of a bar, or something drawn across or below it.

    Attributes:
        start, end: its ends, in any unit; 0 is at the left.
        paint: its colour, or a word for the style sheet: outline, range (below the bar), limit (across it).
        letter: its letter, shown if there is room.
    """

    start: float
    end: float
    paint: str
    letter: str = ""


class Bar(NamedTuple):
    """A line of a chart: a label, a bar and a value; ``bold`` if it is a sum or the peak."""

    label: str
    value: str
    pieces: Sequence[Piece]
    bold: bool = False

    def svg(self, most: float) -> str:
        """Draw the bar; ``most`` is the right edge."""
        svg = ""
        for start, end, paint, letter in self.pieces:
            x, width = 100 * start / most, 100 * (end - start) / most
            fill = f'fill="{paint}"' if paint[0] == "#" else f'class="verl-{paint}"'
            svg += f'<rect x="{x:.2f}%" width="{width:.2f}%" height="{BAR}" {fill}/>'
            if letter and width > LETTER:
                ink = "#fff" if paint[3] < "8" else "#000"  # green decides how light a colour is
                svg += f'<text x="{x + width / 2:.2f}%" y="{BAR - 4}" fill="{ink}">{letter}</text>'
        return f'<svg aria-hidden="true" height="{BAR}">{svg}</svg>'


class Drawing(NamedTuple):
    """A chart, which must be followed by a table with the same numbers.

    Attributes:
        title: its name.
        bars: its lines, from top to bottom.
        legend: what signs mean, each drawn from 0 to 1.
    """

    title: str
    bars: Sequence[Bar]
    legend: Sequence[Bar] = ()

    def node(self, name: str) -> nodes.raw:
        """Return the chart as HTML with the id ``name``, which other builders leave out."""
        most, html = max(piece.end for bar in self.bars for piece in bar.pieces) or 1.0, ""
        for bar in self.bars:
            tag = "strong" if bar.bold else "span"
            html += f"<{tag}>{escape(bar.label)}</{tag}>{bar.svg(most)}<{tag}>{escape(bar.value)}</{tag}>"
        keys = "".join(f"<span>{key.svg(1)} {escape(key.label)}</span>" for key in self.legend)
        html = f'<div role="figure" aria-label="{escape(self.title)}">{html}<div>{keys}</div></div>'
        return nodes.raw("", html, format="html", ids=[name], classes=["verl-chart"])


def waterfall(lines: Sequence[Line], title: str) -> Drawing:
    """Draw the analysis of a model, with the numbers of its table."""
    bars = []
    for line in lines:
        total, is_sum = line.now.total, not line.parts
        start, end = sorted((0.0 if is_sum else total - line.change, total))
        paint = "outline" if line.step else line.parts[0].category.colour if line.parts else "#808080"
        bars.append(Bar(line.label, gb(total if is_sum else line.change), [Piece(start, end, paint)], is_sum))
    return Drawing(title, bars)


# -- formulas


def formula(content: str) -> nodes.paragraph:
    """Make a paragraph with a formula."""
    return recorded("", nodes.inline("", content, classes=["verl-formula"]))


def formula_list(items: Iterable[tuple[nodes.term, Sequence[nodes.paragraph]]]) -> nodes.definition_list:
    """Make a list of terms, each with paragraphs such as formulas."""
    # "simple" keeps sphinx_rtd_theme from styling the terms as signatures.
    formulas = nodes.definition_list(classes=["verl-formulas", "simple"])
    for term, paragraphs in items:
        formulas += nodes.definition_list_item("", term, nodes.definition("", *paragraphs))
    return formulas
