"""Formulas on paper, as mathematics.

Elsewhere they stay text: HTML would need a script for them, and most other builders have no mathematics.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

from ..views.memory import FORMULA_CLASS
from .transforms import OnOurPages, RenderRuns


class TypesetFormulas(OnOurPages):
    """Sets formulas as mathematics."""

    default_priority = RenderRuns.default_priority + 10
    formats = ("latex",)

    def run(self, **kwargs: Any) -> None:
        """Replace each formula."""
        for node in list(self.document.findall(nodes.inline)):
            if FORMULA_CLASS in node["classes"]:
                node.replace_self(nodes.math("", tex(node.astext())))


def tex(formula: str) -> str:
    """A formula in words, numbers and signs as TeX."""
    found = re.sub(r"[^\W\d_]+(?: [^\W\d_]+)*", lambda match: rf"\text{{{match[0]}}}", formula)
    found = re.sub(r"(?<=\d),(?=\d)", "{,}", found)
    found = re.sub(r"(?<=\d) (?=\\text)", r"\\ ", found)
    return found.replace("×", r"\times").replace("÷", r"\div")
