"""The speed of recorded runs: the fastest ones, the nearest to a question, and how old evidence is."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ..i18n import N_, _, plural
from ..memory.estimate import Estimate
from ..memory.recorded import version_of_run
from ..memory.registries import EstimatorContext
from ..memory.request import ROLLOUT
from ..memory.roles import LIMITS
from ..memory.settings import TRAINER_MODE
from ..memory.versions import CURRENT, RELEASES, version_of, version_text
from ..nodes import listed
from ..records import ADAPTER_RANKS, TRAINERS, Measured, Run, size_class
from .steps import LEAST

_BATCH = ("data.train_batch_size", f"{ROLLOUT}.n")
#: The mode of the trainer in the name of a task, and what is then left over.
_MODES, _LEFT = re.compile("fully async|separate async|one step off"), re.compile(r" \(\)|, (?=\))")
#: Evidence is old if more releases than these have followed.
_RECENT = 4


class Setup(NamedTuple):
    """The set-up of a run, which decides its speed. A field is None if its source does not state it.

    Attributes:
        model: the checkpoint.
        task: the algorithm with its variant.
        rank: the rank of the adapters; 0 without any.
        gpu: the name of the GPU in the registry.
        gpus: the number of all GPUs.
        prompt: the longest prompt, in tokens.
        response: the longest response, in tokens.
        sequences: the prompts of a step times the responses to each.
        backend: the training backend.
        engine: the rollout engine.
        trainer: the mode of the trainer.
    """

    model: str
    task: str
    rank: int | None
    gpu: str | None
    gpus: int | None
    prompt: int | None
    response: int | None
    sequences: int | None
    backend: str | None
    engine: str | None
    trainer: str

    def differs(self, other: Setup) -> tuple[str, ...]:
        """Return the names of the fields that both state and that differ."""
        pairs = zip(self._fields, self, other, strict=True)
        return tuple(name for name, own, its in pairs if None not in (own, its) and own != its)

    @property
    def unstated(self) -> tuple[str, ...]:
        """The names of the fields that are not known."""
        return tuple(name for name, own in self._asdict().items() if own is None)


#: The fields of ``Setup`` in words.
_WORDS = {
    "model": N_("model"), "task": N_("task"), "rank": N_("LoRA rank"), "gpu": N_("GPU"),
    "gpus": N_("number of GPUs"), "prompt": N_("longest prompt"), "response": N_("longest response"),
    "sequences": N_("sequences a step"), "backend": N_("backend"), "engine": N_("rollout engine"),
    "trainer": N_("trainer"),
}  # fmt: skip


def _setup(settings: Mapping[str, Any], task: str, rank: int | None, **others: Any) -> Setup:
    """Return a set-up whose lengths and batch are those of settings."""
    prompt, response = map(settings.get, LIMITS)
    prompts, each = map(settings.get, _BATCH)
    sequences = prompts * each if type(prompts) is type(each) is int else None
    task = _LEFT.sub("", _MODES.sub("", task.replace("-LoRA", "")))
    return Setup(task=task, rank=rank, prompt=prompt, response=response, sequences=sequences, **others)


class Timed(NamedTuple):
    """A run with a time or a speed.

    Attributes:
        run: the run.
        measured: its figures.
        parameters: those of its model.
        has_experts: whether its model has experts.
        setup: what decided its speed.
    """

    run: Run
    measured: Measured
    parameters: int
    has_experts: bool
    setup: Setup

    @property
    def speed(self) -> float:
        """Tokens per second and GPU; 0 if they were not counted, or over fewer than ten steps."""
        is_weak = self.measured.steps is not None and self.measured.steps < LEAST
        return 0 if is_weak else self.measured.tokens_per_second_per_gpu or 0

    def distance(self, setup: Setup, parameters: int) -> tuple[float, ...]:
        """Return how far it is from a question about a model with a number of parameters.

        One step tells least. Then come the model, what is trained, whether it has a speed, and sizes; of
        runs that are equally far, the fastest is the nearest.
        """
        own, differs = self.setup, self.setup.differs(setup)
        counts = (self.parameters, parameters), (own.gpus, setup.gpus), (own.response, setup.response)
        size, *others = (abs(math.log(its / of)) if its and of else math.inf for its, of in counts)
        is_far = bool(differs or own.unstated) and not self.speed
        same = ("rank" in differs, "task" in differs, is_far, "gpu" in differs)
        return self.measured.steps == 1, size, *same, *others, len(differs), len(own.unstated), -self.speed


@lru_cache(maxsize=8)
def timed_runs(data: EstimatorContext) -> tuple[Timed, ...]:
    """Return the runs on known GPUs with a time or a speed, the smallest model first."""
    timed = []
    for run in data.runs.values():
        gpu, shape, measured = data.gpu_of(run), data.shape(run.model), run.measured
        if gpu and shape and measured and (measured.tokens_per_second_per_gpu or measured.step_seconds):
            rank = max((run.settings.get(key) or 0 for key in ADAPTER_RANKS), default=0)
            setup = _setup(
                run.settings, run.task, rank or (None if run.trains_adapters else 0), model=run.model,
                gpu=gpu.name, gpus=run.gpus.count, backend=run.train,
                engine=run.infer.engine if run.infer else None, trainer=run.trainer,
            )  # fmt: skip
            timed.append(Timed(run, measured, shape.parameters, bool(shape.architecture.moe), setup))
    return tuple(sorted(timed, key=lambda each: (each.parameters, each.setup.gpu, each.run.id)))


def speeds_of_size(model: str, data: EstimatorContext) -> list[Timed]:
    """Return the runs with a speed that may be the nearest to a question about a model."""
    shape = data.shape(model)
    size = shape and size_class(shape.parameters)
    return [each for each in timed_runs(data) if each.run.size == size]


def fastest_runs(data: EstimatorContext) -> list[Run]:
    """Return the run with the highest speed of each model, task, GPU, trainer and kind of training."""
    best: dict[tuple[object, ...], Timed] = {}
    for each in timed_runs(data):
        setup = each.setup
        key = setup.model, setup.task, setup.gpu, setup.trainer, setup.rank == 0
        if each.speed > (best[key].speed if key in best else 0):
            best[key] = each
    return [each.run for each in best.values()]


# -- the nearest run


class Nearest(NamedTuple):
    """The recorded run whose speed is nearest to a question.

    Attributes:
        timed: the run.
        differs: in what it differs, in English.
        unstated: what its source does not state.
    """

    timed: Timed
    differs: tuple[str, ...]
    unstated: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The speed of the run and the differences in words; ``{runs}`` is replaced by its name."""
        run, measured, *_others = self.timed
        is_short = (measured.steps or LEAST) < LEAST
        about = {
            "{count}": run.train,
            N_("responses of {count} tokens on average"): measured.response_tokens,
            N_("over {count} steps only"): is_short and measured.steps != 1 and measured.steps,
            N_("one step only"): measured.steps == 1,
            N_("its tokens not counted"): not measured.tokens_per_second_per_gpu,
        }
        figures = [_phrases({N_("made {count} tokens/s per GPU"): measured.tokens_per_second_per_gpu})]
        if seconds := measured.step_seconds:
            hours, text = (
                _number(seconds * run.gpus.count / 3600),
                _("took {count} s and {hours} GPU-hours a step"),
            )
            figures.append(text.format(count=_number(seconds), hours=hours))
        text = _("The nearest run, {runs} ({about}), {figures}.")
        text = text.format(runs="{runs}", about=_phrases(about), figures=listed(filter(None, figures)))
        notes = {_("It differs in: {names}."): self.differs, _("Not stated: {names}."): self.unstated}
        more = (note.format(names=listed(map(_, names))) for note, names in notes.items() if names)
        return " ".join([text, *more])


def _phrases(counts: Mapping[str, Any]) -> str:
    """Return phrases with their counts, without those whose count is zero or unknown."""
    return listed(_(text).format(count=_number(count)) for text, count in counts.items() if count)


def _number(count: Any) -> str:
    """Return a number with two digits or more; other values as they are."""
    if isinstance(count, (str, bool)):
        return str(count)
    return f"{count:,.0f}" if count >= 10 else f"{count:.2g}"


def nearest(
    own: Estimate,
    task: str,
    gpus: int | None,
    group: Iterable[str],
    data: EstimatorContext,
    *,
    any_backend: bool,
) -> Nearest | None:
    """Return the run with a speed that is nearest to a question; None if there is none of its kind.

    It has one of the GPUs in question; a trainer that is asynchronous if the question's is; and the model, or
    one of the same size class that has experts if the model has.

    Args:
        own: the estimate for the question.
        task: the algorithm.
        gpus: the number of all GPUs.
        group: the names of the GPUs in question, the first one that of the estimate.
        data: the records.
        any_backend: whether the question leaves the backend open; runs with another one are then as near.
    """
    settings, has_experts, (first, *others) = own.settings, bool(own.shape.architecture.moe), group
    config, defaults = own.request.config, data.defaults(own.request.version)
    mode = config.get(TRAINER_MODE) if config.get(TRAINER_MODE) in TRAINERS else "sync"
    setup = _setup(
        {key: config.get(key, defaults[key]) for key in (*LIMITS, *_BATCH)}, task, settings.actor.lora_rank,
        model=own.request.model, gpu=first, gpus=gpus, backend=settings.actor.backend,
        engine=settings.rollout.engine, trainer="separate_async" if settings.rollout.separate else mode,
    )  # fmt: skip
    candidates = []
    for each in speeds_of_size(own.request.model, data):
        is_like = (each.setup.trainer == "sync") == (setup.trainer == "sync")
        if is_like and each.has_experts == has_experts and each.setup.gpu in (first, *others):
            candidates.append(each)
    target = setup._replace(backend=None) if any_backend else setup
    best = min(candidates, key=lambda each: each.distance(target, own.shape.parameters), default=None)
    words = _WORDS.__getitem__
    return best and Nearest(
        best, tuple(map(words, best.setup.differs(setup))), tuple(map(words, best.setup.unstated))
    )


# -- age


def is_old(run: Run) -> bool:
    """Return whether more than four releases have followed that of a run's evidence."""
    return _newer(run) > _RECENT


def checked_text(run: Run) -> str:
    """Return when a run was last checked, with the release and how many have followed; empty if unknown."""
    if not run.checked:
        return ""
    text, newer = _("{date}, when verl {version} was the newest"), _newer(run)
    if run.versions and version_of(run.versions.verl):
        text = _("{date}, verl {version}")
    if newer:
        more = plural("one release has followed", "{count} releases have followed", newer)
        text = f"{text}; {more}"
    return text.format(date=run.checked, version=version_text(version_of_run(run)), count=newer)


def _newer(run: Run) -> int:
    return sum(version_of_run(run) < version <= CURRENT for _day, version in RELEASES)
