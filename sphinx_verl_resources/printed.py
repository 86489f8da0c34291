"""Runs as text: tables to paste, and files for programs and spreadsheets."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from .fields import as_text, every_field, field_named
from .i18n import N_
from .run_cells import COMPUTED, run_cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .links import Links
    from .nodes import Cell
    from .records import Record, Run

#: The formats made by tabulate, with its names for them.
TABULATE = {"plain": "simple", "github": "github"}
FORMATS = (*TABULATE, "list-table", "csv", "json")
#: The files with all data.
JSON, CSV = "verl-resources.json", "verl-resources.csv"
#: The content of each file.
CONTENTS = {
    JSON: N_("all recorded runs with their estimates, and the GPUs that they use."),
    CSV: N_("the runs, one per row, for spreadsheets."),
}
_COMPUTED = (
    "peak_gib",
    "low_gib",
    "high_gib",
    "capacity_gib",
    "verdict",
    "fits_up_to_tokens",
    "binding_phase",
)


def runs_text(
    runs: Sequence[Run],
    columns: Sequence[str],
    links: Links,
    form: str,
    computed: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> str:
    """Return the table of ``runs`` in one of ``FORMATS``.

    Args:
        runs: the runs, one per row, in order.
        columns: names of fields, and names in ``COMPUTED``.
        links: the link templates.
        form: the format.
        computed: by run id, the texts of the columns in ``COMPUTED``.
    """
    if form == "json":
        plain = [{name: _plain(run, name, computed.get(run.id, {})) for name in columns} for run in runs]
        return json.dumps(plain, indent=2)
    headings = [COMPUTED.get(name) or field_named(name).heading for name in columns]
    cells = [run_cells(run, columns, links, computed.get(run.id, {})) for run in runs]
    if form == "list-table":
        return _list_table(map(_escape, headings), [list(map(_linked, row)) for row in cells])
    rows = [[cell.text for cell in row] for row in cells]
    if form == "csv":
        return csv_text(headings, rows)
    if form == "github":
        headings, *rows = [[_markdown(text) for text in row] for row in (headings, *rows)]
    return tabulate(rows, headings, tablefmt=TABULATE[form], disable_numparse=True)


def _plain(run: Run, name: str, computed: Mapping[str, str]) -> Any:
    """Return a value for JSON: numbers as numbers, null if nothing is recorded."""
    value = (computed.get(name) or None) if name in COMPUTED else field_named(name).value(run)
    return value if value is None or isinstance(value, (bool, int, float)) else as_text(value)


def csv_text(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return comma-separated values."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows((headings, *rows))
    return stream.getvalue().rstrip("\n")


def _list_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (headings, *rows):
        for index, markup in enumerate(row):
            bullet = "* -" if index == 0 else "  -"
            lines.append(f"   {bullet} {markup}".rstrip())
    return "\n".join(lines)


def _linked(cell: Cell) -> str:
    """Return a cell as reStructuredText with its links."""
    if not any(address for _text, address in cell.pieces):
        return _escape(cell.text)
    return ", ".join(_link(text, address) if address else _escape(text) for text, address in cell.pieces)


def _link(text: str, address: str) -> str:
    """Return a link; docutils would read an address that ends with an underscore as a name."""
    shown = re.sub(r"([\\*`|_:<>])", r"\\\1", text)
    target = re.sub(r"[\\<>`]|_\Z", r"\\\g<0>", address)
    return f"`{shown} <{target}>`__"


#: Characters with a meaning in Markdown; an underscore inside a word has none.
_MARKDOWN = re.compile(r"[\\`\[\]|~]|(?<![^\W_])_|_(?![^\W_])")
#: Characters from which GitHub makes links, formulas and pictures, even after a backslash.
_GITHUB = re.compile(r"[$@]|#(?=\d)|:(?=//|[\w+-]+:)|(?<=www)\.|(?<=gh)-(?=\d)", re.IGNORECASE)


def _markdown(text: str) -> str:
    """Return Markdown that GitHub shows as the text; a single asterisk needs no escape."""
    escaped = _MARKDOWN.sub(r"\\\g<0>", html.escape(text, quote=False))
    if text.count("*") > 1:
        escaped = escaped.replace("*", r"\*")
    return _GITHUB.sub(r"<span>\g<0></span>", escaped)


def _escape(text: str) -> str:
    """Escape characters with a meaning in reStructuredText, anywhere in a cell."""
    escaped = re.sub(r"([\\*`|_:@])", r"\\\1", text)
    # At the start of a cell these start a list, a directive or a comment.
    begins_block = re.match(r"[^\w\\]|\w+[.)]", escaped)
    # A cell of backslashes alone would be read as the underline of a title.
    before = "\\ " if escaped.startswith(r"\\") else "\\" if begins_block else ""
    return f"{before}{escaped}"


def download_texts(export: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each file, which depends only on the data."""
    return {JSON: json_text(export), CSV: runs_csv(export["runs"])}


def json_text(export: Mapping[str, Any]) -> str:
    """Return the export for programs; a record has the fields of its file."""
    return json.dumps(export, indent=1, ensure_ascii=False, default=_fields) + "\n"


def _fields(record: Record) -> dict[str, Any]:
    return record.model_dump(mode="json", by_alias=True, exclude_unset=True)


def runs_csv(runs: Iterable[Mapping[str, Any]]) -> str:
    """Return the runs for spreadsheets."""
    fields = [field for field in every_field().values() if field.csv]
    named = ("id", "row_id", "status")
    headings = [*named, *(field.csv for field in fields), *(f"computed_{name}" for name in _COMPUTED)]
    rows = [
        [
            *(run[name] for name in named),
            *(field.value(run["record"]) for field in fields),
            *((run["computed"] or {}).get(name) for name in _COMPUTED),
        ]
        for run in runs
    ]
    return (
        csv_text(headings, [["" if value is None else as_text(value) for value in row] for row in rows])
        + "\n"
    )
