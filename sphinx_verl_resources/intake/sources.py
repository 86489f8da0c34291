"""What is known of a run before its file is written: script, log, and what the person says."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, Diagnostic, Location, Severity
from ..settings.result import SettingsText
from .kept_settings import is_private, kept_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .log import LogText

#: Where a person says something.
COMMAND_LINE = Location("command line")


@dataclass(frozen=True)
class UserInput:
    """What the person says, which goes before all that is found; None or empty for what is to be found."""

    id: str | None = None
    model: str | None = None
    task: str | None = None
    gpus: tuple[int | None, str | None] = (None, None)
    nodes: int | None = None
    train: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    tag: str | None = None
    max_batch: int | None = None
    kind: str | None = None
    evidence: str | None = None
    contributor: str | None = None
    contributor_url: str | None = None
    verl_version: str | None = None
    torch_version: str | None = None
    ref: str | None = None
    path: str | None = None


@dataclass(frozen=True)
class Sources:
    """A script and a log of one run; either may be missing.

    Attributes:
        script: the settings that the script passes.
        text: the script.
        shown: its name in messages.
        file: where it lies.
        log: what the log says.
    """

    script: SettingsText = field(default_factory=lambda: SettingsText({}, {}))
    text: str = ""
    shown: str = ""
    file: Path | None = None
    log: LogText | None = None

    @cached_property
    def printed(self) -> Mapping[str, Any]:
        """The configuration that the log prints."""
        return self.log.settings if self.log else {}

    @cached_property
    def all(self) -> dict[str, Any]:
        """Every setting that is known; what the script leaves open is as the log has it."""
        return {**self.printed, **self.script.values}

    @cached_property
    def open(self) -> frozenset[str]:
        """Keys that are set to what neither script nor log tells."""
        return frozenset(self.script.unresolved.keys() - self.printed.keys())

    @cached_property
    def passed(self) -> dict[str, Any]:
        """The settings that the script passes, those that it leaves open as the log has them."""
        return {
            key: self.all[key]
            for key in self.script.places  # in the order of the script
            if key in self.all and (key in self.script.values or key in self.script.unresolved)
        }

    @property
    def has_defaults(self) -> bool:
        """Whether what is set nowhere has verl's default, as in a script; a log may break off."""
        return bool(self.script.values)

    def place(self, *keys: str) -> Location:
        """Where the first of the keys stands that the script sets; the script itself if none."""
        found = (self.script.places[key] for key in keys if key in self.script.places)
        return next(found, Location(self.shown, 1, 1) if self.shown else COMMAND_LINE)

    def problems(self) -> list[Diagnostic]:
        """What is wrong with both, without what one says of the other's gaps."""
        settled = {
            self.script.places[key]
            for key in self.script.unresolved
            if key in self.printed or is_private(key)
        }
        about = [
            problem
            for problem in self.script.problems
            if problem.code is not Code.unresolved or problem.place not in settled
        ]
        return [*about, *(self.log.problems if self.log else ()), *self._differences()]

    def _differences(self) -> list[Diagnostic]:
        """Settings that the script passes and the log prints otherwise."""
        found = []
        for key, value in kept_settings(self.script.values)[0].items():
            if key in self.printed and not _same(value, self.printed[key]):
                printed = self.printed[key]
                message = f"{key} is {value!r} in the script and {printed!r} in the log; the script counts"
                hint = "give the script and the log of one run, or correct the file"
                found.append(Diagnostic(self.place(key), Code.log_differs, message, hint, Severity.WARNING))
        return found


def _same(one: Any, other: Any) -> bool:
    """Whether two values mean the same; verl turns texts into numbers where it reads them."""
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(_same, one, other))
    if one == other:
        return True
    try:
        return not isinstance(one, bool) and not isinstance(other, bool) and float(one) == float(other)
    except (TypeError, ValueError, OverflowError):
        return str(one).strip().lower() == str(other).strip().lower()
