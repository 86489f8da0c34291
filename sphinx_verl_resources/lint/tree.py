"""All that rules look at: the files of data directories, read and checked as a build does it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..analysis.printed import analysis_problems
from ..catalog.analysis import load_analysis
from ..catalog.cases import load_cases
from ..catalog.files import EXCEPTIONS, read_data_file, take_snapshot
from ..catalog.load import load_catalog
from ..catalog.yaml_data import read_yaml
from ..diagnostics import Code, Diagnostic, Location, NoAnswerError
from ..estimator.case import request_of_run
from ..estimator.estimate import estimate
from ..estimator.facts import load_registries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import date

    from ..catalog.analysis import Analysis
    from ..catalog.cases import Cases
    from ..catalog.catalog import Catalog
    from ..catalog.files import DataFile, Directory, Snapshot
    from ..catalog.models.run import Run
    from ..catalog.yaml_data import Document
    from ..estimator.estimate import Estimate
    from ..estimator.facts import Registries
    from .repository import Repository


Item = TypeVar("Item")


class Progress(Protocol):
    """Gives items back one by one, and so sees how far the work on them is."""

    def __call__(self, items: Sequence[Item], what: str, /) -> Iterable[Item]:
        """The items; ``what`` names them."""


def no_progress(items: Sequence[Item], what: str, /) -> Iterable[Item]:
    """Nobody looks."""
    return items


@dataclass(frozen=True)
class SourceFile:
    """A file that could be read.

    Attributes:
        file: the file.
        kind: the name of its schema: ``run``, ``cases``, ``gpus`` and so on.
        document: for looking up places.
    """

    file: DataFile
    kind: str
    document: Document

    @property
    def shown(self) -> str:
        """Its path in messages."""
        return self.file.shown


@dataclass(frozen=True)
class RunEntry:
    """A run without errors, its file, and what is computed from its settings.

    Attributes:
        estimate: None where its settings leave none.
        issues: what the estimator has to say about the settings.
    """

    run: Run
    source: SourceFile
    estimate: Estimate | None
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class CheckContext:
    """The data directories that are checked, with all that they rest on.

    Attributes:
        directories: those whose files the rules look at.
        bundled: the dataset of the package.
        snapshot: all files that were read, those of the package included.
        found: every problem that a build would name.
        today: the day after which nothing can have happened yet.
        repository: a checkout of verl, None where none is given.
        watched: is given what takes long to look at, with a word for it, and gives it back one by one.
    """

    directories: tuple[Directory, ...]
    bundled: Directory
    snapshot: Snapshot
    catalog: Catalog
    analysis: Analysis
    cases: Cases
    facts: Registries
    found: tuple[Diagnostic, ...]
    today: date
    repository: Repository | None = None
    watched: Progress = no_progress

    @property
    def is_own(self) -> bool:
        """Whether the data are somebody's own, and not those of the package."""
        return self.directories != (self.bundled,)

    @cached_property
    def files(self) -> tuple[SourceFile, ...]:
        """The files of the directories that hold readable YAML, exceptions included."""
        return tuple(self._files())

    def _files(self) -> Iterator[SourceFile]:
        kinds = [("run", self.snapshot.runs), ("cases", self.snapshot.cases)]
        kinds += [(name.removesuffix(".yaml"), files) for name, files in self.snapshot.registries.items()]
        own = [(kind, file) for kind, files in kinds for file in files if self.owner(file) is not None]
        for kind, file in self.watched(own, "files checked"):
            yield from _source(file, kind)
        for directory in self.directories:
            file_of_exceptions, _ = exceptions_file(directory)
            if file_of_exceptions:
                yield from _source(file_of_exceptions, "exceptions")

    @cached_property
    def runs(self) -> tuple[RunEntry, ...]:
        """The runs of the directories that have no error."""
        broken = {run.shown for run in self.catalog.broken}
        sources = [source for source in self.files if source.kind == "run" and source.shown not in broken]
        by_id = [(self.catalog.runs[source.file.path.stem], source) for source in sources]
        return tuple(self._entry(run, source) for run, source in self.watched(by_id, "runs computed"))

    def _entry(self, run: Run, source: SourceFile) -> RunEntry:
        try:
            found = estimate(request_of_run(run, self.facts), self.facts)
        except NoAnswerError as error:
            return RunEntry(run, source, None, error.diagnostics)
        return RunEntry(run, source, found, found.warnings)

    def owner(self, file: DataFile) -> Directory | None:
        """The directory that a file is in, None for one of the package that was not asked for."""
        return next((item for item in self.directories if file.path.is_relative_to(item.path)), None)

    def of_kind(self, kind: str) -> Mapping[str, SourceFile]:
        """The files of one kind, by their paths in messages."""
        return {source.shown: source for source in self.files if source.kind == kind}


def _source(file: DataFile, kind: str) -> Iterator[SourceFile]:
    """The file with its document; none where it is empty or no YAML."""
    document = read_yaml(file.content)
    if document.data is not None:
        yield SourceFile(file, kind, document)


def load_tree(
    bundled: Directory,
    configured: Sequence[Directory],
    today: date,
    repository: Repository | None = None,
    watched: Progress = no_progress,
) -> CheckContext:
    """Read data directories.

    Args:
        bundled: the dataset of the package, on which the others rest.
        configured: the directories to check; none for the dataset of the package.
        today: the day after which nothing can have happened yet.
        repository: a checkout of verl.
        watched: is given what takes long to look at, with a word for it, and gives it back one by one.
    """
    snapshot = take_snapshot(bundled, configured, Location("command line"))
    catalog = load_catalog(snapshot, lambda files: watched(files, "run files"))
    analysis = load_analysis(snapshot, catalog)
    facts, of_accuracy = load_registries(snapshot, catalog, analysis)
    cases = load_cases(snapshot.cases)
    found = (*catalog.diagnostics, *analysis_problems(analysis), *of_accuracy, *cases.diagnostics)
    directories = tuple(configured) or (bundled,)
    return CheckContext(
        directories, bundled, snapshot, catalog, analysis, cases, facts, found, today, repository, watched
    )


def exceptions_file(directory: Directory) -> tuple[DataFile | None, list[Diagnostic]]:
    """The file of exceptions in a data directory, and why it could not be read."""
    shown = directory.show(EXCEPTIONS)
    try:
        return read_data_file(directory.path / EXCEPTIONS, shown), []
    except FileNotFoundError:
        return None, []
    except OSError as error:
        message = f"the file cannot be read: {(error.strerror or str(error)).lower()}"
        return None, [Diagnostic(Location(shown), Code.file_unreadable, message, "check its permissions")]
