"""Ways of making the same tables, each with its conf.py, its pages, and its files with rows."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from content import HEADINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from content import Row


@dataclass(frozen=True)
class Peer:
    """A way of making the tables.

    Attributes:
        name: its name in the tables of figures.
        conf: its lines of conf.py.
        write: function that writes the data of a page into the project and returns the text of the page.
        source: the file to edit to change a row, with ``{page}`` and ``{row}``.
    """

    name: str
    conf: str
    write: Callable[[Path, str, Sequence[Row]], str]
    source: str


def _no_table(folder: Path, page: str, rows: Sequence[Row]) -> str:
    return ""


def _typed(row: Row) -> list[str]:
    """Return the cells as written by hand."""
    texts = [text.replace("*", "\\*") for text in row.texts]
    texts[HEADINGS.index("Link")] = f"`{row.texts[HEADINGS.index('Link')]} <{row.address}>`__"
    return texts


def _list_table(folder: Path, page: str, rows: Sequence[Row]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", "   :class: verl-runs", ""]
    for cells in (HEADINGS, *map(_typed, rows)):
        lines += [f"   {'  ' if index else '* '}- {text}" for index, text in enumerate(cells)]
    return "\n".join(lines)


def _csv_table(folder: Path, page: str, rows: Sequence[Row]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADINGS, *map(_typed, rows)])
    (folder / f"{page}.csv").write_text(text.getvalue(), "utf-8")
    return f".. csv-table::\n   :file: {page}.csv\n   :header-rows: 1\n   :class: verl-runs\n"


TEMPLATE = f"""\
.. list-table::
   :header-rows: 1
   :class: verl-runs

   * - {(chr(10) + "     - ").join(HEADINGS)}
{{% for row in data %}}
   * {{% for text in row %}}- {{{{ text }}}}
     {{% endfor %}}
{{% endfor %}}
"""


def _datatemplates(folder: Path, page: str, rows: Sequence[Row]) -> str:
    (folder / f"{page}.json").write_text(json.dumps(list(map(_typed, rows))), "utf-8")
    (folder / "_templates").mkdir(exist_ok=True)
    (folder / "_templates" / "rows.rst.jinja").write_text(TEMPLATE, "utf-8")
    return f".. datatemplate:json:: {page}.json\n   :template: rows.rst.jinja\n"


NEEDS_FIELDS = [heading.lower() for heading in HEADINGS]
NEEDS_CONF = f"""\
extensions = ["sphinx_needs"]
needs_types = [{{"directive": "run", "title": "Run", "prefix": "R_", "color": "#fff", "style": "node"}}]
needs_fields = {{name: {{"description": name, "nullable": True}} for name in {NEEDS_FIELDS!r}}}
needs_id_regex = "^[a-z0-9-]+$"
needs_string_links = {{
    "script": {{
        "regex": r"^(?P<text>\\S+) (?P<address>https://\\S+)$",
        "link_url": "{{{{address}}}}",
        "link_name": "{{{{text}}}}",
        "options": ["link"],
    }}
}}
"""


def _needs(folder: Path, page: str, rows: Sequence[Row]) -> str:
    needs = {}
    for row in rows:
        fields: dict[str, Any] = dict(zip(NEEDS_FIELDS, row.texts, strict=True))
        fields["link"] += f" {row.address}"
        needs[row.name] = {"id": row.name, "type": "run", "title": row.name, **fields}
    content = {"current_version": "1", "project": "", "versions": {"1": {"needs": needs}}}
    (folder / f"{page}.json").write_text(json.dumps(content), "utf-8")
    columns = "; ".join(
        f'{name} as "{heading}"' for name, heading in zip(NEEDS_FIELDS, HEADINGS, strict=True)
    )
    return (
        f".. needimport:: {page}.json\n   :hide:\n\n"
        f'.. needtable::\n   :filter: task == "{rows[0].task}"\n   :columns: {columns}\n   :style: table\n'
        "   :class: verl-runs\n"
    )


def _bare(folder: Path, page: str, rows: Sequence[Row]) -> str:
    content = [(f"run-{row.name}", row.texts, row.address) for row in rows]
    (folder / f"{page}.json").write_text(json.dumps(content), "utf-8")
    return f".. bare-rows:: {page}.json\n"


BARE_CONF = f"""\
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
extensions = ["bare_rows"]
"""


def _ours(folder: Path, page: str, rows: Sequence[Row]) -> str:
    runs = folder / "data" / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    for row in rows:
        (runs / f"{row.name}.yaml").write_text(row.file, "utf-8")
    return f".. verl-runs::\n   :hide-empty:\n   :task: {rows[0].task}\n   :caption: Runs\n"


NOTHING = Peer("no table", "", _no_table, "{page}.rst")
LIST_TABLE = Peer("list-table", "", _list_table, "{page}.rst")
CSV_TABLE = Peer("csv-table", "", _csv_table, "{page}.csv")
DATATEMPLATES = Peer(
    "datatemplates",
    'extensions = ["sphinxcontrib.datatemplates"]\ntemplates_path = ["_templates"]\n',
    _datatemplates,
    "{page}.json",
)
NEEDS = Peer("needtable", NEEDS_CONF, _needs, "{page}.json")
BARE = Peer("bare post-transform", BARE_CONF, _bare, "{page}.json")
OURS = Peer(
    "verl-runs",
    'extensions = ["sphinx_verl_resources"]\nverl_resources_data = ["data"]\n',
    _ours,
    "data/runs/{row}.yaml",
)
PEERS = (NOTHING, LIST_TABLE, CSV_TABLE, DATATEMPLATES, NEEDS, BARE, OURS)
