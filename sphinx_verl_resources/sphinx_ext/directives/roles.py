"""Figures inside sentences: ``:verl:data:`last-updated``` and ``:verl:memory:`8B, after FSDP```."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from sphinx.util.docutils import SphinxRole

from ...catalog.catalog import FIGURES, NEVER
from ...diagnostics import NoAnswerError, did_you_mean
from ...i18n import _
from ..domain import VerlDomain
from ..logs import log_at
from ..queries import Extension, Figure
from .options import OptionError

if TYPE_CHECKING:
    from docutils.nodes import Node, system_message


class ValueRole(SphinxRole):
    """A role whose text names a figure and that shows its value."""

    full_name: ClassVar[str]

    def run(self) -> tuple[list[Node], list[system_message]]:
        """Show the value, or what is wrong with the name."""
        domain = VerlDomain.of(self.env)
        domain.ask(Extension())
        try:
            value = self.value(domain, " ".join(self.text.split()))
        except (NoAnswerError, OptionError) as error:
            message = f"{self.full_name}: {error}"
            log_at(self.get_location(), error.code, message, self.config)
            return [self._inline(f"[{message.partition(';')[0]}]", "verl-problem")], []
        return [self._inline(value, "verl-value")], []

    def value(self, domain: VerlDomain, text: str) -> str:
        """The value that ``text`` names; the page depends on it from now on.

        Raises:
            NoAnswerError, OptionError: it names none.
        """
        raise NotImplementedError

    def _inline(self, text: str, name: str) -> nodes.inline:
        node = nodes.inline(self.rawtext, text, classes=[name])
        node["support_smartquotes"] = False  # Sphinx takes no other value for no
        return node


class DataRole(ValueRole):
    """A figure about the runs and registries."""

    full_name = "verl:data"

    def value(self, domain: VerlDomain, text: str) -> str:
        """Read the figure."""
        if text not in FIGURES:
            raise OptionError(f"unknown figure {text!r}; {did_you_mean(text, FIGURES)}")
        figure = domain.ask(Figure(text))
        return _(figure) if figure == NEVER else figure


class MemoryRole(ValueRole):
    """A figure of the memory analysis."""

    full_name = "verl:memory"

    def value(self, domain: VerlDomain, text: str) -> str:
        """Ask the analysis."""
        from ...analysis.questions import Value

        return domain.ask(Value(text))
