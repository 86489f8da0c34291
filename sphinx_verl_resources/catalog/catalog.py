"""The catalog: all runs and registry entries of a build, checked and frozen."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..diagnostics import Code, Diagnostic, Severity
from .files import ACCURACY, ARCHITECTURES, CONFIG_KEYS, GPUS
from .models.architecture import Architecture, ArchitectureFile
from .models.base import NamedRecord, Record
from .models.registries import Accuracy, AccuracyFile, ConfigKey, ConfigKeyFile, Gpu, GpuFile
from .models.run import Run
from .names import SIZES, fold
from .run_names import contradictions
from .validation import entries_in, load, valid_entries, value_at
from .yaml_data import read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .files import DataFile, Snapshot
    from .yaml_data import Document

Entry = TypeVar("Entry", bound=NamedRecord)
_FILES: dict[str, tuple[type[Record], type[NamedRecord]]] = {
    GPUS: (GpuFile, Gpu),
    ARCHITECTURES: (ArchitectureFile, Architecture),
    CONFIG_KEYS: (ConfigKeyFile, ConfigKey),
    ACCURACY: (AccuracyFile, Accuracy),
}


class Registry(Generic[Entry]):
    """Entries by any of their names; a name resolves to the last entry that has it.

    An entry replaces an earlier one of the same name and inherits its other names, so that older data stay
    valid. Names are compared after ``key`` has normalised them.

    Attributes:
        diagnostics: the problems of the files that it was loaded from.
    """

    def __init__(self, entries: Iterable[Entry] = (), key: Callable[[str], str] = str) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._key = key
        self._listed: dict[str, tuple[tuple[str, ...], Entry]] = {}
        self._by_name: dict[str, Entry] = {}
        self._broken_names: set[str] = set()
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Add an entry after all others."""
        inherited, _ = self._listed.pop(self._key(entry.name), ((), None))
        names = tuple(dict.fromkeys((*inherited, *entry.lookup_names)))
        self._listed[self._key(entry.name)] = names, entry
        for name in map(self._key, names):
            self._by_name.pop(name, None)  # keeps the names in the order of the entries
            self._by_name[name] = entry

    def with_entry(self, entry: Entry) -> Registry[Entry]:
        """Return a registry with a further entry."""
        registry = copy(self)
        registry._listed, registry._by_name = dict(self._listed), dict(self._by_name)
        registry.add(entry)
        return registry

    def note_broken_names(self, entries: Any, name_fields: Iterable[str]) -> None:
        """Add the names of raw entries with errors, so that using one is not a second error."""
        for entry in entries:
            for value in (entry.get(name) for name in name_fields) if isinstance(entry, dict) else ():
                names = value if isinstance(value, tuple) else (value,)
                self._broken_names |= {self._key(name) for name in names if isinstance(name, str)}

    def __contains__(self, name: str) -> bool:
        """Return whether any entry, with or without errors, has the name."""
        return self._key(name) in self._by_name or self._key(name) in self._broken_names

    def __iter__(self) -> Iterator[Entry]:
        return iter({id(entry): entry for entry in self._by_name.values()}.values())

    def get(self, name: str) -> Entry | None:
        """Return the entry with this name, or None."""
        return self._by_name.get(self._key(name))

    def select(self, names: Iterable[str]) -> tuple[Entry, ...]:
        """Return the entries with these names, in order and without duplicates; all entries for no names."""
        found = [self.get(name) for name in names]
        chosen = {id(entry): entry for entry in found if entry is not None}
        return tuple(chosen.values() if found else self)

    @property
    def names(self) -> list[str]:
        """All names and aliases as written, for hints."""
        return [name for names, _ in self._listed.values() for name in names]


def load_registry(snapshot: Snapshot, name: str) -> Registry[Any]:
    """Load a registry from all files called ``name``."""
    file_model, model = _FILES[name]
    (section,) = file_model.model_fields
    # Names of GPUs are compared without case and separators.
    key = fold if name == GPUS else str
    registry: Registry[Any] = Registry(key=key)
    for file in snapshot.registries[name]:
        record, document, found = load(file, file_model)
        entries = getattr(record, section) if record else valid_entries(document.data, section, model)
        names = [(entry.name, *entry.lookup_names) if entry else () for entry in entries]
        registry.diagnostics += [*found, *repeated_names(document, section, names, key)]
        for entry in filter(None, entries):
            registry.add(entry)
        if record is None:
            registry.note_broken_names(entries_in(document.data, section), model.name_fields)
    return registry


def repeated_names(
    document: Document, section: str, entries: list[tuple[str, ...]], key: Callable[[str], str]
) -> Iterator[Diagnostic]:
    """Yield an error for each name that two entries of a file share, compared after ``key``."""
    owners: dict[str, int] = {}
    for index, names in enumerate(entries):
        for name in dict.fromkeys(names):
            owner = owners.setdefault(key(name), index)
            if owner != index:
                message = (
                    f"{name!r} is also a name of entry {owner + 1} of {section!r}, {entries[owner][0]!r}"
                )
                remedy = "keep it in one of the two"
                yield document.diagnostic((section, index), Code.duplicate_name, message, remedy)


@dataclass(frozen=True)
class BrokenRun:
    """A run file with errors; pages show a notice instead of its row.

    Attributes:
        shown: the file's name for the user.
        size: the size class; None if unreadable.
    """

    shown: str
    size: str | None


@dataclass(frozen=True)
class Catalog:
    """The data behind pages and commands.

    Attributes:
        runs: the runs by id, sorted by id.
        broken: the run files with errors.
        gpus: the GPUs by name and alias.
        architectures: the model shapes by Hugging Face name.
        diagnostics: all problems, ordered by file and line.
        found: cached results of searches through all runs, see ``selection.once``.
    """

    runs: Mapping[str, Run]
    broken: tuple[BrokenRun, ...]
    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    diagnostics: tuple[Diagnostic, ...] = field(default=())
    found: dict[object, object] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def last_updated(self) -> str:
        """The newest date on which a run was added, such as ``2025-06-12``; empty if none is dated."""
        days = [run.added for run in self.runs.values() if run.added]
        return max(days).isoformat() if days else ""

    def gpu_of(self, run: Run) -> Gpu | None:
        """Return the entry of a run's GPU; None if its type or its entry is missing."""
        return self.gpus.get(run.gpus.type) if run.gpus.type else None


def load_catalog(
    snapshot: Snapshot,
    gpus: Registry[Gpu],
    models: Registry[Architecture],
    judge: Callable[[Run, Document], Iterable[Diagnostic]],
) -> Catalog:
    """Load all runs. Problems in their files are reported, never raised.

    Args:
        snapshot: all files.
        gpus: the known GPUs.
        models: the known models.
        judge: a function that returns the problems of a run that other layers check.
    """
    problems = [*snapshot.problems, *gpus.diagnostics, *models.diagnostics]
    runs: dict[str, Run] = {}
    files: dict[str, DataFile] = {}
    broken: list[BrokenRun] = []
    for file in snapshot.runs:
        stem = file.path.name.removesuffix(".yaml")
        run, document, found = load(file, Run, {"stem": stem, "gpus": gpus, "architectures": models})
        if run is not None:
            found += [*_check_claims(run, document, gpus), *judge(run, document)]
            if run.id in files:
                found.append(_duplicate_id(document, files[run.id]))
        problems += found
        if run is None or any(problem.is_error for problem in found):
            broken.append(BrokenRun(file.shown, _size_of(document)))
        else:
            runs[run.id] = run
            files[run.id] = file
    return Catalog(
        runs=dict(sorted(runs.items())),
        broken=tuple(broken),
        gpus=gpus,
        architectures=models,
        diagnostics=tuple(sorted(problems)),
    )


def _check_claims(run: Run, document: Document, gpus: Registry[Gpu]) -> Iterator[Diagnostic]:
    """Yield the contradictions in a valid run."""
    if run.kind == "tested":
        for loc, value in ((("tag",), run.tag), (("gpus", "type"), run.gpus.type), (("infer",), run.infer)):
            if value is None:
                message = f"{'.'.join(loc)} is null, but the run's kind is 'tested'"
                remedy = "fill it in, or write 'kind: stated' or 'kind: measured'"
                yield document.diagnostic(loc, Code.untested_claim, message, remedy)
    if run.script is None:
        return
    for what, in_name, in_row in contradictions(run, run.script.path, gpus.get):
        message = f"the {what} is {in_name!r} in the script's name, but {in_row!r} in the run file"
        remedy = "correct the run file, or link the script that was actually run"
        yield document.diagnostic(("script", "path"), Code.script_name, message, remedy, Severity.WARNING)


def _duplicate_id(document: Document, file: DataFile) -> Diagnostic:
    first = read_yaml(file.content, file.shown)
    message = f"the id {first.data['id']!r} is already recorded at {first.place(('id',))}"
    remedy = "rename one of the runs: its file and its id"
    return document.diagnostic(("id",), Code.duplicate_id, message, remedy)


def _size_of(document: Document) -> str | None:
    """Return the size class of a file with errors, or None."""
    size = value_at(document.data, "size")
    return size if size in SIZES else None
