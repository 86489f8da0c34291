"""Runs with their estimates, GPUs and the record of accuracy, as one record for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..catalog.models.export import Computed, Export, ExportedRun
from ..catalog.names import SIZES, row_id
from ..diagnostics import NoAnswerError
from .case import stated_request
from .estimate import estimate
from .result import gib_value
from .versions import CURRENT, version_text

if TYPE_CHECKING:
    from ..catalog.models.registries import Gpu
    from ..catalog.models.run import Run
    from .context import EstimatorContext
    from .estimate import Estimate

#: See ``Export.format``.
FORMAT: Literal[1] = 1


def export_of(data: EstimatorContext, extension_version: str) -> Export:
    """Return all runs with their estimates, the GPUs that they name, and the record of accuracy."""
    runs = tuple(_run(run, data) for _, run in sorted(data.catalog.runs.items()))
    used = {gpu.name: gpu for run in data.catalog.runs.values() if (gpu := _gpu(run, data))}
    return Export(
        format=FORMAT,
        extension_version=extension_version,
        verl_version=version_text(CURRENT),
        last_updated=data.catalog.last_updated,
        size_classes=SIZES,
        runs=runs,
        gpus=tuple(gpu for _, gpu in sorted(used.items())),
        accuracy=tuple(sorted(data.registries.accuracy, key=lambda entry: entry.name)),
    )


def _run(run: Run, data: EstimatorContext) -> ExportedRun:
    computed, reason = None, None
    try:
        computed = _computed(estimate(stated_request(run, data.registries), data.registries))
    except NoAnswerError as error:
        reason = str(error)
    gpu = _gpu(run, data)
    return ExportedRun(
        id=run.id,
        row_id=row_id(run.id),
        status=run.kind,
        record=run,
        gpu=gpu.name if gpu else None,
        computed=computed,
        not_computed=reason,
    )


def _gpu(run: Run, data: EstimatorContext) -> Gpu | None:
    return data.catalog.gpus.get(run.gpus.type) if run.gpus.type else None


def _computed(found: Estimate) -> Computed:
    return Computed(
        verdict=found.verdict,
        peak_gib=gib_value(found.peak),
        low_gib=gib_value(found.low),
        high_gib=gib_value(found.high),
        capacity_gib=None if found.capacity is None else gib_value(found.capacity),
        binding_phase=found.peak_phase.name,
    )
