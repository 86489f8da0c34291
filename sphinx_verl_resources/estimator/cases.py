"""The cases of all files, with their places; a case with errors does not affect the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..diagnostics import Diagnostic, Location, Severity
from ..validation import empty, explained, got_instead, try_model, value_at
from .case_records import Case

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..dataset import DataFile
    from ..strict_yaml import Document, Loc


@dataclass(frozen=True)
class CaseEntry:
    """A case and its place."""

    case: Case
    file: DataFile
    document: Document

    def place(self, *loc: str | int) -> Location:
        """Return the place of a value of the case, for example of ``("config", "data.train_batch_size")``.

        Without ``loc``, or if the value is not in the file, return the place of the enclosing value.
        """
        return self.document.place(loc)


@dataclass(frozen=True)
class BrokenCase:
    """A case with errors.

    Attributes:
        id: the id as written; if unreadable, for example ``case 3`` for the third in a file.
        error: its first error, also in the diagnostics of ``Cases``.
    """

    id: str
    error: Diagnostic


@dataclass(frozen=True)
class Cases:
    """Cases and their problems.

    Attributes:
        entries: valid and broken cases, ordered by file and line.
        diagnostics: all problems, ordered by file and line.
    """

    entries: tuple[CaseEntry | BrokenCase, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @cached_property
    def by_id(self) -> Mapping[str, CaseEntry]:
        """The valid cases by id."""
        return {entry.case.id: entry for entry in self.entries if isinstance(entry, CaseEntry)}

    @property
    def broken(self) -> tuple[BrokenCase, ...]:
        """The broken cases."""
        return tuple(entry for entry in self.entries if isinstance(entry, BrokenCase))


def load_cases(files: Iterable[DataFile], *, recorded: bool = False) -> Cases:
    """Load the cases. Problems in the files are reported, never raised.

    A case replaces one with the same id from an earlier directory. Ids are unique within a directory.

    Args:
        files: the files.
        recorded: whether the files are in a data directory, where every case needs its source's address.
    """
    problems: list[Diagnostic] = []
    entries: dict[str | tuple[str, int], CaseEntry | BrokenCase] = {}
    for file in files:
        hint = "write a list of cases, each beginning with '- id:'"
        document = file.document
        items = _items(document)
        problems += document.problems
        if document.data is None and not document.problems:
            problems.append(empty(document, hint))
        elif not isinstance(document.data, (tuple, type(None))):
            got = got_instead(document.data, document.source(()))
            problems.append(document.diagnostic((), "wrong_type", f"expected a list, got {got}", hint))
        for index, item in enumerate(items):
            case, found = _read_case(item)
            if case and recorded and not (case.source and case.source.address):
                message = "the address of the case's source is missing"
                hint = "add source: {repo: owner/name, path: …}, {repo: owner/name, issue: 12} or {url: https://…}"
                found.append(item.diagnostic(("source",), "missing_key", message, hint))
                case = None
            earlier = entries.get(case.id) if case else None
            if case and isinstance(earlier, CaseEntry) and earlier.file.path.parent == file.path.parent:
                message = f"the id {case.id!r} is already used at {earlier.place('id')}"
                found.append(item.diagnostic(("id",), "duplicate_name", message, "rename one of the two"))
                case = None
            key = case.id if case else (file.shown, index)
            entries.pop(key, None)  # the replacement goes to the position of its file
            entries[key] = CaseEntry(case, file, item) if case else _broken(item, index, found)
            problems += found
    return Cases(tuple(entries.values()), tuple(sorted(problems)))


def _items(document: Document) -> list[Document]:
    """Return a document for each item of a list."""
    values = document.data if isinstance(document.data, tuple) else ()
    return [replace(document, data=value, inside=(at,)) for at, value in enumerate(values)]


def _read_case(document: Document) -> tuple[Case | None, list[Diagnostic]]:
    """Validate one case; if its only errors are unknown keys, read it without them, with warnings."""
    case, details = try_model(document.data, Case)
    unknown = [detail for detail in details if detail["type"] == "extra_forbidden"]
    if unknown:
        case, others = try_model(_without(document.data, [detail["loc"] for detail in unknown]), Case)
        details = [*unknown, *others]
    found = [
        replace(problem, severity=Severity.WARNING) if problem.code == "unknown_key" else problem
        for problem in explained(document, Case, details)
    ]
    measured = case.measured if case else None
    if case and case.outcome == "measured" and (measured is None or measured.gib is None):
        # There is nothing to compare with an estimate.
        message = "the outcome is 'measured', but no figure is given"
        hint = "add measured: {gib: …, counter: …}"
        found.append(document.diagnostic(("outcome",), "missing_key", message, hint, Severity.WARNING))
    return case, found


def _without(data: Any, locs: Iterable[Loc]) -> Any:
    """Return nested keys and values without those at ``locs``."""
    below: dict[str | int, list[Loc]] = {}
    for loc in locs:
        below.setdefault(loc[0], []).append(loc[1:])
    if not below or not isinstance(data, dict):
        return data
    kept = {key: value for key, value in data.items() if () not in below.get(key, ())}
    return {key: _without(value, below.get(key, ())) for key, value in kept.items()}


def _broken(document: Document, index: int, problems: list[Diagnostic]) -> BrokenCase:
    written = value_at(document.data, "id")
    name = written if isinstance(written, str) and written else f"case {index + 1}"
    return BrokenCase(name, next(problem for problem in problems if problem.is_error))
