"""Queries about answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..estimator.queries import EstimateQuery, EstimatorQuery, RecordedRun, RunEstimate, basis
from ..query import digest, plain

if TYPE_CHECKING:
    from ..estimator.context import EstimatorContext
    from .answer import Answer
    from .grid import Axes, GridCells
    from .sizes import FewestTable


@dataclass(frozen=True)
class SizeModels(EstimatorQuery["tuple[tuple[str, str], ...]"]):
    """A query for the models that represent size classes; empty ``sizes`` means all with a model."""

    sizes: tuple[str, ...] = ()

    reads = EstimatorQuery.reads | {"analysis"}

    def answer(self, data: EstimatorContext) -> tuple[tuple[str, str], ...]:
        """Return size classes in ascending order, each with the name of a checkpoint."""
        from .sizes import size_models

        found = size_models(data).items()
        return tuple((size, model) for size, model in found if not self.sizes or size in self.sizes)


@dataclass(frozen=True)
class UsedModels(EstimatorQuery["tuple[str, ...]"]):
    """A query for the models that verl's scripts or recorded runs load."""

    def answer(self, data: EstimatorContext) -> tuple[str, ...]:
        """Return names of checkpoints, the smallest first, one for each group of equal models."""
        from .sizes import used_models

        return used_models(data)


@dataclass(frozen=True)
class FewestGpus(EstimatorQuery["tuple[FewestTable, ...]"]):
    """A query for the fewest GPUs by size class, with a table for each memory size.

    Attributes:
        memories: memory sizes of a GPU, in GB.
        task: the algorithm.
        sizes: size classes; empty for all with a model.
        config: further settings, as pairs.
    """

    memories: tuple[int, ...]
    task: str
    sizes: tuple[str, ...] = ()
    config: tuple[tuple[str, Any], ...] = ()

    reads = EstimatorQuery.reads | {"analysis"}  # for the models of the size classes

    def answer(self, data: EstimatorContext) -> tuple[FewestTable, ...]:
        """Compute each cell."""
        from .sizes import fewest_tables

        return fewest_tables(
            data, memories=self.memories, task=self.task, sizes=self.sizes, config=dict(self.config)
        )


@dataclass(frozen=True)
class Grid(EstimatorQuery["GridCells"]):
    """A query for every combination of a form's choices for one model.

    Attributes:
        model: the model's Hugging Face name.
        axes: the choices.
        config: further settings, as pairs.
    """

    model: str
    axes: Axes
    config: tuple[tuple[str, Any], ...] = ()

    def answer(self, data: EstimatorContext) -> GridCells:
        """Compute each cell."""
        from .grid import compute_grid

        return compute_grid(self.model, self.axes, dict(self.config), data)


@dataclass(frozen=True)
class SettingsAnswer(EstimatorQuery["Answer"]):
    """A query for the answer about given settings, of a recorded run or of a model.

    Attributes:
        asked: the query for their estimate.
    """

    asked: EstimateQuery

    def answer(self, data: EstimatorContext) -> Answer:
        """Return the answer, with the relevant recorded runs."""
        from .answer import answer_run, answer_settings

        if isinstance(self.asked, RunEstimate):
            return answer_run(RecordedRun(self.asked.run).answer(data), data)
        return answer_settings(self.asked.request(data), data)

    def fingerprint(self, answer: Answer) -> str:
        """Return a digest of the runs, the trust in the estimate, and the estimate's inputs."""
        runs = [plain(run) for run in answer.evidence]
        return digest(answer.verdict, runs, plain(answer.trust), basis(answer.best.estimate))


@dataclass(frozen=True)
class Exported(EstimatorQuery["dict[str, Any]"]):
    """A query for the export for programs, with the version of the extension."""

    extension_version: str

    def answer(self, data: EstimatorContext) -> dict[str, Any]:
        """Collect the records and estimates."""
        from .export import export_of

        return export_of(data, self.extension_version)


@dataclass(frozen=True)
class RunArguments(EstimatorQuery["tuple[str, ...]"]):
    """A query for the settings of a recorded run as arguments of verl's launcher."""

    run: str

    def answer(self, data: EstimatorContext) -> tuple[str, ...]:
        """Return one argument for each setting, quoted for a shell."""
        from ..estimator.recorded import version_of_run
        from .command import as_arguments

        run = RecordedRun(self.run).answer(data)
        return as_arguments(run.settings, version_of_run(run), data.registries)
