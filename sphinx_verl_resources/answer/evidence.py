"""Evidence: the recorded runs that bear on a question, and how each is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from ..catalog.models.run import Run
    from ..estimator.context import EstimatorContext
    from ..estimator.request import Request

Word = Literal["ran", "reported", "claimed"]
#: From the strongest to the weakest; what is computed is the fourth, "estimated".
WORDS: tuple[Word, ...] = get_args(Word)


@dataclass(frozen=True)
class Bearing:
    """A recorded run that bears on a question: whoever has these GPUs has what it needed.

    Attributes:
        run: the run.
        word: how it is known.
    """

    run: Run
    word: Word


def word_of(run: Run) -> Word:
    """Return how a run is known: it ran, its sources report it, or they claim it."""
    if run.kind == "tested":
        return "ran"
    if run.kind == "measured":
        logged = any(item.kind in ("log", "metrics") for item in run.evidence)
        return "ran" if logged else "reported"
    return "claimed"


def bearing_on(asked: Request, data: EstimatorContext) -> tuple[Bearing, ...]:
    """Return the runs that bear on a question, the strongest and nearest first.

    Such a run has the same model and trains the same parameters of it, on as many GPUs or fewer, each with as
    much memory or less, with responses as long or longer, and with a critic if the question has one.
    """
    found = (run for run in data.catalog.runs.values() if _bears(run, asked))
    return tuple(Bearing(run, word_of(run)) for run in found)


def _bears(run: Run, asked: Request) -> bool:
    return run.model == asked.model and run.gpus.type == asked.gpu and run.gpus.count <= (asked.gpus or 0)
