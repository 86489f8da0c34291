"""The registries: GPUs, architectures, keys of verl and accuracy, merged from all files that have a part."""

from __future__ import annotations

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
    """Entries that are found by any of their names; the last to claim a name has it.

    ``key`` turns a name into what is compared, so that spellings can be alike. ``doubtful`` are names of
    entries that have errors: using one of them is not a mistake of its own.
    """

    def __init__(
        self,
        entries: Iterable[tuple[Iterable[str], Entry]],
        key: Callable[[str], str],
        doubtful: Iterable[str] = (),
    ) -> None:
        self._key = key
        self._names: list[str] = []
        self._entries: dict[str, Entry] = {}
        self._doubtful = {key(name) for name in doubtful}
        for names, entry in entries:
            for name in names:
                self._names.append(name)
                self._entries[self._key(name)] = entry

    def __contains__(self, name: str) -> bool:
        """Whether the name is known, be it as that of an entry with errors."""
        return self._key(name) in self._entries or self._key(name) in self._doubtful

    def __iter__(self) -> Iterator[Entry]:
        return iter({id(entry): entry for entry in self._entries.values()}.values())

    def get(self, name: str) -> Entry | None:
        """The entry called ``name``, or None."""
        return self._entries.get(self._key(name))

    def select(self, names: Iterable[str]) -> tuple[Entry, ...]:
        """The entries that go by ``names``, each once and in that order; all of them where none is named."""
        found = [self.get(name) for name in names]
        chosen = {id(entry): entry for entry in found if entry is not None}
        return tuple(chosen.values() if found else self)

    @property
    def names(self) -> list[str]:
        """Every name and alias as written, for hints."""
        return self._names


def load_gpus(files: Iterable[DataFile], problems: list[Diagnostic]) -> Registry[Gpu]:
    """All cards, by name and alias, whatever the case and the separators."""
    return _load(files, problems, GpuFile, Gpu, fold)


def load_architectures(files: Iterable[DataFile], problems: list[Diagnostic]) -> Registry[Architecture]:
    """All model shapes, by checkpoint."""
    return _load(files, problems, ArchitectureFile, Architecture, str)


def load_config_keys(files: Iterable[DataFile], problems: list[Diagnostic]) -> Registry[ConfigKey]:
    """The keys of verl's configuration."""
    from .models.registries import ConfigKey, ConfigKeyFile

    return _load(files, problems, ConfigKeyFile, ConfigKey, str)


def load_accuracy(files: Iterable[DataFile], problems: list[Diagnostic]) -> Registry[Accuracy]:
    """How well the estimator does, by group of cases."""
    from .models.registries import Accuracy, AccuracyFile

    return _load(files, problems, AccuracyFile, Accuracy, str)


def _load(
    files: Iterable[DataFile],
    problems: list[Diagnostic],
    file_model: type[Record],
    model: type[Entry],
    key: Callable[[str], str],
) -> Registry[Entry]:
    """One registry; ``key`` turns a name into what is compared, and problems are added to ``problems``."""
    (field,) = file_model.model_fields
    collected: _Entries[Entry] = _Entries(key)
    for file in files:
        record, document, found = load(file, file_model)
        entries: tuple[Entry | None, ...] = (
            getattr(record, field) if record else valid_entries(document, field, model)
        )
        names = [
            tuple(dict.fromkeys((entry.name, *entry.lookup_names))) if entry else () for entry in entries
        ]
        problems += [*found, *repeated_names(document, field, names, key)]
        for entry in entries:
            if entry:
                collected.add(entry)
        if record is None:
            collected.doubt(document.data, field, model.name_fields)
    return Registry(collected.entries.values(), key, collected.doubtful)


class _Entries(Generic[Entry]):
    """Entries while files are read; one replaces that of the same name in an earlier file.

    The names of the one replaced go on to lead to the new one: what was written with them stays right.
    """

    def __init__(self, key: Callable[[str], str]) -> None:
        self._key = key
        self.entries: dict[str, tuple[tuple[str, ...], Entry]] = {}
        self.doubtful: set[str] = set()

    def add(self, entry: Entry) -> None:
        # Put behind all earlier ones, whose names it may claim.
        inherited, _ = self.entries.pop(self._key(entry.name), ((), None))
        self.entries[self._key(entry.name)] = tuple(dict.fromkeys((*inherited, *entry.lookup_names))), entry

    def doubt(self, data: Any, field: str, name_fields: tuple[str, ...]) -> None:
        """Note the names in a file that has errors."""
        entries = data.get(field) if isinstance(data, dict) else None
        for entry in entries if isinstance(entries, tuple) else ():
            for value in (entry.get(name) for name in name_fields) if isinstance(entry, dict) else ():
                words = value if isinstance(value, tuple) else (value,)
                self.doubtful.update(word for word in words if isinstance(word, str))


def repeated_names(
    document: Document, field: str, entries: list[tuple[str, ...]], same: Callable[[str], str]
) -> Iterator[Diagnostic]:
    """Names that two entries of one file claim, compared as they are looked up."""
    owners: dict[str, int] = {}
    for index, names in enumerate(entries):
        for name in names:
            owner = owners.setdefault(same(name), index)
            if owner != index:
                message = f"{name!r} is also a name of entry {owner + 1} of {field!r}, {entries[owner][0]!r}"
                hint = "keep it in one of the two"
                yield document.diagnostic((field, index), Code.duplicate_name, message, hint)
