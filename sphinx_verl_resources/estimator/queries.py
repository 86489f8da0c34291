"""Queries about estimates, and about the cases that test them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError, did_you_mean
from ..query import Answer, Query, digest, plain

if TYPE_CHECKING:
    from ..records import Run
    from .backtest import Score
    from .context import EstimatorContext
    from .estimate import Estimate
    from .request import Request
    from .versions import Version


class EstimatorQuery(Query[Answer]):
    """A query that the estimator answers."""

    reads = frozenset({"config_keys", "accuracy"})


#: Fields of an architecture that no computation uses.
_DESCRIPTIVE = {
    "name", "aliases", "aliases_unverified", "published", "config_source", "script", "verified", "notes",
}  # fmt: skip


#: Fields of a run that pages show next to its estimate, and fields of a case in a table.
_BESIDE_ESTIMATES = {"id", "label", "model", "task", "gpus", "max_batch", "script", "measured"}
_OF_CASES = {"id", "source", "model", "gpus", "outcome", "contested", "not_scored"}


def basis(estimate: Estimate | None) -> Any:
    """Return an estimate's inputs and remarks; all figures and formulas follow from these."""
    if estimate is None:
        return None
    architecture = estimate.shape.architecture.model_dump(mode="json", exclude=_DESCRIPTIVE)
    inputs = (estimate.settings, estimate.widening, estimate.warnings, estimate.unsupported)
    return [architecture, *map(plain, inputs)]


@dataclass(frozen=True)
class RecordedRun(EstimatorQuery["Run"]):
    """A query for a recorded run by its id."""

    run: str

    def answer(self, data: EstimatorContext) -> Run:
        """Return the record."""
        run = data.runs.get(self.run)
        if run is None:
            hint = did_you_mean(self.run, data.runs) or "see the ids in runs/"
            raise NoAnswerError.because(f"unknown run {self.run[:200]!r}", hint)
        return run

    def fingerprint(self, answer: Run) -> str:
        """Return a digest of the fields that pages show next to a run's table and estimate."""
        return digest(answer.model_dump_json(include=_BESIDE_ESTIMATES))


class EstimateQuery(EstimatorQuery["Estimate"]):
    """A query for one estimate."""

    def request(self, data: EstimatorContext) -> Request:
        """Return the request to the estimator.

        Raises:
            NoAnswerError: nothing can be estimated.
        """
        raise NotImplementedError

    def answer(self, data: EstimatorContext) -> Estimate:
        """Estimate the memory of the run."""
        from .estimate import estimate

        return estimate(self.request(data), data.registries)

    def fingerprint(self, answer: Estimate) -> str:
        """Return a digest of the estimate's inputs, from which everything in it follows."""
        return digest(basis(answer))


@dataclass(frozen=True)
class RunEstimate(EstimateQuery):
    """A query for the estimate of a recorded run, which needs settings."""

    run: str

    def request(self, data: EstimatorContext) -> Request:
        """Return the recorded run as a request."""
        from .recorded import request_of_run

        return request_of_run(RecordedRun(self.run).answer(data), data.registries)

    def answer(self, data: EstimatorContext) -> Estimate:
        """Estimate the memory of the run."""
        from .recorded import estimate_run

        return estimate_run(RecordedRun(self.run).answer(data), data.registries)


@dataclass(frozen=True)
class ModelEstimate(EstimateQuery):
    """A query for the estimate of a model with given settings.

    Attributes:
        model: the model's Hugging Face name.
        gpus: the number of GPUs.
        gpu: the name of the GPU.
        config: pairs of dotted key and value, lists as tuples.
        version: the version of verl; None for the newest.
    """

    model: str
    gpus: int
    gpu: str
    config: tuple[tuple[str, Any], ...] = ()
    version: Version | None = None

    def request(self, data: EstimatorContext) -> Request:
        """Return the fields as a request."""
        from .request import Request
        from .versions import CURRENT

        version = self.version or CURRENT
        return Request(self.model, dict(self.config), self.gpus, self.gpu, version=version)


@dataclass(frozen=True)
class Capacity(EstimatorQuery["float | None"]):
    """A query for a GPU's capacity in bytes; None for an unknown GPU."""

    gpu: str

    def answer(self, data: EstimatorContext) -> float | None:
        """Look the GPU up."""
        from .registries import capacity_of

        gpu = data.registries.gpus.get(self.gpu)
        return capacity_of(gpu) if gpu else None


@dataclass(frozen=True)
class Defaults(EstimatorQuery["tuple[tuple[str, Any], ...]"]):
    """A query for verl's defaults of some keys, in its newest version."""

    keys: tuple[str, ...]

    def answer(self, data: EstimatorContext) -> tuple[tuple[str, Any], ...]:
        """Return pairs of key and value."""
        from .versions import CURRENT

        defaults = data.registries.defaults(CURRENT)
        return tuple((key, defaults.get(key)) for key in self.keys)


@dataclass(frozen=True)
class Scores(EstimatorQuery["tuple[Score, ...]"]):
    """A query for the scores of verl's cases in some groups."""

    groups: tuple[str, ...]

    reads = EstimatorQuery.reads | {"cases"}

    def answer(self, data: EstimatorContext) -> tuple[Score, ...]:
        """Return scores in the order of the groups, then of the files."""
        from .backtest import score

        cases = (entry.case for entry in data.cases.by_id.values())
        every = [score(case, data.registries) for case in cases if case.config is not None]
        return tuple(item for group in self.groups for item in every if item.group == group)

    def fingerprint(self, answer: tuple[Score, ...]) -> str:
        """Return a digest of the fields of each case in the table."""
        return digest([_shown(item) for item in answer])


def _shown(item: Score) -> Any:
    """Return the fields of a case in the table: observed and computed."""
    found = item.estimate
    return [
        item.case.model_dump_json(include=_OF_CASES),
        item.error,
        [item.group, item.figure, item.computed, item.low, item.high, item.observed],
        [found.verdict, found.peak, found.low, found.high] if found else None,
    ]
