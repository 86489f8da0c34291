"""Evidence: the recorded runs that bear on a question, and the measured runs behind an estimate."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..memory.estimate import Estimate, attempt
from ..memory.reader import Reader
from ..memory.recorded import request_of_run
from ..memory.registries import EstimatorContext
from ..memory.request import ACTOR, MODEL, ROLLOUT, Request
from ..memory.roles import LIMITS, has_critic
from ..memory.settings import TRAINER_MODE, gpu_of, training_gpus
from ..records import ADAPTER_RANKS, WORDS, Run, family

#: The GPUs behind verl's documents that do not name them: NVIDIA's with bfloat16 and at least 80 GB.
_USUAL_DEVICE, _USUAL_MEMORY_GB = ("nvidia", True), 80
#: The data type of the rollout engine's weights.
_ELEMENTS = f"{ROLLOUT}.dtype", f"{ROLLOUT}.quantization"
#: The settings that a profile cannot be made without.
_DECISIVE = frozenset((*LIMITS, *ADAPTER_RANKS, f"{MODEL}.path", "algorithm.adv_estimator", "critic.enable"))


class Profile(NamedTuple):
    """The traits of a run or a question that decide whether the run is evidence for an answer.

    Attributes:
        shape_key: the key of the model's shape, see ``shape_key_of``; empty if a decisive setting is unknown.
        rank: the rank of the adapters; 0 trains all parameters, infinite if unknown.
        critic: whether there is a critic.
        separate: whether rollout has separate GPUs.
        eight_bit: whether the rollout engine's weights take one byte each.
        prompt: the longest prompt, in tokens.
        response: the longest response, in tokens.
        gpus: the number of GPUs.
        model: the checkpoint.
        task: the first word of the algorithm's name, in capitals.
        memory_gb: the nominal memory of a GPU, in GB; None if unknown.
        gpu: the name of the GPU in the registry; None if not given.
        device: the vendor of the GPUs, and whether they have bfloat16.
    """

    shape_key: str
    rank: float
    critic: bool
    separate: bool
    eight_bit: bool
    prompt: int
    response: int
    gpus: int
    model: str
    task: str
    memory_gb: float | None
    gpu: str | None
    device: tuple[str, bool]

    def is_comparable(self, other: Profile) -> bool:
        """Return whether a run trains the same parameters of a model of this shape, and needs no less memory.

        It has the same kind of GPUs and pools, as high a rank, a critic if the other has one, and weights of
        the rollout engine that are not smaller.
        """
        same = (self.rank > 0, self.shape_key, self.separate, self.device)
        return (
            same == (other.rank > 0, other.shape_key, other.separate, other.device)
            and self.rank >= other.rank
            and self.critic >= other.critic
            and self.eight_bit <= other.eight_bit
        )

    def shows_fit(self, question: Profile) -> bool:
        """Return whether a run is comparable, on no more GPUs with no more memory, with as long sequences."""
        return (
            self.gpus <= question.gpus
            and (self.memory_gb or _USUAL_MEMORY_GB) <= (question.memory_gb or 0)
            and self.response >= question.response
            and self.prompt + self.response >= question.prompt + question.response
            and self.is_comparable(question)
        )


def profile_of(request: Request, data: EstimatorContext) -> Profile:
    """Return a request's profile, which decides the comparable runs."""
    reader, task, gpu = Reader(request, data), request.task or "", gpu_of(request, data)
    critic, (prompt, response) = has_critic(reader), map(reader.whole, LIMITS)
    rank = max(reader.whole(key, least=0) for key in ADAPTER_RANKS)
    usual = "PPO" if critic else "GRPO" if reader.flag(f"{ACTOR}.use_kl_loss") else "DAPO"
    profile = Profile(
        shape_key=shape_key_of(data, request.model),
        rank=rank or (math.inf if "lora" in task.lower() else 0),
        critic=critic,
        separate=reader.has_rollout_pool or reader.any(TRAINER_MODE) == "separate_async",
        eight_bit=reader.element_bytes(*_ELEMENTS) < 2 or "fp8" in task.lower(),
        prompt=prompt,
        response=response,
        gpus=request.gpus or training_gpus(reader)[0],
        model=request.model,
        task=family(task).upper() or usual,
        memory_gb=gpu.memory_gb if gpu else request.memory_gb,
        gpu=gpu.name if gpu else None,
        device=(gpu.vendor, gpu.bfloat16) if gpu else _USUAL_DEVICE,
    )
    is_unresolved = any(problem.code == "unresolved" for problem in reader.diagnostics)
    return profile._replace(shape_key="") if is_unresolved or request.unread & _DECISIVE else profile


@lru_cache(maxsize=2_000)
def shape_key_of(data: EstimatorContext, model: str) -> str:
    """Return a key that models of the same shape share; empty for an unknown model."""
    shape = data.shape(model)
    sizes = shape and (shape.layers, shape.heads, shape.parameters, shape.counts.active, shape.modules)
    return str(sizes or "")


@lru_cache(maxsize=8)
def runs_by_shape(data: EstimatorContext) -> Mapping[str, Sequence[tuple[Run, Profile]]]:
    """Return the recorded runs with their profiles, by the shape of their model, least GPU memory first.

    Settings missing in a run's source have verl's defaults.
    """
    runs: defaultdict[str, list[tuple[Run, Profile]]] = defaultdict(list)
    for run in data.runs.values():
        profile = profile_of(request_of_run(run, data), data)
        # A mean response is shorter than the longest one.
        mean = int((run.measured and run.measured.response_tokens) or 0)
        runs[profile.shape_key].append((run, profile._replace(response=max(mean, profile.response))))
    runs.pop("", None)
    for pairs in runs.values():
        pairs.sort(key=lambda pair: (pair[1].gpus * (pair[1].memory_gb or 0), pair[0].id))
    return runs


def runs_for(profile: Profile, data: EstimatorContext) -> tuple[Run, ...]:
    """Return the runs that bear on a question, the strongest and nearest first.

    Such a run trains the same parameters of the same model, on at most as many GPUs with at most as much
    memory, and with at least as long sequences. If the question has a critic, so does the run.
    """

    def order(pair: tuple[Run, Profile]) -> tuple[object, ...]:
        run, own = pair
        is_other = own.gpu is None or own.gpu != profile.gpu
        nearest = WORDS.index(run.word), is_other, -(own.memory_gb or 0), own.model != profile.model
        return *nearest, -own.gpus, own.task != profile.task, own.response, run.id

    pairs = [pair for pair in runs_by_shape(data).get(profile.shape_key, ()) if pair[1].shows_fit(profile)]
    return tuple(run for run, _ in sorted(pairs, key=order))


def contested_by(run: Run) -> str | None:
    """Return the report of somebody who ran out of memory with a run's settings; None without one."""
    has_failed = any(note.code == "out-of-memory-reported" for note in run.notes)
    return next((item.url for item in run.evidence if has_failed and item.kind == "issue" and item.url), None)


def is_proof(run: Run, data: EstimatorContext) -> bool:
    """Return whether a run ran or was reported, on known GPUs, and nobody else failed with it."""
    return run.word != "claimed" and not contested_by(run) and data.gpu_of(run) is not None


def takes_no_more(own: Estimate, runs: Iterable[Run], data: EstimatorContext) -> bool:
    """Return whether an estimate's peak is at most that of one of some runs, by the run's own settings.

    Such a run shows that the settings fit, even if the estimates are inaccurate.
    """
    estimates = (attempt(request_of_run(run, data), data) for run in runs if run.settings)
    return any(isinstance(other, Estimate) and own.peak <= other.peak for other in estimates)


def smallest_run(profile: Profile, data: EstimatorContext) -> tuple[float, Run] | None:
    """Return the run on the least GPU memory and this memory, in GB; None if there is none.

    It trains the same parameters of the same model, and is a proof, see ``is_proof``.
    """
    for run, own in runs_by_shape(data).get(profile.shape_key, ()):
        if own.is_comparable(profile) and is_proof(run, data):
            return own.gpus * (own.memory_gb or 0), run
    return None
