"""The data that queries to the estimator are about."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ..catalog.dataset import Dataset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..diagnostics import Diagnostic
    from .registries import Registries


class EstimatorContext(Dataset):
    """The records with the registries that estimates are computed from."""

    @property
    def registries(self) -> Registries:
        """The registries, with shapes and defaults."""
        return self._loaded[0]

    @property
    def accuracy_problems(self) -> Sequence[Diagnostic]:
        """Problems of the record of accuracy, which nothing else reads."""
        return self._loaded[1]

    @cached_property
    def _loaded(self) -> tuple[Registries, list[Diagnostic]]:
        from .registries import load_registries

        return load_registries(self.snapshot, self.catalog, self.analysis)
