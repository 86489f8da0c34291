"""The data for estimates."""

from __future__ import annotations

from copy import copy, deepcopy
from functools import cached_property
from typing import TYPE_CHECKING

from ..dataset import CASES, Dataset

if TYPE_CHECKING:
    from ..registries import Registry
    from .accuracy import Accuracy
    from .architectures import Architecture
    from .cases import Cases
    from .registries import Registries


class EstimatorContext(Dataset):
    """The dataset, with the registries that estimates are computed from."""

    parts = (*Dataset.parts, "accuracy", "cases")

    @cached_property
    def registries(self) -> Registries:
        """The registries, with shapes and defaults."""
        from .registries import Registries

        return Registries(self.gpus, self.architectures, self.config_keys, self.accuracy)

    @cached_property
    def architectures(self) -> Registry[Architecture]:
        """The model shapes, with all fields, by the model's Hugging Face name."""
        from .architectures import ArchitectureFile

        return self.registry(ArchitectureFile)

    @cached_property
    def accuracy(self) -> Registry[Accuracy]:
        """The accuracy of the estimator, by group of cases."""
        from .accuracy import AccuracyFile

        return self.registry(AccuracyFile)

    @cached_property
    def cases(self) -> Cases:
        """The cases that the estimator is tested on."""
        from .cases import load_cases

        found = load_cases(self.files[CASES], recorded=True)
        self.problems["cases"] = list(found.problems)
        return found

    def knowing(self, architecture: Architecture) -> EstimatorContext:
        """Return the same data with an architecture added, or replaced if the name exists."""
        known = copy(self)
        known.architectures = deepcopy(self.architectures)
        known.architectures.add(architecture)
        for made in ("registries", "runs", "run_files"):
            known.__dict__.pop(made, None)
        return known
