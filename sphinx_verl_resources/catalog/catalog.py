"""The catalog: every run and registry entry of a build, checked and frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ..diagnostics import Diagnostic
    from .models.architecture import Architecture
    from .models.gpu import Gpu
    from .models.run import Run

Entry = TypeVar("Entry")


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


@dataclass(frozen=True)
class BrokenRun:
    """A run file with errors: what a page can say instead of the row.

    Attributes:
        shown: the file's path for people.
        size: the size class, where at least that much could be read.
    """

    shown: str
    size: str | None


@dataclass(frozen=True)
class Catalog:
    """Everything that pages and commands ask for.

    Attributes:
        runs: by id, sorted by id.
        broken: run files that could not be used.
        gpus: by name and alias.
        architectures: by checkpoint name.
        diagnostics: every problem, in the order of files and lines.
        found: what has been found out about all runs, see ``selection.once``.
    """

    runs: Mapping[str, Run]
    broken: tuple[BrokenRun, ...]
    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    diagnostics: tuple[Diagnostic, ...] = field(default=())
    found: dict[object, object] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def last_updated(self) -> str:
        """The newest day on which a run was added, as ``2025-06-12``; empty if none is dated."""
        days = [run.added for run in self.runs.values() if run.added]
        return max(days).isoformat() if days else ""
