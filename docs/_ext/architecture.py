"""The drawings of the page "Architecture", each with a table of the same content."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from sphinx_verl_resources.views.table import Cell, empty_table, table_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sphinx.application import Sphinx

SOURCE = "architecture.yaml"
#: Sizes in units of a drawing.
WIDTH, TITLE, GAP, LINE, PADDING, CHARACTER = 720, 24, 10, 17, 8, 6.6


class Drawing(SphinxDirective):
    """A drawing for HTML, and a table."""

    headings: tuple[str, ...]

    def run(self) -> list[nodes.Node]:
        path = Path(self.env.srcdir) / SOURCE
        self.env.note_dependency(str(path))
        groups = list(self.groups(yaml.safe_load(path.read_text("utf-8"))))
        figure = nodes.container(
            "", nodes.raw("", self.drawing(groups), format="html"), classes=["docs-drawing"]
        )
        table = empty_table("verl-docs-architecture")
        table += table_group(self.headings, [[*map(Cell.of, row)] for _, rows in groups for row in rows])
        return [figure, table]

    def groups(self, data: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
        """Yield titles, each with the rows of its table."""
        raise NotImplementedError

    def drawing(self, groups: Iterable[tuple[str, list[tuple[str, ...]]]]) -> str:
        """Return an SVG of frames below each other, with arrows between them."""
        parts, top = [], 0.0
        for index, (title, rows) in enumerate(groups):
            if index:
                parts.append(arrow(top))
                top += 2 * GAP
            inside, height = self.inside(rows, top + TITLE)
            parts += [frame(0, top, WIDTH, TITLE + height, title), *inside]
            top += TITLE + height
        return svg(top, self.title, parts)

    def inside(self, rows: list[tuple[str, ...]], top: float) -> tuple[list[str], float]:
        """Return the content of a frame that starts at ``top``, and its height."""
        raise NotImplementedError


class Layers(Drawing):
    """``.. docs-layers::``: modules in rows; each may import from its own row and from those below."""

    headings = ("Module", "Purpose", "Imports from this package", "Other packages")
    title = "The layers of the package, from user interfaces to basics"

    def groups(self, data: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
        for layer in data["layers"]:
            yield (
                layer["title"],
                [
                    (name, module["does"], ", ".join(module["imports"]), ", ".join(module["packages"]))
                    for name, module in layer["modules"].items()
                ],
            )

    def inside(self, rows: list[tuple[str, ...]], top: float) -> tuple[list[str], float]:
        step = LINE + 2 * PADDING + GAP
        boxes = list(boxes_in_lines([row[0] for row in rows]))
        drawn = [box(left, top + line * step, width, name) for left, line, width, name in boxes]
        return drawn, (boxes[-1][1] + 1) * step - PADDING


class Life(Drawing):
    """``.. docs-life:: run`` or ``estimate``: the functions that process one, in order."""

    required_arguments = 1
    headings = ("Phase", "Sphinx event", "Function or class", "Purpose")

    @property
    def title(self) -> str:
        return f"The life of a {self.arguments[0]}"

    def groups(self, data: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
        for phase in data["lives"][self.arguments[0]]:
            rows = [
                (phase["phase"], step.get("event", ""), step["calls"], step["does"])
                for step in phase["steps"]
            ]
            yield phase["phase"], rows

    def inside(self, rows: list[tuple[str, ...]], top: float) -> tuple[list[str], float]:
        drawn, step = [], LINE + 4
        for number, (_, event, calls, _) in enumerate(rows):
            y = top + number * step + LINE - 2
            drawn.append(text(PADDING + 4, y, calls, 'font-family="monospace" font-size="13"'))
            if event:
                drawn.append(text(WIDTH - PADDING - 4, y, event, 'text-anchor="end" font-style="italic"'))
        return drawn, len(rows) * step + PADDING


def boxes_in_lines(names: Iterable[str]) -> Iterator[tuple[float, int, float, str]]:
    """Yield left edge, line, width and name of boxes that are next to each other while there is room."""
    left, line = float(GAP), 0
    for name in names:
        width = len(name) * CHARACTER * 1.25 + 2 * PADDING
        if left + width > WIDTH - GAP:
            left, line = float(GAP), line + 1
        yield left, line, width, name
        left += width + GAP


def frame(x: float, y: float, width: float, height: float, title: str) -> str:
    outline = rectangle(x + 0.5, y + 0.5, width - 1, height, 'fill="none" stroke-opacity="0.5"')
    return outline + text(x + PADDING, y + LINE - 1, title, 'font-weight="bold"')


def box(x: float, y: float, width: float, name: str) -> str:
    height = LINE + 2 * PADDING - 6
    style = 'text-anchor="middle" font-family="monospace"'
    outline = rectangle(x, y, width, height, 'fill="currentColor" fill-opacity="0.08"')
    return outline + text(x + width / 2, y + height / 2 + 5, name, style)


def rectangle(x: float, y: float, width: float, height: float, style: str) -> str:
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} rx="3" stroke="currentColor" {style}/>'


def arrow(y: float) -> str:
    middle, end = WIDTH / 2, y + 2 * GAP - 2
    return f'<path d="M{middle} {y + 2} V{end} m-4 -6 l4 6 l4 -6" fill="none" stroke="currentColor"/>'


def text(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'


def svg(height: float, title: str, parts: Iterable[str]) -> str:
    label = escape(f"{title}; the table below has the same content")
    size = f'viewBox="0 0 {WIDTH} {height + 2:.0f}"'
    style = 'font-size="14" font-family="inherit" fill="currentColor"'
    return f'<svg {size} role="img" aria-label="{label}" {style}>{"".join(parts)}</svg>'


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-layers", Layers)
    app.add_directive("docs-life", Life)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
