"""LaTeX: tables whose columns fit their words, and formulas as mathematics.

A browser widens a column to fit its longest word, and scrolls if necessary. LaTeX does neither: it prints a
long word over the next cell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..units import MINUS
from ..views.blocks import FORMULA_CLASS
from ..views.table import is_ours
from .transforms import OnOurPages, RenderRuns

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Font sizes, with the average number of characters per line on Sphinx's page. The first size that fits is
#: used. There are only three, so that neighbouring tables look alike.
FONTS = ((r"\normalsize", 75), (r"\footnotesize", 106), (r"\scriptsize", 121))
#: The space between two columns, and its width in average characters.
SEPARATION, SEPARATION_WIDTH = r"\setlength{\tabcolsep}{3pt}", 2.0
#: Break points in long names, after the character. TeX already breaks after hyphens.
BREAKS = re.compile(r"(?<=[_/=])(?=\w)|(?<=\.)(?=[^\W\d])")
#: Words up to this length do not break.
SHORT = 10
#: Chinese, Japanese and Korean characters: twice as wide as others, and a line may break after each.
WIDE = "\u1100-\u115f\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6"
#: Up to four of these characters stay together, because few words are longer.
PIECES = re.compile(rf"[{WIDE}]{{1,4}}|[^{WIDE}\s]+")


class FitTables(OnOurPages):
    """A transform that sets the column widths of our tables, and a smaller font if needed."""

    default_priority = RenderRuns.default_priority + 10
    formats = ("latex",)

    def run(self, **kwargs: Any) -> None:
        """Change each of our tables."""
        for table in list(self.document.findall(nodes.table)):
            if is_ours(table):
                self._fit(table)

    def _fit(self, table: nodes.table) -> None:
        rows = [list(row.findall(nodes.entry)) for row in table.findall(nodes.row)]
        columns = list(zip(*rows, strict=False))
        pieces = [
            max(_width(word) for cell in column for word in _words(cell.astext())) for column in columns
        ]
        lines = [max(_width(cell.astext()) for cell in column) for column in columns]
        font, room = next((font for font in FONTS if sum(pieces) <= font[1]), FONTS[-1])
        for spec, width in zip(table.findall(nodes.colspec), widths(pieces, lines, room), strict=False):
            spec["colwidth"] = round(width * 10)
        for text in [text for entry in table.findall(nodes.entry) for text in entry.findall(nodes.Text)]:
            _typeset(text)
        group = (rf"\begingroup{font}{SEPARATION}", r"\endgroup")
        before, after = (nodes.raw("", code, format="latex") for code in group)
        table.replace_self([before, table, after])


def widths(pieces: list[float], lines: list[float], room: float) -> list[float]:
    """Divide ``room`` among columns.

    Args:
        pieces: per column, the widest piece that cannot break.
        lines: per column, the widest cell on one line.
        room: the width of the line, in the same unit.

    Returns:
        The widths, none below its piece. Columns share the remaining room in proportion to their need.
    """
    lacking = [line - piece for piece, line in zip(pieces, lines, strict=True)]
    left = max(0.0, min(room - sum(pieces), sum(lacking)))
    share = left / sum(lacking) if left else 0.0
    return [piece + lack * share for piece, lack in zip(pieces, lacking, strict=True)]


def _width(text: str) -> float:
    """Return the width in average characters of a proportional font, with the space between columns."""
    wide = len(re.findall(f"[{WIDE}]", text))
    return sum(1.5 if char.isupper() else 1.1 for char in text) + 1.1 * wide + SEPARATION_WIDTH


def _words(text: str) -> Iterator[str]:
    """Yield the pieces of a text that stay on one line."""
    for word in PIECES.findall(text) or [""]:
        for part in re.split(r"(?<=-)", word):
            yield from BREAKS.split(part) if len(word) > SHORT else [part]


def _typeset(text: nodes.Text) -> None:
    """Add break points to long names, and replace signs that LaTeX's fonts lack."""
    pieces: list[nodes.Node] = []
    for word in re.split(rf"(\s+|{MINUS})", text):
        if word == MINUS:
            pieces.append(nodes.raw("", "$-$", format="latex"))
            continue
        for index, part in enumerate(BREAKS.split(word) if len(word) > SHORT else [word]):
            if index:
                pieces.append(nodes.raw("", r"\allowbreak{}", format="latex"))
            pieces.append(nodes.Text(part))
    if len(pieces) > 1:
        text.parent.replace(text, pieces)


class TypesetFormulas(OnOurPages):
    """A transform that sets formulas as mathematics.

    In other formats they stay text: HTML would need a script, and most builders do not support mathematics.
    """

    default_priority = RenderRuns.default_priority + 10
    formats = ("latex",)

    def run(self, **kwargs: Any) -> None:
        """Replace each formula."""
        for node in list(self.document.findall(nodes.inline)):
            if FORMULA_CLASS in node["classes"]:
                node.replace_self(nodes.math("", tex(node.astext())))


def tex(formula: str) -> str:
    """Return a formula of words, numbers and signs as TeX."""
    code = re.sub(r"[^\W\d_]+(?: [^\W\d_]+)*", lambda match: rf"\text{{{match[0]}}}", formula)
    code = re.sub(r"(?<=\d),(?=\d)", "{,}", code)
    code = re.sub(r"(?<=\d) (?=\\text)", r"\\ ", code)
    return code.replace("×", r"\times").replace("÷", r"\div")
