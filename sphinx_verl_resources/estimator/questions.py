"""The queries about estimates and the cases that they are tested on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError, Severity, did_you_mean
from ..query import Answer, Query, digest, plain

if TYPE_CHECKING:
    from ..catalog.models.export import Export
    from ..catalog.models.run import Run
    from .backtest import Score, Summary
    from .context import EstimatorContext
    from .estimate import Estimate
    from .fit import FitCell
    from .grid import Axes, GridCells
    from .lengths import Longer
    from .request import Request
    from .savings import SavingSteps
    from .versions import Version


class EstimatorQuery(Query[Answer]):
    """A query that the estimator answers."""

    reads = frozenset({"analysis", "accuracy"})


class CasesQuery(EstimatorQuery[Answer]):
    """A query about the cases that the estimator is tested on."""

    reads = frozenset({"analysis", "accuracy", "cases"})


class EstimateQuery(EstimatorQuery["Estimate"]):
    """A query for one estimate."""

    def fingerprint(self, answer: Estimate) -> str:
        """Return a digest of what everything in an estimate follows from."""
        return digest(_basis(answer))


class SavingsQuery(EstimatorQuery["SavingSteps"]):
    """A query for what settings save."""

    def fingerprint(self, answer: SavingSteps) -> str:
        """Return a digest of the steps, and of the estimates before and after them."""
        return digest(_basis(answer.start), plain(answer.steps), _basis(answer.end))


#: Fields of an architecture that nothing is computed from.
_DESCRIPTIVE = {
    "name", "aliases", "aliases_unverified", "published", "config_source", "verified", "notes",
}  # fmt: skip


def _basis(estimate: Estimate | None) -> Any:
    """Return what an estimate is computed from, with its remarks; figures and formulas follow from it."""
    if estimate is None:
        return None
    architecture = estimate.shape.architecture.model_dump(mode="json", exclude=_DESCRIPTIVE)
    inputs = (estimate.settings, estimate.range, estimate.warnings, estimate.unsupported)
    return [architecture, *map(plain, inputs)]


@dataclass(frozen=True)
class RecordedRun(EstimatorQuery["Run"]):
    """A run as it is recorded, by its id."""

    run: str

    def answer(self, data: EstimatorContext) -> Run:
        """The record."""
        run = data.catalog.runs.get(self.run)
        if run is None:
            hint = did_you_mean(self.run, data.catalog.runs) or "see the ids in runs/"
            raise NoAnswerError.because(f"there is no run {self.run[:200]!r}", hint)
        return run

    def fingerprint(self, answer: Run) -> str:
        """Return a digest of all fields."""
        return digest(plain(answer))


@dataclass(frozen=True)
class RunEstimate(EstimateQuery):
    """What a recorded run takes."""

    run: str

    def answer(self, data: EstimatorContext) -> Estimate:
        """See ``estimate``; the run needs settings."""
        from .case import stated_request
        from .estimate import estimate

        return estimate(stated_request(RecordedRun(self.run).answer(data), data.facts), data.facts)


@dataclass(frozen=True)
class ModelEstimate(EstimateQuery):
    """What a model takes with settings of one's own.

    Attributes:
        model: Hugging Face name.
        gpus: how many.
        gpu: which.
        config: pairs of dotted key and value, lists as tuples.
        version: of verl; None for the newest.
    """

    model: str
    gpus: int
    gpu: str
    config: tuple[tuple[str, Any], ...] = ()
    version: Version | None = None

    @property
    def request(self) -> Request:
        """What the estimator is asked."""
        from .request import Request
        from .versions import CURRENT

        version = self.version or CURRENT
        return Request(self.model, dict(self.config), self.gpus, self.gpu, version=version)

    def answer(self, data: EstimatorContext) -> Estimate:
        """See ``estimate``."""
        from .estimate import estimate

        return estimate(self.request, data.facts)


@dataclass(frozen=True)
class Capacity(EstimatorQuery["float | None"]):
    """What a GPU offers to programs, in bytes; None if it is not known."""

    gpu: str

    def answer(self, data: EstimatorContext) -> float | None:
        """See ``registries.capacity_of``."""
        from .registries import capacity_of

        gpu = data.facts.gpus.get(self.gpu)
        return capacity_of(gpu) if gpu else None


@dataclass(frozen=True)
class Lengths(EstimatorQuery["tuple[Longer, ...]"]):
    """What longer responses take.

    Attributes:
        asked: the run.
        responses: limits of its responses, in tokens.
    """

    asked: ModelEstimate
    responses: tuple[int, ...]

    def answer(self, data: EstimatorContext) -> tuple[Longer, ...]:
        """See ``lengths.longer``."""
        from .lengths import longer

        return longer(self.asked.request, data.facts, self.responses)

    def fingerprint(self, answer: tuple[Longer, ...]) -> str:
        """Return a digest of each row."""
        rows = ((row.response, _basis(row.estimate), row.sequences, plain(row.diagnostics)) for row in answer)
        return digest(*rows)


@dataclass(frozen=True)
class Savings(SavingsQuery):
    """What each setting that saves memory buys.

    Attributes:
        asked: the model with its settings.
    """

    asked: ModelEstimate

    def answer(self, data: EstimatorContext) -> SavingSteps:
        """See ``savings``."""
        from .savings import savings

        return savings(self.asked.request, data.facts)


@dataclass(frozen=True)
class RunSavings(SavingsQuery):
    """What each setting that saves memory would buy a recorded run."""

    run: str

    def answer(self, data: EstimatorContext) -> SavingSteps:
        """See ``savings``; the run needs settings."""
        from .case import stated_request
        from .savings import savings

        return savings(stated_request(RecordedRun(self.run).answer(data), data.facts), data.facts)


@dataclass(frozen=True)
class Fit(EstimatorQuery["tuple[tuple[str, tuple[FitCell, ...]], ...]"]):
    """Size classes by numbers of GPUs, for one GPU and task.

    Attributes:
        gpu: its name.
        task: the algorithm.
        sizes: size classes; empty for all that stand for a model.
        counts: numbers of GPUs.
        config: further settings, as pairs.
    """

    gpu: str
    task: str
    sizes: tuple[str, ...]
    counts: tuple[int, ...]
    config: tuple[tuple[str, Any], ...] = ()

    def answer(self, data: EstimatorContext) -> tuple[tuple[str, tuple[FitCell, ...]], ...]:
        """See ``fit.fit_table``."""
        from .fit import fit_table

        return fit_table(
            data.facts,
            data.catalog,
            data.analysis,
            gpu=self.gpu,
            task=self.task,
            sizes=self.sizes,
            counts=self.counts,
            config=dict(self.config),
        )

    def fingerprint(self, answer: tuple[tuple[str, tuple[FitCell, ...]], ...]) -> str:
        """Return a digest of all fields."""
        return digest(plain(answer))


@dataclass(frozen=True)
class Grid(EstimatorQuery["GridCells"]):
    """Every combination of what a form offers.

    Attributes:
        axes: what can be chosen.
        config: further settings, as pairs.
    """

    axes: Axes
    config: tuple[tuple[str, Any], ...] = ()

    def answer(self, data: EstimatorContext) -> GridCells:
        """See ``grid.compute_grid``."""
        from .grid import compute_grid

        return compute_grid(self.axes, dict(self.config), data.facts)

    def fingerprint(self, answer: GridCells) -> str:
        """Return a digest of every column, and of the remarks."""
        return digest({**vars(answer), "warnings": plain(answer.warnings)})


@dataclass(frozen=True)
class SizeModels(EstimatorQuery["tuple[tuple[str, str], ...]"]):
    """Which model stands for which size class in a table of ``Fit``; ``sizes`` as there."""

    sizes: tuple[str, ...] = ()

    def answer(self, data: EstimatorContext) -> tuple[tuple[str, str], ...]:
        """Size classes in ascending order, and the names of checkpoints."""
        from .fit import size_models

        found = size_models(data.catalog, data.analysis).items()
        return tuple((size, model) for size, model in found if not self.sizes or size in self.sizes)


@dataclass(frozen=True)
class Exported(EstimatorQuery["Export"]):
    """Everything that programs may want to read, with the version of the extension in it."""

    extension_version: str

    def answer(self, data: EstimatorContext) -> Export:
        """See ``export.export_of``."""
        from .export import export_of

        return export_of(data, self.extension_version)

    def fingerprint(self, answer: Export) -> str:
        """Return a digest of all fields."""
        return digest(plain(answer))


@dataclass(frozen=True)
class CaseFilesWithErrors(CasesQuery["tuple[str, ...]"]):
    """The files of cases that have errors, as messages show them."""

    def answer(self, data: EstimatorContext) -> tuple[str, ...]:
        """In the order of their paths."""
        found = (item for item in data.cases.diagnostics if item.severity is Severity.ERROR)
        return tuple(dict.fromkeys(item.place.path for item in found))


@dataclass(frozen=True)
class Defaults(EstimatorQuery["tuple[tuple[str, Any], ...]"]):
    """verl's defaults of some keys, in its newest version."""

    keys: tuple[str, ...]

    def answer(self, data: EstimatorContext) -> tuple[tuple[str, Any], ...]:
        """Pairs of key and value."""
        from .versions import CURRENT

        defaults = data.facts.defaults(CURRENT)
        return tuple((key, defaults.get(key)) for key in self.keys)


@dataclass(frozen=True)
class Accuracies(CasesQuery["tuple[tuple[Score, ...], tuple[Summary, ...]]"]):
    """Every case of some groups, computed beside observed, and the summary of each group."""

    groups: tuple[str, ...]

    def answer(self, data: EstimatorContext) -> tuple[tuple[Score, ...], tuple[Summary, ...]]:
        """In the order of the groups, then of the files."""
        from .backtest import group_of, score, summaries

        cases = [entry.case for entry in data.cases.by_id.values()]
        chosen = [case for group in self.groups for case in cases if group_of(case) == group]
        scores = tuple(score(case, data.facts) for case in chosen)
        return scores, summaries(scores)

    def fingerprint(self, answer: tuple[tuple[Score, ...], tuple[Summary, ...]]) -> str:
        """Return a digest of what the tables and the plot show of each case and group."""
        scores, found = answer
        return digest([_shown(item) for item in scores], plain(found))


def _shown(item: Score) -> Any:
    """Return what tables and plots show of a case: what was observed, and what is computed of it."""
    found = item.estimate
    return [
        plain(item.case),
        item.error,
        [item.group, item.figure, item.computed, item.low, item.high, item.observed],
        [found.verdict, found.peak, found.low, found.high] if found else None,
    ]
