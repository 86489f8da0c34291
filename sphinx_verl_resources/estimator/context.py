"""The data that queries to the estimator are about."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

from ..catalog.dataset import Dataset

if TYPE_CHECKING:
    from ..catalog.models.architecture import Architecture
    from .registries import Registries


class EstimatorContext(Dataset):
    """The records with the registries that estimates are computed from."""

    @cached_property
    def registries(self) -> Registries:
        """The registries, with shapes and defaults."""
        from .registries import Registries

        return Registries(self.gpus, self.architectures, self.config_keys, self.accuracy)

    def knowing(self, architecture: Architecture) -> EstimatorContext:
        """Return the same records with one more architecture, or another one of the same name."""
        known = copy(self)
        known.architectures = self.architectures.with_entry(architecture)
        for made in ("registries", "catalog"):
            known.__dict__.pop(made, None)
        return known
