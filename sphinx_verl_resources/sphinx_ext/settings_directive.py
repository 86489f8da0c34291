"""The base class of directives with settings of verl below their options."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ..diagnostics import Location, NoAnswerError
from ..directive import VerlDirective
from ..record_tables import entries_named
from ..selection import each_once, whole_number, words

Answer = TypeVar("Answer")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..diagnostics import Diagnostic

    Settings = tuple[tuple[str, Any], ...]


def numbers(most: int) -> Callable[[str], tuple[int, ...]]:
    """Return a reader of distinct whole numbers from 1 to ``most``, in the given order."""
    number = partial(whole_number, most=most)
    return lambda text: each_once(words(text), number, "name at least one number")


class SettingsDirective(VerlDirective):
    """A directive with settings of verl below its options."""

    #: The place of each key on the page.
    _places: Mapping[str, Location] = MappingProxyType({})

    takes_text = True
    reads: tuple[str, ...] = ("config_keys", "accuracy")

    def settings(self) -> Settings:
        """Return pairs of dotted key and value; record errors, and print warnings."""
        if not self.content:
            return ()
        from ..settings.result import read_yaml_settings

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
            with self.noted():
                raise NoAnswerError.because("set the number and type of GPUs, as in :gpus: 8*H100")
        count, gpu = self.values["gpus"] or (0, "")
        from ..memory.registries import gpu_name

        with self.noted("gpus"):
            return count, gpu and gpu_name(gpu, self.data.gpus)
        return 0, ""

    def _place(self, line: int, key: str = "") -> Location:
        """Return the place on the page of a line of the text, counted from 1."""
        index = min(max(line, 1), len(self.content)) - 1
        source, offset = self.content.items[index]
        if not self.content.items[0][1]:
            # MyST counts the lines of the text only, docutils those of the page.
            offset = self.lineno + self.content_offset + index
        return Location(str(source), (offset or 0) + 1, key=key)
