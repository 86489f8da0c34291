"""A rule, and the data for the rules, read and validated as in a build."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

from ..catalog.dataset import DataPart
from ..catalog.files import bundled_directory, take_snapshot
from ..catalog.yaml_data import read_yaml
from ..diagnostics import Diagnostic, Location, NoAnswerError, Severity
from ..estimator.context import EstimatorContext
from ..estimator.estimate import estimate
from ..estimator.recorded import request_of_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..catalog.files import DataFile, Directory
    from ..catalog.models.run import Run
    from ..catalog.yaml_data import Document
    from ..diagnostics import Code
    from ..estimator.estimate import Estimate
    from ..git import Repository


@dataclass(frozen=True)
class SourceFile:
    """A readable file.

    Attributes:
        file: the file.
        kind: the name of its schema: ``run``, ``cases``, ``gpus`` and so on.
        document: its YAML, to look up places.
    """

    file: DataFile
    kind: str
    document: Document

    @property
    def shown(self) -> str:
        """Its path in messages."""
        return self.file.shown

    def value_place(self, *loc: str | int, key: str = "") -> Location:
        """Return the place of a value or of its nearest parent, with the name of the entry as ``key``."""
        return replace(self.document.place(loc), key=key)

    def key_place(self, *loc: str | int) -> Location:
        """Return the place of the key at the end of ``loc``."""
        return self.document.key_place(loc)


@dataclass(frozen=True)
class RunEntry:
    """A valid run, its file and its estimate.

    Attributes:
        run: the run.
        source: its file.
        estimate: its estimate; None if the settings do not allow one.
    """

    run: Run
    source: SourceFile
    estimate: Estimate | None


class CheckContext(EstimatorContext):
    """The data directories to check, with the data that they build on.

    Attributes:
        directories: the directories to check.
        today: the latest date that is not in the future.
        repository: a checkout of verl, or None.
    """

    def __init__(
        self,
        configured: Sequence[Directory],
        *,
        bundled: Directory | None = None,
        today: date | None = None,
        repository: Repository | None = None,
    ) -> None:
        """Read the files of data directories.

        Args:
            configured: the directories to check; empty for the package's.
            bundled: the data directory that they build on; default: the package's.
            today: the latest date that is not in the future; default: the latest current date worldwide.
            repository: a checkout of verl.
        """
        bundled = bundled or bundled_directory()
        snapshot = take_snapshot(bundled, configured, Location(""))
        super().__init__(snapshot)
        self.directories = tuple(configured) or (bundled,)
        # The earliest time zone is 14 hours ahead of UTC.
        self.today = today or (datetime.now(timezone.utc) + timedelta(hours=14)).date()
        self.repository = repository

    def _judge(self, run: Run, document: Document) -> Iterator[Diagnostic]:
        """Return errors and warnings about the settings of a run."""
        return self._problems_of(run, document)

    @cached_property
    def problems(self) -> tuple[Diagnostic, ...]:
        """The problems that a build would report, and warnings about the settings of runs."""
        return tuple(problem for part in get_args(DataPart) for problem in self.diagnostics_of(part))

    @cached_property
    def files(self) -> tuple[SourceFile, ...]:
        """The files of the directories with readable YAML."""
        return tuple(self._files())

    def _files(self) -> Iterator[SourceFile]:
        kinds = [("run", self.snapshot.runs), ("cases", self.snapshot.cases)]
        kinds += [(name.removesuffix(".yaml"), files) for name, files in self.snapshot.registries.items()]
        own = [(kind, file) for kind, files in kinds for file in files if self.is_checked(file)]
        for kind, file in own:
            document = read_yaml(file.content, file.shown)
            if document.data is not None:
                yield SourceFile(file, kind, document)

    @cached_property
    def runs(self) -> tuple[RunEntry, ...]:
        """The valid runs of the directories."""
        broken = {run.shown for run in self.catalog.broken}
        sources = [source for source in self.of_kind("run") if source.shown not in broken]
        by_id = [(self.catalog.runs[source.file.path.stem], source) for source in sources]
        return tuple(self._entry(run, source) for run, source in by_id)

    def _entry(self, run: Run, source: SourceFile) -> RunEntry:
        try:
            request = request_of_run(run, self.registries, needs_settings=False)
            result: Estimate | None = estimate(request, self.registries)
        except NoAnswerError:
            result = None
        return RunEntry(run, source, result)

    def is_checked(self, file: DataFile) -> bool:
        """Return whether a file is in one of the directories to check."""
        return any(file.path.is_relative_to(directory.path) for directory in self.directories)

    def of_kind(self, kind: str) -> list[SourceFile]:
        """Return the files of a kind."""
        return [source for source in self.files if source.kind == kind]


#: The input of a rule: the text of a file, a run, the entries of a registry, or all data.
Scope = Literal["file", "run", "registry", "data"]


@dataclass(frozen=True)
class Rule:
    """A code, its severity, and the function that finds violations.

    Attributes:
        code: the code of its messages.
        scope: its input.
        severity: the severity of its messages.
        needs_repository: whether it only runs with a checkout of verl.
        find: yields the violations; None for a code that is reported elsewhere.
    """

    code: Code
    scope: Scope
    severity: Severity = Severity.WARNING
    needs_repository: bool = False
    find: Callable[..., Iterable[Diagnostic]] | None = None

    def __call__(self, find: Callable[..., Iterable[Diagnostic]]) -> Rule:
        """Return the rule with the decorated function.

        Depending on the scope, the function takes a file, a run and the context, or only the context.
        """
        return replace(self, find=find)

    def problems(self, context: CheckContext) -> Iterator[Diagnostic]:
        """Yield the violations of the rule."""
        if self.find is None or (self.needs_repository and context.repository is None):
            return
        if self.scope == "file":
            for file in context.files:
                yield from self.find(file)
        elif self.scope == "run":
            for entry in context.runs:
                yield from self.find(entry, context)
        else:
            yield from self.find(context)

    def broken_at(self, place: Location, message: str, remedy: str) -> Diagnostic:
        """Return the diagnostic for a violation."""
        return Diagnostic(place, self.code, message, remedy, self.severity)
