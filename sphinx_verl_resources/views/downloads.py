"""The files for programs and spreadsheets, and the list that links them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..catalog.schema import schema_texts
from ..i18n import N_, _
from .file_names import CSV, DOWNLOAD_CLASS, JSON, SCHEMA
from .sentences import titled
from .text_table import csv_text

if TYPE_CHECKING:
    from ..catalog.models.export import Export, ExportedRun

LIST_CLASS = "verl-downloads"
#: By name, what is in a file.
_CONTENTS = {
    JSON: N_("every recorded run with what is computed of it, and the GPUs that runs name."),
    SCHEMA: N_("what the fields of this file mean, as a JSON Schema."),
    CSV: N_("the runs, one a row, for spreadsheets."),
}
#: Columns of what is recorded, with units in their names, by the field of the record.
_COLUMNS = {
    "size": "size", "tag": "tag", "model": "model", "task": "task",
    "gpus.count": "gpu_count", "gpus.type": "gpu",
    "gpus.memory_gb": "stated_memory_gb", "gpus.nodes": "nodes", "train": "train", "infer.engine": "engine",
    "infer.version": "engine_version", "max_batch": "max_batch_prompts", "added": "added",
    "measured.gib": "measured_gib", "measured.counter": "measured_counter",
    "measured.host_ram_gib": "measured_host_ram_gib_per_node",
    "measured.step_seconds": "measured_step_seconds",
    "measured.mfu": "measured_mfu", "measured.response_tokens": "measured_response_tokens",
    "script.ref": "script_ref", "script.path": "script_path", "contributor.name": "contributor",
}  # fmt: skip
_COMPUTED = ("peak_gib", "low_gib", "high_gib", "capacity_gib", "verdict", "binding_phase")


def download_list() -> nodes.bullet_list:
    """A file a line; a builder that writes the files links them."""
    items = nodes.bullet_list(classes=[LIST_CLASS])
    for name, content in _CONTENTS.items():
        file = nodes.inline("", "", nodes.literal("", name), classes=[DOWNLOAD_CLASS])
        items += nodes.list_item("", nodes.paragraph("", "", *titled(file, _(content))))
    return items


def download_texts(export: Export) -> dict[str, str]:
    """Each file and its text, which follows from the data alone."""
    return {JSON: json_text(export), SCHEMA: schema_texts()["export"], CSV: runs_csv(export)}


def json_text(export: Export) -> str:
    """The export for programs."""
    # A record has what its file says: what stands there as null is not the same as what is left out.
    plain = export.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def runs_csv(export: Export) -> str:
    """The runs for spreadsheets; no cell is one that these would compute."""
    headings = ["id", "row_id", "status", *_COLUMNS.values(), *(f"computed_{name}" for name in _COMPUTED)]
    return csv_text(headings, [_row(run) for run in export.runs]) + "\n"


def _row(run: ExportedRun) -> list[str]:
    record = run.record.model_dump(mode="json")
    computed = run.computed.model_dump() if run.computed else {}
    found = [_value(record, field) for field in _COLUMNS]
    return [_text(value) for value in (run.id, run.row_id, run.status, *found, *map(computed.get, _COMPUTED))]


def _value(record: Any, field: str) -> Any:
    for name in field.split("."):
        record = record and record[name]
    return record


def _text(value: Any) -> str:
    return "" if value is None else str(value)
