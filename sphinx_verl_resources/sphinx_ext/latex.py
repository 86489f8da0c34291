"""LaTeX: signs that its fonts lack, and formulas as mathematics."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

from ..units import MINUS
from ..views.blocks import FORMULA_CLASS
from .transforms import OnOurPages, RenderRuns


class TypesetMinus(OnOurPages):
    """A transform that replaces the minus sign."""

    default_priority = RenderRuns.default_priority + 10
    formats = ("latex",)

    def run(self, **kwargs: Any) -> None:
        """Replace it in the cells of tables."""
        cells = self.document.findall(nodes.entry)
        for text in [text for cell in cells for text in cell.findall(nodes.Text) if MINUS in text]:
            first, *others = text.split(MINUS)
            pieces: list[nodes.Node] = [nodes.Text(first)]
            for other in others:
                pieces += [nodes.raw("", "$-$", format="latex"), nodes.Text(other)]
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
