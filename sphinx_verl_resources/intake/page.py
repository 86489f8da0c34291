"""Read the runs of a hand-typed page of hardware runs, and compare them with the data.

Nothing is guessed: missing values stay missing, and each assumption is reported.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..catalog.files import DataFile
from ..catalog.models.run import Run
from ..catalog.names import SIZES, fold, sizes_hint
from ..catalog.run_names import suggested_id
from ..catalog.run_text import TODO, run_text
from ..catalog.validation import load
from ..diagnostics import Code, Diagnostic, Location, Severity, counted, did_you_mean, one_line
from .page_columns import HEADINGS, NEEDED, Known, aligned, cells_of, read_cell
from .page_tables import SIZE_TITLE, line_at, page_text, read_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .page_columns import Fields
    from .page_tables import Cell, TypedRow, TypedTable

__all__ = ["Known", "Page", "PageRun", "differences", "read_page"]

_BY_HEADING = {fold(heading): name for name, heading in HEADINGS.items()}
#: Problems of tables whose rows are not read.
_OF_TABLES = frozenset({Code.page_row, Code.unknown_size})
#: Maximum number of cells in which a row and its run may differ.
_MOST_DIFFERENT = 2
#: Maximum number of runs of a size class that are compared cell by cell with a row that matches none exactly.
_MOST_COMPARED = 200
#: The line with the date of a page; a sentence with the same words does not match.
_LAST_UPDATED = re.compile(
    r"^[^\w\n]*last updated?\b[^\w\n]*?(?::|(?=[0-9]))(?P<day>.*)", re.IGNORECASE | re.MULTILINE
)


@dataclass(frozen=True)
class PageRun:
    """One row as a run.

    Attributes:
        place: the place of the row.
        fields: the fields of the run file; ``model`` is TODO if the model is unknown.
        text: the text of the run file.
        record: the run, for comparisons; ignore its model if that is unknown.
    """

    place: Location
    fields: Mapping[str, Any]
    text: str
    record: Run


@dataclass
class Page:
    """A page.

    Attributes:
        shown: its path in messages.
        known: registries and options.
        problems: every correction, assumption and unreadable cell, by line.
        day: date of the last update, if the page has it.
        rows: the number of rows that are not empty, readable or not.
        runs: the readable rows, in the order of the page.
        taken: the ids of these runs.
    """

    shown: str
    known: Known
    problems: list[Diagnostic]
    day: date | None = None
    rows: int = 0
    runs: list[PageRun] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def report(self, line: int, code: Code, message: str, remedy: str) -> None:
        """Report an error at a line."""
        self.problems.append(Diagnostic(Location(self.shown, line), code, message, remedy))

    def read_day(self, text: str) -> None:
        """Read the line "Last updated", if there is one."""
        match = _LAST_UPDATED.search(text)
        if not match:
            return
        line = line_at(text, match.start())
        numbers = "-".join(re.findall("[0-9]+", match["day"])[:3])
        for form in ("%m-%d-%Y", "%Y-%m-%d"):
            with suppress(ValueError):
                self.day = datetime.strptime(numbers, form).date()  # noqa: DTZ007
        if self.day is None:
            message = f"invalid date {match['day'].strip(' :.*_|')!r}; the runs get no date"
            self.report(line, Code.page_cell, message, "write it as 06/25/2025, month first")
            return
        message = f"all runs get the date {self.day.isoformat()}, the page's last update"
        remedy, place = "correct 'added' if a row is older", Location(self.shown, line)
        self.problems.append(Diagnostic(place, Code.page_assumed, message, remedy, Severity.WARNING))

    def read_table(self, table: TypedTable) -> None:
        """Read the rows of a table of runs; ignore other tables."""
        texts = [cell.text for cell in table.rows[0].cells] if table.rows else []
        columns: list[str | None] = []
        for text in texts:
            name = _BY_HEADING.get(fold(text))
            columns.append(None if name in columns else name)
        size = self._size(table, texts, columns)
        if size is None:
            return
        for row in table.rows[1:]:
            if row.cells and all(cell.is_empty for cell in row.cells):
                continue
            self.rows += 1
            if len(row.cells) != len(columns):
                self._report_length(row, texts, columns)
                continue
            named = zip(columns, row.cells, strict=True)
            cells = {name: cell for name, cell in named if name and not cell.is_empty}
            self._read_row({"size": size}, row.line, cells)

    def _size(self, table: TypedTable, texts: Sequence[str], columns: Sequence[str | None]) -> str | None:
        """Return the size class of a table of runs; None if its rows are not read.

        Other tables outside size classes are allowed.
        """
        lacking = [name for name in NEEDED if name not in columns]
        if lacking:
            if table.title is not None:
                message = f"the table has no column {_listed(lacking)}; its rows are not read"
                self.report(table.line, Code.page_row, message, "write all headings in its first row")
            return None
        for text, name in zip(texts, columns, strict=True):
            if name is None:
                free = [heading for column, heading in HEADINGS.items() if column not in columns]
                message = f"unknown or repeated column {text!r}; it is left out"
                self.report(table.line, Code.page_cell, message, did_you_mean(text, free))
        sizes = {f"{number}B" for number in SIZE_TITLE.findall(table.title or "")}
        if len(sizes) == 1 and sizes <= {*SIZES}:
            return sizes.pop()
        code, message = Code.page_row, "a table of runs is not under the heading of a size class"
        if table.title is not None:
            code, message = Code.unknown_size, f"the heading {table.title!r} is not a size class"
        self.report(table.line, code, message, sizes_hint(table.title or ""))
        return None

    def _report_length(self, row: TypedRow, texts: Sequence[str], columns: Sequence[str | None]) -> None:
        """Report a row with more or fewer cells than headings; nothing is filled in."""
        pairs = aligned(row.cells, columns)
        missing = [text for column, text in enumerate(texts) if column not in pairs.values()]
        read_as = [
            f"{texts[pairs[index]] if index in pairs else 'no heading'} {cell.text!r}"
            for index, cell in enumerate(row.cells)
        ]
        message = f"{counted(len(row.cells), 'cell')} under {len(columns)} headings"
        message += f"; missing: {', '.join(missing)}" if missing else ""
        remedy = f"no run file is written; the cells read as {', '.join(read_as) or 'nothing'}"
        self.report(row.line, Code.page_row, message, remedy)

    def _read_row(self, fields: Fields, line: int, cells: Mapping[str, Cell]) -> None:
        """Add one row as a run, if it has the required columns."""
        remarks = {}
        place = Location(self.shown, line)
        for name, cell in cells.items():
            found, problems = read_cell(name, cell, self.known, place)
            fields.update(found)
            self.problems += problems
            if found.get("model") == TODO:
                remarks["model"] = one_line(problems[-1].message)
        lacking = [name for name in NEEDED if name not in fields]
        if lacking:
            message = f"the row is left out, because it lacks {_listed(lacking)}"
            self.report(line, Code.page_row, message, f"a run needs {_listed(NEEDED)}")
            return
        run = self._run(fields, remarks, place)
        if run is None:
            return
        self.runs.append(run)
        self.taken.add(run.record.id)
        written = cells_of(run.record)
        for name in cells.keys() & fields.keys() - {"contributor", "kind" in fields and "tag"}:
            typed = cells[name].text + (f" <{cells[name].links[0]}>" if name == "script" else "")
            if typed != written[name]:
                message = f"{typed!r} is written as {written[name]!r}"
                remedy = "correct the run file if that is wrong"
                at = replace(place, key=HEADINGS[name])
                self.problems.append(Diagnostic(at, Code.page_mended, message, remedy, Severity.WARNING))

    def _run(self, fields: Fields, remarks: Mapping[str, str], place: Location) -> PageRun | None:
        """Complete the fields of a run file and return the run; None if it is invalid."""
        is_open = fields["model"] == TODO
        # If the model is unknown, validate the row with the label as its model.
        model = fields["label"] if is_open else fields["model"]
        count, gpu = fields["gpus"]["count"], fields["gpus"]["type"]
        fields["id"] = suggested_id(model, fields["task"], count, gpu, fields["train"], self.taken)
        if self.day and fields.get("kind", "tested") == "tested":
            fields["added"] = self.day
        if not is_open and fields["label"] == model.rsplit("/", 1)[-1]:
            del fields["label"]
        text = run_text(fields, remarks)
        checked = run_text({**fields, "model": model}) if is_open else text
        file = DataFile(Path(f"{fields['id']}.yaml"), self.shown, checked.encode("utf-8", "surrogatepass"))
        record, _, errors = load(file, Run)
        for error in errors:
            message = f"the row is left out: {error.message}"
            self.problems.append(replace(error, place=place, message=message))
        return None if record is None else PageRun(place, fields, text, record)


def read_page(file: DataFile, known: Known) -> Page:
    """Read a page.

    Args:
        file: the page.
        known: registries and options.

    Raises:
        NoAnswerError: it is not text, too large, or docutils cannot parse it.
    """
    text = page_text(file)
    tables, problems = read_tables(text, file.shown)
    page = Page(file.shown, known, problems)
    page.read_day(text)
    for table in tables:
        page.read_table(table)
    if not page.rows and not any(problem.code in _OF_TABLES for problem in problems):
        remedy = "expected tables under headings such as 7B, with columns such as Tag, Model and Resource"
        page.report(0, Code.page_row, "the page contains no runs", remedy)
    if not page.runs:  # the assumed date and models are unused
        problems = [problem for problem in problems if problem.code is not Code.page_assumed]
    page.problems = sorted(problems)
    return page


def _listed(names: Iterable[str]) -> str:
    """Return the headings of columns."""
    return ", ".join(HEADINGS[name] for name in names)


def differences(page: Page, runs: Mapping[str, Run], data: str) -> Iterator[Diagnostic]:
    """Yield rows and runs that only the page or only the data have, and cells that differ.

    Args:
        page: the page.
        runs: the runs of the data, by id.
        data: the path of the data in messages.
    """
    free: dict[str, dict[str, Mapping[str, str]]] = {}  # by size class
    equal: dict[tuple[str, ...], list[str]] = {}
    for run_id, run in runs.items():
        cells = cells_of(run)
        free.setdefault(run.size, {})[run_id] = cells
        equal.setdefault(tuple(cells.values()), []).append(run_id)
    different = []
    for row in page.runs:
        typed = cells_of(row.record)
        if same := equal.get(tuple(typed.values())):
            del free[row.record.size][same.pop(0)]
        else:
            different.append((row, typed))
    for row, typed in different:
        of_size = free.get(row.record.size, {})
        others = {
            run_id: [name for name in cells if cells[name] != typed[name]]
            for run_id, cells in islice(of_size.items(), _MOST_COMPARED)
        }
        alike = min(others, key=lambda run_id: len(others[run_id]), default="")
        if len(others.get(alike, typed)) > _MOST_DIFFERENT:
            message = f"the data have no run for the row {_named(row.record)}"
            yield Diagnostic(row.place, Code.page_differs, message, "import the page, or remove the row")
            continue
        for name in others[alike]:
            message = (
                f"the page has {typed[name] or 'nothing'!r}, {alike} has "
                f"{of_size[alike][name] or 'nothing'!r}"
            )
            place = replace(row.place, key=HEADINGS[name])
            yield Diagnostic(place, Code.page_differs, message, "correct the wrong one")
        del of_size[alike]
    for run_id in (run_id for run_id, run in runs.items() if run_id in free[run.size]):
        message = f"the page has no row for the run {run_id}, {_named(runs[run_id])}"
        remedy = "add the row, or generate the page from the data"
        yield Diagnostic(Location(f"{data}/runs/{run_id}.yaml"), Code.page_differs, message, remedy)


def _named(run: Run) -> str:
    return f"{run.short_name}, {run.task} on {run.gpus}, under {run.size}"
