"""Recorded cases and runs as requests to the estimator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..diagnostics import NoAnswerError, did_you_mean
from .estimate import Estimate, estimate, largest_that_fits
from .request import Request, error_at
from .settings import least
from .tasks import fitted
from .versions import CURRENT, DOCUMENTED, EARLY, OBSERVED, version_of, version_on

if TYPE_CHECKING:
    from ..dataset import Dataset
    from ..records import Run
    from .cases import Case
    from .registries import Registries
    from .versions import Version


def recorded_run(data: Dataset, name: str) -> Run:
    """Return a recorded run by its id.

    Raises:
        NoAnswerError: there is none.
    """
    if name not in data.runs:
        hint = did_you_mean(name, data.runs) or "see the ids in runs/"
        raise NoAnswerError.because(f"unknown run {name[:200]!r}", hint)
    return data.runs[name]


def estimate_case(case: Case, registries: Registries) -> Estimate:
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
    return Request(
        model=case.model,
        config=config,
        gpus=case.gpus.count,
        gpu=case.gpus.type,
        memory_gb=case.gpus.memory_gb,
        version=_version(case),
        observed={name: value for name, value in (case.observed_tokens or ()) if value is not None},
        backend=(case.train or "").lower() or None,
        engine=(case.infer or "").lower() or None,
        task=case.task,
        framework=case.framework or "verl",
        partial=case.outcome is not None,
    )


def _version(case: Case) -> Version:
    """Return the version of verl; forks made before verl's engine could sleep keep their old behaviour."""
    stated, framework = version_of(case.version), (case.framework or "verl").lower()
    if stated and framework == "verl":
        return stated
    if framework.startswith(("verl", "easyr1")):
        return OBSERVED if case.outcome else CURRENT
    return EARLY


def request_of_run(run: Run, registries: Registries, *, needs_settings: bool = True) -> Request:
    """Return a recorded run as a request, with the version of verl at its time.

    A tested run has all its settings. The sources of other runs quote only some; settings that depend on the
    number of GPUs are then filled in as for a plan.

    Args:
        run: the run.
        registries: the registries.
        needs_settings: whether to refuse a run without settings; otherwise it gets verl's defaults.

    Raises:
        NoAnswerError: the run has no settings, and ``needs_settings`` is set.
    """
    if needs_settings and not run.settings:
        raise NoAnswerError.because(
            f"the run {run.id!r} has no recorded settings",
            "add them to its file, or give a model and settings instead",
        )
    config = dict(run.settings)
    if has_own_rollout_gpus(run):
        config.setdefault("actor_rollout_ref.hybrid_engine", False)
    request = Request(
        model=run.model,
        config=config,
        gpus=run.gpus.count,
        gpu=run.gpus.type,
        memory_gb=run.gpus.memory_gb,
        version=version_of_run(run),
        backend=run.train,
        engine=run.infer.engine if run.infer else None,
        task=run.task,
        partial=True,
    )
    return request if run.kind == "tested" else fitted(request, registries)


#: The kinds of runs that are confirmed to have run.
RAN = frozenset({"tested", "measured"})


def estimate_run(run: Run, registries: Registries) -> Estimate:
    """Estimate a recorded run; if its source lacks required settings, the estimate is undecided.

    Raises:
        NoAnswerError: its settings cannot be estimated.
    """
    own = estimate(request_of_run(run, registries), registries)
    missing = (problem for problem in own.warnings if problem.code == "missing_key")
    undecided = (*own.undecided, *(f"{problem.place.key}: {problem.message}" for problem in missing))
    return replace(own, settings=replace(own.settings, undecided=undecided), ran=run.kind in RAN)


@dataclass(frozen=True)
class Figures:
    """The figures of a recorded run's estimate in pages, tables and files, in bytes per GPU.

    Attributes:
        low: the low end of the range.
        peak: the peak; if the lengths are unknown, with sequences at their limits.
        high: the high end.
        shown: the estimate whose phases are shown, see ``credible``; None if there is none.
    """

    low: float
    peak: float
    high: float
    shown: Estimate | None


def figures(own: Estimate) -> Figures | None:
    """Return the figures to show for a recorded run; None if no figure is valid.

    No figure is valid if a setting that decides memory is unknown; many sources quote only some settings. A
    run that ran fitted into its GPU, so an estimate whose whole range exceeds the capacity is wrong.
    """
    most = own.capacity if own.ran and own.capacity is not None else math.inf
    if own.undecided or own.low > most:
        return None
    return Figures(own.low, min(own.peak, most), min(own.high, most), credible(own))


def credible(own: Estimate) -> Estimate | None:
    """Return the estimate whose figures can be shown for the run, or None.

    A run that ran fitted into its GPU. If its lengths are unknown, they must have been short enough: the
    figures are then those of the longest sequences that fit.
    """
    capacity, tokens = own.capacity, own.fits_up_to_tokens
    if own.undecided:
        return None
    if not own.ran or capacity is None or own.high <= capacity:
        return own
    lengths = own.settings.lengths
    if lengths.known:
        return own if own.peak <= capacity else None
    if tokens is None:
        shortest = math.ceil(least(own.settings).lengths.mean)
        tokens = largest_that_fits(
            shortest - 1,
            int(lengths.longest),
            lambda mean: mean < shortest or own.with_mean(mean).peak <= capacity,
        )
        if tokens < shortest:
            return None
    return own.with_mean(tokens)


def version_of_run(run: Run) -> Version:
    """Return a run's release: as stated, by the date of a tested run, otherwise that of verl's documents."""
    stated = version_of(run.versions.verl) if run.versions else None
    if stated:
        return stated
    return version_on(run.added.isoformat()) if run.kind == "tested" and run.added else DOCUMENTED


def has_own_rollout_gpus(run: Run) -> bool:
    """Return whether rollout and training use separate GPUs, judging by the task's name."""
    return any(word in run.task.lower() for word in ("async", "one-step-off", "one step off"))
