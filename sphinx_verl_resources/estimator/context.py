"""The data for queries to the estimator."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

from ..catalog.dataset import Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.models.architecture import Architecture
    from ..catalog.models.run import Run
    from ..catalog.yaml_data import Document
    from ..diagnostics import Diagnostic
    from .registries import Registries


class EstimatorContext(Dataset):
    """The dataset, with the registries that estimates are computed from."""

    @cached_property
    def registries(self) -> Registries:
        """The registries, with shapes and defaults."""
        from .registries import Registries

        return Registries(self.gpus, self.architectures, self.config_keys, self.accuracy)

    def _judge(self, run: Run, document: Document) -> Iterator[Diagnostic]:
        """Return the errors in a run's settings; only ``check`` reports warnings."""
        return (problem for problem in self._problems_of(run, document) if problem.is_error)

    def _problems_of(self, run: Run, document: Document) -> Iterator[Diagnostic]:
        """Return errors and warnings about a run's settings, at their places."""
        from .run_problems import located, run_problems

        return located(run_problems(run, self.registries), run, document)

    def knowing(self, architecture: Architecture) -> EstimatorContext:
        """Return the same data with an architecture added, or replaced if the name exists."""
        known = copy(self)
        known.architectures = self.architectures.with_entry(architecture)
        for made in ("registries", "catalog"):
            known.__dict__.pop(made, None)
        return known
