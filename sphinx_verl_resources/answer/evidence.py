"""Evidence: the recorded runs that bear on a question, and how each is known."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..catalog.names import ADAPTER_RANKS, WORDS, family
from ..catalog.selection import once
from ..diagnostics import Code, NoAnswerError
from ..estimator.estimate import estimate
from ..estimator.pools import gpu_of, training_gpus
from ..estimator.reader import Reader
from ..estimator.reading import element_bytes, has_critic
from ..estimator.recorded import request_of_run
from ..estimator.request import ACTOR, MODEL, ROLLOUT, changed
from ..estimator.tasks import LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..catalog.catalog import Catalog
    from ..catalog.models.registries import Gpu
    from ..catalog.models.run import Run
    from ..estimator.context import EstimatorContext
    from ..estimator.estimate import Estimate
    from ..estimator.registries import Registries
    from ..estimator.request import Request

#: Fields of an architecture that no figure of memory follows from.
_NOT_FIGURES = {
    "name", "hf_id", "model_type", "aliases", "aliases_unverified", "max_position_embeddings",
    "max_position_embeddings_of_aliases", "published", "config_source", "script", "verified", "notes",
}  # fmt: skip
#: Vendors of GPUs that are given by their memory alone, as verl's documents do.
_USUAL_VENDOR = "nvidia"
#: The settings that decide which runs bear on a question.
_DECISIVE = frozenset((*LIMITS, *ADAPTER_RANKS, f"{MODEL}.path", "algorithm.adv_estimator", "critic.enable"))


@dataclass(frozen=True)
class Needs:
    """The needs of a run or a question that decide which runs bear on which questions.

    Attributes:
        figures: those of the architecture, as text; checkpoints of one shape have the same.
        rank: of the adapters; 0 trains all parameters, None where it is not known.
        critic: there is one.
        separate: rollout has GPUs of its own.
        eight_bit: the rollout engine's weights take one byte each.
        response: the longest response, in tokens.
        sequence: the longest prompt and response, in tokens.
        gpus: their number.
        memory_gb: the nominal memory of a GPU, in GB; None where it is not known.
        vendor: of the GPUs.
        gpu: their name in the registry, None where none is given.
        model: the checkpoint, and ``task`` the first word of the algorithm's name.
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
        """Return what is needed on other GPUs; None leaves what was."""
        found = self if gpus is None else changed(self, gpus=gpus)
        if gpu is None:
            return found
        return changed(found, memory_gb=gpu.memory_gb, vendor=gpu.vendor, gpu=gpu.name)

    def is_like(self, asked: Needs) -> bool:
        """Tell whether a run trains the same parameters of the same model, and takes nothing less for it."""
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
        """Tell whether a run shows that the GPUs in question have what it needed."""
        return (
            self.is_like(asked)
            and self.gpus <= asked.gpus
            and (self.memory_gb or 0) <= (asked.memory_gb or 0)
            and self.response >= asked.response
            and self.sequence >= asked.sequence
        )

    def distance_from(self, asked: Needs) -> tuple[float, ...]:
        """Return what orders runs, the nearest first."""
        same_gpu = self.gpu is not None and self.gpu == asked.gpu
        return (
            not same_gpu,
            (asked.memory_gb or 0) - (self.memory_gb or 0),
            self.model != asked.model,
            asked.gpus - self.gpus,
            self.task != asked.task,
            self.response - asked.response,
        )


def bearing_on(asked: Request, data: EstimatorContext) -> tuple[Run, ...]:
    """Return the runs that bear on a question, the strongest and nearest first.

    Such a run has the same model and trains the same parameters of it, on as many GPUs or fewer, each with as
    much memory or less, with sequences as long or longer, and with a critic if the question has one.

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> grpo = {"algorithm.adv_estimator": "grpo"}
    >>> found = bearing_on(Request("Qwen/Qwen2.5-7B", grpo, gpus=2, gpu="A100-80GB"), read_data([]))
    >>> [(run.id, run.word) for run in found]
    [('qwen2-7b-grpo-2xh800', 'ran')]
    """
    return runs_for(needs_of(asked, data.catalog, data.registries), data)


def runs_for(needs: Needs | None, data: EstimatorContext) -> tuple[Run, ...]:
    """Return the runs that bear on what is needed, see ``bearing_on``."""
    if needs is None:
        return ()
    found = [(run, own) for run, own in runs_of_model(needs, data) if own.bears_on(needs)]
    found.sort(key=lambda pair: (WORDS.index(pair[0].word), pair[1].distance_from(needs), pair[0].id))
    return tuple(run for run, _ in found)


def takes_no_more(found: Estimate, evidence: Iterable[Run], data: EstimatorContext) -> bool:
    """Tell whether an estimate's peak is at most that of a run that bears on it and ran or was reported.

    Such a run shows that it fits, however far off the figures are.
    """
    for run in evidence:
        if not run.was_seen_to_run:
            continue
        try:
            of_run = estimate(request_of_run(run, data.registries), data.registries)
        except NoAnswerError:
            continue
        if found.peak <= of_run.peak:
            return True
    return False


def needs_of(request: Request, catalog: Catalog, registries: Registries) -> Needs | None:
    """Return what a request needs; None where a setting that decides it was not read."""
    reader = Reader(request, registries)
    prompt, response = map(reader.whole, LIMITS)
    ranks = [reader.whole(key, 0) for key in ADAPTER_RANKS]
    gpu, task = gpu_of(request, registries), (request.task or "").lower()
    element = element_bytes(reader, f"{ROLLOUT}.dtype", f"{ROLLOUT}.quantization")
    found = Needs(
        figures=figures_of(catalog, registries, request.model),
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
    unresolved = any(problem.code is Code.unresolved for problem in reader.diagnostics)
    return None if unresolved or request.unread & _DECISIVE or not found.figures else found


@once
def needs_of_runs(catalog: Catalog, registries: Registries) -> tuple[tuple[Run, Needs], ...]:
    """Return every recorded run with what it needed."""
    found = ((run, _needs_of_run(run, catalog, registries)) for run in catalog.runs.values())
    return tuple((run, needs) for run, needs in found if needs)


def runs_of_model(needs: Needs, data: EstimatorContext) -> Sequence[tuple[Run, Needs]]:
    """Return the recorded runs of a model, or of another one with the same figures."""
    return _runs_by_figures(data.catalog, data.registries).get(needs.figures, ())


@once
def _runs_by_figures(catalog: Catalog, registries: Registries) -> Mapping[str, Sequence[tuple[Run, Needs]]]:
    found: defaultdict[str, list[tuple[Run, Needs]]] = defaultdict(list)
    for run, needs in needs_of_runs(catalog, registries):
        found[needs.figures].append((run, needs))
    return found


def _needs_of_run(run: Run, catalog: Catalog, registries: Registries) -> Needs | None:
    """Return what a run needed; settings that its source leaves out have verl's defaults."""
    needs = needs_of(request_of_run(run, registries, needs_settings=False), catalog, registries)
    if needs is None:
        return None
    # A mean response is shorter than the longest one.
    longer = max(0, int(run.measured.response_tokens or 0) - needs.response) if run.measured else 0
    return replace(needs, response=needs.response + longer, sequence=needs.sequence + longer)


@once
def figures_of(catalog: Catalog, registries: Registries, model: str) -> str:
    """Return the figures of a model as text; none where it is not known."""
    shape = registries.shape(model)
    return shape.architecture.model_dump_json(exclude=_NOT_FIGURES) if shape else ""


def _task_of(reader: Reader) -> str:
    """Return the first word of an algorithm's name: ``GRPO`` for GRPO-LoRA."""
    if task := reader.request.task:
        return family(task).upper()
    if has_critic(reader):
        return "PPO"
    return "GRPO" if reader.flag(f"{ACTOR}.use_kl_loss") else "DAPO"


def _trains_as_much(rank: int | None, asked: int | None) -> bool:
    """Tell whether a run with adapters of a rank trains what a question does; 0 trains all parameters."""
    if asked == 0 or rank == 0:
        return rank == asked
    return rank is None or asked is None or rank >= asked
