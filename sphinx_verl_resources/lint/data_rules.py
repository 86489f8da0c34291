"""Rules that compare runs with each other, and measured memory with estimated memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code
from ..units import GIB, gib_number
from .rule import data_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.models.run import Run
    from ..diagnostics import Diagnostic
    from ..estimator.estimate import Estimate
    from .context import CheckContext, RunEntry

#: A note with one of these words explains the figure.
_ABOUT_MEMORY = re.compile(r"memory|measured|computed|estimate|peak|\bgib\b|\bgb\b", re.IGNORECASE)


@data_rule(Code.duplicate_run, "data")
def duplicate_run(context: CheckContext) -> Iterator[Diagnostic]:
    """Reject a run that is recorded twice."""
    alike: dict[Any, list[RunEntry]] = {}
    for entry in context.runs:
        run = entry.run
        settings = tuple(sorted((key, repr(value)) for key, value in run.settings.items()))
        gpu = context.catalog.gpus.get(run.gpus.type) if run.gpus.type else None
        gpus = run.gpus.count, gpu.name if gpu else None, run.gpus.nodes, run.gpus.memory_gb
        others = alike.setdefault((run.model, gpus, run.task, run.train, run.infer, settings), [])
        earlier = next((other for other in others if not _differ(run, other.run)), None)
        others.append(entry)
        if earlier:
            same = "model, GPUs, task, backend, engine and settings"
            message = f"the run is the same as {earlier.run.id!r}: {same}"
            remedy = "keep one of the two, or record what tells them apart"
            yield duplicate_run.broken_at(entry.source.value_place("id"), message, remedy)


def _differ(one: Run, other: Run) -> bool:
    """Return whether both name a version or a script, and different ones; scripts may hold the settings."""
    pairs = [(one.script and one.script.path, other.script and other.script.path)]
    if one.versions and other.versions:
        pairs += [
            (one.versions.verl, other.versions.verl),
            (one.versions.torch, other.versions.torch),
        ]
    return any(first and second and first != second for first, second in pairs)


@data_rule(Code.recommended_below_min, "data")
def recommended_below_min(context: CheckContext) -> Iterator[Diagnostic]:
    """Reject a RECOMMENDED run with less hardware than every MIN run of its model and task."""
    for entry in context.runs:
        run = entry.run
        if run.tag != "RECOMMENDED":
            continue
        least = [
            other.run
            for other in context.runs
            if (other.run.tag, other.run.model, other.run.task) == ("MIN", run.model, run.task)
        ]
        if least and all(_takes_less(run, other, context) for other in least):
            message = f"{run.gpus} is RECOMMENDED, less than {least[0].gpus}, the MIN run {least[0].id!r}"
            remedy = "correct the tag of one of the two"
            yield recommended_below_min.broken_at(entry.source.value_place("tag"), message, remedy)


def _takes_less(one: Run, other: Run, context: CheckContext) -> bool:
    """Return whether all GPUs together have less memory, or, where it is not known, are fewer of the same."""
    memory, other_memory = _memory(one, context), _memory(other, context)
    if memory is not None and other_memory is not None:
        return memory < other_memory
    same_gpu = one.gpus.type is not None and one.gpus.type == other.gpus.type
    return same_gpu and one.gpus.count < other.gpus.count


def _memory(run: Run, context: CheckContext) -> float | None:
    """Return the memory of all GPUs in GB as sold: the figures of drivers differ between GPUs of 80 GB."""
    gpu = context.catalog.gpus.get(run.gpus.type) if run.gpus.type else None
    each = gpu.memory_gb if gpu else run.gpus.memory_gb
    return run.gpus.count * each if each else None


@data_rule(Code.far_from_computed, "data")
def far_from_computed(context: CheckContext) -> Iterator[Diagnostic]:
    """Require a measured peak inside the range of the estimate, or a note that explains it."""
    for entry in context.runs:
        run, estimate = entry.run, entry.estimate
        if run.measured is None or run.measured.gib is None or estimate is None or not estimate.is_complete:
            continue
        low, high = _range(estimate, run.measured.counter)
        if low <= run.measured.gib * GIB <= high or any(
            _ABOUT_MEMORY.search(f"{note.code.replace('-', ' ')} {note.text}") for note in run.notes
        ):
            continue
        span = f"{gib_number(low)} to {gib_number(high)} GiB"
        message = f"{run.measured.gib:g} GiB were measured, and {span} are computed from the settings"
        remedy = "correct the figure, its counter or the settings, or say in a note why it is so"
        yield far_from_computed.broken_at(entry.source.value_place("measured", "gib"), message, remedy)


def _range(estimate: Estimate, counter: str) -> tuple[float, float]:
    """Return both ends of what a counter may show; the widest range for a counter that is not named."""
    in_torch = estimate.torch_peak_range
    if counter == "torch-max-allocated":
        return in_torch
    if counter == "device":
        return estimate.low, estimate.high
    return min(estimate.low, in_torch[0]), max(estimate.high, in_torch[1])
