"""The bases of directives with computed content: remarks, names of models, and settings of verl as text."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...catalog import selection
from ...diagnostics import Location, NoAnswerError
from ...i18n import N_, _
from ..domain import VerlDomain
from ..objects import GPU
from ..queries import ConfigValue, RegistryNames
from ..references import link_if_any
from .base import VerlDirective
from .options import Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from docutils import nodes

    from ...catalog.dataset import Answer, Query
    from ...diagnostics import Diagnostic

    Settings = tuple[tuple[str, Any], ...]

#: The flag that leaves remarks out.
NO_REMARKS = "no-remarks"
WITHOUT_REMARKS = Option(
    NO_REMARKS,
    "Leave out the remarks that say where verl works differently. Otherwise a page shows each remark once, "
    "below the first directive that has a mark for it.",
)
#: The link below remarks.
ESTIMATOR = N_("The estimator computes what verl really does, phase by phase.")


class AnalysisDirective(VerlDirective):
    """A directive whose content rests on the analysis."""

    @cached_property
    def _marked(self) -> set[str]:
        """The names of the remarks that have a mark."""
        return set()

    def of_analysis(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """Return what a function makes of the analysis, see ``AnalysisQuery``."""
        from ...analysis.queries import AnalysisQuery

        return self.ask(AnalysisQuery(function, arguments))

    def models(self, function: Callable[..., Sequence[str]], *arguments: Any) -> Sequence[str]:
        """Return the models that the argument names, or else what a function makes of the analysis.

        Raises:
            NoAnswerError: a model is named twice, or there is none.
        """
        from ...analysis.queries import names

        if not self.arguments:
            return self.of_analysis(function, *arguments)
        text = " ".join(self.arguments[0].split())
        if " " in text and text.casefold() in map(str.casefold, self.of_analysis(names, "specifications")):
            return [text]
        words = selection.phrases(text) if "," in text else text.split()
        return selection.names(words, "name at least one model, or leave the argument out", "the model ")

    def of_each(
        self, models: Iterable[str], function: Callable[..., Answer], *arguments: Any
    ) -> list[tuple[str, Answer]]:
        """Return each model with what a function makes of the analysis, its name and the arguments."""
        answers = []
        for name in models:
            with self.noted():
                answers.append((name, self.of_analysis(function, name, *arguments)))
        return answers

    def marks(self, subject: str) -> tuple[str, ...]:
        """Return the names of the remarks about a subject; the marks of these lead to ``remarks``."""
        from ...analysis.queries import remarks_about

        if NO_REMARKS in self.given or not subject:
            return ()
        names = self.of_analysis(remarks_about, subject)
        self._marked.update(names)
        return names

    def remarks(self) -> list[nodes.Element]:
        """Return the list of the remarks that have a mark."""
        from ...analysis.queries import remarks_named
        from ...views.remarks import remark_list

        if not self._marked:
            return []
        found, verl = self.of_analysis(remarks_named, *sorted(self._marked))
        self.ask(ConfigValue("script_url"))
        page = self.ask(ConfigValue("estimator_page"))
        more = link_if_any(page, _(ESTIMATOR), self.env.docname)
        return [remark_list(found, verl, VerlDomain.of(self.env).settings.links, more)]


class SettingsDirective(VerlDirective):
    """A directive with settings of verl below its options."""

    #: The place of each key on the page.
    _places: Mapping[str, Location] = MappingProxyType({})

    def check_text(self) -> None:
        """Accept any text, which is read as settings, see ``settings``."""

    def settings(self) -> Settings:
        """Return pairs of dotted key and value; errors are noted, and warnings are printed."""
        if not self.content:
            return ()
        from ...settings.result import read_yaml_settings

        found = read_yaml_settings("\n".join(self.content), "")
        for problem in found.problems:
            self.note(replace(problem, place=self._place(problem.place.line, problem.place.key)))
        # Hydra's plus says that a key is new, not which one it is.
        config = {key.lstrip("+"): value for key, value in found.values.items()}
        # A value that is not known has been reported; what follows from it is no mistake of its own.
        self._places = {key.lstrip("+"): self._place(found.places[key].line) for key in found.values}
        return tuple(config.items())

    def place_of(self, key: str) -> Location:
        """Return the place of a setting on the page, or nowhere."""
        return self._places.get(key, Location(""))

    def ask_about_settings(self, query: Query[Answer]) -> Answer | None:
        """Answer a query; what is wrong is noted at the lines of the settings."""
        try:
            return self.ask(query)
        except NoAnswerError as error:
            self.note_all(error.diagnostics)
            return None

    def note_all(self, problems: Iterable[Diagnostic]) -> None:
        """Note what the estimator finds wrong, at the line of the setting where there is one.

        Warnings about settings that are not written here are left out.
        """
        keys = list(self._places)

        def order(problem: Diagnostic) -> int:
            return keys.index(problem.place.key) if problem.place.key in keys else -1

        for problem in sorted(problems, key=order):
            place = self.place_of(problem.place.key)
            if problem.is_error or place.path:
                self.note(replace(problem, place=replace(place, key=problem.place.key)))

    def note(self, problem: Diagnostic) -> None:
        """Note an error, print a warning."""
        if problem.is_error:
            self.problems.append(problem)
        else:
            self.log(problem)

    def check_recorded(self, kind: str, names: Sequence[str], option: str) -> None:
        """Note the GPUs or models that an option names and no registry has."""
        if names:
            with self.noted(option):
                self.ask(RegistryNames(kind, tuple(names)))

    def named_gpus(self) -> tuple[int, str]:
        """Return how many GPUs ``:gpus:`` names, and which; 0 and no name where something is wrong."""
        if "gpus" not in self.given:
            self.refuse("say on how many GPUs and which, as in :gpus: 8*H100")
        count, gpu = self.values["gpus"] or (0, "")
        if gpu:
            self.check_recorded(GPU, (gpu,), "gpus")
        return count, gpu

    def _place(self, line: int, key: str = "") -> Location:
        """Return the place on the page of a line of the text, counted from 1."""
        index = min(max(line, 1), len(self.content)) - 1
        source, offset = self.content.items[index]
        if not self.content.items[0][1]:
            # MyST counts the lines of the text only, docutils those of the page.
            offset = self.lineno + self.content_offset + index
        return Location(str(source), (offset or 0) + 1, 0, key)
