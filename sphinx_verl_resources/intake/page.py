"""A hand-typed page of hardware runs: the runs that it records, and whatever was mended or is not understood.

Nothing is guessed: what a page leaves open stays open, and each assumption is reported.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..catalog.fields import every_field
from ..catalog.files import DataFile
from ..catalog.models.run import Run
from ..catalog.names import SIZES, fold, sizes_hint
from ..catalog.run_names import suggested_id
from ..catalog.run_text import TODO, run_text
from ..catalog.validation import load
from ..diagnostics import Code, Diagnostic, Location, NoAnswerError, Severity, counted, did_you_mean, one_line
from .page_columns import COLUMNS, HEADINGS, NEEDED, Known, aligned
from .page_tables import SIZE_TITLE, page_lines, read_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .page_tables import Cell, TypedRow, TypedTable

__all__ = ["Known", "Page", "PageRun", "read_page"]

_BY_HEADING = {fold(heading): name for name, heading in HEADINGS.items()}
#: Headings that make a table one of runs.
_ALIKE = 3
#: Cells and headings that are compared where a row has another length than the headings; real rows have nine.
_MOST = 50
#: The date of a page; a sentence with the same words is none.
_LAST_UPDATED = re.compile(r"\W{0,9}last\s+updated?\b(?:\W{0,5}:\W{0,5}|\W{1,5}(?=[0-9]))(.*)", re.IGNORECASE)


@dataclass(frozen=True)
class PageRun:
    """One row as a run.

    Attributes:
        place: of the row.
        fields: of the run file; ``model`` is TODO where the checkpoint is not known.
        remarks: comments behind fields of the file, by field.
        record: the run, for comparing; its checkpoint means nothing where that is not known.
    """

    place: Location
    fields: Mapping[str, Any]
    remarks: Mapping[str, str]
    record: Run

    @property
    def text(self) -> str:
        """Return the text of the run file."""
        return run_text(self.fields, self.remarks)


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        shown: its path as messages name it.
        rows: the number of rows with something recorded, understood or not.
        runs: the rows that are understood, in the order of the page.
        problems: everything that was mended, assumed or not understood, by line.
    """

    shown: str
    rows: int
    runs: tuple[PageRun, ...]
    problems: tuple[Diagnostic, ...]


def read_page(file: DataFile, known: Known) -> Page:
    """Read a page.

    Args:
        file: the page.
        known: registries and options.

    Raises:
        NoAnswerError: it is no text, too large, or nothing that docutils can parse.
    """
    lines = page_lines(file)
    day, about_day = _last_updated(lines, file.shown)
    tables, problems = read_tables(lines, file.shown)
    before = len(problems)
    reader = _Reader(file.shown, replace(known, added=day), problems)
    rows = [run for table in tables for run in reader.runs(table)]
    if not rows and len(problems) == before:
        message = "the page holds no row of runs"
        remedy = "expected tables under headings such as 7B, with columns such as Tag, Model and Resource"
        problems.append(Diagnostic(Location(file.shown), Code.page_row, message, remedy))
    runs = tuple(filter(None, rows))
    if about_day and (runs or about_day.is_error):
        problems.append(about_day)
    return Page(file.shown, len(rows), runs, tuple(sorted(problems)))


def _last_updated(lines: Sequence[str], shown: str) -> tuple[date | None, Diagnostic | None]:
    """Return the day of the page's "Last updated" line, and what is to be said about it."""
    for number, line in enumerate(lines, 1):
        match = _LAST_UPDATED.match(line)
        if not match:
            continue
        place = Location(shown, number)
        day = _day(match[1])
        if day is None:
            message = f"the page's date {match[1].strip(' .*_|')!r} is not understood; no run is dated"
            return None, Diagnostic(place, Code.page_cell, message, "write it as 06/25/2025, month first")
        message = f"all runs are dated {day.isoformat()}, the day of the page's last update"
        remedy = "correct 'added' where a row is older"
        return day, Diagnostic(place, Code.page_assumed, message, remedy, Severity.WARNING)
    return None, None


def _day(text: str) -> date | None:
    """Return a day, written with the year first or, as in verl's pages, with the month first."""
    match = re.match(r"([0-9]{1,4})([-/.])([0-9]{1,2})\2([0-9]{1,4})\b", text)
    if match:
        for form in ("%m-%d-%Y", "%Y-%m-%d"):
            with suppress(ValueError):
                return datetime.strptime("-".join(match.group(1, 3, 4)), form).date()  # noqa: DTZ007
    return None


@dataclass(frozen=True)
class _Reader:
    """Turns the tables of one page into runs.

    Attributes:
        shown: the page's name in messages.
        known: registries and options.
        problems: filled with what is found.
        ids: those of the runs so far.
    """

    shown: str
    known: Known
    problems: list[Diagnostic]
    ids: set[str] = field(default_factory=set)

    def runs(self, table: TypedTable) -> Iterator[PageRun | None]:
        """Yield the run of each row in which something is recorded; None for a row that makes no run.

        A table that has other headings and stands under no size class holds no runs.
        """
        texts = [cell.text for cell in table.rows[0].cells] if table.rows else []
        columns = [_BY_HEADING.get(fold(text)) for text in texts]
        size = self._size(table, texts, columns)
        if size is None:
            return
        for row in table.rows[1:]:
            if not row.cells:
                message = "a row of the list is no list of cells"
                remedy = "begin its first cell with '* -', and put the hyphens of the others below it"
                self._error(row.line, Code.page_row, message, remedy)
                yield None
            elif all(cell.is_empty for cell in row.cells):
                continue
            elif len(row.cells) != len(columns):
                self._report_length(row, texts, columns)
                yield None
            else:
                named = reversed(
                    [*zip(columns, row.cells, strict=True)]
                )  # of a column twice the first counts
                yield self._run(size, row.line, {name: cell for name, cell in named if name})

    def _size(self, table: TypedTable, texts: Sequence[str], columns: Sequence[str | None]) -> str | None:
        """Return the size class of a table of runs; None for any table that is not read."""
        if len({*columns} - {None}) < _ALIKE:
            if table.title is not None:
                message = (
                    f"the first row of the table under {table.title!r} does not hold the headings of runs"
                )
                self._error(table.line, Code.page_row, message, f"expected {_headings([*HEADINGS])}")
            return None
        for index, (text, name) in enumerate(zip(texts, columns, strict=True)):
            if name in columns[:index] and name:
                message = f"the column {text!r} stands there twice; the first is read"
                self._error(table.line, Code.page_cell, message, "remove one of the two")
            elif name is None:
                free = [heading for column, heading in HEADINGS.items() if column not in columns]
                column = f"the column {text!r} is not known" if text else f"column {index + 1} has no heading"
                remedy = did_you_mean(text, free) if text else "write one, or remove the column"
                self._error(table.line, Code.page_cell, f"{column}; it is left out", remedy)
        lacking = [name for name in NEEDED if name not in columns]
        named = {*SIZE_TITLE.findall(table.title or "")}
        size = f"{named.pop()}B" if len(named) == 1 else ""
        if lacking:
            message = f"the table has no column {_headings(lacking)}; none of its rows is read"
            self._error(table.line, Code.page_row, message, "add it")
        elif table.title is None:
            message = "a table of runs stands under no heading that names a size class"
            self._error(table.line, Code.page_row, message, f"the size classes are {', '.join(SIZES)}")
        elif size in SIZES:
            return size
        else:
            problem = "names several sizes" if named else "is no size class"
            message = f"a table of runs stands under {table.title!r}, which {problem}"
            self._error(table.line, Code.unknown_size, message, sizes_hint(table.title))
        return None

    def _report_length(self, row: TypedRow, texts: Sequence[str], columns: Sequence[str | None]) -> None:
        """Report what a row lacks whose cells are more or fewer than the headings; nothing is filled in."""
        pairs = aligned(row.cells[:_MOST], columns[:_MOST])
        missing = [text for index, text in enumerate(texts) if index not in {column for _, column in pairs}]
        paired = {cell for cell, _ in pairs}
        over = [repr(cell.text) for index, cell in enumerate(row.cells) if index not in paired]
        parts = [f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} missing"] if missing else []
        parts += [f"{_listed(over)} {'goes' if len(over) == 1 else 'go'} with no heading"] if over else []
        count = counted(len(row.cells), "cell")
        message = f"{count} under {len(columns)} headings: {', and '.join(parts)}"
        cells = [(texts[column], row.cells[cell]) for cell, column in pairs]
        read_as = ", ".join(f"{text} {repr(cell.text) if cell.text else 'nothing'}" for text, cell in cells)
        written = f"no run file is written; the cells that are there read as {read_as}"
        self._error(row.line, Code.page_row, message, written if read_as else "type the row again")

    def _run(self, size: str, line: int, cells: Mapping[str, Cell]) -> PageRun | None:
        """Return one row as a run; None if it lacks what makes a run."""
        place = Location(self.shown, line)
        recorded = {name: cell for name, cell in cells.items() if not cell.is_empty}
        fields, problems = self._fields(recorded, place)
        self.problems.extend(problems)
        if not fields.keys() >= {*NEEDED}:
            empty = [name for name in NEEDED if name not in recorded]
            reason = f"nothing is recorded under {', '.join(map(HEADINGS.__getitem__, empty))}"
            message = f"the row is left out: {reason if empty else 'a cell is not understood'}"
            self._error(
                line, Code.page_row, message, "a run needs a tag, model, task, GPUs, backend and engine"
            )
            return None
        record = self._record(fields, size, place)
        if record is None:
            return None
        reported = {"tag"} if "kind" in fields else set()
        if any(problem.code is Code.email_address for problem in problems):
            reported.add("contributor")
        for name in recorded.keys() & fields.keys() - reported:
            self._report_spelling(name, recorded[name], record, place)
        unknown = [problem.message for problem in problems if problem.code is Code.unknown_model]
        remarks = {"model": one_line(unknown[0].partition(": ")[2])} if unknown else {}
        return PageRun(place, fields, remarks, record)

    def _record(self, fields: dict[str, Any], size: str, place: Location) -> Run | None:
        """Complete the fields of a run file and return the run; None if the schema refuses it."""
        is_open = fields["model"] == TODO
        # A row with an open checkpoint is checked as if the label were one.
        model = fields["label"] if is_open else fields["model"]
        count, gpu = fields["gpus"]["count"], fields["gpus"]["type"]
        fields["size"] = size
        fields["id"] = suggested_id(model, fields["task"], count, gpu, fields["train"], self.ids)
        if self.known.added and fields.get("kind", "tested") == "tested":
            fields["added"] = self.known.added
        if not is_open and fields["label"] == model.rsplit("/", 1)[-1]:
            del fields["label"]
        content = run_text({**fields, "model": model}).encode("utf-8", "surrogatepass")
        record, _, errors = load(DataFile(Path(f"{fields['id']}.yaml"), self.shown, content), Run)
        if record is None:
            for error in errors:
                message = f"the row is left out: {error.message}"
                self.problems.append(replace(error, place=place, message=message))
            return None
        self.ids.add(record.id)
        return record

    def _report_spelling(self, name: str, cell: Cell, record: Run, place: Location) -> None:
        """Report a cell that a page built from the run shows in other characters."""
        shown = every_field()[name].text(record)
        if shown != cell.text:
            message = f"{HEADINGS[name]}: {cell.text!r} is written as {shown!r}"
            remedy = "correct the run file if that is not meant"
            self.problems.append(Diagnostic(place, Code.page_mended, message, remedy, Severity.WARNING))

    def _fields(self, cells: Mapping[str, Cell], place: Location) -> tuple[dict[str, Any], list[Diagnostic]]:
        """Return the fields of a run file that the cells of a row fill, and the problems of the cells."""
        fields: dict[str, Any] = {}
        problems: list[Diagnostic] = []
        for name, cell in cells.items():

            def note(
                code: Code, message: str, remedy: str, severity: Severity = Severity.WARNING, name: str = name
            ) -> None:
                problems.append(Diagnostic(place, code, f"{HEADINGS[name]}: {message}", remedy, severity))

            try:
                fields.update(COLUMNS[name].fields(cell, self.known, note))
            except NoAnswerError as error:
                for problem in error.diagnostics:
                    note(problem.code, problem.message, problem.remedy, problem.severity)
            else:
                if (cell.links or cell.broken) and name not in ("script", "contributor"):
                    note(Code.page_link, "a link is left out", "only scripts and contributors have links")
        return fields, problems

    def _error(self, line: int, code: Code, message: str, remedy: str) -> None:
        self.problems.append(Diagnostic(Location(self.shown, line), code, message, remedy))


def _headings(names: Sequence[str]) -> str:
    return _listed([HEADINGS[name] for name in names])


def _listed(words: Sequence[str]) -> str:
    """Return the words as ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
