"""Rules of ``verl-resources check`` that need an estimate or the parameter count."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..check import Check, Finding, rule
from ..diagnostics import Diagnostic, NoAnswerError, Severity
from ..records import Run
from ..units import GIB, MIB, gib_number
from ..validation import valid_entries
from .architectures import Architecture
from .estimate import Estimate, attempt
from .keys import AT_KEY, settings_problems
from .recorded import has_own_rollout_gpus, request_of_run, version_of_run
from .registries import EstimatorContext
from .request import error_at
from .settings import TRAINER_GPUS, all_gpus
from .shape import Counts


def run_problems(run: Run, registries: EstimatorContext) -> Iterator[Diagnostic]:
    """Yield the problems of a run's settings, each with the setting's name as its place.

    A setting with which verl does not start has no other problem.
    """
    outcome = attempt(request_of_run(run, registries), registries)
    problems = outcome.diagnostics if isinstance(outcome, NoAnswerError) else ()
    errors = [item for item in problems if item.is_error]
    spellings = {registries.renamed.get(key, key): key for key in run.settings}
    refused = {spellings[item.place.key]: item for item in errors if item.place.key in spellings}
    for key, item in refused.items():
        yield error_at(key, item.message, item.remedy, "impossible_settings")
    for item in settings_problems(run.settings, version_of_run(run), registries):
        if item.place.key not in refused:
            yield item


def _placed(check: Check, *, impossible: bool) -> Iterator[Diagnostic]:
    """Yield the problems of all runs' settings at their places, those of one of the two kinds."""
    for run, document in check.runs:
        for item in run_problems(run, check.data):
            if (item.code == "impossible_settings") == impossible:
                find, key = document.key_place if item.code in AT_KEY else document.place, item.place.key
                yield replace(item, place=replace(find(("settings", key)), key=key))


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
    yield from _placed(check, impossible=False)


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
    for run, document in check.runs:
        count, nodes, registries = run.gpus.count, run.gpus.nodes, check.data
        others = all_gpus(request_of_run(run, registries).config, (), registries).others
        stated, each = (value if type(value) is int else 0 for value in map(run.settings.get, TRAINER_GPUS))
        is_open = has_own_rollout_gpus(run) and not others  # the source does not state the rollout GPUs
        if not (is_open or others):
            stated = stated or nodes or 0
        train, remedy = stated * each, "correct one of the two"
        if nodes and count % nodes:
            message = f"{count} GPUs cannot be divided evenly among {nodes} nodes"
            yield document.place(("gpus", "nodes")), message, remedy
        elif train > count or (train and not is_open and train + others != count):
            product = f"nodes × {TRAINER_GPUS[1]} is {stated} × {each} = {train}"
            idle = f" and {others} GPUs do not train" if others else ""
            yield document.place(("gpus", "count")), f"{product}{idle}, but gpus.count is {count}", remedy


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
    yield from _placed(check, impossible=True)


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
        counts = Counts(model)
        for field, stated, computed in (
            ("parameters", model.parameters, counts.total),
            ("parameters_active", model.parameters_active, counts.active),
        ):
            if stated is not None and stated != computed:
                message = f"{model.name}: {field} is {stated:,}, but the shape gives {computed:,}"
                place = document.place(("architectures", index, field))
                yield place, message, "compare the shape with config.json"


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
        outcome, pool = attempt(request_of_run(run, check.data), check.data), 0.0
        if measured.counter != "device" and isinstance(outcome, Estimate):
            pool = outcome.pool_in_torch_peak
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
        measured, notes = run.measured, (f"{note.code.replace('-', ' ')} {note.text}" for note in run.notes)
        if measured is None or measured.gib is None or any(map(_ABOUT_MEMORY.search, notes)):
            continue
        outcome = attempt(request_of_run(run, check.data), check.data)
        if isinstance(outcome, NoAnswerError) or not outcome.is_complete:
            continue
        ends = {"device": (outcome.low, outcome.high), "torch-max-allocated": outcome.torch_peak_range}
        lows, highs = zip(*ends.values(), strict=True)
        low, high = ends.get(measured.counter, (min(lows), max(highs)))  # the widest for an unknown counter
        if not low <= measured.gib * GIB <= high:
            span = f"{gib_number(low)} to {gib_number(high)} GiB"
            message = f"the measured peak is {measured.gib:g} GiB, but the estimate's range is {span}"
            remedy = "correct the figure, its counter or the settings, or explain it in a note"
            yield document.place(("measured", "gib")), message, remedy
