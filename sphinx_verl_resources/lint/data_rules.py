"""Rules for registries, and rules that compare runs with each other and with their estimates."""

from __future__ import annotations

import re
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ..catalog.models.architecture import Architecture
from ..catalog.models.base import NamedRecord
from ..catalog.models.registries import Gpu
from ..catalog.validation import valid_entries
from ..diagnostics import Code
from ..estimator.parameters import count_parameters
from ..units import GB, GIB, MIB, gb, gib_number
from .context import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..catalog.models.run import Run
    from ..diagnostics import Diagnostic, Location
    from ..estimator.estimate import Estimate
    from .context import CheckContext


Record = TypeVar("Record", bound=NamedRecord)
#: An entry of a registry, and a function that returns the place of the entry or of a field.
_Entry: TypeAlias = "tuple[Record, Callable[..., Location]]"

#: Limits of the driver's memory figure relative to the nominal one: an 80 GB GPU can have 80 × 2^30 bytes,
#: or less if it reserves some for error correction.
_LEAST, _MOST = 0.92, 1.08


def _gpus(context: CheckContext) -> Iterator[_Entry[Gpu]]:
    return _entries(context, "gpus", Gpu)


def _models(context: CheckContext) -> Iterator[_Entry[Architecture]]:
    return _entries(context, "architectures", Architecture)


def _entries(context: CheckContext, kind: str, model: type[Record]) -> Iterator[_Entry[Record]]:
    """Yield the valid entries of a registry."""
    for source in context.of_kind(kind):
        for index, record in enumerate(valid_entries(source.document.data, kind, model)):
            if record is not None:
                yield record, partial(source.value_place, kind, index, key=record.name)


@Rule(Code.gpu_memory, "registry")
def gpu_memory(context: CheckContext) -> Iterator[Diagnostic]:
    """Require consistent memory figures of each GPU."""
    for gpu, place_of in _gpus(context):
        reported = gpu.memory_mib * MIB
        if not _LEAST <= reported / (gpu.memory_gb * GB) <= _MOST:
            message = f"memory_mib is {gb(reported)}, but memory_gb is {gpu.memory_gb} GB"
            remedy = "memory_mib counts 2^20 bytes, as nvidia-smi prints them"
            yield gpu_memory.broken_at(place_of("memory_mib"), message, remedy)
        if gpu.cuda_total_gib and gpu.cuda_total_gib * GIB > reported:
            most = f"more than the driver's {reported / GIB:.2f} GiB"
            message = f"CUDA offers {gpu.cuda_total_gib:g} GiB, {most}"
            yield gpu_memory.broken_at(place_of("cuda_total_gib"), message, "correct one of the two")


@Rule(Code.incomplete_entry, "registry")
def incomplete_entry(context: CheckContext) -> Iterator[Diagnostic]:
    """Require sources for the figures of each entry."""
    for gpu, place_of in _gpus(context):
        if gpu.kind != "reading" and not gpu.note:
            message = f"memory_mib is {gpu.kind}, but its source is missing"
            remedy = "add a 'note' with the GPU or the document that it comes from"
            yield incomplete_entry.broken_at(place_of("kind"), message, remedy)
    for model, place_of in _models(context):
        if not model.config_source:
            message = "the source of the shape is missing"
            remedy = "add config_source: [{repo: …, path: config.json}]"
            yield incomplete_entry.broken_at(place_of(), message, remedy)
        if model.verified and not model.published:
            message = "the model is verified, but has no published count"
            remedy = "add 'published', or write verified: false"
            yield incomplete_entry.broken_at(place_of("verified"), message, remedy)


@Rule(Code.parameter_count, "registry")
def parameter_count(context: CheckContext) -> Iterator[Diagnostic]:
    """Require parameter counts that match the recorded shape."""
    for model, place_of in _models(context):
        counts = count_parameters(model)
        for field, stated, counted in (
            ("parameters", model.parameters, counts.total),
            ("parameters_active", model.parameters_active, counts.active),
        ):
            if stated is not None and stated != counted:
                message = f"{field} is {stated:,}, but the shape gives {counted:,}"
                remedy = "compare the shape with config.json"
                yield parameter_count.broken_at(place_of(field), message, remedy)


#: A note with one of these words explains the figure.
_ABOUT_MEMORY = re.compile(r"memory|measured|computed|estimate|peak|\bgib\b|\bgb\b", re.IGNORECASE)
#: A wildcard for any value of a trait; real traits are not empty.
_ANY = ""


@Rule(Code.duplicate_run, "data")
def duplicate_run(context: CheckContext) -> Iterator[Diagnostic]:
    """Reject a run that is recorded twice."""
    first: dict[Any, tuple[int, str]] = {}
    for number, entry in enumerate(context.runs):
        run = entry.run
        settings = tuple(sorted((key, repr(value)) for key, value in run.settings.items()))
        gpu = context.catalog.gpu_of(run)
        gpus = run.gpus.count, gpu.name if gpu else None, run.gpus.nodes, run.gpus.memory_gb
        alike = run.model, gpus, run.task, run.train, run.infer, settings
        traits = _traits(run)
        # Runs differ only if both record a trait with different values; an unset trait matches any value.
        wanted = product(*((trait, None) if trait else (_ANY,) for trait in traits))
        earlier = min((first[alike, found] for found in wanted if (alike, found) in first), default=None)
        for found in product(*((trait, _ANY) for trait in traits)):
            first.setdefault((alike, found), (number, run.id))
        if earlier:
            same = "model, GPUs, task, backend, engine and settings"
            message = f"the run is the same as {earlier[1]!r}: {same}"
            remedy = "keep one of the two, or record the difference"
            yield duplicate_run.broken_at(entry.source.value_place("id"), message, remedy)


def _traits(run: Run) -> tuple[str | None, ...]:
    """Return the facts that can distinguish runs with the same recorded settings: script and versions."""
    versions = (run.versions.verl, run.versions.torch) if run.versions else (None, None)
    return tuple(trait or None for trait in (run.script and run.script.path, *versions))


@Rule(Code.recommended_below_min, "data")
def recommended_below_min(context: CheckContext) -> Iterator[Diagnostic]:
    """Reject a RECOMMENDED run with less hardware than every MIN run of its model and task."""
    least: dict[tuple[str, str], list[Run]] = {}
    for entry in context.runs:
        if entry.run.tag == "MIN":
            least.setdefault((entry.run.model, entry.run.task), []).append(entry.run)
    smallest = {key: _smallest(runs, context) for key, runs in least.items()}
    for entry in context.runs:
        run, key = entry.run, (entry.run.model, entry.run.task)
        if run.tag != "RECOMMENDED" or key not in least:
            continue
        known, every = smallest[key]
        others = every if _memory(run, context) is None else known
        if all(_takes_less(run, other, context) for other in others):
            first = least[key][0]
            message = f"RECOMMENDED {run.gpus} is less hardware than {first.gpus} of the MIN run {first.id!r}"
            remedy = "correct the tag of one of the two"
            yield recommended_below_min.broken_at(entry.source.value_place("tag"), message, remedy)


def _smallest(runs: Iterable[Run], context: CheckContext) -> tuple[list[Run], list[Run]]:
    """Return the runs to compare with: a run with less hardware than these has less than all.

    The first list is for runs whose memory is known, the second for runs whose memory is unknown.
    """
    by_gpu: dict[Any, list[Run]] = {}
    for run in runs:
        by_gpu.setdefault((run.gpus.type, _memory(run, context) is None), []).append(run)
    fewest = {key: min(group, key=lambda run: run.gpus.count) for key, group in by_gpu.items()}
    unknown = [run for (_, is_unknown), run in fewest.items() if is_unknown]
    known = [run for (_, is_unknown), group in by_gpu.items() if not is_unknown for run in group]
    least = [min(known, key=lambda run: _memory(run, context) or 0)] if known else []
    return [*unknown, *least], [*fewest.values()]


def _takes_less(one: Run, other: Run, context: CheckContext) -> bool:
    """Return whether a run has less total GPU memory or, if that is unknown, fewer GPUs of the same type."""
    memory, other_memory = _memory(one, context), _memory(other, context)
    if memory is not None and other_memory is not None:
        return memory < other_memory
    same_gpu = one.gpus.type is not None and one.gpus.type == other.gpus.type
    return same_gpu and one.gpus.count < other.gpus.count


def _memory(run: Run, context: CheckContext) -> float | None:
    """Return the nominal memory of all GPUs in GB; drivers report different figures for GPUs of 80 GB."""
    gpu = context.catalog.gpu_of(run)
    each = gpu.memory_gb if gpu else run.gpus.memory_gb
    return run.gpus.count * each if each else None


@Rule(Code.far_from_computed, "data")
def far_from_computed(context: CheckContext) -> Iterator[Diagnostic]:
    """Require a measured peak inside the estimate's range, or a note that explains it."""
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
        message = f"the measured peak is {run.measured.gib:g} GiB, but the estimate's range is {span}"
        remedy = "correct the figure, its counter or the settings, or explain it in a note"
        yield far_from_computed.broken_at(entry.source.value_place("measured", "gib"), message, remedy)


def _range(estimate: Estimate, counter: str) -> tuple[float, float]:
    """Return the estimated range for a counter; the widest range if the counter is unknown."""
    in_torch = estimate.torch_peak_range
    if counter == "torch-max-allocated":
        return in_torch
    if counter == "device":
        return estimate.low, estimate.high
    return min(estimate.low, in_torch[0]), max(estimate.high, in_torch[1])
