"""Rules about all runs together, and about what is measured beside what is computed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..units import GIB, gib_number
from .rule import Finding, at_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.models.run import Run
    from ..estimator.estimate import Estimate
    from .tree import CheckContext, RunEntry

#: A note that holds one of these words speaks of the figure.
_ABOUT_MEMORY = re.compile(r"memory|measured|computed|estimate|peak|\bgib\b|\bgb\b", re.IGNORECASE)


def duplicate_run(tree: CheckContext) -> Iterator[Finding]:
    """No two runs are the same."""
    alike: dict[Any, list[RunEntry]] = {}
    for entry in tree.runs:
        run = entry.run
        settings = tuple(sorted((key, repr(value)) for key, value in run.settings.items()))
        card = tree.catalog.gpus.get(run.gpus.type) if run.gpus.type else None
        gpus = run.gpus.count, card.name if card else None, run.gpus.nodes, run.gpus.memory_gb
        others = alike.setdefault((run.model, gpus, run.task, run.train, run.infer, settings), [])
        earlier = next((other for other in others if not _told_apart(run, other.run)), None)
        others.append(entry)
        if earlier:
            message = (
                f"the run is the same as {earlier.run.id!r}: model, GPUs, task, backend, engine and settings"
            )
            hint = "keep one of the two, or record what tells them apart"
            yield at_value(entry.source, ("id",), message, hint)


def _told_apart(one: Run, other: Run) -> bool:
    """Whether both name a version or a script, and not the same; settings may stand in the script alone."""
    pairs = [(one.script and one.script.path, other.script and other.script.path)]
    if one.versions and other.versions:
        pairs += [
            (one.versions.verl, other.versions.verl),
            (one.versions.torch, other.versions.torch),
        ]
    return any(first and second and first != second for first, second in pairs)


def recommended_below_min(tree: CheckContext) -> Iterator[Finding]:
    """What gives the best throughput takes no less than what is the least that works."""
    for entry in tree.runs:
        run = entry.run
        if run.tag != "RECOMMENDED":
            continue
        least = [
            other.run
            for other in tree.runs
            if (other.run.tag, other.run.model, other.run.task) == ("MIN", run.model, run.task)
        ]
        more = [other for other in least if _takes_less(run, other, tree)]
        if more and len(more) == len(least):
            other = more[0]
            message = f"{run.gpus} is RECOMMENDED, less than {other.gpus}, the MIN run {other.id!r}"
            yield at_value(entry.source, ("tag",), message, "correct the tag of one of the two")


def _takes_less(one: Run, other: Run, tree: CheckContext) -> bool:
    """Whether the memory of all GPUs is less; where it is not known, whether they are fewer of the same."""
    sizes = [_memory(run, tree) for run in (one, other)]
    if sizes[0] is not None and sizes[1] is not None:
        return sizes[0] < sizes[1]
    return (
        one.gpus.type is not None and one.gpus.type == other.gpus.type and one.gpus.count < other.gpus.count
    )


def _memory(run: Run, tree: CheckContext) -> float | None:
    """The memory of all GPUs in GB as sold; what drivers report differs between cards of 80 GB."""
    card = tree.catalog.gpus.get(run.gpus.type) if run.gpus.type else None
    each = card.memory_gb if card else run.gpus.memory_gb
    return run.gpus.count * each if each else None


def far_from_computed(tree: CheckContext) -> Iterator[Finding]:
    """What was measured lies in the range of what is computed, or a note speaks of it."""
    for entry in tree.runs:
        run, found = entry.run, entry.estimate
        if run.measured is None or run.measured.gib is None or found is None or not found.is_complete:
            continue
        low, high = _range(found, run.measured.counter)
        if low <= run.measured.gib * GIB <= high or any(
            _ABOUT_MEMORY.search(f"{note.code.replace('-', ' ')} {note.text}") for note in run.notes
        ):
            continue
        span = f"{gib_number(low)} to {gib_number(high)} GiB"
        message = f"{run.measured.gib:g} GiB were measured, and {span} are computed from the settings"
        hint = "correct the figure, its counter or the settings, or say in a note why it is so"
        yield at_value(entry.source, ("measured", "gib"), message, hint)


def _range(found: Estimate, counter: str) -> tuple[float, float]:
    """Both ends of what a counter may show; the widest of one that is not named, or counts more."""
    logged = found.torch_peak_range
    if counter == "torch-max-allocated":
        return logged
    if counter == "device":
        return found.low, found.high
    return min(found.low, logged[0]), max(found.high, logged[1])
