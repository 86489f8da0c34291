"""Settings of verl that stand below the options of a directive, as YAML, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...diagnostics import Severity
from ..logs import log_at
from .analysis import AnalysisDirective
from .options import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...diagnostics import Code, Diagnostic
    from .options import Problems


@dataclass(frozen=True)
class Body:
    """Settings, and where each stands.

    Attributes:
        config: pairs of dotted key and value.
        places: ``path:line`` of each key.
    """

    config: tuple[tuple[str, Any], ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)


class SettingsDirective(AnalysisDirective):
    """A directive with settings of verl below its options."""

    def check_text(self) -> None:
        """Any text is read as settings, see ``settings``."""

    def settings(self, problems: Problems) -> Body:
        """Read the settings; errors are added to ``problems``, and warnings are printed."""
        if not self.content:
            return Body()
        from ...settings.yaml_text import read_yaml_settings

        found = read_yaml_settings("\n".join(self.content), "")
        for problem in found.problems:
            place = self._place(problem.place.line)
            if problem.severity is Severity.ERROR:
                problems.append(OptionError(problem.text, problem.code, place))
            else:
                self._warn(place, problem.code, problem.text)
        # Hydra's plus says that a key is new, not which one it is.
        config = {key.lstrip("+"): value for key, value in found.values.items()}
        # A value that is not known has been reported; what follows from it is no mistake of its own.
        places = {key.lstrip("+"): self._place(found.places[key].line) for key in found.values}
        return Body(tuple(config.items()), places)

    def note_problems(self, found: Iterable[Diagnostic], body: Body, problems: Problems) -> None:
        """Say what the estimator finds wrong, at the line of the setting where it has one.

        Errors are added to ``problems``. Warnings are printed if they are about a setting that stands here.
        """
        keys = [key for key, _ in body.config]
        for problem in sorted(
            found, key=lambda problem: keys.index(problem.place.key) if problem.place.key in keys else -1
        ):
            place = body.places.get(problem.place.key, "")
            if problem.severity is Severity.ERROR:
                problems.append(OptionError(problem.text, problem.code, place))
            elif place:
                self._warn(place, problem.code, problem.text)

    def _warn(self, place: str, code: Code, text: str) -> None:
        log_at(place, code, f"{self.name}: {text}", self.config, Severity.WARNING)

    def _place(self, line: int) -> str:
        """A line of the text, counted from 1, as a place on the page."""
        index = min(max(line, 1), len(self.content)) - 1
        source, offset = self.content.items[index]
        if not self.content.items[0][1]:
            # MyST counts the lines of the text only, docutils those of the page.
            offset = self.lineno + self.content_offset + index
        return f"{source}:{(offset or 0) + 1}"
