"""What a build reads of the data: each part when it is first asked for, and once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..catalog.files import bundled_directory, configured_directory, take_snapshot
from .config import VerlConfig, conf_place, read_config

if TYPE_CHECKING:
    from pathlib import Path

    from sphinx.environment import BuildEnvironment

    from ..catalog.analysis import Analysis
    from ..catalog.cases import Cases
    from ..catalog.catalog import Catalog
    from ..catalog.files import Snapshot
    from ..diagnostics import Diagnostic
    from ..estimator.facts import Registries
    from ..estimator.questions import EstimatorContext
    from .uses import Asked


class BuildData:
    """The data of one build, and the answers that were found in them."""

    env: BuildEnvironment
    #: The directory of conf.py.
    confdir: Path

    @cached_property
    def settings(self) -> VerlConfig:
        """The values of conf.py."""
        return read_config(self.env.config)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The data files, read once."""
        directories = [configured_directory(name, self.confdir) for name in self.settings.directories]
        return take_snapshot(bundled_directory(), directories, conf_place(self.confdir, "data"))

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog, loaded when first asked for."""
        from ..catalog.load import load_catalog

        return load_catalog(self.snapshot)

    @cached_property
    def analysis(self) -> Analysis:
        """The memory analysis, loaded when first asked for."""
        from ..catalog.analysis import load_analysis

        return load_analysis(self.snapshot, self.catalog)

    @cached_property
    def cases(self) -> Cases:
        """The observations that the estimator is tested on, loaded when first asked for."""
        from ..catalog.cases import load_cases

        return load_cases(self.snapshot.cases)

    @cached_property
    def _facts(self) -> tuple[Registries, list[Diagnostic]]:
        from ..estimator.facts import load_registries

        return load_registries(self.snapshot, self.catalog, self.analysis)

    @cached_property
    def world(self) -> EstimatorContext:
        """What the estimator is asked about, loaded when first asked for."""
        from ..estimator.questions import EstimatorContext

        return EstimatorContext(self._facts[0], self.catalog, self.analysis, lambda: self.cases)

    @cached_property
    def _answers(self) -> dict[Asked, Any]:
        return {}

    def forget(self) -> None:
        """Drop what was loaded; the next build of the same application reads again."""
        for name in ("settings", "snapshot", "catalog"):
            self.__dict__.pop(name, None)
        self.forget_answers()

    def forget_answers(self) -> None:
        """Drop what nobody asks for once all pages have been read.

        Python's search for garbage would go through it again and again while they are written.
        """
        for name in ("analysis", "cases", "_facts", "world", "_answers"):
            self.__dict__.pop(name, None)
