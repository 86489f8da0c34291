"""The fewest GPUs for a model or a size class, and the models that fit on given GPUs."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from ..diagnostics import NoAnswerError, did_you_mean
from ..memory.registries import EstimatorContext, capacity_of
from ..memory.request import Verdict
from ..records import SIZES, WORDS, family
from ..registries import Gpu
from .answer import Answer, Answers
from .evidence import is_proof, runs_for, shape_key_of, smallest_run
from .question import USUAL_RANK, Question
from .results import FEWEST_FIELDS, figures_of_fewest
from .search import COUNTS, REASONS

#: The numbers of GPUs of a window, and how many of them it has at least.
POWERS, CELLS = tuple(2**power for power in range(11)), 4
#: GPUs of one size differ by less, unless the driver reserves a part: an L4 offers 22 of 24 GB.
_ALIKE = 0.04

# -- one question


def window_of(answers: Answers, gpu: str) -> tuple[int, int, list[Answer | NoAnswerError]]:
    """Return the answers around the fewest GPUs that fit, for powers of two.

    On all larger numbers it fits, too, and on all smaller ones it does not fit.

    Returns:
        The place in ``POWERS`` of the first answer, the most GPUs below all those on which it might fit, or
        one GPU; the place of the fewest on which it fits, the number of places if there is none; and the
        answers, or the reasons why there is none.
    """
    fits = bisect_left(POWERS, True, key=lambda count: verdict_on(answers, count, gpu) == "fits")
    fewer = [answers.attempt(count, gpu) for count in POWERS[:fits]]
    # One GPU shards nothing, so it may need less memory than two: every number counts.
    verdicts = [each.verdict if isinstance(each, Answer) else "does-not-fit" for each in fewer]
    first = max(0, len([*takewhile("does-not-fit".__eq__, verdicts)]) - 1)
    window = POWERS[first : max(first + CELLS, fits + 1)]
    return first, fits, [answers.attempt(count, gpu) for count in window]


def fitting_models(question: Question, data: EstimatorContext) -> tuple[Answer, ...]:
    """Return the answers for the models that fit or ran on the given GPUs, the largest first.

    Args:
        question: the question, without a model.
        data: the records.

    Raises:
        NoAnswerError: settings that determine memory are unknown.
    """
    models = sorted(data.architectures, key=lambda model: -(model.parameters or 0))
    every = (Answers(replace(question, model=model.hf_id), data) for model in models)
    answers = (one.attempt(question.gpus, question.gpu) for one in every)
    candidates = (_or_error(one) for one in answers if isinstance(one, Answer))
    return tuple(one for one in candidates if one.verdict == "fits" or one.proof)


def _or_error(answer: Answer) -> Answer:
    """Return an answer; raise ``NoAnswerError`` if settings that determine memory are unknown."""
    if unread := answer.best.estimate.undecided:
        text = f"settings that determine memory cannot be read: {'; '.join(unread)}"
        remedy = "write them in verl's keys, or leave them out"
        raise NoAnswerError.because(text, remedy, "impossible_settings")
    return answer


# -- by the memory of a GPU


@dataclass(frozen=True)
class Fewest:
    """The fewest GPUs of one memory size, as plain values. Estimates are for the first type of GPU.

    Attributes:
        memory_gb: the nominal memory of a GPU, in GB.
        types: the GPUs of this size and vendor with about the same capacity, the smallest first.
        count: the fewest GPUs that fit; 0 if no number in ``COUNTS`` does.
        without: the fewest GPUs that fit with nothing offloaded; 0 if no number does.
        near: the fewest GPUs below ``count`` on which it might fit; 0 if there are none.
        why: the reason why no number fits, to be translated.
        answer: the figures of the answer for this number, see ``results.figures_of_fewest``.
        support: ``unrecorded`` if no proven run trains the same parameters of this model, ``undercuts`` if
            all of them had more GPU memory in total, otherwise empty.
        ran: the relevant run on the fewest GPUs that ran or was reported, is tagged MIN or has the same task,
            and that nobody contests: its id, its GPUs, its word, and its task if it is another one.
    """

    memory_gb: float
    types: Sequence[str]
    count: int
    without: int
    near: int
    why: str
    answer: Mapping[str, Any]
    support: str
    ran: Mapping[str, str]

    @property
    def result(self) -> dict[str, Any]:
        """Plain values for programs; the fields of an answer are None if no number fits."""
        return {
            "memory_gb": self.memory_gb,
            "types": self.types,
            "gpus": {"count": self.count or None, "type": self.types[0]},
            "without_offloading": self.without or None,
            "borderline": self.near or None,
            "why_none": self.why or None,
            **{name: self.answer.get(name) for name in FEWEST_FIELDS},
            **{word: [self.ran["id"]] if self.ran.get("word") == word else [] for word in WORDS[:2]},
        }


#: A table for one memory size: size classes, for all parameters and for LoRA.
Table = list[tuple[str, Fewest, Fewest]]


def fewest_by_memory(
    question: Question, data: EstimatorContext, memories_gb: Collection[float] = ()
) -> list[Fewest]:
    """Return the fewest GPUs for a model, by the memory of a GPU.

    Args:
        question: the question, without GPUs.
        data: the records.
        memories_gb: the memory sizes to answer for; empty for all recorded ones.

    Raises:
        NoAnswerError: nothing can be estimated.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> from sphinx_verl_resources.fit.question import Question
    >>> sizes = fewest_by_memory(Question("Qwen/Qwen2.5-0.5B"), EstimatorContext())
    >>> {item.memory_gb: item.count for item in sizes}[80]
    1
    """
    kinds: defaultdict[tuple[Any, ...], list[Gpu]] = defaultdict(list)
    for gpu in sorted(data.gpus, key=capacity_of):
        if not memories_gb or gpu.memory_gb in memories_gb:
            kinds[gpu.memory_gb, gpu.vendor, gpu.bfloat16, gpu.fast_link].append(gpu)
    answers, fewest, least = Answers(question, data), list[Fewest](), 1
    for gpus in (alike for _, group in sorted(kinds.items(), reverse=True) for alike in _alike(group)):
        fewest.append(_fewest(answers, gpus, [count for count in COUNTS if count >= least]))
        # With less memory per GPU, the number cannot be smaller, unless the GPUs have faster links.
        least = fewest[-1].count if fewest[-1].count and gpus[0].fast_link else least
    return fewest[::-1]


def _alike(gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, ...]]:
    """Yield GPUs with the same nominal memory in groups of similar capacity, the largest first."""
    while gpus:
        least = (1 - _ALIKE) * capacity_of(gpus[-1])
        yield tuple(gpu for gpu in gpus if capacity_of(gpu) >= least)
        gpus = [gpu for gpu in gpus if capacity_of(gpu) < least]


def _fewest(answers: Answers, gpus: tuple[Gpu, ...], counts: Sequence[int]) -> Fewest:
    """Return the fewest GPUs among some numbers."""
    gpu, data = gpus[0].name, answers.data
    fewer = [*takewhile(lambda count: verdict_on(answers, count, gpu) != "fits", counts)]
    more = counts[len(fewer) :]
    might = [*takewhile(lambda count: verdict_on(answers, count, gpu) != "does-not-fit", reversed(fewer))]
    count, near = more[0] if more else 0, might[-1] if might else 0
    answer = _or_error(answers.on(count or near or counts[-1], gpu))
    task, smallest = answer.request.task, smallest_run(answer.profile, data)
    without = bisect_left(more, True, key=lambda count: answers.fits_without_offloading(count, gpu))
    on_all = answer.profile._replace(gpus=COUNTS[-1])
    runs = (run for run in runs_for(on_all, data) if is_proof(run, data))
    usual = (run for run in runs if run.tag == "MIN" or family(run.task).upper() == task)
    ran = min(usual, key=lambda run: run.gpus.count, default=None)
    other = family(ran.task) if ran and family(ran.task).upper() != task else ""
    return Fewest(
        gpus[0].memory_gb,
        [each.name for each in gpus],
        count,
        next(iter(more[without:]), 0),
        near,
        "" if count else REASONS[answer.reason][1],
        figures_of_fewest(answer) if count else {},
        "undercuts" if count and answer.undercuts else "" if smallest else "unrecorded",
        {"id": ran.id, "gpus": str(ran.gpus), "word": ran.word, "task": other} if ran else {},
    )


def verdict_on(answers: Answers, count: int, gpu: str | None) -> Verdict:
    """Return a verdict; without an estimate or enough host memory, this number of GPUs is too small."""
    answer = answers.attempt(count, gpu)
    return answer.verdict if isinstance(answer, Answer) and answer.reason != "host" else "does-not-fit"


# -- by size class


def size_models(data: EstimatorContext) -> dict[str, str]:
    """Return the model that represents each size class, in ascending order; some have none.

    This is the model of the analysis, unless tested runs of the size class load others; then it is the model
    that most of these runs load.
    """
    models: dict[str, str] = {}
    for size in SIZES:
        runs, entry = data.runs.values(), data.analysis.specifications.get(size)
        tested_models = Counter(run.model for run in runs if run.size == size and run.kind == "tested")
        shapes = {shape_key_of(data, model) for model in tested_models}
        if entry and entry.model and (not tested_models or shape_key_of(data, entry.model) in shapes):
            models[size] = entry.model
        elif tested_models:
            models[size] = tested_models.most_common(1)[0][0]
    return models


def fewest_tables(
    data: EstimatorContext, sizes: Sequence[str], by_memory: Callable[[str, int], Sequence[Fewest]]
) -> list[Table]:
    """Return a table for each memory size.

    The answer for a size class is that for its model, see ``size_models``.

    Args:
        data: the records.
        sizes: the size classes; empty for all with a model.
        by_memory: returns the fewest GPUs by memory for a model and a rank of adapters.

    Raises:
        NoAnswerError: a size class has no model, or nothing can be estimated for a model.
    """
    models, vendors = size_models(data), {gpu.name: gpu.vendor for gpu in data.gpus}
    for size in set(sizes).difference(models):
        hint = did_you_mean(size, models)
        raise NoAnswerError.because(f"no model represents {size!r}", hint, code="unknown_size")

    def fewest(size: str, rank: int) -> dict[Any, Fewest]:
        # Among GPUs of one size and vendor, the last have fast links and the largest capacity.
        return {(cell.memory_gb, vendors[cell.types[0]]): cell for cell in by_memory(models[size], rank)}

    rows = [(size, fewest(size, 0), fewest(size, USUAL_RANK)) for size in sizes or models]
    return [[(size, full[key], lora[key]) for size, full, lora in rows] for key in rows[0][1]]
