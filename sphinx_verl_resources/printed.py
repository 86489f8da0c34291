"""Runs as text: tables to paste, and files for programs and spreadsheets; verl's settings as text."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shlex
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import yaml
from tabulate import tabulate

from .i18n import N_
from .run_cells import COMPUTED, run_cells
from .selection import as_text, every_field, field_named

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from .nodes import Cell
    from .records import Links, Record, Run

FORMATS = ("plain", "github", "list-table", "csv", "json")
#: The files with all data.
JSON, CSV = "verl-resources.json", "verl-resources.csv"
#: The content of each file.
CONTENTS = {
    JSON: N_("all recorded runs with their estimates, and the GPUs that they use."),
    CSV: N_("the runs, one per row, for spreadsheets."),
}
#: The command that launches verl.
LAUNCHER = "python3 -m verl.trainer.main_ppo"

# -- a table of runs


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
        return _list_table([map(_rst, headings), *(map(_linked, row) for row in cells)])
    rows = [headings, *([cell.text for cell in row] for row in cells)]
    if form == "csv":
        return csv_text(rows)
    if form == "github":
        rows = [list(map(_markdown, row)) for row in rows]
    tablefmt = "simple" if form == "plain" else form
    return tabulate(rows[1:], rows[0], tablefmt=tablefmt, disable_numparse=True)


def _plain(run: Run, name: str, computed: Mapping[str, str]) -> Any:
    """Return a value for JSON: numbers as numbers, null if nothing is recorded."""
    value = (computed.get(name) or None) if name in COMPUTED else field_named(name).value(run)
    return value if value is None or isinstance(value, (bool, int, float)) else as_text(value)


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Return comma-separated values."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue().rstrip("\n")


def _list_table(rows: Iterable[Iterable[str]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        lines += [f"   {'  ' if index else '* '}- {text}".rstrip() for index, text in enumerate(row)]
    return "\n".join(lines)


def _linked(cell: Cell) -> str:
    """Return a cell as reStructuredText with its links."""
    if not any(address for _text, address in cell.pieces):
        return _rst(cell.text)
    return ", ".join(_link(text, address) if address else _rst(text) for text, address in cell.pieces)


def _link(text: str, address: str) -> str:
    """Return a link; docutils would read an address that ends with an underscore as a name."""
    shown = re.sub(r"([\\*`|_:<>])", r"\\\1", text)
    target = re.sub(r"[\\<>`]|_\Z", r"\\\g<0>", address)
    return f"`{shown} <{target}>`__"


def _rst(text: str) -> str:
    """Return reStructuredText that shows the text, anywhere in a cell."""
    escaped = re.sub(r"([\\*`|_:@])", r"\\\1", text)
    # At the start of a cell these start a list, a directive or a comment.
    begins_block = re.match(r"[^\w\\]|\w+[.)]", escaped)
    # A cell of backslashes alone would be read as the underline of a title.
    before = "\\ " if escaped.startswith(r"\\") else "\\" if begins_block else ""
    return f"{before}{escaped}"


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


# -- files with all runs

_NAMED = ("id", "row_id", "status")
_ESTIMATED = (
    "peak_gib", "low_gib", "high_gib", "capacity_gib", "verdict", "fits_up_to_tokens", "binding_phase",
)  # fmt: skip


def download_texts(export: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each file, which depends only on the data."""
    whole = json.dumps(export, indent=1, ensure_ascii=False, default=_fields)
    return {JSON: f"{whole}\n", CSV: f"{_runs_csv(export['runs'])}\n"}


def _fields(record: Record) -> dict[str, Any]:
    """Return the fields of a record, as in its file."""
    return record.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _runs_csv(runs: Iterable[Mapping[str, Any]]) -> str:
    """Return the runs for spreadsheets."""
    fields = [field for field in every_field().values() if field.csv]
    rows = [[*_NAMED, *(field.csv for field in fields), *(f"computed_{name}" for name in _ESTIMATED)]]
    for run in runs:
        named, estimate = map(run.get, _NAMED), run["computed"] or {}
        values = [*named, *(field.value(run["record"]) for field in fields), *map(estimate.get, _ESTIMATED)]
        rows.append(["" if value is None else as_text(value) for value in values])
    return csv_text(rows)


# -- verl's settings


def nested_yaml(settings: Mapping[str, Any]) -> str:
    """Return dotted keys as YAML with one level per dot, in order."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        *groups, name = key.split(".")
        branch = tree
        for group in groups:
            branch = branch.setdefault(group, {})
        branch[name] = value
    return flat_yaml(tree)


def flat_yaml(settings: Mapping[str, Any]) -> str:
    """Return settings as YAML, one key per line, in order."""
    return yaml.dump(settings, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=200).rstrip()


class _Dumper(yaml.SafeDumper):
    """A writer of YAML that writes tuples as lists."""


_Dumper.add_representer(tuple, yaml.SafeDumper.represent_list)


def overrides(settings: Mapping[str, Any], new: Container[str] = ()) -> list[str]:
    """Return settings as arguments of verl's launcher, quoted for a shell.

    Args:
        settings: the values by key.
        new: the keys that are not in the composed configuration; Hydra requires a plus before them.
    """
    return [
        shlex.quote(f"{'+' if key in new else ''}{key}={_hydra(value)}") for key, value in settings.items()
    ]


def _hydra(value: Any) -> str:
    """Return a value in the grammar of Hydra's overrides."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_hydra(item) for item in value)}]"
    if not isinstance(value, str):
        return "null" if value is None else str(value)
    is_word = re.fullmatch(r"[\w./:@%+-]+", value)
    if is_word and not re.fullmatch(r"[-+.\d].*|true|false|null|inf|nan", value, re.IGNORECASE):
        return value
    # To Hydra, a backslash is an ordinary character unless a quote follows.
    escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), value)
    return f"'{escaped}'"
