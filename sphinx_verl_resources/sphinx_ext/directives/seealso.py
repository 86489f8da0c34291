"""``.. verl-seealso::``: links to the listed pages and labels that exist."""

from __future__ import annotations

from docutils import nodes
from sphinx.util import docname_join
from sphinx.util.nodes import explicit_title_re

from ...catalog.links import is_address
from ...diagnostics import NoAnswerError
from ..queries import PageOrLabel
from .base import VerlDirective


class verl_seealso(nodes.General, nodes.Element):  # noqa: N801 - docutils names nodes in lower case
    """A placeholder for links, which are made after all pages are read.

    Attributes:
        entries: for each entry its text, which may be empty, and the page and the label that it may refer to.
        refdoc: the page with the list.
    """


class VerlSeeAlso(VerlDirective):
    """The listed pages and labels that exist, as Sphinx's ``seealso``."""

    directive = "verl-seealso"
    instead_of_argument = "list pages and labels below it, after an empty line"

    def check_text(self) -> None:
        """Refuse an empty list, and addresses, which need no such list."""
        names = [name for _, name in self._entries()]
        if not names and not self.arguments:
            raise NoAnswerError.because("the list is empty", "write pages and labels below it, one per line")
        for name in filter(is_address, names):
            raise NoAnswerError.because(f"{name} is an address", "write pages and labels, one per line")

    def show(self) -> list[nodes.Node]:
        """Return a placeholder for the links."""
        entries = []
        for text, name in self._entries():
            page = docname_join(self.env.docname, name)
            label = " ".join(name.split()).lower()
            self.ask(PageOrLabel(page, label))
            entries.append((text, page, label))
        return [verl_seealso("", entries=entries, refdoc=self.env.docname)]

    def _entries(self) -> list[tuple[str, str]]:
        """Return text and name of each line: ``name``, or ``text <name>`` as in a toctree."""
        lines = filter(None, map(str.strip, self.content))
        found = ((explicit_title_re.match(line), line) for line in lines)
        return [(match[1], match[2]) if match else ("", line) for match, line in found]
