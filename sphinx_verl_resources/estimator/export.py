"""Estimates and runs as plain values for programs, JSON and tables of text; sizes are GiB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..catalog.models.export import Computed, Export, ExportedRun
from ..catalog.names import SIZES, row_id
from ..diagnostics import NoAnswerError
from ..units import GIB
from .case import stated_request
from .estimate import estimate
from .versions import CURRENT, version_text

if TYPE_CHECKING:
    from ..catalog.models.registries import Gpu
    from ..catalog.models.run import Run
    from .context import EstimatorContext
    from .estimate import Estimate
    from .peaks import AnyEstimate

#: The keys of a result, in order.
FIELDS = (
    "id",
    "fits",
    "verdict",
    "peak_gib",
    "low_gib",
    "high_gib",
    "capacity_gib",
    "binding_phase",
    "relief",
    "relief_saves_gib",
    "relief_peak_gib",
    "logged_max_allocated_gib",
    "logged_low_gib",
    "logged_high_gib",
    "host_ram_gib_per_node",
    "phases",
    "unsupported",
    "warnings",
    "verl_version",
)


def result_of(name: str, estimate: AnyEstimate) -> dict[str, Any]:
    """Return an estimate under the names of ``FIELDS``.

    ``fits`` is None where the verdict is "unknown" or "tight".

    >>> from sphinx_verl_resources.cli.data import load_registries
    >>> from sphinx_verl_resources.estimator.estimate import estimate
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> config = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}
    >>> found = estimate(Request("Qwen/Qwen2.5-0.5B", config, gpus=8, gpu="H100"), load_registries([]))
    >>> result_of("mine", found)["capacity_gib"]
    79.147
    """
    verdict = estimate.verdict
    low, high = estimate.torch_peak_range
    suggestion = estimate.suggestion
    return {
        "id": name,
        "fits": {"fits": True, "does not fit": False}.get(verdict),
        "verdict": verdict,
        "peak_gib": gib_value(estimate.peak),
        "low_gib": gib_value(estimate.low),
        "high_gib": gib_value(estimate.high),
        "capacity_gib": None if estimate.capacity is None else gib_value(estimate.capacity),
        "binding_phase": estimate.peak_phase.name,
        "relief": suggestion.setting if suggestion else None,
        "relief_saves_gib": gib_value(suggestion.saves) if suggestion else None,
        "relief_peak_gib": gib_value(suggestion.peak) if suggestion else None,
        "logged_max_allocated_gib": gib_value(estimate.torch_peak),
        "logged_low_gib": gib_value(low),
        "logged_high_gib": gib_value(high),
        "host_ram_gib_per_node": gib_value(estimate.host.total) if estimate.host else None,
        "phases": [
            {
                "name": phase.name,
                "total_gib": gib_value(phase.total),
                "components": [
                    {
                        "name": component.key,
                        "category": component.category.value,
                        "gib": gib_value(component.size),
                    }
                    for component in phase.breakdown.components
                ],
            }
            for phase in estimate.phases
        ],
        "unsupported": list(estimate.unsupported),
        "warnings": [problem.message for problem in estimate.warnings],
        "verl_version": version_text(estimate.version) if estimate.version else None,
    }


def failed(name: str, message: str) -> dict[str, Any]:
    """Return every field, empty, for a case that cannot be estimated, and the reason."""
    empty: dict[str, Any] = {
        **dict.fromkeys(FIELDS),
        "id": name,
        "phases": [],
        "unsupported": [],
        "warnings": [],
    }
    return {**empty, "verdict": "unknown", "error": message}


def gib_value(size: float) -> float:
    """Convert bytes to GiB (2^30 bytes), with three decimals."""
    return round(size / GIB, 3)


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
