"""The registries: GPUs, architectures, keys of verl and accuracy, merged from all files that have a part."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..diagnostics import Code
from .models.architecture import Architecture, ArchitectureFile
from .models.base import NamedRecord
from .models.registries import Gpu, GpuFile
from .names import fold
from .validation import load, valid_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..diagnostics import Diagnostic
    from .files import DataFile
    from .models.base import Record
    from .models.registries import Accuracy, ConfigKey
    from .yaml_data import Document

Entry = TypeVar("Entry", bound=NamedRecord)


class Registry(Generic[Entry]):
    """Entries by any of their names; the last to claim a name has it.

    An entry replaces an earlier one of the same name and inherits its other names, so that data written with
    them stay right. ``key`` turns a name into what is compared, so that spellings can be alike.
    """

    def __init__(self, entries: Iterable[Entry] = (), key: Callable[[str], str] = str) -> None:
        self._key = key
        self._listed: dict[str, tuple[tuple[str, ...], Entry]] = {}
        self._by_name: dict[str, Entry] = {}
        self._doubtful: set[str] = set()
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Add an entry after all others."""
        inherited, _ = self._listed.pop(self._key(entry.name), ((), None))
        names = tuple(dict.fromkeys((*inherited, *entry.lookup_names)))
        self._listed[self._key(entry.name)] = names, entry
        for name in map(self._key, names):
            self._by_name.pop(name, None)  # the order of names follows that of the entries
            self._by_name[name] = entry

    def with_entry(self, entry: Entry) -> Registry[Entry]:
        """Return a registry with one more entry."""
        registry = copy(self)
        registry._listed, registry._by_name = dict(self._listed), dict(self._by_name)
        registry.add(entry)
        return registry

    def doubt(self, entries: Any, name_fields: Iterable[str]) -> None:
        """Note the names of raw entries, some of which have errors: using them is no mistake of its own."""
        for entry in entries if isinstance(entries, tuple) else ():
            for value in (entry.get(name) for name in name_fields) if isinstance(entry, dict) else ():
                names = value if isinstance(value, tuple) else (value,)
                self._doubtful |= {self._key(name) for name in names if isinstance(name, str)}

    def __contains__(self, name: str) -> bool:
        """Return whether an entry has the name, with or without errors."""
        return self._key(name) in self._by_name or self._key(name) in self._doubtful

    def __iter__(self) -> Iterator[Entry]:
        return iter({id(entry): entry for entry in self._by_name.values()}.values())

    def get(self, name: str) -> Entry | None:
        """Return the entry called ``name``, or None."""
        return self._by_name.get(self._key(name))

    def select(self, names: Iterable[str]) -> tuple[Entry, ...]:
        """Return the entries with these names, each once and in this order; without names, all entries."""
        found = [self.get(name) for name in names]
        chosen = {id(entry): entry for entry in found if entry is not None}
        return tuple(chosen.values() if found else self)

    @property
    def names(self) -> list[str]:
        """Every name and alias as written, for hints."""
        return [name for names, _ in self._listed.values() for name in names]


def load_gpus(files: Iterable[DataFile], problems: list[Diagnostic]) -> Registry[Gpu]:
    """Load the GPUs, by name and alias in any case and with any separators."""
    return _load(files, problems, GpuFile, Gpu, fold)


def load_architectures(files: Iterable[DataFile], problems: list[Diagnostic]) -> Registry[Architecture]:
    """Load the architectures, by checkpoint."""
    return _load(files, problems, ArchitectureFile, Architecture)


def load_config_keys(files: Iterable[DataFile], problems: list[Diagnostic]) -> Registry[ConfigKey]:
    """Load the keys of verl's configuration."""
    from .models.registries import ConfigKey, ConfigKeyFile

    return _load(files, problems, ConfigKeyFile, ConfigKey)


def load_accuracy(files: Iterable[DataFile], problems: list[Diagnostic]) -> Registry[Accuracy]:
    """Load the accuracy of the estimator, by group of cases."""
    from .models.registries import Accuracy, AccuracyFile

    return _load(files, problems, AccuracyFile, Accuracy)


def _load(
    files: Iterable[DataFile],
    problems: list[Diagnostic],
    file_model: type[Record],
    model: type[Entry],
    key: Callable[[str], str] = str,
) -> Registry[Entry]:
    """Load one registry and add what is wrong to ``problems``."""
    (field,) = file_model.model_fields
    registry: Registry[Entry] = Registry(key=key)
    for file in files:
        record, document, found = load(file, file_model)
        entries: tuple[Entry | None, ...] = (
            getattr(record, field) if record else valid_entries(document.data, field, model)
        )
        names = [(entry.name, *entry.lookup_names) if entry else () for entry in entries]
        problems += [*found, *repeated_names(document, field, names, key)]
        for entry in filter(None, entries):
            registry.add(entry)
        if record is None and isinstance(document.data, dict):
            registry.doubt(document.data.get(field), model.name_fields)
    return registry


def repeated_names(
    document: Document, field: str, entries: list[tuple[str, ...]], key: Callable[[str], str]
) -> Iterator[Diagnostic]:
    """Yield each name that two entries of one file claim; ``key`` turns a name into what is compared."""
    owners: dict[str, int] = {}
    for index, names in enumerate(entries):
        for name in dict.fromkeys(names):
            owner = owners.setdefault(key(name), index)
            if owner != index:
                message = f"{name!r} is also a name of entry {owner + 1} of {field!r}, {entries[owner][0]!r}"
                remedy = "keep it in one of the two"
                yield document.diagnostic((field, index), Code.duplicate_name, message, remedy)
