"""What the directives of the memory analysis share: remarks under their content, and names of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ...analysis.questions import FilesWithErrors, IsName, RemarksOn
from ...catalog.selection import phrases
from ...i18n import N_, _
from ...views.remarks import remark_list
from ..domain import VerlDomain
from ..queries import ConfigValue
from .base import VerlDirective
from .links import link_if_any
from .options import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ...query import Answer, Query

#: The flag that leaves remarks out.
NO_REMARKS = "no-remarks"
WITHOUT_REMARKS = Option(
    NO_REMARKS,
    "Leave out the remarks that say where verl works differently. Otherwise a page shows each remark once, "
    "below the first directive that has a mark for it.",
)
#: UserInput below remarks, as a link.
ESTIMATOR = N_("The estimator computes what verl really does, phase by phase.")

NOT_USED = " has errors; what is wrong in it is not used here. The build log says more."


class AnalysisDirective(VerlDirective):
    """A directive whose content is an answer of the analysis."""

    def ask(self, query: Query[Answer]) -> Answer:
        """See ``VerlDomain.ask``."""
        return VerlDomain.of(self.env).ask(query)

    def run(self) -> list[nodes.Node]:
        """The content, below a box for each file that could not be used as it is."""
        boxes: list[nodes.Node] = [
            self.problem(nodes.literal("", name), nodes.Text(NOT_USED))
            for name in self.ask(FilesWithErrors())
        ]
        return [*boxes, *super().run()]

    def models(self, default: Query[tuple[str, ...]]) -> list[str]:
        """The models named in the argument, or else the answer to ``default``.

        Raises:
            OptionError: a model stands there twice, or there is none.
        """
        if not self.arguments:
            return list(self.ask(default))
        text = " ".join(self.arguments[0].split())
        if " " in text and self.ask(IsName(text)):
            return [text]
        found = phrases(text) if "," in text else text.split()
        if not found:
            raise OptionError("name at least one model, or leave the argument out")
        for name in found:
            if [other.casefold() for other in found].count(name.casefold()) > 1:
                raise OptionError(f"the model {name!r} stands there twice; keep one of the two")
        return found

    def remarks(self, subjects: Iterable[str]) -> tuple[Mapping[str, Sequence[str]], list[nodes.Element]]:
        """The names of remarks by subject, and the list of these remarks."""
        if NO_REMARKS in self.options:
            return {}, []
        domain = VerlDomain.of(self.env)
        found, verl = self.ask(RemarksOn(tuple(subjects)))
        if not found:
            return {}, []
        marks: dict[str, list[str]] = {}
        for remark in found:
            for subject in remark.about:
                marks.setdefault(subject, []).append(remark.name)
        domain.ask(ConfigValue("script_url"))
        more = link_if_any(domain.ask(ConfigValue("estimator_page")), _(ESTIMATOR), self.env.docname)
        return marks, [remark_list(found, verl, domain.settings.links, more)]
