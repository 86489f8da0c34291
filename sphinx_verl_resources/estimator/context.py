"""The data that queries to the estimator are about."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

from ..catalog.dataset import Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.catalog import Catalog
    from ..catalog.models.architecture import Architecture
    from ..catalog.models.run import Run
    from ..catalog.yaml_data import Document
    from ..diagnostics import Diagnostic
    from .registries import Registries


class EstimatorContext(Dataset):
    """The records with the registries that estimates are computed from."""

    @cached_property
    def registries(self) -> Registries:
        """The registries, with shapes and defaults."""
        from .registries import Registries

        return Registries(self.gpus, self.architectures, self.config_keys, self.accuracy)

    @cached_property
    def catalog(self) -> Catalog:
        """The runs, with GPUs and architectures; settings are judged as estimates judge them."""
        from ..catalog.catalog import load_catalog

        run_files = self._progress(self.snapshot.runs, "run files")
        return load_catalog(self.snapshot, run_files, self.gpus, self.architectures, self._judge)

    def _judge(self, run: Run, document: Document) -> Iterator[Diagnostic]:
        """Return the errors in the settings of a run; a build reads no exceptions from warnings."""
        return (problem for problem in self._problems_of(run, document) if problem.is_error)

    def _problems_of(self, run: Run, document: Document) -> Iterator[Diagnostic]:
        """Return what is wrong with the settings of a run, at their places."""
        from .run_problems import located, run_problems

        return located(run_problems(run, self.registries), run, document)

    def knowing(self, architecture: Architecture) -> EstimatorContext:
        """Return the same records with one more architecture, or another one of the same name."""
        known = copy(self)
        known.architectures = self.architectures.with_entry(architecture)
        for made in ("registries", "catalog"):
            known.__dict__.pop(made, None)
        return known
