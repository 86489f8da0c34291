"""The fewest GPUs for a model, and the models that fit on given GPUs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..diagnostics import NoAnswerError
from ..memory.registries import capacity_of
from .answer import Answers, answer
from .layouts import COUNTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ..memory.registries import EstimatorContext
    from ..records import Run
    from ..registries import Gpu
    from .answer import Answer
    from .question import Question


#: GPUs of one size differ by less, unless the driver reserves a part: an L4 offers 22 of 24 GB.
_ALIKE = 0.04


@dataclass(frozen=True, eq=False)
class Fewest:
    """The fewest GPUs of one memory size.

    Attributes:
        gpus: the GPUs of this size and vendor with about the same capacity, the smallest first.
        found: the answer for the fewest GPUs of the first type; None if no number in ``COUNTS`` fits.
        ran: the relevant run on the fewest GPUs that ran or was reported.
    """

    gpus: tuple[Gpu, ...]
    found: Answer | None
    ran: Run | None

    @property
    def memory_gb(self) -> float:
        """The nominal memory of a GPU, in GB."""
        return self.gpus[0].memory_gb


def fewest_by_memory(
    question: Question, data: EstimatorContext, memories_gb: Collection[float] = ()
) -> tuple[Fewest, ...]:
    """Return the fewest GPUs for a model, by the memory of a GPU.

    Args:
        question: the question, without GPUs.
        data: the records.
        memories_gb: the memory sizes to answer for; empty for all recorded ones.

    Raises:
        NoAnswerError: the model is unknown.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> from sphinx_verl_resources.answer.question import Question
    >>> found = fewest_by_memory(Question("Qwen/Qwen2.5-0.5B"), EstimatorContext())
    >>> {item.memory_gb: item.found.gpus for item in found if item.found}[80]
    1
    """
    data.known_shape(question.model)
    sizes: defaultdict[tuple[float, str], list[Gpu]] = defaultdict(list)
    for gpu in data.gpus:
        if not memories_gb or gpu.memory_gb in memories_gb:
            sizes[gpu.memory_gb, gpu.vendor].append(gpu)
    answers = Answers(question, data)
    found: list[Fewest] = []
    least = 1
    # With less memory per GPU, the number cannot be smaller.
    for gpus in (alike for _, group in sorted(sizes.items(), reverse=True) for alike in _alike(group)):
        fewest = fewest_of(answers, gpus[0].name, least)
        least = fewest.gpus if fewest else COUNTS[-1]
        runs = (run for run in answers.evidence(COUNTS[-1], gpus[0].name) if run.word != "claimed")
        found.append(Fewest(gpus, fewest, min(runs, key=lambda run: run.gpus.count, default=None)))
    return tuple(reversed(found))


def _alike(gpus: Iterable[Gpu]) -> Iterator[tuple[Gpu, ...]]:
    """Yield GPUs with the same nominal memory in groups of similar capacity, the largest first."""
    left = sorted(gpus, key=capacity_of)
    while left:
        least = (1 - _ALIKE) * capacity_of(left[-1])
        yield tuple(gpu for gpu in left if capacity_of(gpu) >= least)
        left = [gpu for gpu in left if capacity_of(gpu) < least]


def fewest_of(answers: Answers, gpu: str | None, least: int = 1) -> Answer | None:
    """Return the answer for the fewest GPUs that fit, from ``least`` on; None if no number fits.

    Raises:
        NoAnswerError: nothing can be estimated for any number.
    """
    error, is_answered = None, False
    for count in COUNTS:
        if count < least:
            continue
        try:
            found = answers.on(count, gpu)
        except NoAnswerError as failed:
            error = failed
            continue
        is_answered = True
        if found.verdict == "fits":
            return found
    if error and not is_answered:
        raise error
    return None


def fitting_models(question: Question, data: EstimatorContext) -> tuple[Answer, ...]:
    """Return the answers for the models that fit or ran on the given GPUs, the largest first.

    Args:
        question: the question, without a model.
        data: the records.
    """
    models = sorted(data.architectures, key=lambda model: -(model.parameters or 0))
    found = []
    for model in models:
        try:
            answered = answer(replace(question, model=model.hf_id), data)
        except NoAnswerError:
            continue
        has_run = any(run.word != "claimed" for run in answered.evidence)
        if answered.verdict == "fits" or has_run:
            found.append(answered)
    return tuple(found)
