"""The fewest GPUs for a model or a size class, and the models that fit on given GPUs."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError, did_you_mean
from ..i18n import N_
from ..memory.registries import capacity_of
from ..memory.request import DEFAULT_TASK
from ..records import SIZES, family
from .answer import Answers, answer
from .evidence import is_proof
from .layouts import COUNTS
from .question import OWN_KEYS, USUAL_RANK, Question, task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ..memory.registries import EstimatorContext
    from ..memory.request import Verdict
    from ..records import Run
    from ..registries import Gpu
    from .answer import Answer
    from .layouts import Reason

#: The numbers of GPUs of a window, and how many of them a window has.
POWERS = tuple(2**power for power in range(11))
WINDOW = 5
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


def window_of(answers: Answers, gpu: str) -> tuple[Answer, ...]:
    """Return the answers on five powers of two, from the fewest GPUs on which the model fits or might.

    On any smaller power of two the verdict is ``does-not-fit``. If it is ``fits`` on one of the numbers, it
    is ``fits`` on all larger ones. The window is shorter if it would exceed 1,024 GPUs; it is empty if none
    fits. ``Answer.request.gpus`` is the number of each answer.

    Raises:
        NoAnswerError: nothing can be estimated for any number.
    """
    counts = range(len(POWERS))
    first = next(
        (place for place in counts if verdict_on(answers, POWERS[place], gpu) != "does-not-fit"), None
    )
    if first is None:
        answers.on(POWERS[-1], gpu)
        return ()
    return tuple(answers.on(count, gpu) for count in POWERS[first : first + WINDOW])


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
        if answered.verdict == "fits" or answered.proof:
            found.append(answered)
    return tuple(found)


# -- by the memory of a GPU


@dataclass(frozen=True, eq=False)
class Fewest:
    """The fewest GPUs of one memory size. Estimates are for the first type of GPU.

    Attributes:
        gpus: the GPUs of this size and vendor with about the same capacity, the smallest first.
        found: the answer for the fewest GPUs that fit; None if no number in ``COUNTS`` fits.
        count: their number; 0 if no number fits, None if nothing can be estimated.
        without: the fewest GPUs that fit with nothing offloaded; 0 if no number does.
        near: the fewest GPUs on which it might fit, if fewer than ``count``; 0 if there are none.
        why: the reason why no number fits, to be translated.
        undercuts: see ``Trust``.
        ran: the relevant run on the fewest GPUs that ran or was reported, is tagged MIN or has the same task,
            and that nobody contests.
        task: its algorithm, if it is another one.
        recorded: whether any run that trains the same parameters of this model ran or was reported.
    """

    gpus: tuple[Gpu, ...] = ()
    found: Answer | None = None
    count: int | None = None
    without: int = 0
    near: int = 0
    why: str = ""
    undercuts: bool = False
    ran: Run | None = None
    task: str = ""
    recorded: bool = True

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
    >>> from sphinx_verl_resources.fit.question import Question
    >>> found = fewest_by_memory(Question("Qwen/Qwen2.5-0.5B"), EstimatorContext())
    >>> {item.memory_gb: item.found.gpus for item in found if item.found}[80]
    1
    """
    data.known_shape(question.model)
    sizes: defaultdict[tuple[Any, ...], list[Gpu]] = defaultdict(list)
    for gpu in data.gpus:
        if not memories_gb or gpu.memory_gb in memories_gb:
            sizes[gpu.memory_gb, gpu.vendor, gpu.bfloat16, gpu.fast_link].append(gpu)
    answers, task = Answers(question, data), task_of(question.task or DEFAULT_TASK)[0]
    found: list[Fewest] = []
    least = 1
    for gpus in (alike for _, group in sorted(sizes.items(), reverse=True) for alike in _alike(group)):
        fewest = _fewest(answers, gpus, [count for count in COUNTS if count >= least], task, data)
        # With less memory per GPU, the number cannot be smaller, unless the GPUs have faster links.
        least = fewest.count if fewest.count and gpus[0].fast_link else least
        found.append(fewest)
    return tuple(reversed(found))


def _alike(gpus: Iterable[Gpu]) -> Iterator[tuple[Gpu, ...]]:
    """Yield GPUs with the same nominal memory in groups of similar capacity, the largest first."""
    left = sorted(gpus, key=capacity_of)
    while left:
        least = (1 - _ALIKE) * capacity_of(left[-1])
        yield tuple(gpu for gpu in left if capacity_of(gpu) >= least)
        left = [gpu for gpu in left if capacity_of(gpu) < least]


def _fewest(
    answers: Answers, gpus: tuple[Gpu, ...], counts: Sequence[int], task: str, data: EstimatorContext
) -> Fewest:
    """Return the fewest GPUs among some numbers."""
    gpu = gpus[0].name

    def first(counts: Sequence[int], holds: Callable[[int], bool]) -> int:
        """Return the smallest number for which a condition holds, 0 if there is none."""
        return next(iter(counts[bisect_left(counts, True, key=holds) :]), 0)

    count = first(counts, lambda count: verdict_on(answers, count, gpu) == "fits")
    fewer = [other for other in counts if other < count or not count]
    near = first(fewer, lambda count: verdict_on(answers, count, gpu) != "does-not-fit")
    more = [other for other in counts if 0 < count <= other]
    found = answers.on(count or near or counts[-1], gpu)
    runs = (run for run in answers.evidence(COUNTS[-1], gpu) if is_proof(run, data))
    usual = (run for run in runs if run.tag == "MIN" or family(run.task).upper() == task)
    ran = min(usual, key=lambda run: run.gpus.count, default=None)
    return Fewest(
        gpus,
        found=found if count else None,
        count=count,
        without=first(more, lambda count: answers.fits_without_offloading(count, gpu)),
        near=near,
        why="" if count else WHY[found.reason],
        undercuts=count > 0 and found.trust.undercuts,
        ran=ran,
        task=family(ran.task) if ran and family(ran.task).upper() != task else "",
        recorded=answers.smallest(gpu) is not None,
    )


def verdict_on(answers: Answers, count: int, gpu: str | None) -> Verdict:
    """Return a verdict; without an estimate or enough host memory, this number of GPUs is too small."""
    try:
        found = answers.on(count, gpu)
    except NoAnswerError:
        return "does-not-fit"
    return "does-not-fit" if found.reason == "host" else found.verdict


# -- by size class


def size_models(data: EstimatorContext) -> dict[str, str]:
    """Return the model that represents each size class, in ascending order; some have none.

    This is the model of the analysis, unless tested runs of the size class load others; then it is the model
    that most of these runs load.
    """

    def parameters(model: str) -> float | None:
        shape = data.shape(model)
        return shape.parameters if shape else None

    models: dict[str, str] = {}
    for size in SIZES:
        tested = (run for run in data.runs.values() if run.size == size and run.kind == "tested")
        loaded = Counter(run.model for run in tested)
        entry = data.analysis.specifications.get(size)
        stated = entry.model if entry else None
        if stated and (not loaded or parameters(stated) in map(parameters, loaded)):
            models[size] = stated
        elif loaded:
            models[size] = loaded.most_common(1)[0][0]
    return models


@dataclass(frozen=True)
class FewestTable:
    """The fewest GPUs of one memory size.

    Attributes:
        memory_gb: the nominal memory of a GPU.
        gpus: the names of the GPUs; the estimates are for the first, which has the smallest capacity.
        rows: size classes, each with the fewest GPUs for all parameters and for LoRA.
    """

    memory_gb: float
    gpus: tuple[str, ...]
    rows: tuple[tuple[str, Fewest, Fewest], ...]


def fewest_tables(
    data: EstimatorContext,
    *,
    memories: tuple[int, ...],
    task: str,
    sizes: tuple[str, ...],
    config: Mapping[str, Any],
) -> tuple[FewestTable, ...]:
    """Return a table for each memory size in GB.

    The answer for a size class is that for its model, see ``size_models``.

    Raises:
        NoAnswerError: no GPU has this much memory, a size class or the task is unknown, or the settings
            cannot be estimated for any model.
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
    refused: list[NoAnswerError] = []

    def fewest(model: str, lora: int) -> Mapping[Any, Fewest]:
        try:
            found = fewest_by_memory(Question(model, task=name, lora=lora, overrides=config), data, memories)
        except NoAnswerError as error:
            refused.append(error)
            return {}
        # Among GPUs of one size and vendor, the last have fast links and the largest capacity.
        return {(each.memory_gb, each.gpus[0].vendor): each for each in found}

    rows = [(size, fewest(models[size], 0), fewest(models[size], USUAL_RANK)) for size in sizes or models]
    groups = {key: each.gpus for _, *both in rows for found in both for key, each in found.items()}
    if not groups:
        raise refused[0]
    none = Fewest()
    return tuple(
        FewestTable(
            key[0],
            tuple(gpu.name for gpu in gpus),
            tuple((size, full.get(key, none), lora.get(key, none)) for size, full, lora in rows),
        )
        for key, gpus in groups.items()
    )
