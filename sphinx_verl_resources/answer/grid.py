"""Answers by the dozen: size classes by numbers of GPUs, and the grid that the what-if form looks up."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from itertools import islice, product
from typing import TYPE_CHECKING, Any, Literal, cast

from ..catalog.names import VERDICTS
from ..diagnostics import Code, NoAnswerError, did_you_mean
from ..estimator.registries import capacity_of
from ..estimator.request import MODEL
from ..estimator.tasks import LIMITS
from ..units import GIB
from .answer import answer
from .command import SEPARATOR, command_of
from .evidence import bearing_on
from .fewest import size_models
from .question import USUAL_RANK, Question, request_of, task_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..catalog.models.registries import Gpu
    from ..catalog.names import Verdict, Word
    from ..diagnostics import Diagnostic
    from ..estimator.context import EstimatorContext
    from ..estimator.registries import Registries
    from .answer import Answer
    from .evidence import Bearing
    from .trust import Trust

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


# -- the grid of the form

#: Keys that the choices of the form set, or that follow from the number of GPUs.
CHOSEN = frozenset(
    {
        LIMITS[1],
        f"{MODEL}.path",
        f"{MODEL}.lora_rank",
        f"{MODEL}.lora.rank",
        "trainer.nnodes",
        "trainer.n_gpus_per_node",
    }
)
#: More recorded runs are not named in a cell.
_MOST_RUNS = 2
_NO_FIGURES = {
    "low": 0, "high": 0, "tokens": 0, "phase": 0, "layout": 0, "used": 0, "host": 0, "trust": 0, "command": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Axes:
    """The choices of the form, in the order of the cells; the GPU varies fastest.

    Attributes:
        models: Hugging Face names.
        counts: numbers of GPUs.
        gpus: names of the registry.
        responses: limits of responses, in tokens.
        loras: ranks of adapters; 0 trains all parameters.
    """

    models: tuple[str, ...]
    counts: tuple[int, ...]
    gpus: tuple[str, ...]
    responses: tuple[int, ...]
    loras: tuple[int, ...] = (0, USUAL_RANK)

    @property
    def size(self) -> int:
        """The number of combinations."""
        return math.prod(len(getattr(self, axis.name)) for axis in fields(self))

    @property
    def runs(self) -> list[tuple[str, int, int, int]]:
        """The combinations without the GPU: model, number, rank and response."""
        return list(product(self.models, self.counts, self.loras, self.responses))


@dataclass(frozen=True)
class GridCells:
    """The columns of a grid, and the tables that they lead into. Sizes are tenths of a GiB, per GPU.

    Attributes:
        offered: memory that each GPU offers to programs.
        gpus: by GPU, the index of its cells within those of a run; GPUs that offer the same memory share
            theirs.
        columns: one number a cell. ``verdict`` leads into ``VERDICTS``, and from there on into ``reasons``;
            ``low`` and ``high`` are the ends of the range, ``tokens`` is the mean length of a sequence up to
            which it fits, or zero; ``used`` is the number of GPUs where that is smaller than asked, or zero;
            ``host`` is in GiB per node. The others lead into the tables of their names.
        evidence: by GPU, an index into ``nearest`` for each run.
        nearest: indices into ``runs``.
        runs: ids of recorded runs that ran or were reported, each with its word.
        phases, layouts: their names.
        trusts: what stands behind an estimate.
        commands: of each layout the lines of its command.
        reasons: of cells without an estimate.
        warnings: those that all estimates share.
    """

    offered: tuple[int, ...]
    gpus: tuple[int, ...]
    columns: Mapping[str, tuple[int, ...]]
    evidence: tuple[tuple[int, ...], ...]
    nearest: tuple[tuple[int, ...], ...]
    runs: tuple[tuple[str, Word], ...]
    phases: tuple[str, ...]
    layouts: tuple[str, ...]
    trusts: tuple[Trust, ...]
    commands: tuple[tuple[str, ...], ...]
    reasons: tuple[str, ...]
    warnings: tuple[Diagnostic, ...]


class _Table(dict[Hashable, int]):
    """Different values in the order in which they come, each with its index."""

    def index(self, value: Hashable) -> int:
        """Return the index of a value, which is added if it is new."""
        return self.setdefault(value, len(self))


class _Grid:
    """The tables of a grid while its cells are computed."""

    def __init__(self, data: EstimatorContext) -> None:
        self.data = data
        self.tables = {name: _Table() for name in ("phase", "layout", "command", "reason", "run", "nearest")}
        self.trusts: dict[Hashable, tuple[int, Trust]] = {}

    def cell(self, found: Answer | NoAnswerError, count: int) -> dict[str, int]:
        """Return the numbers of a cell; one without an estimate has its reason."""
        if isinstance(found, NoAnswerError):
            why = tuple(f"{problem.place.key}: {problem.message}" for problem in found.diagnostics)
        else:
            why = found.best.estimate.undecided
        if why or isinstance(found, NoAnswerError):
            return {"verdict": len(VERDICTS) + self.tables["reason"].index("; ".join(why)), **_NO_FIGURES}
        best, command = found.best.estimate, command_of(found.best, self.data.registries)
        return {
            "verdict": VERDICTS.index(found.verdict),
            "low": _tenths(best.low),
            "high": _tenths(best.high),
            "tokens": int(best.fits_up_to_tokens or 0),
            "phase": self.tables["phase"].index(best.peak_phase.name),
            "layout": self.tables["layout"].index(found.best.name),
            "used": found.gpus if found.gpus < count else 0,
            "host": round(best.host.total / GIB),
            "trust": self._trust(found.trust),
            "command": self.tables["command"].index(tuple(command.split(SEPARATOR))),
        }

    def _trust(self, trust: Trust) -> int:
        smallest = trust.smallest.id if trust.smallest and trust.undercuts else None
        key = trust.measured_runs, trust.mean_error, smallest
        return self.trusts.setdefault(key, (len(self.trusts), trust))[0]

    def nearest(self, evidence: Iterable[Bearing]) -> int:
        """Return the index of the nearest runs."""
        runs = ((item.run.id, item.word) for item in evidence if item.word != "claimed")
        return self.tables["nearest"].index(tuple(map(self.tables["run"].index, islice(runs, _MOST_RUNS))))


def compute_grid(axes: Axes, overrides: Mapping[str, Any], data: EstimatorContext) -> GridCells:
    """Answer every combination of choices.

    Args:
        axes: what can be chosen; its names are known.
        overrides: further settings, none of them in ``CHOSEN``.
        data: the records.

    Raises:
        NoAnswerError: no combination has an estimate.
    """
    known = [data.registries.known_gpu(name) for name in axes.gpus]
    alike = {_likeness(gpu): gpu for gpu in sorted(known, key=capacity_of, reverse=True)}
    grid = _Grid(data)
    answers, rows, evidence = [], [], []
    for model, count, lora, response in axes.runs:
        asked = Question(model, count, None, None, lora, response=response, overrides=overrides)
        for gpu in alike.values():
            answers.append(_attempt(replace(asked, gpu=gpu.name), data))
            rows.append(grid.cell(answers[-1], count))
        requests = (request_of(replace(asked, gpu=gpu)) for gpu in axes.gpus)
        evidence.append([grid.nearest(bearing_on(request, data)) for request in requests])
    estimates = [found.best.estimate for found in answers if not isinstance(found, NoAnswerError)]
    if not estimates:
        raise cast("NoAnswerError", answers[0])
    told = set.intersection(*(set(estimate.warnings) for estimate in estimates))
    tables: dict[str, Any] = {name: tuple(table) for name, table in grid.tables.items()}
    return GridCells(
        offered=tuple(_tenths(capacity_of(gpu)) for gpu in known),
        gpus=tuple(list(alike).index(_likeness(gpu)) for gpu in known),
        columns={name: tuple(row[name] for row in rows) for name in rows[0]},
        evidence=tuple(zip(*evidence, strict=True)),
        nearest=tables["nearest"],
        runs=tables["run"],
        phases=tables["phase"],
        layouts=tables["layout"],
        trusts=tuple(trust for _, trust in grid.trusts.values()),
        commands=tables["command"],
        reasons=tables["reason"],
        warnings=tuple(sorted(told)),
    )


def _attempt(question: Question, data: EstimatorContext) -> Answer | NoAnswerError:
    try:
        return answer(question, data)
    except NoAnswerError as error:
        return error


def _likeness(gpu: Gpu) -> tuple[int, str]:
    """Return what GPUs have in common for which all answers are the same but for the evidence."""
    return _tenths(capacity_of(gpu)), gpu.vendor


def _tenths(size: float) -> int:
    """Return bytes as tenths of a GiB, rounded as ``units.gib`` does from one GiB on."""
    return round(round(size / GIB, 1) * 10)
