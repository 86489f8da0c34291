"""The fewest GPUs for a model or a size class, and the models that fit on given GPUs."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError, did_you_mean
from ..i18n import N_
from ..memory.registries import capacity_of
from ..memory.request import DEFAULT_TASK
from ..records import SIZES, WORDS, family
from .answer import Answer, Answers
from .evidence import figures_of, is_proof, runs_for, smallest_run
from .layouts import COUNTS
from .question import OWN_KEYS, USUAL_RANK, Question, task_of
from .results import FEWEST_FIELDS, figures_of_fewest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ..memory.registries import EstimatorContext
    from ..memory.request import Verdict
    from ..registries import Gpu
    from .layouts import Reason

#: The numbers of GPUs of a window, and how many of them it has at least.
POWERS = tuple(2**power for power in range(11))
CELLS = 4
#: GPUs of one size differ by less, unless the driver reserves a part: an L4 offers 22 of 24 GB.
_ALIKE = 0.04
#: Why a model fits on no number of GPUs.
WHY: Mapping[Reason, str] = {
    "too-large": N_("too little GPU memory"),
    "borderline": N_("borderline"),
    "lengths": N_("only short responses fit"),
    "engine": N_("no room for the KV cache"),
    "host": N_("too little host memory"),
    "no-bfloat16": N_("no bfloat16"),
    "ran": N_("borderline"),
    "unknown": N_("unknown settings"),
}


# -- one question


def fewest_of(answers: Answers, gpu: str | None) -> Answer | None:
    """Return the answer for the fewest GPUs that fit; None if no number in ``COUNTS`` fits.

    Raises:
        NoAnswerError: nothing can be estimated.
    """
    count = next((count for count in COUNTS if verdict_on(answers, count, gpu) == "fits"), COUNTS[-1])
    found = answers.on(count, gpu)
    return found if found.verdict == "fits" else None


def window_of(answers: Answers, gpu: str) -> tuple[int, int, list[Answer | NoAnswerError]]:
    """Return the answers around the fewest GPUs that fit, for powers of two.

    On all larger numbers it fits, too.

    Returns:
        The place in ``POWERS`` of the first answer, which is the most GPUs on which it does not fit, or one
        GPU; the place of the fewest on which it fits, the number of places if there is none; and the answers,
        or the reasons why there is none.
    """
    fits = bisect_left(POWERS, True, key=lambda count: verdict_on(answers, count, gpu) == "fits")
    first = fits
    while first and (first == fits or verdict_on(answers, POWERS[first], gpu) != "does-not-fit"):
        first -= 1
    last = max(first + CELLS, fits + 1) if fits < len(POWERS) else first + CELLS
    return first, fits, [answers.attempt(count, gpu) for count in POWERS[first:last]]


def fitting_models(question: Question, data: EstimatorContext) -> tuple[Answer, ...]:
    """Return the answers for the models that fit or ran on the given GPUs, the largest first.

    Args:
        question: the question, without a model.
        data: the records.
    """
    models = sorted(data.architectures, key=lambda model: -(model.parameters or 0))
    every = (Answers(replace(question, model=model.hf_id), data) for model in models)
    answers = (one.attempt(question.gpus, question.gpu) for one in every)
    return tuple(one for one in answers if isinstance(one, Answer) and (one.verdict == "fits" or one.proof))


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
        undercuts: see ``Trust``.
        recorded: whether any run that trains the same parameters of this model ran or was reported.
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
    undercuts: bool
    recorded: bool
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
) -> tuple[Fewest, ...]:
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
    sizes: defaultdict[tuple[Any, ...], list[Gpu]] = defaultdict(list)
    for gpu in sorted(data.gpus, key=capacity_of):
        if not memories_gb or gpu.memory_gb in memories_gb:
            sizes[gpu.memory_gb, gpu.vendor, gpu.bfloat16, gpu.fast_link].append(gpu)
    answers, task = Answers(question, data), task_of(question.task or DEFAULT_TASK)[0]
    fewest: list[Fewest] = []
    least = 1
    for gpus in (alike for _, group in sorted(sizes.items(), reverse=True) for alike in _alike(group)):
        fewest.append(_fewest(answers, gpus, [count for count in COUNTS if count >= least], task, data))
        # With less memory per GPU, the number cannot be smaller, unless the GPUs have faster links.
        least = fewest[-1].count if fewest[-1].count and gpus[0].fast_link else least
    return tuple(reversed(fewest))


def _alike(gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, ...]]:
    """Yield GPUs with the same nominal memory in groups of similar capacity, the largest first."""
    while gpus:
        least = (1 - _ALIKE) * capacity_of(gpus[-1])
        yield tuple(gpu for gpu in gpus if capacity_of(gpu) >= least)
        gpus = [gpu for gpu in gpus if capacity_of(gpu) < least]


def _fewest(
    answers: Answers, gpus: tuple[Gpu, ...], counts: Sequence[int], task: str, data: EstimatorContext
) -> Fewest:
    """Return the fewest GPUs among some numbers."""
    gpu = gpus[0].name
    fitting = (at for at, count in enumerate(counts) if verdict_on(answers, count, gpu) == "fits")
    place = next(fitting, len(counts))
    fewer, more = counts[:place], counts[place:]
    might = [*takewhile(lambda count: verdict_on(answers, count, gpu) != "does-not-fit", reversed(fewer))]
    count, near = next(iter(more), 0), might[-1] if might else 0
    answer = answers.on(count or near or counts[-1], gpu)
    without = bisect_left(more, True, key=lambda count: answers.fits_without_offloading(count, gpu))
    runs = (run for run in runs_for(answers.needs_on(COUNTS[-1], gpu), data) if is_proof(run, data))
    usual = (run for run in runs if run.tag == "MIN" or family(run.task).upper() == task)
    ran = min(usual, key=lambda run: run.gpus.count, default=None)
    other = family(ran.task) if ran and family(ran.task).upper() != task else ""
    return Fewest(
        gpus[0].memory_gb,
        [each.name for each in gpus],
        count,
        next(iter(more[without:]), 0),
        near,
        "" if count else WHY[answer.reason],
        figures_of_fewest(answer) if count else {},
        count > 0 and answer.trust.undercuts,
        smallest_run(answers.needs_on(None, gpu), data) is not None,
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
        tested = Counter(run.model for run in runs if run.size == size and run.kind == "tested")
        figures = {figures_of(data, model) for model in tested}
        if entry and entry.model and (not tested or figures_of(data, entry.model) in figures):
            models[size] = entry.model
        elif tested:
            models[size] = tested.most_common(1)[0][0]
    return models


def fewest_tables(
    data: EstimatorContext,
    *,
    memories: tuple[int, ...],
    task: str,
    sizes: tuple[str, ...],
    config: Mapping[str, Any],
    by_memory: Callable[[Question], Sequence[Fewest]] | None = None,
) -> list[Table]:
    """Return a table for each memory size in GB.

    The answer for a size class is that for its model, see ``size_models``.

    Args:
        data: the records.
        memories: the memory sizes.
        task: the task, without LoRA.
        sizes: the size classes; empty for all with a model.
        config: settings for all estimates.
        by_memory: returns what ``fewest_by_memory`` does for a question and these memory sizes.

    Raises:
        NoAnswerError: no GPU has this much memory, a size class or the task is unknown, or the settings
            cannot be estimated for a model.
    """
    models, memory_sizes = size_models(data), sorted({gpu.memory_gb for gpu in data.gpus})
    for memory in set(memories).difference(memory_sizes):
        remedy = f"choose one of {', '.join(f'{each:g}' for each in memory_sizes)}"
        raise NoAnswerError.because(f"no recorded GPU has {memory} GB", remedy, code="unknown_gpu")
    for size in set(sizes).difference(models):
        hint = did_you_mean(size, models)
        raise NoAnswerError.because(f"no model represents {size!r}", hint, code="unknown_size")
    name, rank = task_of(task)
    if rank:
        raise NoAnswerError.because("the table has columns for LoRA", f"write {name} instead of {task}")
    for key in sorted(OWN_KEYS & config.keys()):
        raise NoAnswerError.because("the table's rows and columns set this key", "remove it", key=key)

    vendors = {gpu.name: gpu.vendor for gpu in data.gpus}

    def fewest(size: str, lora: int) -> dict[Any, Fewest]:
        question = Question(models[size], task=name, lora=lora, overrides=config)
        cells = by_memory(question) if by_memory else fewest_by_memory(question, data, memories)
        # Among GPUs of one size and vendor, the last have fast links and the largest capacity.
        return {(cell.memory_gb, vendors[cell.types[0]]): cell for cell in cells}

    rows = [(size, fewest(size, 0), fewest(size, USUAL_RANK)) for size in sizes or models]
    return [[(size, full[key], lora[key]) for size, full, lora in rows] for key in rows[0][1]]
