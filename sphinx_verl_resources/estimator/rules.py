"""Rules of ``verl-resources check`` that need an estimate or the parameter count."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ..check import Check, rule
from ..diagnostics import NoAnswerError, Severity
from ..registries import Architecture
from ..units import GIB, MIB, gib_number
from .allocations import size_of
from .estimate import Estimate, estimate
from .parameters import count_parameters
from .recorded import request_of_run
from .run_problems import located, run_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..check import Finding
    from ..diagnostics import Diagnostic
    from ..records import Run
    from .context import EstimatorContext

    EstimatorCheck = Check[EstimatorContext]


@lru_cache(maxsize=1)
def _problems(check: EstimatorCheck) -> tuple[Diagnostic, ...]:
    """Return the problems of all runs' settings and GPUs."""
    found = ((run_problems(run, check.data.registries), run, document) for run, document in check.runs)
    return tuple(problem for problems in found for problem in located(*problems))


@rule()
def config_key(check: EstimatorCheck) -> Iterator[Finding]:
    """Require keys that this version of verl has, and values of the right type."""
    others = {"gpu_count", "impossible_settings"}
    yield from (problem for problem in _problems(check) if problem.code not in others)


@rule(Severity.ERROR)
def gpu_count(check: EstimatorCheck) -> Iterator[Finding]:
    """Require as many GPUs as nodes times GPUs per node."""
    yield from (problem for problem in _problems(check) if problem.code == "gpu_count")


@rule(Severity.ERROR)
def impossible_settings(check: EstimatorCheck) -> Iterator[Finding]:
    """Reject settings with which verl does not start."""
    yield from (problem for problem in _problems(check) if problem.code == "impossible_settings")


@rule()
def parameter_count(check: EstimatorCheck) -> Iterator[Finding]:
    """Require parameter counts that match the recorded shape."""
    for model, place_of in check.entries("architectures", Architecture):
        counts = count_parameters(model)
        for field, stated, counted in (
            ("parameters", model.parameters, counts.total),
            ("parameters_active", model.parameters_active, counts.active),
        ):
            if stated is not None and stated != counted:
                message = f"{field} is {stated:,}, but the shape gives {counted:,}"
                yield place_of(field), message, "compare the shape with config.json"


@lru_cache(maxsize=10_000)
def _estimate(run_id: str, check: EstimatorCheck) -> Estimate | None:
    """Return the estimate of a run; None if the settings do not allow one."""
    registries = check.data.registries
    try:
        request = request_of_run(check.data.runs[run_id], registries, needs_settings=False)
        return estimate(request, registries)
    except NoAnswerError:
        return None


@rule(Severity.ERROR)
def peak_above_capacity(check: EstimatorCheck) -> Iterator[Finding]:
    """Reject a peak above the GPU's memory, unless PyTorch's counter includes a sleeping engine."""
    for run, document in check.runs:
        measured, capacity = run.measured, _capacity(run, check)
        if measured is None or measured.gib is None or capacity is None:
            continue
        found = _estimate(run.id, check) if measured.counter != "device" else None
        pool = size_of(found.counted_besides) if found else 0.0
        if measured.gib * GIB > capacity + pool:
            has = f"{run.gpus} has {gib_number(capacity)} GiB per GPU"
            message = f"the measured peak is {measured.gib:g} GiB, but {has}"
            remedy = "correct the figure, its unit (GiB per GPU), its counter or the GPU"
            yield document.place(("measured", "gib")), message, remedy


def _capacity(run: Run, check: EstimatorCheck) -> float | None:
    """Return the highest known memory of the GPU, in bytes."""
    gpu = check.data.gpu_of(run)
    if gpu:
        return MIB * float(max([gpu.memory_mib, *(reading.memory_mib for reading in gpu.other_readings)]))
    return run.gpus.memory_gb * GIB if run.gpus.memory_gb else None


#: A note with one of these words explains the figure.
_ABOUT_MEMORY = re.compile(r"memory|measured|computed|estimate|peak|\bgib\b|\bgb\b", re.IGNORECASE)


@rule()
def far_from_computed(check: EstimatorCheck) -> Iterator[Finding]:
    """Require a measured peak inside the estimate's range, or a note that explains it."""
    for run, document in check.runs:
        measured = run.measured
        found = _estimate(run.id, check) if measured and measured.gib else None
        if measured is None or measured.gib is None or found is None or not found.is_complete:
            continue
        low, high = _range(found, measured.counter)
        notes = (f"{note.code.replace('-', ' ')} {note.text}" for note in run.notes)
        if not low <= measured.gib * GIB <= high and not any(map(_ABOUT_MEMORY.search, notes)):
            span = f"{gib_number(low)} to {gib_number(high)} GiB"
            message = f"the measured peak is {measured.gib:g} GiB, but the estimate's range is {span}"
            remedy = "correct the figure, its counter or the settings, or explain it in a note"
            yield document.place(("measured", "gib")), message, remedy


def _range(found: Estimate, counter: str) -> tuple[float, float]:
    """Return the estimated range for a counter; the widest range if the counter is unknown."""
    in_torch = found.torch_peak_range
    if counter == "torch-max-allocated":
        return in_torch
    if counter == "device":
        return found.low, found.high
    return min(found.low, in_torch[0]), max(found.high, in_torch[1])
