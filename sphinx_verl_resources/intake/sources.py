"""The sources of a new run file: launch script, log and user input."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..diagnostics import Diagnostic, Location, warning
from ..scripts.settings import SettingsText
from .run_text import TODO

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..logs.log import Log


#: Keys about files, folders, accounts and machines, and keys with their own field.
_PRIVATE = re.compile(
    r"data\.(?:train|val|test)_files$|trainer\.(?:logger|project_name|experiment_name)$"
    r"|actor_rollout_ref\.model\.path$|(?:.*[._])?(?:path|paths|dir|dirs|file|files|folder|home)$"
    r"|(?:ray_init|ray_kwargs|global_profiler)\.|.*wandb"
    r"|(?:.*[._])?(?:host|hostname|ip|addr|address|url|port|user|username|email|password|secret|credentials?)$"
    r"|(?:.*[._-])?(?:api_?key|access_?key|secret_?key|auth_?token|access_?token|token)$",
    re.IGNORECASE,
)
#: Values about files, accounts and machines under any key.
_PRIVATE_VALUE = re.compile(
    r"\A[~/\\]|\A[A-Za-z]:\\|\A\.{1,2}/|://|@\w|\$|(?<!\d)\d{1,3}(?:\.\d{1,3}){3}(?!\d)|\A(?:hf|sk|ghp)[_-]\w{16}"
    r"|(?:^|/)(?:home|root|mnt|data|users)/",
    re.IGNORECASE,
)
#: Limits of the schema.
_KEY = re.compile(r"(?=.{1,200}\Z)[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_MAX_TEXT, _MAX_ITEMS = 500, 100
#: The remedy if script and log contradict each other.
ONE_RUN = "give the script and the log of one run, or correct the file"


@dataclass(frozen=True)
class UserInput:
    """The user's options, which override script and log; None if not given."""

    id: str | None = None
    model: str | None = None
    task: str | None = None
    gpus: tuple[int | None, str | None] = (None, None)
    train: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    verl_version: str | None = None


@dataclass(frozen=True)
class Sources:
    """A script and a log of one run; either may be missing.

    Attributes:
        script: the settings in the script.
        text: the text of the script.
        shown: its name in messages.
        file: its path.
        log: the contents of the log.
    """

    script: SettingsText = field(default_factory=SettingsText)
    text: str = ""
    shown: str = ""
    file: Path | None = None
    log: Log | None = None

    @cached_property
    def printed(self) -> Mapping[str, Any]:
        """The configuration in the log."""
        return self.log.settings if self.log else {}

    @cached_property
    def all(self) -> dict[str, Any]:
        """All known settings; the log supplies values that are unknown in the script."""
        return {**self.printed, **self.script.values}

    @cached_property
    def open(self) -> frozenset[str]:
        """Keys whose values are in neither the script nor the log."""
        return frozenset(self.script.unresolved.keys() - self.printed.keys())

    @cached_property
    def passed(self) -> dict[str, Any]:
        """The settings in the script, in its order; the log supplies values that are unknown in it."""
        return {key: self.all[key] for key in self.script.places if key in self.all}

    @property
    def has_defaults(self) -> bool:
        """True if unset options have verl's defaults, as in a script; a log may be cut off."""
        return bool(self.script.values)

    def place(self, *keys: str) -> Location:
        """Return the place of the first key that the script sets; the script itself if there is none."""
        places = (self.script.places[key] for key in keys if key in self.script.places)
        return next(places, Location(self.shown, 1, 1) if self.shown else Location(""))

    def problems(self) -> list[Diagnostic]:
        """Return the problems of script and log, except for unknown values that the other one supplies."""
        settled = {key for key in self.script.unresolved if key in self.printed or is_private(key)}
        about_log = self.log.problems if self.log else ()
        return [*self.script.problems_besides(settled), *about_log, *self._differences()]

    def _differences(self) -> list[Diagnostic]:
        """Return a warning for each setting that differs between script and log."""
        return [
            warning(
                self.place(key),
                "log_differs",
                f"{key} is {value!r} in the script but {self.printed[key]!r} in the log; the script is used",
                ONE_RUN,
            )
            for key, value in self.script.values.items()
            if key in self.printed and _is_publishable(key, value) and not _same(value, self.printed[key])
        ]


def public_settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings that a run file publishes, and the keys that are left out.

    >>> public_settings({"data.train_files": "~/a.parquet", "trainer.nnodes": 2, "trainer.logger": "wandb"})
    ({'trainer.nnodes': 2}, ['data.train_files', 'trainer.logger'])
    """
    public = {key: value for key, value in values.items() if _is_publishable(key, value)}
    return public, [key for key in values if key not in public]


def tells_of_a_machine(key: str, value: Any) -> bool:
    """Return whether a setting is about a file, an account or a machine."""
    return is_private(key) or any(
        isinstance(item, str) and _PRIVATE_VALUE.search(item) for item in _items(value)
    )


def is_private(key: str) -> bool:
    """Return whether a key is never published, or has its own field."""
    return _PRIVATE.match(key) is not None


def _is_publishable(key: str, value: Any) -> bool:
    items = _items(value)
    return bool(
        not tells_of_a_machine(key, value)
        and _KEY.fullmatch(key)
        and len(items) <= _MAX_ITEMS
        and all(map(_is_plain, items))
    )


def _items(value: Any) -> tuple[Any, ...] | list[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _is_plain(value: Any) -> bool:
    """Return whether a run file may contain a value."""
    if isinstance(value, str):
        is_clean = len(value) <= _MAX_TEXT and value.isprintable() and value == value.strip()
        return is_clean and not value.startswith(TODO)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int))


def _same(one: Any, other: Any) -> bool:
    """Return whether two values mean the same; verl converts text to numbers."""
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(_same, one, other))
    if one == other:
        return True
    try:
        return not isinstance(one, bool) and not isinstance(other, bool) and float(one) == float(other)
    except (TypeError, ValueError, OverflowError):
        return str(one).strip().lower() == str(other).strip().lower()
