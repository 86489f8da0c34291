"""Rows of a hand-typed page as run files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..catalog.fields import FIELDS
from ..catalog.files import DataFile
from ..catalog.models.run import Run
from ..catalog.run_ids import suggested_id
from ..catalog.run_text import run_text
from ..catalog.validation import load
from ..diagnostics import Code, Diagnostic, Location, Severity, one_line, suggest_or
from .page_cells import CellError, fields_of
from .page_links import contributor_of, script_of
from .page_models import checkpoint_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..catalog.catalog import Registry
    from ..catalog.models.architecture import Architecture
    from ..catalog.models.gpu import Gpu
    from .page_columns import TypedRow
    from .page_links import Remark

#: Columns without which a row is no run.
_NEEDED = ("tag", "model", "task", "gpus", "train", "infer")
_TODO = "TODO"
#: What follows is the day of a page; of a sentence with these words it is none.
_LAST_UPDATED = re.compile(r"\W{0,9}last\s+updated?\b(?:\W{0,5}:\W{0,5}|\W{1,5}(?=[0-9]))(.*)", re.IGNORECASE)


@dataclass(frozen=True)
class Known:
    """What rows are read with.

    Attributes:
        gpus: the registry of GPUs.
        architectures: that of models.
        models: checkpoints by label, as the user has named them.
        ref: the commit that links are pinned to where the page does not pin them, None for none.
        added: the day that the page gives for all its rows, None where it gives none.
    """

    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    models: Mapping[str, str] = field(default_factory=dict)
    ref: str | None = None
    added: date | None = None


@dataclass(frozen=True)
class PageRun:
    """One row as a run.

    Attributes:
        place: of the row.
        fields: of the run file; ``model`` is TODO where the checkpoint is not known.
        remarks: what is said behind a field of the file.
        record: the run, for comparing; its checkpoint means nothing where that is not known.
    """

    place: Location
    fields: Mapping[str, Any]
    remarks: Mapping[str, str]
    record: Run

    @property
    def text(self) -> str:
        """The text of the run file."""
        return run_text(self.fields, self.remarks)


def run_of(
    row: TypedRow, shown: str, known: Known, taken: set[str]
) -> tuple[PageRun | None, list[Diagnostic]]:
    """One row as a run, None where it lacks what makes a run.

    Args:
        row: the row.
        shown: the page as messages name it.
        known: what it is read with.
        taken: ids that other rows have; the new one is added.
    """
    place = Location(shown, row.line)
    fields: dict[str, Any] = {"size": row.size}
    problems: list[Diagnostic] = []
    lost: list[str] = []
    for name, cell in row.cells.items():
        if cell.is_empty:
            continue
        try:
            found, remarks = _read(name, row, known)
        except CellError as error:
            lost += [name] if name in _NEEDED else []
            remarks, found = [(error.code, str(error), error.remedy, Severity.ERROR)], {}
        fields.update(found)
        problems += [_problem(place, name, remark) for remark in remarks]
    missing = [name for name in _NEEDED if name not in fields]
    if missing:
        open_cells = [FIELDS[name].heading for name in missing if name not in lost]
        said = (
            f"nothing is recorded under {', '.join(open_cells)}" if open_cells else "a cell is not understood"
        )
        message, hint = (
            f"the row is left out: {said}",
            "a run needs a tag, model, task, GPUs, backend and engine",
        )
        return None, [*problems, Diagnostic(place, Code.page_row, message, hint)]
    run = _finished(row, place, fields, known, taken)
    if isinstance(run, PageRun):
        taken.add(run.record.id)
        return run, [*problems, *_respelled(row, run, {problem.code for problem in problems})]
    return None, [*problems, *run]


def _read(name: str, row: TypedRow, known: Known) -> tuple[dict[str, Any], list[Remark]]:
    """The fields that one cell fills, and what there is to say about it."""
    cell = row.cells[name]
    if name == "script":
        return script_of(cell, known.ref)
    if name == "contributor":
        return contributor_of(cell)
    remarks: list[Remark] = []
    if cell.links or cell.broken:
        hint = "only scripts and contributors have links"
        remarks.append((Code.page_link, "a link is left out", hint, Severity.WARNING))
    if name == "model":
        model, remark = checkpoint_of(cell.text, known.architectures, known.models)
        return {"label": cell.text, "model": model or _TODO}, [*remarks, *([remark] if remark else [])]
    found = fields_of(name, cell)
    card = found["gpus"]["type"] if name == "gpus" else None
    if card and card not in known.gpus:
        hint = suggest_or(card, known.gpus.names, "add it to gpus.yaml")
        remarks.append((Code.unknown_gpu, f"unknown GPU {card!r}; it is kept", hint, Severity.ERROR))
    return found, remarks


def _respelled(row: TypedRow, run: PageRun, told: set[Code]) -> Iterator[Diagnostic]:
    """Cells that a page built from the run shows in other characters than the typed one."""
    for name, cell in row.cells.items():
        shown = FIELDS[name].text(run.record)
        is_told = (
            Code.email_address in told if name == "contributor" else name == "tag" and "kind" in run.fields
        )
        if name in run.fields and shown != cell.text and not is_told:
            remark = f"{cell.text!r} is written as {shown!r}", "correct the run file if that is not meant"
            yield _problem(run.place, name, (Code.page_mended, *remark, Severity.WARNING))


def _problem(place: Location, name: str, remark: Remark) -> Diagnostic:
    code, message, hint, severity = remark
    return Diagnostic(place, code, f"{FIELDS[name].heading}: {message}", hint, severity)


def _finished(
    row: TypedRow, place: Location, fields: dict[str, Any], known: Known, taken: set[str]
) -> PageRun | list[Diagnostic]:
    """The run with its id, or what the schema has against it."""
    is_open = fields["model"] == _TODO
    gpus, kind = fields["gpus"], fields.get("kind", "tested")
    name = fields["label"] if is_open else fields["model"]
    fields["id"] = suggested_id(name, fields["task"], gpus["count"], gpus["type"], fields["train"], taken)
    if known.added and kind == "tested":
        fields["added"] = known.added
    if not is_open and fields["label"] == fields["model"].rsplit("/", 1)[-1]:
        del fields["label"]
    # Where the checkpoint is open, everything else is looked at all the same.
    checked = {**fields, "model": name}
    content = run_text(checked).encode("utf-8", "surrogatepass")
    run_id = fields["id"]
    record, _, found = load(DataFile(Path(f"{run_id}.yaml"), place.path, content), Run)
    if record is None:
        left_out = "the row is left out: "
        return [replace(problem, place=place, message=left_out + problem.message) for problem in found]
    remarks = {}
    if is_open:
        _, remark = checkpoint_of(row.cells["model"].text, known.architectures, known.models)
        remarks["model"] = one_line(remark[1]) if remark else ""
    return PageRun(place, fields, remarks, record)


def last_updated(lines: list[str], shown: str) -> tuple[date | None, Diagnostic | None]:
    """The day of the page's "Last updated" line, and what there is to say about it."""
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
        hint = "correct 'added' where a row is older"
        return day, Diagnostic(place, Code.page_assumed, message, hint, Severity.WARNING)
    return None, None


def _day(text: str) -> date | None:
    """A day, with the year or, as verl's pages have it, the month first."""
    match = re.match(r"([0-9]{1,4})([-/.])([0-9]{1,2})\2([0-9]{1,4})\b", text)
    parts = match.group(1, 3, 4) if match else ("", "", "")
    try:
        if len(parts[0]) == 4:
            return date(int(parts[0]), int(parts[1]), int(parts[2]))
        if len(parts[2]) == 4:
            return date(int(parts[2]), int(parts[0]), int(parts[1]))
    except ValueError:
        pass
    return None
