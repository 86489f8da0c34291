"""The fewest GPUs by size class."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError, did_you_mean
from ..records import SIZES, family
from .evidence import figures_of
from .fewest import fewest_by_memory
from .question import OWN_KEYS, USUAL_RANK, Question, task_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ..memory.architectures import Architecture
    from ..memory.registries import EstimatorContext
    from ..records import Word
    from .fewest import Fewest


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


def used_models(data: EstimatorContext) -> tuple[str, ...]:
    """Return the models that verl's scripts or recorded runs load, the smallest first.

    Of several models with the same figures, only the one that most runs load is returned, in a tie the last
    one in the registry.
    """
    loaded = Counter(run.model for run in data.runs.values())

    def runs(model: Architecture) -> int:
        return sum(loaded[name] for name in {model.hf_id, *model.aliases, *model.aliases_unverified})

    models: dict[str, Architecture] = {}
    for model in data.architectures:
        figures = figures_of(data, model.hf_id)
        other = models.get(figures)
        if (model.script or runs(model)) and (other is None or runs(model) >= runs(other)):
            models[figures] = model
    return tuple(model.hf_id for model in sorted(models.values(), key=lambda model: model.parameters))


def _models_of(sizes: Collection[str], data: EstimatorContext) -> dict[str, str]:
    """Return the model of each given size class, or of all size classes if none is given.

    Raises:
        NoAnswerError: a size class has no model.
    """
    models = size_models(data)
    for size in sizes:
        if size not in models:
            hint = did_you_mean(size, models)
            raise NoAnswerError.because(f"no model represents {size!r}", hint, code="unknown_size")
    return {size: models[size] for size in sizes or models}


# -- the fewest GPUs by size class


@dataclass(frozen=True)
class FewestCell:
    """The fewest GPUs of one memory size for a size class, with full fine-tuning or LoRA.

    Attributes:
        count: the smallest number of GPUs on which the estimate fits; 0 if it fits on none of ``COUNTS``,
            None if the settings cannot be estimated.
        undercuts: see ``Trust``.
        run: the id of the run on the fewest GPUs that ran or was reported.
        word: its evidence word.
        on: its GPUs, such as ``8*H800``.
        task: its algorithm, if it differs from the table's.
    """

    count: int | None
    undercuts: bool = False
    run: str = ""
    word: Word | None = None
    on: str = ""
    task: str = ""


@dataclass(frozen=True)
class FewestTable:
    """The fewest GPUs of one memory size.

    Attributes:
        memory_gb: the nominal memory of a GPU.
        gpus: the names of the GPUs; the estimates are for the first, which has the smallest capacity.
        rows: size classes, each with the cells for full fine-tuning and for LoRA.
    """

    memory_gb: float
    gpus: tuple[str, ...]
    rows: tuple[tuple[str, FewestCell, FewestCell], ...]


def _check_memories(memories: Iterable[int], registries: EstimatorContext) -> None:
    """Reject a memory size in GB that no recorded GPU has."""
    recorded = sorted({gpu.memory_gb for gpu in registries.gpus})
    for memory in memories:
        if memory not in recorded:
            remedy = f"choose one of {', '.join(f'{each:g}' for each in recorded)}"
            raise NoAnswerError.because(f"no recorded GPU has {memory} GB", remedy, code="unknown_gpu")


def _full_task(task: str, config: Mapping[str, Any]) -> str:
    """Return the table's task; reject settings that its rows and columns decide."""
    name, rank = task_of(task)
    if rank:
        raise NoAnswerError.because("the table has columns for LoRA", f"write {name} instead of {task}")
    for key in sorted(OWN_KEYS & config.keys()):
        raise NoAnswerError.because("the table's rows and columns set this key", "remove it", key=key)
    return name


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
    _check_memories(memories, data)
    models, name = _models_of(sizes, data), _full_task(task, config)
    refused: list[NoAnswerError] = []

    def fewest(model: str, lora: int) -> tuple[Fewest, ...] | None:
        question = Question(model, task=name, lora=lora, overrides=config)
        try:
            return fewest_by_memory(question, data, memories)
        except NoAnswerError as error:
            refused.append(error)
            return None

    found = [(size, fewest(model, 0), fewest(model, USUAL_RANK)) for size, model in models.items()]
    groups = next((each for _, *both in found for each in both if each), None)
    if groups is None:
        raise refused[0]
    # Among GPUs of one size and vendor, take those with the largest capacity: the others are for inference.
    places = {(group.memory_gb, group.gpus[0].vendor): place for place, group in enumerate(groups)}
    return tuple(
        FewestTable(
            groups[place].memory_gb,
            tuple(gpu.name for gpu in groups[place].gpus),
            tuple((size, _cell(full, place, name), _cell(lora, place, name)) for size, full, lora in found),
        )
        for place in places.values()
    )


def _cell(found: tuple[Fewest, ...] | None, place: int, task: str) -> FewestCell:
    return fewest_cell(found[place], task) if found else FewestCell(None)


def fewest_cell(found: Fewest, task: str) -> FewestCell:
    """Return the summary of the fewest GPUs of one memory size for an algorithm."""
    best, run = found.found, found.ran
    cell = FewestCell(best.gpus, best.trust.undercuts) if best else FewestCell(0)
    if run is None:
        return cell
    own = family(run.task)
    other = own if own.upper() != task.upper() else ""
    return replace(cell, run=run.id, word=run.word, on=str(run.gpus), task=other)
