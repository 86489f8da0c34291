"""Evidence: the recorded runs relevant to a question, and the measured runs behind an estimate."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ..diagnostics import NoAnswerError
from ..memory.estimate import estimate
from ..memory.reader import Reader
from ..memory.recorded import request_of_run
from ..memory.request import ACTOR, MODEL, ROLLOUT
from ..memory.roles import LIMITS, has_critic
from ..memory.settings import element_bytes, gpu_of, training_gpus
from ..records import ADAPTER_RANKS, WORDS, family

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..memory.estimate import Estimate
    from ..memory.registries import EstimatorContext
    from ..memory.request import Request
    from ..records import Run
    from ..registries import Gpu
    from .layouts import Layout

#: Fields of an architecture that do not affect memory.
_NOT_FIGURES = {
    "name", "hf_id", "model_type", "aliases", "aliases_unverified", "max_position_embeddings",
    "max_position_embeddings_of_aliases", "published", "config_source", "script", "verified", "notes",
}  # fmt: skip
#: The vendor assumed for GPUs that are given by their memory alone, as in verl's documents.
_USUAL_VENDOR = "nvidia"
#: The settings that decide which runs are relevant to a question.
_DECISIVE = frozenset((*LIMITS, *ADAPTER_RANKS, f"{MODEL}.path", "algorithm.adv_estimator", "critic.enable"))


@dataclass(frozen=True)
class Needs:
    """The needs of a run or a question, which decide whether a run is relevant to a question.

    Attributes:
        figures: the figures of the architecture, as text; checkpoints with the same shape have the same text.
        rank: the rank of the adapters; 0 trains all parameters, None if unknown.
        critic: whether there is a critic.
        separate: whether rollout has separate GPUs.
        eight_bit: whether the rollout engine's weights take one byte each.
        response: the longest response, in tokens.
        sequence: the longest prompt and response, in tokens.
        gpus: the number of GPUs.
        memory_gb: the nominal memory of a GPU, in GB; None if unknown.
        vendor: the vendor of the GPUs.
        gpu: the name of the GPU in the registry; None if not given.
        model: the checkpoint; ``task`` is the first word of the algorithm's name.
    """

    figures: str
    rank: int | None
    critic: bool
    separate: bool
    eight_bit: bool
    response: int
    sequence: int
    gpus: int
    memory_gb: float | None
    vendor: str
    gpu: str | None
    model: str
    task: str

    @property
    def total_gb(self) -> float:
        """The nominal memory of all GPUs together, in GB."""
        return self.gpus * (self.memory_gb or 0)

    def on(self, gpus: int | None, gpu: Gpu | None) -> Needs:
        """Return the needs with other GPUs; None keeps the current value."""
        found = self if gpus is None else replace(self, gpus=gpus)
        if gpu is None:
            return found
        return replace(found, memory_gb=gpu.memory_gb, vendor=gpu.vendor, gpu=gpu.name)

    def is_like(self, asked: Needs) -> bool:
        """Return whether a run trains the same parameters of the same model and needs at least as much."""
        return (
            self.figures == asked.figures
            and _trains_as_much(self.rank, asked.rank)
            and self.separate == asked.separate
            and self.critic >= asked.critic
            and self.eight_bit <= asked.eight_bit
            and self.vendor == asked.vendor
            and bool(self.memory_gb)
        )

    def bears_on(self, asked: Needs) -> bool:
        """Return whether a run is relevant: it shows that the GPUs in question suffice."""
        return (
            self.is_like(asked)
            and self.gpus <= asked.gpus
            and (self.memory_gb or 0) <= (asked.memory_gb or 0)
            and self.response >= asked.response
            and self.sequence >= asked.sequence
        )

    def distance_from(self, asked: Needs) -> tuple[float, ...]:
        """Return the sort key of a run; the nearest run has the smallest."""
        same_gpu = self.gpu is not None and self.gpu == asked.gpu
        return (
            not same_gpu,
            (asked.memory_gb or 0) - (self.memory_gb or 0),
            self.model != asked.model,
            asked.gpus - self.gpus,
            self.task != asked.task,
            self.response - asked.response,
        )


def runs_for(needs: Needs | None, data: EstimatorContext) -> tuple[Run, ...]:
    """Return the runs relevant to a question, the strongest and nearest first.

    Such a run trains the same parameters of the same model, on at most as many GPUs with at most as much
    memory, and with at least as long sequences. If the question has a critic, so does the run.
    """
    if needs is None:
        return ()
    found = [(run, own) for run, own in runs_of_model(needs, data) if own.bears_on(needs)]
    found.sort(key=lambda pair: (WORDS.index(pair[0].word), pair[1].distance_from(needs), pair[0].id))
    return tuple(run for run, _ in found)


def takes_no_more(found: Estimate, evidence: Iterable[Run], data: EstimatorContext) -> bool:
    """Return whether an estimate's peak is at most that of a relevant run that ran or was reported.

    Such a run shows that the settings fit, even if the estimates are inaccurate.
    """
    for run in evidence:
        if run.word == "claimed" or not run.settings:
            continue
        try:
            of_run = estimate(request_of_run(run, data), data)
        except NoAnswerError:
            continue
        if found.peak <= of_run.peak:
            return True
    return False


def needs_of(request: Request, data: EstimatorContext) -> Needs | None:
    """Return the needs of a request; None if a setting that decides them is unknown."""
    reader = Reader(request, data)
    prompt, response = map(reader.whole, LIMITS)
    ranks = [reader.whole(key, least=0) for key in ADAPTER_RANKS]
    gpu, task = gpu_of(request, data), (request.task or "").lower()
    element = element_bytes(reader, f"{ROLLOUT}.dtype", f"{ROLLOUT}.quantization")
    found = Needs(
        figures=figures_of(data, request.model),
        rank=max(ranks) or (None if "lora" in task else 0),
        critic=has_critic(reader),
        separate=reader.has_rollout_pool or reader.any("trainer.v1.trainer_mode") == "separate_async",
        eight_bit=element < 2 or "fp8" in task,
        response=response,
        sequence=prompt + response,
        gpus=request.gpus or training_gpus(reader)[0],
        memory_gb=gpu.memory_gb if gpu else request.memory_gb,
        vendor=gpu.vendor if gpu else _USUAL_VENDOR,
        gpu=gpu.name if gpu else None,
        model=request.model,
        task=_task_of(reader),
    )
    unresolved = any(problem.code == "unresolved" for problem in reader.diagnostics)
    return None if unresolved or request.unread & _DECISIVE or not found.figures else found


@lru_cache(maxsize=2_000)
def needs_of_runs(data: EstimatorContext) -> tuple[tuple[Run, Needs], ...]:
    """Return every recorded run with its needs."""
    found = ((run, _needs_of_run(run, data)) for run in data.runs.values())
    return tuple((run, needs) for run, needs in found if needs)


def runs_of_model(needs: Needs, data: EstimatorContext) -> Sequence[tuple[Run, Needs]]:
    """Return the recorded runs of a model and of others with the same figures."""
    return _runs_by_figures(data).get(needs.figures, ())


@lru_cache(maxsize=2_000)
def _runs_by_figures(data: EstimatorContext) -> Mapping[str, Sequence[tuple[Run, Needs]]]:
    found: defaultdict[str, list[tuple[Run, Needs]]] = defaultdict(list)
    for run, needs in needs_of_runs(data):
        found[needs.figures].append((run, needs))
    return found


def _needs_of_run(run: Run, data: EstimatorContext) -> Needs | None:
    """Return the needs of a run; settings missing in its source have verl's defaults."""
    needs = needs_of(request_of_run(run, data), data)
    if needs is None:
        return None
    # A mean response is shorter than the longest one.
    longer = max(0, int(run.measured.response_tokens or 0) - needs.response) if run.measured else 0
    return replace(needs, response=needs.response + longer, sequence=needs.sequence + longer)


@lru_cache(maxsize=2_000)
def figures_of(data: EstimatorContext, model: str) -> str:
    """Return the figures of a model as text; empty for an unknown model."""
    shape = data.shape(model)
    return shape.architecture.model_dump_json(exclude=_NOT_FIGURES) if shape else ""


def _task_of(reader: Reader) -> str:
    """Return the first word of an algorithm's name: ``GRPO`` for GRPO-LoRA."""
    if task := reader.request.task:
        return family(task).upper()
    if has_critic(reader):
        return "PPO"
    return "GRPO" if reader.flag(f"{ACTOR}.use_kl_loss") else "DAPO"


def _trains_as_much(rank: int | None, asked: int | None) -> bool:
    """Return whether a run's adapters have at least the rank in question; 0 trains all parameters."""
    if asked == 0 or rank == 0:
        return rank == asked
    return rank is None or asked is None or rank >= asked


@dataclass(frozen=True)
class Trust:
    """The measured and recorded runs behind an estimate.

    Attributes:
        measured_runs: the number of measured runs of the same kind, see ``kind_of``.
        mean_error: the estimator's mean error for them, as a fraction; None without measured runs.
        smallest: the run of this model that ran or was reported with the least total GPU memory; None if
            there is none.
        undercuts: whether the estimate fits in less memory than this run had.
    """

    measured_runs: int
    mean_error: float | None = None
    smallest: Run | None = None
    undercuts: bool = False


def trust_in(layout: Layout, needs: Needs | None, data: EstimatorContext) -> Trust:
    """Return the runs behind a layout's estimate; ``needs`` are the needs of the question."""
    own = data.accuracy.get(layout.estimate.kind)
    cases, error = (own.cases, own.mean_error) if own else (0, None)
    smallest = smallest_run(needs, data)
    if needs is None or smallest is None:
        return Trust(cases, error)
    least, run = smallest
    used = needs.on(layout.request.gpus, None)
    return Trust(cases, error, run, layout.estimate.fits and used.total_gb < least)


def smallest_run(needs: Needs | None, data: EstimatorContext) -> tuple[float, Run] | None:
    """Return the total GPU memory in GB of the run in ``Trust.smallest``, and the run."""
    recorded = [
        (own.total_gb, run)
        for run, own in (runs_of_model(needs, data) if needs else ())
        if needs and run.word != "claimed" and own.is_like(needs)
    ]
    return min(recorded, key=lambda pair: (pair[0], pair[1].id), default=None)
