"""A config.json while it is turned into an architecture: values by key, and problems at their places."""

from __future__ import annotations

import difflib
import itertools
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..catalog.models.architecture import HfConfig, HfText
from ..diagnostics import Code, Diagnostic, Severity

if TYPE_CHECKING:
    from ..catalog.files import DataFile
    from ..catalog.models.base import Record
    from ..catalog.yaml_data import Document, Loc
    from .conventions import Convention


@dataclass
class ConfigSource:
    """One file, read and valid by itself, with what its model type takes for granted."""

    file: DataFile
    document: Document
    config: HfConfig
    model_type: str
    convention: Convention
    problems: list[Diagnostic] = field(default_factory=list)

    @property
    def text(self) -> tuple[HfText, Loc]:
        """The part that describes the language model, and where it stands."""
        nested = self.config.text_config
        return (nested, ("text_config",)) if nested else (self.config, ())

    def find(self, name: str) -> Any:
        """The value of a key: of the language model, of the whole file, or that of the model type."""
        for part in (self.text[0], self.config):
            value = getattr(part, name)
            if value is not None:
                return value
        return self.convention.defaults.get(name)

    def need(self, name: str) -> int:
        """The value of a key that must be there; where it is not, that is noted and 1 returned."""
        value: int | None = self.find(name)
        if value is None:
            self.missing(*self.text, name)
        return 1 if value is None else value

    def place(self, name: str) -> Loc:
        """Where the value of a key stands."""
        record, loc = self.text
        return (*loc, name) if getattr(record, name) is not None else (name,)

    def missing(self, record: Record, loc: Loc, name: str) -> None:
        """Note that a key is not there, or null, or misspelt."""
        description = (type(record).model_fields[name].description or "").rstrip(".")
        where = f" in {loc[-1]!r}" if loc else ""
        if name in record.model_fields_set:
            self.error((*loc, name), f"{name}: expected a value, got nothing", description, Code.wrong_type)
        elif record is self.text[0] and name in self._misspelt:
            self.problems.append(self._misspelling(name, Severity.ERROR))
            del self._misspelt[name]
        else:
            self.error(loc, f"the key {name!r} is missing{where}", description, Code.missing_key)

    def warn_of_misspellings(self) -> None:
        """Note the keys that look misspelt and that nothing needed."""
        self.problems += [self._misspelling(name, Severity.WARNING) for name in self._misspelt]

    def _misspelling(self, name: str, severity: Severity) -> Diagnostic:
        key = self._misspelt[name]
        location = self.document.key_place((*self.text[1], key))
        message = f"unknown key {key!r}"
        return Diagnostic(location, Code.unknown_key, message, f"did you mean {name!r}?", severity)

    @cached_property
    def _misspelt(self) -> dict[str, str]:
        """Keys that are not there, and the one that stands there instead."""
        record, loc = self.text
        data = self.document.data[loc[0]] if loc else self.document.data
        absent = [name for name in HfText.model_fields if name not in record.model_fields_set]
        found = {}
        for key in itertools.islice(data, 1000):
            # Nearer than a hint asks for: configs have many keys that are none of ours.
            near = difflib.get_close_matches(key, absent, n=1, cutoff=0.88)
            if near and key not in HfConfig.model_fields:
                found[near[0]] = key
        return found

    def error(self, loc: Loc, message: str, remedy: str, code: Code = Code.wrong_value) -> None:
        """Note what makes the file unusable."""
        self.problems.append(self.document.diagnostic(loc, code, message, remedy))

    def warn(self, loc: Loc, message: str, remedy: str, code: Code = Code.not_modelled) -> None:
        """Note what makes the result doubtful."""
        self.problems.append(self.document.diagnostic(loc, code, message, remedy, severity=Severity.WARNING))

    @property
    def failed(self) -> bool:
        """Whether an error was noted."""
        return any(problem.severity is Severity.ERROR for problem in self.problems)
