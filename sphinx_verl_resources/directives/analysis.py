"""What the directives of the memory analysis share: remarks under their content, and names of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..domain import ConfigUse, VerlDomain
from ..memory.questions import RemarksOn
from ..render.remarks import place_remarks, remark_list
from .base import VerlDirective
from .options import OptionError, phrases

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from docutils import nodes

    from ..memory.questions import Answer, Question

#: The flag that leaves remarks out.
NO_REMARKS = "no-remarks"


class AnalysisDirective(VerlDirective):
    """A directive whose content is an answer of the analysis."""

    def ask(self, question: Question[Answer]) -> Answer:
        """See ``VerlDomain.ask``."""
        return VerlDomain.of(self.env).ask(question)

    def models(self, default: Question[tuple[str, ...]]) -> list[str]:
        """The models named in the argument, or else the answer to ``default``.

        Raises:
            OptionError: a model stands there twice.
        """
        if not self.arguments:
            return list(self.ask(default))
        found = phrases(self.arguments[0]) if "," in self.arguments[0] else self.arguments[0].split()
        for name in found:
            if [other.casefold() for other in found].count(name.casefold()) > 1:
                raise OptionError(f"the model {name!r} stands there twice")
        return found

    def remarks(
        self, subjects: Iterable[str]
    ) -> tuple[Mapping[str, Sequence[tuple[str, str]]], list[nodes.Element]]:
        """Marks by subject, and the list of the remarks that the page does not have yet."""
        if NO_REMARKS in self.options:
            return {}, []
        domain = VerlDomain.of(self.env)
        found, verl = self.ask(RemarksOn(tuple(subjects)))
        marks, new = place_remarks(found, self.state.document)
        if new:
            domain.note_use(ConfigUse("script_url"))
        content = remark_list(new, verl, domain.settings.links)
        for node in content:
            self.set_source_info(node)
        return marks, content
