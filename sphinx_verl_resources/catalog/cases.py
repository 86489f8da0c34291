"""The cases of all files, each with its place; a case with errors does not affect the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..diagnostics import Code, Diagnostic, Location, Severity
from .models.case import Case
from .validation import Item, load_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .files import DataFile
    from .yaml_data import Document


@dataclass(frozen=True)
class CaseEntry:
    """A case and its place."""

    case: Case
    file: DataFile
    document: Document

    def place(self, *loc: str | int) -> Location:
        """Return the place of a value of the case, for example of ``("config", "data.train_batch_size")``.

        Without ``loc``, or where the value is not written out, return the place of what is around it.
        """
        return self.document.place(loc)


@dataclass(frozen=True)
class BrokenCase:
    """A case with errors.

    Attributes:
        id: as written; ``case 3`` for the third of a file where none can be read.
        location: where the case begins.
        error: its first error, a diagnostic that is also among those of all cases.
    """

    id: str
    location: Location
    error: Diagnostic


@dataclass(frozen=True)
class Cases:
    """Cases and what is wrong with them.

    Attributes:
        entries: good and broken ones, in the order of files and lines.
        diagnostics: every problem, in the order of files and lines.
    """

    entries: tuple[CaseEntry | BrokenCase, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @cached_property
    def by_id(self) -> Mapping[str, CaseEntry]:
        """The good ones."""
        return {entry.case.id: entry for entry in self.entries if isinstance(entry, CaseEntry)}

    @property
    def broken(self) -> tuple[BrokenCase, ...]:
        """The others."""
        return tuple(entry for entry in self.entries if isinstance(entry, BrokenCase))


def load_cases(files: Iterable[DataFile]) -> Cases:
    """Validate all files; never raises on what is in them.

    A case replaces one of the same id in an earlier file of another directory. Within a directory ids are
    unique.
    """
    problems: list[Diagnostic] = []
    entries: dict[str | tuple[str, int], CaseEntry | BrokenCase] = {}
    for file in files:
        items, found = load_list(file, Case)
        problems += found
        for index, item in enumerate(items):
            earlier = entries.get(item.record.id) if item.record else None
            if isinstance(earlier, CaseEntry) and earlier.file.path.parent == file.path.parent:
                item = _repeated(file, item, earlier)
            entry = _entry(file, item, index)
            key = entry.case.id if isinstance(entry, CaseEntry) else (file.shown, index)
            entries.pop(key, None)  # the one that replaces it stands where its own file does
            entries[key] = entry
            problems += item.problems
            if isinstance(entry, CaseEntry):
                problems += _doubts(entry)
    ordered = sorted(problems)
    return Cases(tuple(entries.values()), tuple(ordered))


def with_marks(cases: Cases, recorded: Cases) -> Cases:
    """Return the cases, each with the marks of the same observation in the record.

    The same observation has the id, the settings and the outcome of a recorded case. A mark says that a case
    is not to be scored, or names the search that it is a step of. A case keeps its own marks.
    """
    return replace(cases, entries=tuple(_with_marks(entry, recorded) for entry in cases.entries))


def _with_marks(entry: CaseEntry | BrokenCase, recorded: Cases) -> CaseEntry | BrokenCase:
    if isinstance(entry, BrokenCase) or entry.case.id not in recorded.by_id:
        return entry
    case, record = entry.case, recorded.by_id[entry.case.id].case
    if any(getattr(case, name) != getattr(record, name) for name in ("config", "training", "outcome")):
        return entry
    marks = {name: getattr(record, name) for name in ("contested", "not_scored", "boundary")}
    missing = {name: mark for name, mark in marks.items() if getattr(case, name) is None}
    return replace(entry, case=case.model_copy(update=missing))


def _entry(file: DataFile, item: Item[Case], index: int) -> CaseEntry | BrokenCase:
    if item.record:
        return CaseEntry(item.record, file, item.document)
    written = item.document.data.get("id") if isinstance(item.document.data, dict) else None
    name = written if isinstance(written, str) and written else f"case {index + 1}"
    error = next(problem for problem in item.problems if problem.is_error)
    return BrokenCase(name, item.document.place(()), error)


def _repeated(file: DataFile, item: Item[Case], earlier: CaseEntry) -> Item[Case]:
    assert item.record
    message = f"the id {item.record.id!r} is already that of a case at {earlier.place('id')}"
    place = item.document.place(("id",))
    error = Diagnostic(place, Code.duplicate_name, message, "rename one of the two")
    return replace(item, record=None, problems=(*item.problems, error))


def _doubts(entry: CaseEntry) -> Iterator[Diagnostic]:
    """Yield a warning for an outcome whose figure is missing: nothing can be compared with an estimate."""
    measured = entry.case.measured
    if entry.case.outcome == "measured" and (measured is None or measured.gib is None):
        message, hint = (
            "the outcome is 'measured', and no figure is given",
            "add measured: {gib: …, counter: …}",
        )
        yield Diagnostic(entry.place("outcome"), Code.missing_key, message, hint, Severity.WARNING)
