"""The data that queries to the estimator are about."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ..catalog.dataset import Dataset

if TYPE_CHECKING:
    from .registries import Registries


class EstimatorContext(Dataset):
    """The records with the registries that estimates are computed from."""

    @cached_property
    def registries(self) -> Registries:
        """The registries, with shapes and defaults."""
        from .registries import Registries

        return Registries(self.gpus, self.architectures, self.config_keys, self.accuracy)
