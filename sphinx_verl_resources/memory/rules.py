"""Rules of ``verl-resources check`` that need an estimate or the parameter count."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ..check import Check, rule
from ..diagnostics import NoAnswerError, Severity
from ..units import GIB, MIB, gib_number
from ..validation import valid_entries
from .architectures import Architecture
from .estimate import Estimate, estimate
from .parameters import count_parameters
from .recorded import request_of_run
from .run_problems import located, run_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..check import Finding
    from ..diagnostics import Diagnostic
    from ..records import Run


@lru_cache(maxsize=1)
def _problems(check: Check) -> tuple[Diagnostic, ...]:
    """Return the problems of all runs' settings and GPUs."""
    found = ((run_problems(run, check.data.registries), run, document) for run, document in check.runs)
    return tuple(problem for problems in found for problem in located(*problems))


@rule(Severity.WARNING)
def config_key(check: Check) -> Iterator[Finding]:
    """Require keys that this version of verl has, and values of the right type.

    Bad::

        versions: {verl: "0.5.0"}
        settings:
          actor_rollout_ref.rollout.chat_scheduler: null  # v0.4.0 was the last release with it

    Good::

        versions: {verl: "0.5.0"}
        settings:
          actor_rollout_ref.rollout.name: vllm
    """
    others = {"gpu_count", "impossible_settings"}
    yield from (problem for problem in _problems(check) if problem.code not in others)


@rule(Severity.ERROR)
def gpu_count(check: Check) -> Iterator[Finding]:
    """Require as many GPUs as nodes times GPUs per node.

    Bad::

        gpus: {count: 2, type: H100}
        settings:
          trainer.nnodes: 2
          trainer.n_gpus_per_node: 8

    Good::

        gpus: {count: 16, type: H100}
        settings:
          trainer.nnodes: 2
          trainer.n_gpus_per_node: 8
    """
    yield from (problem for problem in _problems(check) if problem.code == "gpu_count")


@rule(Severity.ERROR)
def impossible_settings(check: Check) -> Iterator[Finding]:
    """Reject settings with which verl does not start.

    Bad::

        gpus: {count: 2, type: H100}
        settings:
          actor_rollout_ref.rollout.tensor_model_parallel_size: 3

    Good::

        gpus: {count: 2, type: H100}
        settings:
          actor_rollout_ref.rollout.tensor_model_parallel_size: 2
    """
    yield from (problem for problem in _problems(check) if problem.code == "impossible_settings")


@rule(Severity.WARNING)
def parameter_count(check: Check) -> Iterator[Finding]:
    """Require parameter counts that match the recorded shape.

    Bad::

        hidden_size: 256        # and all other figures of the shape
        parameters: 2400000

    Good::

        hidden_size: 256
        parameters: 2354432
    """
    entries = (
        (file.document, index, model)
        for file in check.files("architectures.yaml")
        for index, model in enumerate(valid_entries(file.document.data, "architectures", Architecture))
        if model
    )
    for document, index, model in entries:
        counts = count_parameters(model)
        for field, stated, counted in (
            ("parameters", model.parameters, counts.total),
            ("parameters_active", model.parameters_active, counts.active),
        ):
            if stated is not None and stated != counted:
                message = f"{model.name}: {field} is {stated:,}, but the shape gives {counted:,}"
                place = document.place(("architectures", index, field))
                yield place, message, "compare the shape with config.json"


@lru_cache(maxsize=10_000)
def _estimate(run_id: str, check: Check) -> Estimate | None:
    """Return the estimate of a run; None if the settings do not allow one."""
    registries = check.data.registries
    try:
        request = request_of_run(check.data.runs[run_id], registries, needs_settings=False)
        return estimate(request, registries)
    except NoAnswerError:
        return None


@rule(Severity.ERROR)
def peak_above_capacity(check: Check) -> Iterator[Finding]:
    """Reject a measured peak above the GPU's memory.

    Bad::

        gpus: {count: 2, type: H100}
        measured: {gib: 93.5, counter: device}

    Good::

        gpus: {count: 2, type: H100}
        measured: {gib: 75.5, counter: device}
    """
    for run, document in check.runs:
        measured, capacity = run.measured, _capacity(run, check)
        if measured is None or measured.gib is None or capacity is None:
            continue
        found = _estimate(run.id, check) if measured.counter != "device" else None
        pool = found.counted_besides if found else 0.0
        if measured.gib * GIB > capacity + pool:
            has = f"{run.gpus} has {gib_number(capacity)} GiB per GPU"
            message = f"the measured peak is {measured.gib:g} GiB, but {has}"
            remedy = "correct the figure, its unit (GiB per GPU), its counter or the GPU"
            yield document.place(("measured", "gib")), message, remedy


def _capacity(run: Run, check: Check) -> float | None:
    """Return the highest known memory of the GPU, in bytes."""
    gpu = check.data.gpu_of(run)
    if gpu:
        return MIB * float(max([gpu.memory_mib, *(reading.memory_mib for reading in gpu.other_readings)]))
    return run.gpus.memory_gb * GIB if run.gpus.memory_gb else None


#: A note with one of these words explains the figure.
_ABOUT_MEMORY = re.compile(r"memory|measured|computed|estimate|peak|\bgib\b|\bgb\b", re.IGNORECASE)


@rule(Severity.WARNING)
def far_from_computed(check: Check) -> Iterator[Finding]:
    """Require a measured peak inside the estimate's range, or a note that explains it.

    Bad::

        settings: {data.train_batch_size: 256}  # and others, with which the estimate is 58.6 to 102.5 GiB
        measured: {gib: 11.5, counter: device}

    Good::

        settings: {data.train_batch_size: 256}
        measured: {gib: 75.5, counter: device}
    """
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
