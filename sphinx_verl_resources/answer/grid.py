"""The grid of answers that the what-if form looks up."""

from __future__ import annotations

import gc
import math
from collections.abc import Hashable
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from ..memory.registries import capacity_of, known_gpu
from ..memory.request import VERDICTS
from ..memory.roles import LIMITS
from ..units import GIB
from .answer import Answers
from .command import SEPARATOR, command_of
from .question import OWN_KEYS, USUAL_RANK, Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..diagnostics import Diagnostic
    from ..memory.registries import EstimatorContext
    from ..records import Word
    from ..registries import Gpu
    from .answer import Answer
    from .evidence import Trust
    from .layouts import Layout

#: Keys that the form's choices set, or that follow from the number of GPUs.
CHOSEN = OWN_KEYS | {LIMITS[1]}
#: The most recorded runs in a cell.
_MOST_RUNS = 2
_NO_FIGURES = {
    "low": 0, "high": 0, "tokens": 0, "phase": 0, "layout": 0, "used": 0, "host": 0, "trust": 0, "command": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Axes:
    """The form's choices besides the model, in the order of the cells; the GPU varies fastest.

    Attributes:
        counts: numbers of GPUs.
        gpus: names of GPUs in the registry.
        responses: response lengths, in tokens.
        loras: ranks of adapters; 0 trains all parameters.
    """

    counts: tuple[int, ...]
    gpus: tuple[str, ...]
    responses: tuple[int, ...]
    loras: tuple[int, ...] = (0, USUAL_RANK)

    @property
    def size(self) -> int:
        """The number of combinations."""
        return math.prod(len(getattr(self, axis.name)) for axis in fields(self))

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """The combinations without the type of GPU: number of GPUs, rank and response length."""
        return list(product(self.counts, self.loras, self.responses))


@dataclass(frozen=True)
class GridCells:
    """The columns of a grid, and the tables that they point into. Sizes are tenths of a GiB, per GPU.

    Attributes:
        offered: the capacity of each GPU.
        gpus: for each GPU, the index of its cell among those of one item of ``Axes.runs``; GPUs with the same
            capacity share cells.
        columns: one number per cell. ``verdict`` is an index into ``VERDICTS`` followed by ``reasons``.
            ``low`` and ``high`` are the ends of the range. ``tokens`` is the largest mean sequence length
            that fits, or zero. ``used`` is the number of GPUs if smaller than in the question, otherwise
            zero. ``host`` is in GiB per node. The others are indices into the tables of their names.
        evidence: for each GPU, an index into ``nearest`` for each item of ``Axes.runs``.
        nearest: tuples of indices into ``runs``.
        runs: ids of recorded runs that ran or were reported, each with its evidence word, and whether it is
            relevant or only the smallest run of the model, see ``Trust.smallest``.
        phases, layouts: their names.
        trusts: the measured runs behind the estimates.
        commands: the lines of each layout's command.
        reasons: the reasons for cells without an estimate.
        warnings: the warnings that all estimates share.
        errors: the errors of the first combination, if no combination has an estimate.
    """

    offered: tuple[int, ...]
    gpus: tuple[int, ...]
    columns: Mapping[str, tuple[int, ...]]
    evidence: tuple[tuple[int, ...], ...]
    nearest: tuple[tuple[int, ...], ...]
    runs: tuple[tuple[str, Word, bool], ...]
    phases: tuple[str, ...]
    layouts: tuple[str, ...]
    trusts: tuple[Trust, ...]
    commands: tuple[tuple[str, ...], ...]
    reasons: tuple[str, ...]
    warnings: tuple[Diagnostic, ...] = ()
    errors: tuple[Diagnostic, ...] = ()


class _Table(dict[Hashable, int]):
    """Distinct values in order of insertion, each with its index."""

    def index(self, value: Hashable) -> int:
        """Return the index of a value, adding the value if it is new."""
        return self.setdefault(value, len(self))


class _Grid:
    """The tables of a grid during the computation of its cells."""

    def __init__(self, data: EstimatorContext) -> None:
        self.data = data
        self.tables = {name: _Table() for name in ("phase", "layout", "command", "reason", "run", "nearest")}
        self.trusts: dict[Hashable, tuple[int, Trust]] = {}
        #: Keyed by the ``id()`` of the settings, which are kept too, so that no other object gets this id.
        self._layouts: dict[int, tuple[Mapping[str, Any], tuple[int, int]]] = {}

    def cell(self, found: Answer | NoAnswerError, count: int) -> dict[str, int]:
        """Return the numbers of a cell, or the reason if there is no estimate."""
        if isinstance(found, NoAnswerError):
            why = tuple(f"{problem.place.key}: {problem.message}" for problem in _errors(found))
        else:
            why = found.best.estimate.undecided
        if why or isinstance(found, NoAnswerError):
            return {"verdict": len(VERDICTS) + self.tables["reason"].index("; ".join(why)), **_NO_FIGURES}
        best, layout, command = found.best.estimate, *self._layout(found.best)
        return {
            "verdict": VERDICTS.index(found.verdict),
            "low": _tenths(best.low),
            "high": _tenths(best.high),
            "tokens": int(best.fits_up_to_tokens or 0),
            "phase": self.tables["phase"].index(best.peak_phase.name),
            "layout": layout,
            "used": found.gpus if found.gpus < count else 0,
            "host": round(best.host.total / GIB),
            "trust": self._trust(found.trust),
            "command": command,
        }

    def _layout(self, layout: Layout) -> tuple[int, int]:
        """Return the indices of a layout's name and command; GPUs with the same settings share these."""
        config = layout.request.config
        if id(config) not in self._layouts:
            lines = tuple(command_of(layout, self.data).split(SEPARATOR))
            found = self.tables["layout"].index(layout.name), self.tables["command"].index(lines)
            self._layouts[id(config)] = config, found
        return self._layouts[id(config)][1]

    def _trust(self, trust: Trust) -> int:
        key = trust.measured_runs, trust.mean_error, trust.undercuts
        return self.trusts.setdefault(key, (len(self.trusts), trust))[0]

    def nearest(self, asked: Answers, count: int, gpu: str) -> int:
        """Return the index of the nearest runs; without relevant runs, that of the smallest run."""
        evidence = (run for run in asked.evidence(count, gpu) if run.word != "claimed")
        runs = [(run.id, run.word, True) for run in islice(evidence, _MOST_RUNS)]
        if not runs and (smallest := asked.smallest(gpu)):
            runs = [(smallest.id, smallest.word, False)]
        return self.tables["nearest"].index(tuple(map(self.tables["run"].index, runs)))


def compute_grid(model: str, axes: Axes, overrides: Mapping[str, Any], data: EstimatorContext) -> GridCells:
    """Answer every combination of choices for a model.

    Args:
        model: its Hugging Face name, which must be known.
        axes: the choices; their names must be known.
        overrides: further settings, none of them in ``CHOSEN``.
        data: the records.
    """
    with _no_garbage():
        return _compute_grid(model, axes, overrides, data)


def _compute_grid(model: str, axes: Axes, overrides: Mapping[str, Any], data: EstimatorContext) -> GridCells:
    known = [known_gpu(name, data.gpus) for name in axes.gpus]
    alike = {_likeness(gpu): gpu for gpu in sorted(known, key=capacity_of, reverse=True)}
    grid = _Grid(data)
    answers, rows, evidence = [], [], []
    shared = {
        (lora, response): Answers(Question(model, lora=lora, response=response, overrides=overrides), data)
        for lora, response in product(axes.loras, axes.responses)
    }
    for count, lora, response in axes.runs:
        asked = shared[lora, response]
        for gpu in alike.values():
            answers.append(_attempt(asked, count, gpu.name))
            rows.append(grid.cell(answers[-1], count))
        evidence.append([grid.nearest(asked, count, gpu) for gpu in axes.gpus])
    told = [set(found.best.estimate.warnings) for found in answers if not isinstance(found, NoAnswerError)]
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
        warnings=tuple(sorted(set.intersection(*told))) if told else (),
        errors=() if told else _errors(answers[0]),
    )


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Pause the garbage collector, which takes a fifth of the time; nothing here has reference cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _attempt(asked: Answers, count: int, gpu: str) -> Answer | NoAnswerError:
    try:
        return asked.on(count, gpu)
    except NoAnswerError as error:
        return error


def _errors(found: Answer | NoAnswerError) -> tuple[Diagnostic, ...]:
    """Return the errors that prevent an estimate."""
    problems = found.diagnostics if isinstance(found, NoAnswerError) else ()
    return tuple(problem for problem in problems if problem.is_error)


def _likeness(gpu: Gpu) -> tuple[int, str]:
    """Return a key that is equal for GPUs whose answers are the same except for the evidence."""
    return _tenths(capacity_of(gpu)), gpu.vendor


def _tenths(size: float) -> int:
    """Return bytes as tenths of a GiB, rounded like sizes from one GiB on in ``units.gib``."""
    return round(round(size / GIB, 1) * 10)
