"""Size classes by numbers of GPUs: measured where a tested run is recorded, else computed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..catalog.names import SIZES
from ..diagnostics import Code, NoAnswerError, did_you_mean
from .planner import TASKS, best_layout, layout_of, task_settings
from .request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..catalog.dataset import Dataset
    from ..catalog.models.run import Run
    from .context import EstimatorContext
    from .registries import Registries

FitKind = Literal["measured", "computed", "tight", "does not fit", "unknown"]


@dataclass(frozen=True)
class FitCell:
    """One size class on one number of GPUs.

    Attributes:
        kind: ``measured`` for a tested run; ``computed`` if the high end of the range fits; ``tight`` if only
            the low end does.
        gpus: their number.
        run: the id of the tested run.
        peak, high: computed bytes per GPU and the high end of their range; None where nothing is computed.
        layout: the training backend of the computed figures.
    """

    kind: FitKind
    gpus: int
    run: str | None = None
    peak: float | None = None
    high: float | None = None
    layout: str = ""


def fit_table(
    data: EstimatorContext,
    *,
    gpu: str,
    task: str,
    sizes: tuple[str, ...],
    counts: tuple[int, ...],
    config: Mapping[str, Any],
) -> tuple[tuple[str, tuple[FitCell, ...]], ...]:
    """Return size classes and their cells, one for each number of GPUs.

    A size class is computed with its model, see ``size_models``, and the settings of the task with every
    memory optimisation on: with FSDP, and where that does not fit with Megatron.

    Raises:
        NoAnswerError: the GPU, the task or a size class is not known.
    """
    registries = data.registries
    if registries.gpus.get(gpu) is None:
        raise NoAnswerError.because(
            f"unknown GPU {gpu!r}", did_you_mean(gpu, registries.gpus.names), code=Code.unknown_gpu
        )
    settings = task_settings(task)
    if settings is None:
        raise NoAnswerError.because(
            f"unknown task {task!r}", did_you_mean(task, TASKS), code=Code.unknown_value
        )
    models = size_models(data)
    unknown = next((size for size in sizes if size not in models), None)
    if unknown is not None:
        raise NoAnswerError.because(
            f"no model stands for {unknown!r}", did_you_mean(unknown, models), code=Code.unknown_size
        )
    rows = []
    for size in sizes or models:
        tested = _tested(data, size, gpu, task)
        asked = Request(models[size], {**settings, **config}, gpu=gpu)
        rows.append((size, tuple(_cell(registries, asked, count, tested) for count in counts)))
    return tuple(rows)


def size_models(data: Dataset) -> dict[str, str]:
    """Return the model that represents each size class, in ascending order; some have none.

    It is the model of the analysis, or else the one that most tested runs of the size class load.
    """
    models: dict[str, str] = {}
    for size in SIZES:
        tested = (run for run in data.catalog.runs.values() if run.size == size and run.kind == "tested")
        loaded = Counter(run.model for run in tested)
        stated = data.analysis.specifications.get(size)
        if stated is not None and stated.model:
            models[size] = stated.model
        elif loaded:
            models[size] = loaded.most_common(1)[0][0]
    return models


def _tested(data: EstimatorContext, size: str, gpu: str, task: str) -> dict[int, Run]:
    """Return the newest tested run of a size class on the same GPU for each number of GPUs."""
    gpus = data.registries.gpus
    oldest_first = sorted(data.catalog.runs.values(), key=lambda run: (str(run.added or ""), run.id))
    return {
        run.gpus.count: run
        for run in oldest_first
        if run.size == size
        and run.kind == "tested"
        and run.gpus.type
        and gpus.get(run.gpus.type) is gpus.get(gpu)
        and run.task.casefold() == task.casefold()
    }


def _cell(registries: Registries, asked: Request, count: int, tested: Mapping[int, Run]) -> FitCell:
    run = tested.get(count)
    found = best_layout(replace(asked, gpus=count), registries)
    if found is None:
        return FitCell("measured", count, run.id) if run else FitCell("unknown", count)
    best = found[1]
    kind: FitKind = "measured" if run else "computed" if best.verdict == "fits" else best.verdict
    return FitCell(kind, count, run.id if run else None, best.peak, best.high, layout_of(best))
