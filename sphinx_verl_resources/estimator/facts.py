"""What estimates are computed from: the registries, with shapes and defaults kept once they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..catalog.files import ACCURACY
from ..catalog.registries import load_accuracy
from ..units import GIB, MIB
from .constants import DRIVER_RESERVE
from .keys import defaults_in, renamed_keys
from .ranges import Range
from .shape import shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..catalog.analysis import Analysis
    from ..catalog.catalog import Catalog, Registry
    from ..catalog.files import Snapshot
    from ..catalog.models.accuracy import Accuracy
    from ..catalog.models.architecture import Architecture
    from ..catalog.models.config_key import ConfigKey
    from ..catalog.models.gpu import Gpu
    from ..diagnostics import Diagnostic
    from .shape import Shape
    from .versions import Version


@dataclass(frozen=True, eq=False)
class Registries:
    """The registries of one catalog."""

    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    config_keys: Registry[ConfigKey]
    accuracy: Registry[Accuracy]
    _shapes: dict[str, Shape] = field(default_factory=dict, repr=False, compare=False)
    _defaults: dict[Version, Mapping[str, Any]] = field(default_factory=dict, repr=False, compare=False)

    def shape(self, model: str) -> Shape | None:
        """The shape of a checkpoint, by its Hugging Face name or an alias; None if it is unknown."""
        if model not in self._shapes:
            architecture = self.architectures.get(model)
            if architecture is None:
                return None
            self._shapes[model] = shape_of(architecture)
        return self._shapes[model]

    def range_of(self, kind: str) -> Range:
        """How far measured and computed values lie apart; from nothing to twice where nothing is recorded."""
        found = self.accuracy.get(kind)
        return Range(kind, (found and found.low) or 0.0, (found and found.high) or 2.0)

    def defaults(self, version: Version) -> Mapping[str, Any]:
        """Verl's defaults in a version, by dotted key."""
        if version not in self._defaults:
            self._defaults[version] = defaults_in(self.config_keys, version)
        return self._defaults[version]

    @cached_property
    def renamed(self) -> Mapping[str, str]:
        """Names that keys of verl had before, and what they are called now."""
        return renamed_keys(self.config_keys)


def capacity_of(gpu: Gpu) -> float:
    """Bytes that CUDA offers to programs: as read where a reading is known, else a little below the driver's.

    >>> from sphinx_verl_resources.cli.data import load_paths
    >>> round(capacity_of(load_paths([]).gpus.get("H100")) / 2**30, 2)
    79.15
    """
    if gpu.cuda_total_gib is not None:
        return gpu.cuda_total_gib * GIB
    return gpu.memory_mib * MIB - DRIVER_RESERVE.value


def load_registries(
    snapshot: Snapshot, catalog: Catalog, analysis: Analysis
) -> tuple[Registries, list[Diagnostic]]:
    """The registries of a catalog, and what is wrong with those that nothing else reads."""
    problems: list[Diagnostic] = []
    accuracy = load_accuracy(snapshot.registries[ACCURACY], problems)
    return Registries(catalog.gpus, catalog.architectures, analysis.config_keys, accuracy), problems
