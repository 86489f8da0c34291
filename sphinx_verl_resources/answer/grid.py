"""Answers by the dozen: size classes by numbers of GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..diagnostics import Code, NoAnswerError, did_you_mean
from .answer import answer
from .fewest import size_models
from .question import Question, task_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..catalog.names import Verdict
    from ..estimator.context import EstimatorContext
    from ..estimator.registries import Registries
    from .answer import Answer

FitKind = Literal["ran", "reported", "fits", "borderline", "no", "unknown"]
_KINDS: Mapping[Verdict, FitKind] = {
    "fits": "fits",
    "borderline": "borderline",
    "depends-on-lengths": "borderline",
    "does-not-fit": "no",
    "unknown": "unknown",
}


@dataclass(frozen=True)
class FitCell:
    """One size class on one number of GPUs. Sizes are bytes per GPU.

    Attributes:
        kind: ``ran`` where a run that ran bears on it, ``reported`` where it is not computed to fit and a run
            is reported; else what is computed.
        gpus: their number.
        run: the id of the nearest run that ran or was reported.
        on: the GPUs of this run, or of the layout, such as ``8*H800``, where they are others.
        spare: what the GPU has beyond the upper end of the range, or lacks if it is negative; with ``no``,
            beyond the lower end.
        layout: the training backend of the computed figures.
        tokens: the mean length of a sequence up to which it fits, see ``AnyEstimate.fits_up_to_tokens``.
    """

    kind: FitKind
    gpus: int
    run: str | None = None
    on: str = ""
    spare: float | None = None
    layout: str = ""
    tokens: float | None = None


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

    A size class is answered for its model, see ``size_models``.

    Raises:
        NoAnswerError: the GPU, the task or a size class is not known.
    """
    models = size_models(data)
    data.registries.known_gpu(gpu)
    name, rank = task_of(task)
    for size in sizes:
        if size not in models:
            hint = did_you_mean(size, models)
            raise NoAnswerError.because(f"no model represents {size!r}", hint, code=Code.unknown_size)

    def cell(model: str, count: int) -> FitCell:
        question = Question(model, count, gpu, name, rank, overrides=config)
        try:
            return fit_cell(answer(question, data), count, data.registries)
        except NoAnswerError:
            return FitCell("unknown", count)

    return tuple((size, tuple(cell(models[size], count) for count in counts)) for size in sizes or models)


def fit_cell(found: Answer, count: int, registries: Registries) -> FitCell:
    """Return an answer in brief, for a number of GPUs."""
    best, kind, used = found.best.estimate, _KINDS[found.verdict], found.best.estimate.settings.gpus
    end = best.low if kind == "no" else best.high
    cell = FitCell(
        kind,
        count,
        on=f"{used}*{found.asked.gpu}" if used < count else "",
        spare=None if best.capacity is None else best.capacity - end,
        layout=found.best.name,
        tokens=best.fits_up_to_tokens,
    )
    if not found.evidence:
        return cell
    word, run = found.evidence[0].word, found.evidence[0].run
    if word == "claimed" or (word == "reported" and kind == "fits"):
        return cell
    gpus = registries.gpus
    same = run.gpus.count == count and gpus.get(run.gpus.type or "") is gpus.get(found.asked.gpu or "")
    return replace(cell, kind=word, run=run.id, on="" if same else str(run.gpus))
