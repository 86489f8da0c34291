"""The waterfall as a drawing: inline SVG that takes the text colour of the page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from docutils import nodes

from ..units import MINUS, gb
from ..words import _
from .memory import bar_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..memory.waterfall import Bar

CHART_CLASS = "verl-chart"
#: Colours that keep a contrast of 3 to 1 with white and with the dark backgrounds of the common themes.
COLOURS = {
    "parameters": "#5160ae",
    "gradients": "#d67207",
    "optimizer": "#994cea",
    "activations": "#368ea7",
    "kv-cache": "#92562b",
}
OTHER = "#878b70"
#: Sizes in units of the drawing.
WIDTH, LABELS, VALUES, LINE, BAR = 640, 170, 74, 24, 16


def waterfall_chart(bars: Sequence[Bar], title: str) -> nodes.container:
    """A drawing with one line a bar; builders that know no HTML leave it out."""
    chart = nodes.container(classes=[CHART_CLASS])
    chart += nodes.raw("", _svg(bars, title), format="html")
    return chart


def _svg(bars: Sequence[Bar], title: str) -> str:
    scale = (WIDTH - LABELS - VALUES) / (max((bar.running for bar in bars), default=0) or 1)
    lines = [_line(bar, index, scale) for index, bar in enumerate(bars)]
    sizes = _("; ").join(_("{part} {size}").format(part=bar_label(bar), size=gb(bar.shown)) for bar in bars)
    described = _("{title}. {sizes}").format(title=title, sizes=sizes)
    return (
        f'<svg viewBox="0 0 {WIDTH} {LINE * len(bars)}" role="img" xmlns="http://www.w3.org/2000/svg" '
        f'aria-label="{escape(described)}" font-size="13" font-family="inherit" '
        f'fill="currentColor">{"".join(lines)}</svg>'
    )


def _line(bar: Bar, index: int, scale: float) -> str:
    top = index * LINE
    start = 0.0 if bar.is_sum else min(bar.running, bar.running - bar.change)
    width = max((bar.running if bar.is_sum else abs(bar.change)) * scale, 1)
    x, base = LABELS + start * scale, top + LINE - 8
    weight = ' font-weight="bold"' if bar.is_sum else ""
    return (
        f'<text x="{LABELS - 8}" y="{base}" text-anchor="end"{weight}>{escape(bar_label(bar))}</text>'
        f'<rect x="{x:.1f}" y="{top + 4}" width="{width:.1f}" height="{BAR}" {_paint(bar)}/>'
        f'<text x="{x + width + 6:.1f}" y="{base}"{weight}>{_value(bar)}</text>'
    )


def _paint(bar: Bar) -> str:
    """Sums in the colour of the text, parts in their own, and what a step takes away as an empty frame."""
    if bar.is_sum:
        return 'fill="currentColor" fill-opacity="0.6"'
    if bar.change < 0:
        return 'fill="none" stroke="currentColor" stroke-dasharray="3 2"'
    return f'fill="{COLOURS.get(bar.subject, OTHER)}"'


def _value(bar: Bar) -> str:
    text = gb(abs(bar.shown))
    return f"{MINUS}{text}" if bar.shown < 0 else text
