"""Rows of hand-typed tables by the headings of their columns, and what rows of another length lack."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..catalog.fields import FIELDS
from ..catalog.names import PAGE_COLUMNS, SIZES, TAGS, TRAIN_BACKENDS, fold, sizes_hint
from ..diagnostics import Code, Diagnostic, Location, Severity, counted, did_you_mean
from .page_cells import INFER, RESOURCE
from .page_text import SIZE_TITLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .page_tables import Cell, TypedTable

_COLUMNS = {fold(FIELDS[name].heading): name for name in PAGE_COLUMNS}
#: Columns without which a row is no run.
_NEEDED = ("tag", "model", "task", "gpus", "train", "infer")
#: Cells of a row, and headings, that are compared; real rows have nine.
_MOST = 50
#: Headings that a table has in common with those of runs before it counts as one.
_ALIKE = 3


@dataclass(frozen=True)
class TypedRow:
    """One row of a table of runs.

    Attributes:
        size: the size class that it stands under.
        line: of the page.
        cells: by the names of fields, in the order of the table; columns that are not there are left out.
    """

    size: str
    line: int
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class LostRow:
    """A row of which no run can be made, and why."""

    problem: Diagnostic


def rows_of_runs(table: TypedTable, shown: str) -> Iterator[TypedRow | LostRow | Diagnostic]:
    """The rows of a table that have something recorded, and what is not understood of the table.

    A table with other headings that stands under no size class is none of runs, and gives nothing.
    """
    first = table.rows[0] if table.rows else None
    texts = [] if isinstance(first, int) else [cell.text for cell in first or ()]
    columns = [_COLUMNS.get(fold(text)) for text in texts]
    known = [name for name in columns if name]
    alike = len(set(known)) >= _ALIKE
    if not alike and table.title is None:
        return
    place = Location(shown, table.line)
    size = _size(table.title)
    if not alike:
        message = f"the first row of the table under {table.title!r} does not hold the headings of runs"
        yield Diagnostic(place, Code.page_row, message, f"expected {_listed(PAGE_COLUMNS)}")
        return
    yield from _about_columns(texts, columns, place)
    lacking = [name for name in _NEEDED if name not in known]
    if size is None or lacking:
        if lacking:
            message, hint = f"the table has no column {_listed(lacking)}", "add it"
            yield Diagnostic(place, Code.page_row, f"{message}; none of its rows is read", hint)
        elif table.title is None:
            message = "a table of runs stands under no heading that names a size class"
            yield Diagnostic(place, Code.page_row, message, f"the size classes are {', '.join(SIZES)}")
        else:
            message = f"a table of runs stands under {table.title!r}, which is no size class"
            if len(set(SIZE_TITLE.findall(table.title))) > 1:
                message = f"a table of runs stands under {table.title!r}, which names several sizes"
            yield Diagnostic(place, Code.unknown_size, message, sizes_hint(table.title))
        return
    before = table.line
    for cells in table.rows[1:]:
        if isinstance(cells, int):
            message = "a row of the list is no list of cells"
            hint = "begin its first cell with '* -', and let the hyphens of all others stand below that one's"
            yield LostRow(Diagnostic(Location(shown, cells or before), Code.page_row, message, hint))
            continue
        line = before = min((cell.line for cell in cells if cell.line), default=before)
        if all(cell.is_empty for cell in cells):
            continue
        elif len(cells) != len(columns):
            yield LostRow(_other_length(cells, columns, texts, Location(shown, line)))
        else:
            named = zip(columns, cells, strict=True)
            yield TypedRow(size, line, {name: cell for name, cell in reversed([*named]) if name})


def _size(title: str | None) -> str | None:
    """The size class that a heading names, None if it names none or several."""
    named = set(SIZE_TITLE.findall(title or ""))
    size = f"{named.pop()}B" if len(named) == 1 else ""
    return size if size in SIZES else None


def _about_columns(
    texts: Sequence[str], columns: Sequence[str | None], place: Location
) -> Iterator[Diagnostic]:
    """Columns that no field answers to, and those that are there twice."""
    for index, (text, name) in enumerate(zip(texts, columns, strict=True)):
        if name is None:
            free = [FIELDS[column].heading for column in PAGE_COLUMNS if column not in columns]
            what = f"the column {text!r} is not known" if text else f"column {index + 1} has no heading"
            hint = did_you_mean(text, free) if text else "write one, or remove the column"
            yield Diagnostic(place, Code.page_cell, f"{what}; it is left out", hint)
        elif name in columns[:index]:
            message = f"the column {text!r} stands there twice; the first is read"
            yield Diagnostic(place, Code.page_cell, message, "remove one of the two")


def _other_length(
    cells: Sequence[Cell], columns: Sequence[str | None], texts: Sequence[str], place: Location
) -> Diagnostic:
    """What a row lacks whose cells are more or fewer than the headings: told, not filled in."""
    pairs = _aligned(cells[:_MOST], columns[:_MOST])
    said = ", ".join(f"{texts[column]} {_quoted(cells[cell])}" for cell, column in pairs)
    missing = [text for index, text in enumerate(texts) if index not in {column for _, column in pairs}]
    taken = {cell for cell, _ in pairs}
    over = [repr(cell.text) for index, cell in enumerate(cells) if index not in taken]
    parts = [f"{_words(missing)} {'is' if len(missing) == 1 else 'are'} missing"] if missing else []
    parts += [f"{_words(over)} {'goes' if len(over) == 1 else 'go'} with no heading"] if over else []
    count = counted(len(cells), "cell")
    message = f"{count} under {len(columns)} headings: {', and '.join(parts)}"
    hint = (
        f"no run file is written; the cells that are there read as {said}" if said else "type the row again"
    )
    return Diagnostic(place, Code.page_row, message, hint, Severity.ERROR)


def _quoted(cell: Cell) -> str:
    return repr(cell.text) if cell.text else "nothing"


def _aligned(cells: Sequence[Cell], columns: Sequence[str | None]) -> list[tuple[int, int]]:
    """Which cell goes with which heading, in the order of both, so that the most is explained."""
    best: list[list[tuple[int, list[tuple[int, int]]]]] = [[(0, [])] * (len(columns) + 1)]
    for row, cell in enumerate(cells):
        line: list[tuple[int, list[tuple[int, int]]]] = [(0, [])]
        for column, name in enumerate(columns):
            fits = _likeness(cell, name)
            score, pairs = best[row][column]
            with_both = (score + fits, [*pairs, (row, column)]) if fits else (-1, [])
            line.append(max(best[row][column + 1], line[column], with_both, key=lambda found: found[0]))
        best.append(line)
    return best[-1][-1][1]


def _likeness(cell: Cell, column: str | None) -> int:
    """How much a cell is like those of a column: 0 not at all, 1 it may be, 3 it is."""
    if cell.is_empty:
        return 1 if column in {"max_batch", "script", "contributor"} else 0
    alike = _VOCABULARY[column](cell) if column else False
    return 3 if alike else int(column == "contributor" and not _is_elsewhere(cell))


def _is_elsewhere(cell: Cell) -> bool:
    return any(alike(cell) for alike in _VOCABULARY.values())


#: What tells the cells of a column from all others.
_VOCABULARY: dict[str, Callable[[Cell], bool]] = {
    "tag": lambda cell: cell.text.upper() in TAGS,
    "model": lambda cell: bool(re.search(r"\d\s*B\b", cell.text, re.IGNORECASE)) and not cell.links,
    "task": lambda cell: bool(re.match(r"(\w*PO|RLOO|REINFORCE|ReMax|SFT)\b", cell.text, re.IGNORECASE)),
    "gpus": lambda cell: bool(RESOURCE.fullmatch(cell.text)),
    "max_batch": lambda cell: cell.text.isdecimal(),
    "train": lambda cell: cell.text.lower() in TRAIN_BACKENDS,
    "infer": lambda cell: bool(INFER.fullmatch(cell.text)),
    "script": lambda cell: cell.text.endswith(".sh") or any("://" in link for link in cell.links),
    "contributor": lambda cell: any(link.startswith("mailto:") for link in cell.links),
}


def _listed(names: Sequence[str]) -> str:
    return _words([FIELDS[name].heading for name in names])


def _words(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
