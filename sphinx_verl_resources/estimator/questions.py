"""What pages ask of the estimator. As in ``memory.questions``, a question is a plain value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError, Severity, did_you_mean
from .question import EstimatorQuestion

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..catalog.analysis import Analysis
    from ..catalog.cases import Cases
    from ..catalog.catalog import Catalog
    from ..catalog.models.export import Export
    from ..catalog.models.run import Run
    from .backtest import Score, Summary
    from .estimate import Estimate
    from .facts import Registries
    from .fit import FitCell
    from .grid import Axes, GridCells
    from .lengths import Longer
    from .request import Request
    from .savings import SavingSteps
    from .versions import Version

_NO_SETTINGS = "add them to its file, or name a model and settings instead"


@dataclass(frozen=True)
class EstimatorContext:
    """Everything that the estimator is asked about.

    Attributes:
        facts: the registries.
        catalog: the runs.
        analysis: the size classes and what stands for each.
        load_cases: gives the observations.
    """

    facts: Registries
    catalog: Catalog
    analysis: Analysis
    load_cases: Callable[[], Cases]

    @property
    def cases(self) -> Cases:
        """The observations."""
        return self.load_cases()


@dataclass(frozen=True)
class RecordedRun(EstimatorQuestion["Run"]):
    """A run as it is recorded, by its id."""

    run: str

    def answer(self, world: EstimatorContext) -> Run:
        """The record."""
        run = world.catalog.runs.get(self.run)
        if run is None:
            hint = did_you_mean(self.run, world.catalog.runs) or "see the ids in runs/"
            raise NoAnswerError.because(f"there is no run {self.run[:200]!r}", hint)
        return run


@dataclass(frozen=True)
class RunEstimate(EstimatorQuestion["Estimate"]):
    """What a recorded run takes."""

    run: str

    def answer(self, world: EstimatorContext) -> Estimate:
        """See ``estimate``; the run needs settings."""
        from .estimate import estimate

        return estimate(_request_of(self.run, world), world.facts)


@dataclass(frozen=True)
class ModelEstimate(EstimatorQuestion["Estimate"]):
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

    def answer(self, world: EstimatorContext) -> Estimate:
        """See ``estimate``."""
        from .estimate import estimate

        return estimate(self.request, world.facts)


@dataclass(frozen=True)
class Capacity(EstimatorQuestion["float | None"]):
    """What a card offers to programs, in bytes; None if it is not known."""

    gpu: str

    def answer(self, world: EstimatorContext) -> float | None:
        """See ``facts.capacity_of``."""
        from .facts import capacity_of

        card = world.facts.gpus.get(self.gpu)
        return capacity_of(card) if card else None


@dataclass(frozen=True)
class Lengths(EstimatorQuestion["tuple[Longer, ...]"]):
    """What longer responses take.

    Attributes:
        asked: the run.
        responses: limits of its responses, in tokens.
    """

    asked: ModelEstimate
    responses: tuple[int, ...]

    def answer(self, world: EstimatorContext) -> tuple[Longer, ...]:
        """See ``lengths.longer``."""
        from .lengths import longer

        return longer(self.asked.request, world.facts, self.responses)


@dataclass(frozen=True)
class Savings(EstimatorQuestion["SavingSteps"]):
    """What each setting that saves memory buys.

    Attributes:
        asked: the model with its settings.
    """

    asked: ModelEstimate

    def answer(self, world: EstimatorContext) -> SavingSteps:
        """See ``savings``."""
        from .savings import savings

        return savings(self.asked.request, world.facts)


@dataclass(frozen=True)
class RunSavings(EstimatorQuestion["SavingSteps"]):
    """What each setting that saves memory would buy a recorded run."""

    run: str

    def answer(self, world: EstimatorContext) -> SavingSteps:
        """See ``savings``; the run needs settings."""
        from .savings import savings

        return savings(_request_of(self.run, world), world.facts)


@dataclass(frozen=True)
class Fit(EstimatorQuestion["tuple[tuple[str, tuple[FitCell, ...]], ...]"]):
    """Size classes by numbers of GPUs, for one card and task.

    Attributes:
        gpu: the card.
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

    def answer(self, world: EstimatorContext) -> tuple[tuple[str, tuple[FitCell, ...]], ...]:
        """See ``fit.fit_table``."""
        from .fit import fit_table

        return fit_table(
            world.facts,
            world.catalog,
            world.analysis,
            gpu=self.gpu,
            task=self.task,
            sizes=self.sizes,
            counts=self.counts,
            config=dict(self.config),
        )


@dataclass(frozen=True)
class Grid(EstimatorQuestion["GridCells"]):
    """Every combination of what a form offers.

    Attributes:
        axes: what can be chosen.
        config: further settings, as pairs.
    """

    axes: Axes
    config: tuple[tuple[str, Any], ...] = ()

    def answer(self, world: EstimatorContext) -> GridCells:
        """See ``grid.compute_grid``."""
        from .grid import compute_grid

        return compute_grid(self.axes, dict(self.config), world.facts)


@dataclass(frozen=True)
class SizeModels(EstimatorQuestion["tuple[tuple[str, str], ...]"]):
    """Which model stands for which size class in a table of ``Fit``; ``sizes`` as there."""

    sizes: tuple[str, ...] = ()

    def answer(self, world: EstimatorContext) -> tuple[tuple[str, str], ...]:
        """Size classes in ascending order, and the names of checkpoints."""
        from .fit import size_models

        found = size_models(world.catalog, world.analysis).items()
        return tuple((size, model) for size, model in found if not self.sizes or size in self.sizes)


@dataclass(frozen=True)
class Exported(EstimatorQuestion["Export"]):
    """Everything that programs may want to read, with the version of the extension in it."""

    extension_version: str

    def answer(self, world: EstimatorContext) -> Export:
        """See ``export.export_of``."""
        from .export import export_of

        return export_of(world, self.extension_version)


@dataclass(frozen=True)
class CaseFilesWithErrors(EstimatorQuestion["tuple[str, ...]"]):
    """The files of cases that have errors, as messages show them."""

    of_cases = True

    def answer(self, world: EstimatorContext) -> tuple[str, ...]:
        """In the order of their paths."""
        found = (item for item in world.cases.diagnostics if item.severity is Severity.ERROR)
        return tuple(dict.fromkeys(item.place.path for item in found))


@dataclass(frozen=True)
class Defaults(EstimatorQuestion["tuple[tuple[str, Any], ...]"]):
    """verl's defaults of some keys, in its newest version."""

    keys: tuple[str, ...]

    def answer(self, world: EstimatorContext) -> tuple[tuple[str, Any], ...]:
        """Pairs of key and value."""
        from .versions import CURRENT

        defaults = world.facts.defaults(CURRENT)
        return tuple((key, defaults.get(key)) for key in self.keys)


@dataclass(frozen=True)
class Accuracies(EstimatorQuestion["tuple[tuple[Score, ...], tuple[Summary, ...]]"]):
    """Every case of some groups, computed beside observed, and the summary of each group."""

    of_cases = True
    groups: tuple[str, ...]

    def answer(self, world: EstimatorContext) -> tuple[tuple[Score, ...], tuple[Summary, ...]]:
        """In the order of the groups, then of the files."""
        from .backtest import group_of, score, summaries

        cases = [entry.case for entry in world.cases.by_id.values()]
        chosen = [case for group in self.groups for case in cases if group_of(case) == group]
        scores = tuple(score(case, world.facts) for case in chosen)
        return scores, summaries(scores)


def _request_of(name: str, world: EstimatorContext) -> Request:
    """A recorded run as a request.

    Raises:
        NoAnswerError: there is no such run, or it has no settings.
    """
    from .case import request_of_run

    run = RecordedRun(name).answer(world)
    if not run.settings:
        raise NoAnswerError.because(f"the run {name!r} records no settings to estimate from", _NO_SETTINGS)
    return request_of_run(run, world.facts)
