"""All records of a snapshot, each kind loaded when it is first needed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .analysis import Analysis
    from .cases import Cases
    from .catalog import Catalog
    from .files import DataFile, Snapshot


class Dataset:
    """The records in the files of a snapshot; importing this loads neither pydantic nor a reader of YAML.

    Attributes:
        snapshot: the files.
    """

    def __init__(
        self, snapshot: Snapshot, watch: Callable[[Sequence[DataFile]], Iterable[DataFile]] = iter
    ) -> None:
        self.snapshot = snapshot
        self._watch = watch

    @cached_property
    def catalog(self) -> Catalog:
        """Runs, GPUs and architectures."""
        from .catalog import load_catalog

        return load_catalog(self.snapshot, self._watch)

    @cached_property
    def analysis(self) -> Analysis:
        """The memory analysis."""
        from .analysis import load_analysis

        return load_analysis(self.snapshot, self.catalog)

    @cached_property
    def cases(self) -> Cases:
        """The observations that the estimator is tested on."""
        from .cases import load_cases

        return load_cases(self.snapshot.cases)
