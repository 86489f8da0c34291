"""``:verl:data:`last-updated```: a figure about the recorded runs, inside a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxRole

from ..catalog.figures import FIGURES
from ..diagnostics import Code, did_you_mean
from ..domain import FigureUse, VerlDomain
from ..logs import log_at

if TYPE_CHECKING:
    from docutils.nodes import Node, system_message


class DataRole(SphinxRole):
    """Shows the figure that its text names."""

    def run(self) -> tuple[list[Node], list[system_message]]:
        """Read the figure and remember that the page shows it."""
        domain = VerlDomain.of(self.env)
        name = self.text.strip()
        if name not in FIGURES:
            message = f"verl:data: unknown figure {name!r}"
            hint = did_you_mean(name, FIGURES)
            log_at(self.get_location(), Code.directive, f"{message}; {hint}", self.config)
            return [self._inline(f"[{message}]", "verl-problem")], []
        domain.note_use(FigureUse(name))
        return [self._inline(FIGURES[name](domain.catalog), "verl-data")], []

    def _inline(self, text: str, name: str) -> nodes.inline:
        node = nodes.inline(self.rawtext, text, classes=[name])
        node["support_smartquotes"] = False
        return node
