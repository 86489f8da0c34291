"""The queries about answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..catalog.dataset import digest, plain
from ..estimator.queries import EstimatorQuery

if TYPE_CHECKING:
    from ..estimator.context import EstimatorContext
    from .grid import Axes, FitCell, GridCells


@dataclass(frozen=True)
class SizeModels(EstimatorQuery["tuple[tuple[str, str], ...]"]):
    """A query for the models that represent size classes; ``sizes`` empty for all that have one."""

    sizes: tuple[str, ...] = ()

    reads = EstimatorQuery.reads | {"analysis"}

    def answer(self, data: EstimatorContext) -> tuple[tuple[str, str], ...]:
        """Return size classes in ascending order, each with the name of a checkpoint."""
        from .fewest import size_models

        found = size_models(data).items()
        return tuple((size, model) for size, model in found if not self.sizes or size in self.sizes)


@dataclass(frozen=True)
class Fit(EstimatorQuery["tuple[tuple[str, tuple[FitCell, ...]], ...]"]):
    """A query for size classes by numbers of GPUs, for one GPU and task.

    Attributes:
        gpu: its name.
        task: the algorithm.
        sizes: size classes; empty for all that have a model.
        counts: numbers of GPUs.
        config: further settings, as pairs.
    """

    gpu: str
    task: str
    sizes: tuple[str, ...]
    counts: tuple[int, ...]
    config: tuple[tuple[str, Any], ...] = ()

    reads = EstimatorQuery.reads | {"analysis"}  # for the models

    def answer(self, data: EstimatorContext) -> tuple[tuple[str, tuple[FitCell, ...]], ...]:
        """Compute each cell."""
        from .grid import fit_table

        return fit_table(
            data,
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
    """A query for every combination of a form's choices.

    Attributes:
        axes: what can be chosen.
        config: further settings, as pairs.
    """

    axes: Axes
    config: tuple[tuple[str, Any], ...] = ()

    def answer(self, data: EstimatorContext) -> GridCells:
        """Compute each cell."""
        from .grid import compute_grid

        return compute_grid(self.axes, dict(self.config), data)

    def fingerprint(self, answer: GridCells) -> str:
        """Return a digest of all fields."""
        return digest(plain(answer))
