"""A hand-typed page compared with the data, row by row and cell by cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..catalog.fields import every_field
from ..catalog.links import Links
from ..catalog.run_text import TODO
from ..catalog.yaml_data import read_yaml
from ..diagnostics import Code, Diagnostic, Location
from .page_columns import HEADINGS, NEEDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..catalog.files import DataFile
    from ..catalog.models.run import Run
    from .page import PageRun

#: Of the cells that every run has, those that two rows must have in common to count as the same row.
_ALIKE = 4
_FIRST = tuple(HEADINGS[name] for name in NEEDED)
#: The fields that change with the checkpoint.
_OF_MODEL = frozenset({"id", "model", "label"})


def differences(page: Sequence[PageRun], runs: Iterable[Run], data: str) -> Iterator[Diagnostic]:
    """Yield what only the page or only the data have, and the cells in which a row and its run differ.

    Args:
        page: the rows of the page.
        runs: those of the data.
        data: the data as messages name them.
    """
    there = {run.id: run for run in sorted(runs, key=lambda run: run.id)}
    pairs = _paired(page, there)
    for typed, run in pairs:
        if run is None:
            message = f"the data have no run like the row {_named(typed.record)}"
            yield Diagnostic(typed.place, Code.page_differs, message, "import the page, or remove the row")
            continue
        del there[run.id]
        shown, recorded = _cells(typed.record), _cells(run)
        for name in shown:
            if shown[name] != recorded[name]:
                cells = f"the page has {shown[name] or 'nothing'!r}, {run.id} {recorded[name] or 'nothing'!r}"
                yield Diagnostic(
                    typed.place, Code.page_differs, f"{name}: {cells}", "correct the one that is wrong"
                )
    for run in there.values():
        message = f"the page has no row like the run {run.id}, {_named(run)}"
        place = Location(f"{data}/runs/{run.id}.yaml")
        yield Diagnostic(
            place, Code.page_differs, message, "add the row, or let the page be built from the data"
        )


def _paired(page: Sequence[PageRun], runs: Mapping[str, Run]) -> list[tuple[PageRun, Run | None]]:
    """Pair each row of a page with the run that is most like it, the most alike first."""
    pairs: dict[int, Run] = {}
    free = dict(runs)
    recorded = [(run_id, _cells(run)) for run_id, run in runs.items()]
    scores = [
        (-score, index, run_id)
        for index, shown in enumerate(_cells(typed.record) for typed in page)
        for run_id, cells in recorded
        if (score := _likeness(shown, cells))
    ]
    for _, index, run_id in sorted(scores):
        if index not in pairs and run_id in free:
            pairs[index] = free.pop(run_id)
    return [(typed, pairs.get(index)) for index, typed in enumerate(page)]


def _likeness(one: Mapping[str, str], other: Mapping[str, str]) -> int:
    """Return the number of cells that two rows have in common; 0 if they cannot be the same row."""
    if one["Size"] != other["Size"] or sum(one[name] == other[name] for name in _FIRST) < _ALIKE:
        return 0
    return sum(one[name] == other[name] for name in one)


def _cells(run: Run) -> dict[str, str]:
    """Return what a page shows of a run by heading, and the addresses of its links."""
    cells = {heading: every_field()[name].text(run) for name, heading in HEADINGS.items()}
    cells["Size"] = run.size
    script, profile = run.script, run.contributor.url if run.contributor else None
    cells["the address of Link"] = Links().file(script.ref, script.path) if script else ""
    cells["the address of Contributor"] = profile or ""
    return cells


def _named(run: Run) -> str:
    return f"{run.short_name}, {run.task} on {run.gpus}, under {run.size}"


def leftovers(page: Sequence[PageRun], files: Iterable[DataFile]) -> Iterator[Diagnostic]:
    """Yield an error for each file whose row has another name now that its checkpoint is known.

    Args:
        page: the rows as they are imported now.
        files: the run files that are there.
    """
    ids = {typed.record.id for typed in page}
    known = [(typed, _fields(typed.text.encode("utf-8", "surrogatepass"))) for typed in page]
    known = [(typed, fields) for typed, fields in known if fields.get("model") != TODO]
    for file in files:
        fields = _fields(file.content)
        if fields.get("model") != TODO or file.path.stem in ids:
            continue
        for typed, others in known:
            if fields.get("label") == typed.record.short_name and _rest(fields) == _rest(others):
                message = f"the row is imported as {typed.record.id} now that its checkpoint is known"
                yield Diagnostic(Location(file.shown), Code.todo, message, "delete this file")
                break


def _fields(content: bytes) -> Mapping[str, Any]:
    data = read_yaml(content).data
    return data if isinstance(data, Mapping) else {}


def _rest(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _OF_MODEL}
