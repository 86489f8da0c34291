"""What directives with computed content share: remarks, names of models, and settings of verl as text."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from docutils import nodes

from ...catalog.selection import REGISTRIES, phrases
from ...diagnostics import Code, Location, NoAnswerError, suggest_or
from ...i18n import N_, _
from ..domain import VerlDomain
from ..queries import ConfigValue, KnownValue
from ..references import link_if_any
from .base import VerlDirective
from .options import Option

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ...diagnostics import Diagnostic
    from ...query import Query

#: The flag that leaves remarks out.
NO_REMARKS = "no-remarks"
WITHOUT_REMARKS = Option(
    NO_REMARKS,
    "Leave out the remarks that say where verl works differently. Otherwise a page shows each remark once, "
    "below the first directive that has a mark for it.",
)
#: The link below remarks.
ESTIMATOR = N_("The estimator computes what verl really does, phase by phase.")

NOT_USED = " has errors; what is wrong in it is not used here. The build log says more."


class AnalysisDirective(VerlDirective):
    """A directive whose content rests on the analysis."""

    def run(self) -> list[nodes.Node]:
        """Return the content, below a box for each file with errors."""
        from ...analysis.questions import FilesWithErrors

        return [*self.file_boxes(self.ask(FilesWithErrors())), *super().run()]

    def file_boxes(self, names: Iterable[str]) -> list[nodes.Node]:
        """Return a box for each file with errors."""
        return [self.box(nodes.literal("", name), nodes.Text(NOT_USED)) for name in names]

    def models(self, default: Query[tuple[str, ...]]) -> list[str]:
        """Return the models that the argument names, or else the answer to ``default``.

        Raises:
            NoAnswerError: a model is named twice, or there is none.
        """
        from ...analysis.questions import IsName

        if not self.arguments:
            return list(self.ask(default))
        text = " ".join(self.arguments[0].split())
        if " " in text and self.ask(IsName(text)):
            return [text]
        found = phrases(text) if "," in text else text.split()
        if not found:
            raise NoAnswerError.because("name at least one model, or leave the argument out")
        folded = [name.casefold() for name in found]
        for name in found:
            if folded.count(name.casefold()) > 1:
                raise NoAnswerError.because(f"the model {name!r} stands there twice", "keep one of the two")
        return found

    def remarks(self, subjects: Iterable[str]) -> tuple[Mapping[str, Sequence[str]], list[nodes.Element]]:
        """Return the names of remarks by subject, and the list of these remarks."""
        from ...analysis.questions import RemarksOn
        from ...views.remarks import remark_list

        if NO_REMARKS in self.given:
            return {}, []
        found, verl = self.ask(RemarksOn(tuple(subjects)))
        if not found:
            return {}, []
        marks: dict[str, list[str]] = {}
        for remark in found:
            for subject in remark.about:
                marks.setdefault(subject, []).append(remark.name)
        self.ask(ConfigValue("script_url"))
        page = self.ask(ConfigValue("estimator_page"))
        more = link_if_any(page, _(ESTIMATOR), self.env.docname)
        return marks, [remark_list(found, verl, VerlDomain.of(self.env).settings.links, more)]


@dataclass(frozen=True)
class Body:
    """Settings of verl, and the line of each.

    Attributes:
        config: pairs of dotted key and value.
        places: by key.
    """

    config: tuple[tuple[str, Any], ...] = ()
    places: Mapping[str, Location] = field(default_factory=dict)


class SettingsDirective(AnalysisDirective):
    """A directive with settings of verl below its options."""

    def check_text(self) -> None:
        """Accept any text, which is read as settings, see ``settings``."""

    def settings(self) -> Body:
        """Read the settings; errors are noted, and warnings are printed."""
        if not self.content:
            return Body()
        from ...settings.yaml_text import read_yaml_settings

        found = read_yaml_settings("\n".join(self.content), "")
        for problem in found.problems:
            self.note(replace(problem, place=self._place(problem.place.line, problem.place.key)))
        # Hydra's plus says that a key is new, not which one it is.
        config = {key.lstrip("+"): value for key, value in found.values.items()}
        # A value that is not known has been reported; what follows from it is no mistake of its own.
        places = {key.lstrip("+"): self._place(found.places[key].line) for key in found.values}
        return Body(tuple(config.items()), places)

    def note_all(self, problems: Iterable[Diagnostic], body: Body) -> None:
        """Note what the estimator finds wrong, at the line of the setting where there is one.

        Warnings about settings that are not written here are left out.
        """
        keys = list(body.places)

        def order(problem: Diagnostic) -> int:
            return keys.index(problem.place.key) if problem.place.key in keys else -1

        for problem in sorted(problems, key=order):
            place = body.places.get(problem.place.key, Location(""))
            if problem.is_error or place.path:
                self.note(replace(problem, place=replace(place, key=problem.place.key)))

    def note(self, problem: Diagnostic) -> None:
        """Note an error, print a warning."""
        if problem.is_error:
            self.problems.append(problem)
        else:
            self.log(problem)

    def known_gpu(self, name: str, option: str) -> str:
        """Return the name of a GPU that an option names.

        Raises:
            NoAnswerError: the registry does not have it.
        """
        self.ask(KnownValue("gpu", name))
        gpus = VerlDomain.of(self.env).catalog.gpus
        if gpus.get(name) is None:
            hint = suggest_or(name, gpus.names, REGISTRIES["gpu"])
            message = f"there is no GPU {name!r}"
            raise NoAnswerError.because(message, hint, code=Code.unknown_gpu, key=f":{option}")
        return name

    def named_gpus(self) -> tuple[int, str]:
        """Return how many GPUs ``:gpus:`` names, and which; 0 and no name where something is wrong."""
        if "gpus" not in self.given:
            with self.noted():
                raise NoAnswerError.because("say on how many GPUs and which, as in :gpus: 8*H100")
        count, gpu = self.values.get("gpus", (0, ""))
        if gpu:
            with self.noted():
                self.known_gpu(gpu, "gpus")
        return count, gpu

    def _place(self, line: int, key: str = "") -> Location:
        """Return the place on the page of a line of the text, counted from 1."""
        index = min(max(line, 1), len(self.content)) - 1
        source, offset = self.content.items[index]
        if not self.content.items[0][1]:
            # MyST counts the lines of the text only, docutils those of the page.
            offset = self.lineno + self.content_offset + index
        return Location(str(source), (offset or 0) + 1, 0, key)
