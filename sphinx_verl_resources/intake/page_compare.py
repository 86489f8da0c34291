"""A hand-typed page and the data, row by row and cell by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..catalog.fields import FIELDS
from ..catalog.links import Links
from ..catalog.names import PAGE_COLUMNS
from ..diagnostics import Code, Diagnostic, Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..catalog.models.run import Run
    from .page_runs import PageRun

#: Cells that two rows must have in common before they count as the same row, of those that every run has.
_ALIKE = 4
_FIRST = tuple(FIELDS[name].heading for name in ("model", "task", "gpus", "train", "infer", "tag"))


def differences(page: Sequence[PageRun], runs: Iterable[Run], data: str) -> Iterator[Diagnostic]:
    """What one has and the other has not.

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
                both = f"the page has {shown[name] or 'nothing'!r}, {run.id} {recorded[name] or 'nothing'!r}"
                yield Diagnostic(
                    typed.place, Code.page_differs, f"{name}: {both}", "correct the one that is wrong"
                )
    for run in there.values():
        message = f"the page has no row like the run {run.id}, {_named(run)}"
        place = Location(f"{data}/runs/{run.id}.yaml")
        yield Diagnostic(
            place, Code.page_differs, message, "add the row, or let the page be built from the data"
        )


def _paired(page: Sequence[PageRun], runs: Mapping[str, Run]) -> list[tuple[PageRun, Run | None]]:
    """Each row of a page with the run that is most like it; the surest pairs are made first."""
    found: dict[int, Run] = {}
    free = dict(runs)
    recorded = [(run_id, _cells(run)) for run_id, run in runs.items()]
    scores = [
        (-score, index, run_id)
        for index, shown in enumerate(_cells(typed.record) for typed in page)
        for run_id, cells in recorded
        if (score := _likeness(shown, cells))
    ]
    for _, index, run_id in sorted(scores):
        if index not in found and run_id in free:
            found[index] = free.pop(run_id)
    return [(typed, found.get(index)) for index, typed in enumerate(page)]


def _likeness(one: Mapping[str, str], other: Mapping[str, str]) -> int:
    """How many cells two rows have in common; 0 where they cannot be the same row."""
    if one["Size"] != other["Size"] or sum(one[name] == other[name] for name in _FIRST) < _ALIKE:
        return 0
    return sum(one[name] == other[name] for name in one)


def _cells(run: Run) -> dict[str, str]:
    """What a page shows of a run, by heading; what its links lead to goes by names of its own."""
    cells = {field.heading: field.text(run) for field in map(FIELDS.__getitem__, PAGE_COLUMNS)}
    cells["Size"] = run.size
    script, profile = run.script, run.contributor.url if run.contributor else None
    cells["the address of Link"] = Links().file(script.ref, script.path) if script else ""
    cells["the address of Contributor"] = profile or ""
    return cells


def _named(run: Run) -> str:
    return f"{run.short_name}, {run.task} on {run.gpus}, under {run.size}"
