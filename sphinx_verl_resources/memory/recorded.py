"""Recorded cases and runs as requests to the estimator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..dataset import Dataset
from ..diagnostics import NoAnswerError, did_you_mean
from ..records import Run
from ..units import GIB
from .cases import Case
from .estimate import AnyEstimate, Estimate, estimate
from .registries import CASE_GROUPS, FSDP, EstimatorContext, capacity_of
from .request import ACTOR, ROLLOUT, Request, error_at
from .roles import LIMITS
from .settings import TRAINER_GPUS, USUAL_CAPACITY, gpu_of
from .versions import CURRENT, DOCUMENTED, EARLY, OBSERVED, Version, version_of, version_on


def recorded_run(data: Dataset, name: str) -> Run:
    """Return a recorded run by its id.

    Raises:
        NoAnswerError: there is none.
    """
    if name not in data.runs:
        hint = did_you_mean(name, data.runs) or "see the ids in runs/"
        raise NoAnswerError.because(f"unknown run {name[:200]!r}", hint)
    return data.runs[name]


def estimate_case(case: Case, registries: EstimatorContext) -> Estimate:
    """Estimate one case.

    Raises:
        NoAnswerError: it is plain training, or its settings cannot be estimated.
    """
    if case.config is None:
        message = "training without reinforcement learning is not estimated"
        hint = "for a run of verl, give its keys under config"
        raise NoAnswerError(error_at("training", message, hint, "missing_key"))
    return estimate(request_of_case(case), registries)


def request_of_case(case: Case) -> Request:
    """Return a case as a request; if it states no version of verl, that of the observation's date is used."""
    config = {key.lstrip("+"): value for key, value in (case.config or {}).items()}
    if case.gpus.nodes:
        config.setdefault("trainer.nnodes", case.gpus.nodes)
    return _request(
        case,
        config,
        _version(case),
        observed={name: value for name, value in (case.observed_tokens or {}).items() if value},
        backend=(case.train or "").lower() or None,
        engine=(case.infer or "").lower() or None,
        framework=case.framework or "verl",
        partial=case.outcome is not None,
    )


def _request(record: Case | Run, config: Mapping[str, Any], version: Version, **others: Any) -> Request:
    """Return a record as a request: its model, GPUs and task with the given settings."""
    gpus, model = record.gpus, record.model
    return Request(model, config, gpus.count, gpus.type, gpus.memory_gb, version, task=record.task, **others)


def _version(case: Case) -> Version:
    """Return the version of verl; forks made before verl's engine could sleep keep their old behaviour."""
    framework = (case.framework or "verl").lower()
    stated = version_of(case.version) if framework == "verl" else None
    recent = OBSERVED if case.outcome else CURRENT
    return stated or (recent if framework.startswith(("verl", "easyr1")) else EARLY)


def request_of_run(run: Run, registries: EstimatorContext) -> Request:
    """Return a recorded run as a request, with the version of verl at its time.

    A tested run has all its settings. The sources of other runs quote only some; settings that depend on the
    number of GPUs are then filled in as for a plan.
    """
    config, engine = dict(run.settings), run.infer.engine if run.infer else None
    if has_own_rollout_gpus(run):
        config.setdefault("actor_rollout_ref.hybrid_engine", False)
    request = _request(run, config, version_of_run(run), backend=run.train, engine=engine, partial=True)
    return request if run.kind == "tested" else fitted(request, registries)


#: The kinds of runs that are confirmed to have run.
RAN = frozenset({"tested", "measured"})


def estimate_run(run: Run, registries: EstimatorContext) -> Estimate:
    """Estimate a recorded run; if its source lacks required settings, the estimate is undecided.

    Raises:
        NoAnswerError: it has no settings, or they cannot be estimated.
    """
    if not run.settings:
        message = f"the run {run.id!r} has no recorded settings"
        raise NoAnswerError.because(message, "add them to its file, or give a model and settings instead")
    own = estimate(request_of_run(run, registries), registries)
    missing = (problem for problem in own.warnings if problem.code == "missing_key")
    undecided = (*own.undecided, *(f"{problem.place.key}: {problem.message}" for problem in missing))
    return replace(own, undecided=undecided, ran=run.kind in RAN)


def figures(own: Estimate) -> tuple[float, float, float] | None:
    """Return the low end, peak and high end to show for a recorded run, in bytes per GPU; None if unknown.

    They are unknown if a setting that decides memory is; many sources quote only some settings. A run that
    ran fitted into its GPU, so an estimate whose whole range exceeds the capacity is wrong.
    """
    most = own.capacity if own.ran and own.capacity is not None else math.inf
    if own.undecided or own.low > most:
        return None
    return own.low, min(own.peak, most), min(own.high, most)


def credible(own: Estimate) -> Estimate | None:
    """Return the estimate whose phases can be shown for the run, or None.

    A run that ran fitted into its GPU. If its lengths are unknown and too long, the figures are those of the
    longest sequences that fit.
    """
    if own.undecided:
        return None
    if not own.ran or own.capacity is None or own.high <= own.capacity:
        return own
    if own.fits_up_to_tokens is not None:
        return own.with_mean(own.fits_up_to_tokens)
    return own if own.peak <= own.capacity else None


def version_of_run(run: Run) -> Version:
    """Return a run's release: as stated, by the date of its evidence, otherwise that of verl's documents."""
    stated = version_of(run.versions.verl) if run.versions else None
    return stated or (version_on(f"{run.checked}-01"[:10]) if run.checked else DOCUMENTED)


def has_own_rollout_gpus(run: Run) -> bool:
    """Return whether rollout and training use separate GPUs."""
    return run.trainer == "separate_async"


#: Counters of the training process, which are compared with ``torch_peak``; others with the GPU's peak.
_TORCH_COUNTERS = {"torch-allocated", "torch-allocated-with-pool"}
#: Counters without a corresponding computed figure.
_NOT_COMPARED = {"torch-static", "torch-reserved"}


@dataclass(frozen=True)
class Score:
    """One case, computed and observed. Sizes are bytes per GPU.

    Attributes:
        case: the recorded case.
        estimate: its estimate; None if there is none.
        error: the reason for a missing estimate.
        computed: the figure that corresponds to the observed one, in the measured phase if the case has one;
            0 if nothing is compared, as the next three.
        low, high: its range.
        observed: the measured value.
        of_torch: whether it is PyTorch's counter, not the GPU's peak.
    """

    case: Case
    estimate: AnyEstimate | None
    error: str = ""
    computed: float = 0.0
    low: float = 0.0
    high: float = 0.0
    observed: float = 0.0
    of_torch: bool = False

    @property
    def group(self) -> str:
        """The group of the case, one of ``CASE_GROUPS``; FSDP's if it has no estimate."""
        kind = self.estimate.kind if self.estimate else FSDP
        return max((name for name in CASE_GROUPS if kind.startswith(name)), key=len)

    @property
    def deviation(self) -> float | None:
        """The relative error, computed ÷ observed - 1; None if nothing is compared."""
        return self.computed / self.observed - 1 if self.observed else None

    @property
    def inside(self) -> bool | None:
        """True if the observed value is in the range; None if nothing is compared."""
        return self.low <= self.observed <= self.high if self.observed else None

    @property
    def agrees(self) -> bool | None:
        """True if the verdict is compatible with the outcome; None if either is unknown."""
        if self.case.outcome is None or self.estimate is None or self.estimate.verdict == "unknown":
            return None
        return self.estimate.verdict != ("fits" if self.case.outcome == "oom" else "does-not-fit")


def score(case: Case, registries: EstimatorContext, ask: Callable[..., AnyEstimate] = estimate_case) -> Score:
    """Estimate one case, by the function ``ask``, and compare it with the observed value."""
    try:
        own = ask(case, registries)
    except NoAnswerError as error:
        errors = (item.message for item in error.diagnostics if item.is_error)
        return Score(case, None, "; ".join(errors))
    measured = case.measured
    if own.undecided or not measured or not measured.gib or measured.kind in _NOT_COMPARED:
        return Score(case, own)
    part, of_torch = own.of_phase(case.phase or ""), measured.kind in _TORCH_COUNTERS
    compared = (part.torch_peak, *part.torch_peak_range) if of_torch else (part.peak, part.low, part.high)
    return Score(case, own, "", *compared, measured.gib * GIB, of_torch)


def scores_of(data: EstimatorContext, groups: Iterable[str]) -> tuple[Score, ...]:
    """Return the scores of verl's cases in some groups, in the order of the groups, then of the files."""
    every = [score(case, data) for case in data.cases.by_id.values() if case.config is not None]
    return tuple(item for group in groups for item in every if item.group == group)


#: Settings of the rollout engine: the GPUs of one copy, its share of each, its longest sequence.
ENGINE_TP = f"{ROLLOUT}.tensor_model_parallel_size"
ENGINE_SHARE = f"{ROLLOUT}.gpu_memory_utilization"
ENGINE_LENGTH = f"{ROLLOUT}.max_model_len"
BUDGETS = (
    f"{ACTOR}.ppo_max_token_len_per_gpu",
    "critic.ppo_max_token_len_per_gpu",
    "critic.ppo_infer_max_token_len_per_gpu",
)
#: The largest share of the rollout engine's budget for weights, which leaves room for the KV cache.
_WEIGHTS_SHARE = 0.7


def engine_size(request: Request, registries: EstimatorContext) -> Mapping[str, int]:
    """Return the TP of the rollout engine as a setting; none if the request sets it.

    This is the smallest power of two that leaves room for a KV cache.
    """
    config, defaults = request.config, registries.defaults(request.version)
    utilization = config.get(ENGINE_SHARE, defaults.get(ENGINE_SHARE))
    shape, gpu = registries.shape(request.model), gpu_of(request, registries)
    if ENGINE_TP in config or not shape or not isinstance(utilization, int | float):
        return {}
    room = (capacity_of(gpu) if gpu else USUAL_CAPACITY) * utilization * _WEIGHTS_SHARE
    gpus, tensor = request.gpus or 8, 1
    while 2 * shape.parameters / tensor > room and not gpus % (2 * tensor) and not shape.heads % (2 * tensor):
        tensor *= 2
    return {ENGINE_TP: tensor}


def fitted(request: Request, registries: EstimatorContext) -> Request:
    """Return the request with unset settings filled in that follow from the number of GPUs.

    These are the number of nodes, the engine's TP and longest sequence, and, with a dynamic batch size, token
    budgets that hold exactly one sequence.
    """
    gpus, config = request.gpus or 8, dict(request.config)
    if config.keys().isdisjoint(TRAINER_GPUS):
        each = next(size for size in range(min(gpus, 8), 0, -1) if not gpus % size)
        config |= dict(zip(TRAINER_GPUS, (gpus // each, each), strict=True))
    values = {**registries.defaults(request.version), **config}
    for key in LIMITS:  # these decide most answers, so a plan always states them
        config.setdefault(key, values.get(key))
    config |= engine_size(request, registries)
    limits = [config[key] for key in LIMITS]
    if all(type(item) is int for item in limits):
        # The engine starts only if its cache holds a sequence of this length; the model's own limit is far
        # longer.
        budgets = BUDGETS if values.get(f"{ACTOR}.use_dynamic_bsz") is True else ()
        for key in (ENGINE_LENGTH, *budgets):
            config.setdefault(key, sum(limits))
    return replace(request, config=config)
