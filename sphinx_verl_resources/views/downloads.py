"""The files for programs and spreadsheets, and the list that links them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from docutils import nodes

from ..catalog.fields import as_text, every_field
from ..catalog.schema import schema_texts
from ..i18n import N_, _
from .file_names import CSV, DOWNLOAD_CLASS, JSON, SCHEMA
from .sentences import titled
from .text_table import csv_text

if TYPE_CHECKING:
    from ..catalog.models.export import Export

LIST_CLASS = "verl-downloads"
#: By name, what is in a file.
_CONTENTS = {
    JSON: N_("every recorded run with what is computed of it, and the GPUs that runs name."),
    SCHEMA: N_("what the fields of this file mean, as a JSON Schema."),
    CSV: N_("the runs, one a row, for spreadsheets."),
}
_COMPUTED = ("peak_gib", "low_gib", "high_gib", "capacity_gib", "verdict", "binding_phase")


def download_list() -> nodes.bullet_list:
    """Make the list of the files; a builder that writes the files links them."""
    items = nodes.bullet_list(classes=[LIST_CLASS])
    for name, content in _CONTENTS.items():
        file = nodes.inline("", "", nodes.literal("", name), classes=[DOWNLOAD_CLASS])
        items += nodes.list_item("", nodes.paragraph("", "", *titled(file, _(content))))
    return items


def download_texts(export: Export) -> dict[str, str]:
    """Return the text of each file, which follows from the data alone."""
    return {JSON: json_text(export), SCHEMA: schema_texts()["export"], CSV: runs_csv(export)}


def json_text(export: Export) -> str:
    """Return the export for programs."""
    # A record has what its file has: null is not the same as left out.
    plain = export.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def runs_csv(export: Export) -> str:
    """Return the runs for spreadsheets; no cell is one that these would compute."""
    fields = [field for field in every_field().values() if field.csv]
    named = ("id", "row_id", "status")
    headings = [*named, *(field.csv for field in fields), *(f"computed_{name}" for name in _COMPUTED)]
    rows = [
        [
            *(getattr(run, name) for name in named),
            *(field.value(run.record) for field in fields),
            *(getattr(run.computed, name, None) for name in _COMPUTED),
        ]
        for run in export.runs
    ]
    return (
        csv_text(headings, [["" if value is None else as_text(value) for value in row] for row in rows])
        + "\n"
    )
