"""The question turned round: which models, on how few GPUs."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..catalog.names import SIZES
from ..diagnostics import NoAnswerError
from ..estimator.registries import capacity_of
from .answer import answer
from .evidence import bearing_on
from .layouts import COUNTS
from .question import request_of

if TYPE_CHECKING:
    from ..catalog.models.registries import Gpu
    from ..catalog.models.run import Run
    from ..estimator.context import EstimatorContext
    from .answer import Answer
    from .question import Question


@dataclass(frozen=True, eq=False)
class Fewest:
    """The fewest GPUs of one memory size.

    Attributes:
        gpus: those of this size and vendor, that with the least memory for programs first.
        found: the answer for the fewest of the first one; None where none of ``COUNTS`` fits.
        ran: of the runs that ran or were reported and bear on the question, the one on the fewest GPUs.
    """

    gpus: tuple[Gpu, ...]
    found: Answer | None
    ran: Run | None

    @property
    def memory_gb(self) -> float:
        """The memory of a GPU as it is sold, in GB."""
        return self.gpus[0].memory_gb


def fewest_by_memory(question: Question, data: EstimatorContext) -> tuple[Fewest, ...]:
    """Return the fewest GPUs for a model, by the memory of a GPU; its GPUs are left open.

    Raises:
        NoAnswerError: the model is not known.

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> from sphinx_verl_resources.answer.question import Question
    >>> found = fewest_by_memory(Question("Qwen/Qwen2.5-0.5B"), read_data([]))
    >>> {item.memory_gb: item.found.gpus for item in found if item.found}[80]
    1
    """
    data.registries.known_shape(question.model)
    sizes: defaultdict[tuple[float, str], list[Gpu]] = defaultdict(list)
    for gpu in data.registries.gpus:
        sizes[gpu.memory_gb, gpu.vendor].append(gpu)
    found: list[Fewest] = []
    least = 1
    # With less memory it takes as many or more.
    for _, group in sorted(sizes.items(), reverse=True):
        gpus = tuple(sorted(group, key=capacity_of))
        asked = replace(question, gpu=gpus[0].name)
        fewest = fewest_of(asked, data, least)
        least = fewest.gpus if fewest else COUNTS[-1]
        found.append(Fewest(gpus, fewest, _smallest_run(asked, data)))
    return tuple(reversed(found))


def fewest_of(question: Question, data: EstimatorContext, least: int = 1) -> Answer | None:
    """Return the answer for the fewest GPUs that fit, of those from ``least`` on; None where none does.

    Raises:
        NoAnswerError: the question leaves no estimate on any number.
    """
    error, is_answered = None, False
    for count in COUNTS:
        if count < least:
            continue
        try:
            found = answer(replace(question, gpus=count), data)
        except NoAnswerError as failed:
            error = failed
            continue
        is_answered = True
        if found.verdict == "fits":
            return found
    if error and not is_answered:
        raise error
    return None


def _smallest_run(question: Question, data: EstimatorContext) -> Run | None:
    bearing = bearing_on(request_of(replace(question, gpus=COUNTS[-1])), data)
    runs = (item.run for item in bearing if item.word != "claimed")
    return min(runs, key=lambda run: run.gpus.count, default=None)


def fitting_models(question: Question, data: EstimatorContext) -> tuple[Answer, ...]:
    """Return the answers for the models that fit on the GPUs, or ran on such, the largest first.

    Args:
        question: its model is left open.
        data: the records.
    """
    models = sorted(data.registries.architectures, key=lambda model: -(model.parameters or 0))
    found = []
    for model in models:
        try:
            answered = answer(replace(question, model=model.hf_id), data)
        except NoAnswerError:
            continue
        has_run = any(item.word != "claimed" for item in answered.evidence)
        if answered.verdict == "fits" or has_run:
            found.append(answered)
    return tuple(found)


def size_models(data: EstimatorContext) -> dict[str, str]:
    """Return the model that represents each size class, in ascending order; some have none.

    It is the model of the analysis, unless the tested runs of the size class load other ones; then it is the
    one that most of them load.
    """

    def parameters(model: str) -> float | None:
        shape = data.registries.shape(model)
        return shape.parameters if shape else None

    models: dict[str, str] = {}
    for size in SIZES:
        tested = (run for run in data.catalog.runs.values() if run.size == size and run.kind == "tested")
        loaded = Counter(run.model for run in tested)
        entry = data.analysis.specifications.get(size)
        stated = entry.model if entry else None
        if stated and (not loaded or parameters(stated) in map(parameters, loaded)):
            models[size] = stated
        elif loaded:
            models[size] = loaded.most_common(1)[0][0]
    return models
