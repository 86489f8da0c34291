"""Which size class runs on how many GPUs: measured where somebody ran it, else computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..catalog.names import SIZES
from ..diagnostics import Code, did_you_mean
from ..memory.shapes import AnalysisError
from .estimate import estimate
from .planner import TASKS, fitted, task_settings, with_megatron
from .request import EstimateError, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..catalog.analysis import Analysis
    from ..catalog.catalog import Catalog
    from ..catalog.models.run import Run
    from .estimate import Estimate
    from .facts import Facts

FitKind = Literal["measured", "computed", "tight", "does not fit", "unknown"]


@dataclass(frozen=True)
class FitCell:
    """One size class on one number of GPUs.

    Attributes:
        kind: measured: a tested run. computed: it fits at the upper end of the range. tight: between both ends.
        gpus: how many.
        run: the id of the run that was tested.
        peak, high: computed bytes per GPU and the upper end of their range; None where nothing is computed.
        layout: the training backend that was computed with.
    """

    kind: FitKind
    gpus: int
    run: str | None = None
    peak: float | None = None
    high: float | None = None
    layout: str = ""


def fit_table(
    facts: Facts,
    catalog: Catalog,
    analysis: Analysis,
    *,
    gpu: str,
    task: str,
    sizes: tuple[str, ...],
    counts: tuple[int, ...],
    config: Mapping[str, Any],
) -> tuple[tuple[str, tuple[FitCell, ...]], ...]:
    """Size classes and their cells, one for each number of GPUs.

    A size class is computed with the model that stands for it in the analysis and the settings of the task,
    every memory optimisation on: with FSDP, and where that does not fit with Megatron.

    Raises:
        AnalysisError: the card, the task or a size class is not known.
    """
    if facts.gpus.get(gpu) is None:
        raise AnalysisError(f"unknown GPU {gpu!r}; {did_you_mean(gpu, facts.gpus.names)}", Code.unknown_gpu)
    settings = task_settings(task)
    if settings is None:
        raise AnalysisError(f"unknown task {task!r}; {did_you_mean(task, TASKS)}", Code.unknown_value)
    models = {
        name: entry.model for name, entry in analysis.specifications.items() if entry.model and name in SIZES
    }
    unknown = next((size for size in sizes if size not in models), None)
    if unknown is not None:
        raise AnalysisError(
            f"no model stands for {unknown!r}; {did_you_mean(unknown, models)}", Code.unknown_size
        )
    shown = sizes or tuple(size for size in SIZES if size in models)
    rows = []
    for size in shown:
        tested = _tested(catalog, facts, size, gpu, task)
        asked = Request(models[size] or "", {**settings, **config}, gpu=gpu)
        rows.append((size, tuple(_cell(facts, asked, count, tested) for count in counts)))
    return tuple(rows)


def _tested(catalog: Catalog, facts: Facts, size: str, gpu: str, task: str) -> dict[int, Run]:
    """Tested runs of a size class on the same card, by number of GPUs."""
    card = facts.gpus.get(gpu)
    return {
        run.gpus.count: run
        for run in _newest_last(catalog.runs.values())
        if run.size == size
        and run.kind == "tested"
        and run.gpus.type
        and facts.gpus.get(run.gpus.type) is card
        and run.task.casefold() == task.casefold()
    }


def _newest_last(runs: Iterable[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (str(run.added or ""), run.id))


def _cell(facts: Facts, asked: Request, count: int, tested: Mapping[int, Run]) -> FitCell:

    run = tested.get(count)
    best = _best(facts, replace(asked, gpus=count))
    if best is None:
        return FitCell("measured", count, run.id) if run else FitCell("unknown", count)
    kind: FitKind = "measured" if run else _KINDS[best.verdict]
    return FitCell(kind, count, run.id if run else None, best.peak, best.high, layout_of(best))


_KINDS: dict[str, FitKind] = {
    "fits": "computed",
    "tight": "tight",
    "does not fit": "does not fit",
    "unknown": "unknown",
}


def _best(facts: Facts, asked: Request) -> Estimate | None:
    """With FSDP, and where that does not fit with the Megatron layout that fits first, or takes least."""
    found = _estimate(facts, asked)
    if found is not None and found.verdict == "fits":
        return found
    tried = [found] if found else []
    for request in with_megatron(asked, facts):
        other = _estimate(facts, request)
        if other is not None:
            tried.append(other)
            if other.verdict == "fits":
                return other
    return min(tried, key=lambda item: item.high, default=None)


def _estimate(facts: Facts, asked: Request) -> Estimate | None:
    try:
        return estimate(fitted(asked, facts), facts)
    except EstimateError:
        return None


def layout_of(found: Estimate) -> str:
    """The training backend in a few words: ``FSDP``, or Megatron with its sizes."""
    actor = found.settings.actor
    if actor.backend != "megatron":
        return "FSDP2" if actor.backend == "fsdp2" else "FSDP"
    megatron = actor.megatron
    sizes = (
        ("TP", megatron.tensor),
        ("PP", megatron.pipeline),
        ("CP", megatron.context),
        ("EP", megatron.expert),
    )
    return " ".join(["Megatron", *(f"{name} {size}" for name, size in sizes if size > 1)])
