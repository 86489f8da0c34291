"""Base classes of directives with computed content: remarks, model names, and verl's settings as text."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ... import selection
from ...diagnostics import Location, NoAnswerError
from ...i18n import N_, _
from ..objects import GPU
from ..references import link_if_any
from .base import VerlDirective
from .options import Option
from .registries import entries_named

Answer = TypeVar("Answer")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from docutils import nodes

    from ...diagnostics import Diagnostic

    Settings = tuple[tuple[str, Any], ...]

#: The flag that leaves remarks out.
NO_REMARKS = "no-remarks"
WITHOUT_REMARKS = Option(
    NO_REMARKS,
    "Leave out the remarks about differences from verl. Otherwise a page shows each remark once, below the "
    "first directive that refers to it.",
)
#: The link below remarks.
ESTIMATOR = N_("The estimator computes what verl really does, phase by phase.")


class AnalysisDirective(VerlDirective):
    """A directive with content from the analysis."""

    @cached_property
    def _marked(self) -> set[str]:
        """The names of the remarks that have a mark."""
        return set()

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of the data that the analysis depends on."""
        return ("analysis", "config_keys")

    def of_analysis(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """Return the result of a function of the analysis."""
        return function(self.data.analysis, *arguments)

    def models(self, function: Callable[..., Sequence[str]], *arguments: Any) -> Sequence[str]:
        """Return the models in the argument; without one, the result of a function of the analysis.

        Raises:
            NoAnswerError: a model occurs twice, or the argument contains none.
        """
        from ...analysis.sections import names

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
        """Return each model with the result of a function of the analysis for it."""
        answers = []
        for name in models:
            with self.noted():
                answers.append((name, self.of_analysis(function, name, *arguments)))
        return answers

    def marks(self, subject: str) -> tuple[str, ...]:
        """Return the names of the remarks about a subject; ``remarks`` then lists them."""
        from ...analysis.sections import remarks_about

        if NO_REMARKS in self.given or not subject:
            return ()
        names = self.of_analysis(remarks_about, subject)
        self._marked.update(names)
        return names

    def remarks(self) -> list[nodes.Element]:
        """Return the list of all remarks that have a mark."""
        from ...analysis.sections import remarks_named
        from ...views.remarks import remark_list

        if not self._marked:
            return []
        found, verl = self.of_analysis(remarks_named, *sorted(self._marked))
        settings = self.domain.settings
        more = link_if_any(settings.estimator_page, _(ESTIMATOR), self.env.docname)
        return [remark_list(found, verl, settings.links, more)]


class SettingsDirective(VerlDirective):
    """A directive with settings of verl below its options."""

    #: The place of each key on the page.
    _places: Mapping[str, Location] = MappingProxyType({})

    def check_text(self) -> None:
        """Accept any text, which is read as settings, see ``settings``."""

    def settings(self) -> Settings:
        """Return pairs of dotted key and value; record errors, and print warnings."""
        if not self.content:
            return ()
        from ...settings.result import read_yaml_settings

        found = read_yaml_settings("\n".join(self.content), "")
        for problem in found.problems:
            self.note(replace(problem, place=self._place(problem.place.line, problem.place.key)))
        # Hydra's plus marks a new key; it is not part of the name.
        config = {key.lstrip("+"): value for key, value in found.values.items()}
        # Keys whose values cannot be read are reported above, and get no place.
        self._places = {key.lstrip("+"): self._place(found.places[key].line) for key in found.values}
        return tuple(config.items())

    def place_of(self, key: str) -> Location:
        """Return the place of a setting on the page; an empty one if it is not there."""
        return self._places.get(key, Location(""))

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of the data that estimates depend on."""
        return ("config_keys", "accuracy")

    def of_settings(self, function: Callable[..., Answer], *arguments: Any, **more: Any) -> Answer | None:
        """Call a function; on errors, record them at the lines of the settings and return None."""
        try:
            return function(*arguments, **more)
        except NoAnswerError as error:
            self.note_all(error.diagnostics)
            return None

    def note_all(self, problems: Iterable[Diagnostic]) -> None:
        """Record problems found by the estimator, each at the line of its setting if there is one.

        Warnings about settings that are not on the page are left out.
        """
        keys = list(self._places)

        def order(problem: Diagnostic) -> int:
            return keys.index(problem.place.key) if problem.place.key in keys else -1

        for problem in sorted(problems, key=order):
            place = self.place_of(problem.place.key)
            if problem.is_error or place.path:
                self.note(replace(problem, place=replace(place, key=problem.place.key)))

    def note(self, problem: Diagnostic) -> None:
        """Record an error, print a warning."""
        if problem.is_error:
            self.problems.append(problem)
        else:
            self.log(problem)

    def check_recorded(self, kind: str, names: Sequence[str], option: str) -> None:
        """Record a problem for GPUs or models in an option that the registry does not contain."""
        if names:
            with self.noted(option):
                entries_named(self.data, kind, names)

    def named_gpus(self) -> tuple[int, str]:
        """Return the number and the name of the GPUs in ``:gpus:``; 0 and an empty name if invalid."""
        if "gpus" not in self.given:
            self.refuse("set the number and type of GPUs, as in :gpus: 8*H100")
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
