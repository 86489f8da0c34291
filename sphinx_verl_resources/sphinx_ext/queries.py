"""Queries about runs, registries, conf.py and the extension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import __version__
from ..diagnostics import Code, Diagnostic, Location, NoAnswerError, nearest, suggest_or
from ..estimator.context import EstimatorContext
from ..fields import as_text, field_named, is_numeric
from ..i18n import N_
from ..query import Query, digest
from ..selection import FILTERS
from . import objects

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from docutils import nodes
    from sphinx.domains.std import StandardDomain

    from ..dataset import BrokenRun, Dataset, Directory
    from ..query import DataPart
    from ..records import Run
    from ..registries import Architecture, Gpu
    from ..selection import RunSelection
    from .config import VerlConfig


class BuildData(EstimatorContext):
    """Everything that a page can query: the records, conf.py, the translations and the other pages.

    Attributes:
        settings: the values of conf.py.
        words: a digest of the translations, see ``i18n.use_language``.
        shown: the objects on the pages read so far.
        std: Sphinx's domain of labels.
    """

    def __init__(
        self,
        configured: Sequence[Directory],
        missing: Location,
        settings: VerlConfig,
        words: str,
        shown: objects.Objects,
        std: StandardDomain,
    ) -> None:
        super().__init__(configured, missing=missing)
        self.settings = settings
        self.words = words
        self.shown = shown
        self.std = std


@dataclass(frozen=True)
class Extension(Query[str]):
    """The extension, on which every page with a directive or role depends.

    Its version and its translations can change the content of the page.
    """

    def answer(self, data: BuildData) -> str:
        """Return the version, and a digest of the translations."""
        return f"{__version__} {data.words}"


@dataclass(frozen=True)
class ConfigValue(Query[str]):
    """A value of conf.py, by its name without the prefix."""

    name: str

    def answer(self, data: BuildData) -> str:
        """Return the value."""
        return str(getattr(data.settings, self.name))

    def place(self, data: BuildData, docname: str) -> object:
        """Return the place of the label, if the value is one."""
        return data.std.anonlabels.get(self.answer(data).lower())


@dataclass(frozen=True)
class FilesWithErrors(Query["tuple[str, ...]"]):
    """The files with errors in some parts of the data, see ``Query.reads``."""

    parts: tuple[DataPart, ...]

    def answer(self, data: BuildData) -> tuple[str, ...]:
        """Return their paths as messages show them."""
        found = (item for part in self.parts for item in data.diagnostics_of(part) if item.is_error)
        return tuple(sorted({item.place.path for item in found}))


class SelectedRuns(NamedTuple):
    """An answer about runs.

    Attributes:
        runs: the runs, in order.
        gpus: the GPU of each run, by its name in the registry.
        broken: run files with errors that might belong to the answer.
    """

    runs: tuple[Run, ...]
    gpus: tuple[str | None, ...]
    broken: tuple[BrokenRun, ...]


#: Fields that every table uses besides its columns, for ids, titles, filters, folds and remarks.
_IN_EVERY_TABLE = frozenset(
    {"id", "size", "tag", "model", "label", "task", "gpus", "train", "infer", "kind", "notes"}
)


@dataclass(frozen=True)
class Runs(Query[SelectedRuns]):
    """Recorded runs.

    Attributes:
        selection: sizes, filters and order.
        columns: the fields that the page shows; None for all, as in details.
    """

    selection: RunSelection
    columns: tuple[str, ...] | None = None

    def answer(self, data: BuildData) -> SelectedRuns:
        """Return the selected runs."""
        from ..selection import select_broken, select_runs

        runs = tuple(select_runs(data, self.selection))
        gpus = tuple(data.gpu_name(run) for run in runs)
        return SelectedRuns(runs, gpus, tuple(select_broken(data, self.selection)))

    def fingerprint(self, answer: SelectedRuns) -> str:
        """Return a digest of the shown parts of each run, and of the GPU names in the filter."""
        broken = [(file.shown, file.size) for file in answer.broken]
        return digest([*map(self._shown, answer.runs)], answer.gpus, broken)

    def _shown(self, run: Run) -> list[Any]:
        """Return the parts of a run that the page shows."""
        if self.columns is None:
            return [run.model_dump_json()]
        fields = {*_IN_EVERY_TABLE, *(name.partition(".")[0] for name in self.columns)} - {"settings"}
        if "script" in fields and run.script is None:
            fields.add("evidence")  # the column links to the first evidence instead
        values = [field_named(name).value(run) for name in self.columns]
        numeric = [*map(is_numeric, values)]
        texts = [*map(as_text, values)]
        return [run.model_dump_json(include=fields), texts, numeric, run.word, run.trains_adapters]


@dataclass(frozen=True)
class KnownValue(Query["str | None"]):
    """A check whether a value of a filter, or a setting, occurs in the data.

    Attributes:
        name: a name in ``selection.FILTERS``, or ``settings``.
        value: the value, or the key of the setting.
    """

    name: str
    value: str

    def answer(self, data: BuildData) -> str | None:
        """Return None for a known value, otherwise a hint with known ones."""
        from ..selection import hint_if_unknown

        return hint_if_unknown(data, self.name, self.value)


#: Shown in place of a date if no run has one.
NEVER = N_("never")
#: Figures about all data, for use in prose instead of typed numbers.
FIGURES: dict[str, Callable[[Dataset], str]] = {
    "last-updated": lambda catalog: catalog.last_updated or NEVER,
    "runs": lambda catalog: str(len(catalog.runs)),
    "runs-that-ran": lambda catalog: str(sum(run.word == "ran" for run in catalog.runs.values())),
    "gpus": lambda catalog: str(len(list(catalog.gpus))),
    "models": lambda catalog: str(len(list(catalog.architectures))),
}


@dataclass(frozen=True)
class Figure(Query[str]):
    """One figure about the data, by its name in ``FIGURES``."""

    name: str

    def answer(self, data: BuildData) -> str:
        """Return the figure as text."""
        return FIGURES[self.name](data)


@dataclass(frozen=True)
class ObjectName(Query["tuple[str | None, str | None]"]):
    """A run, a GPU, a model or a size class that the page refers to.

    Attributes:
        kind: one of ``objects.KINDS``.
        name: its name on the page.
        target: its recorded name; ``name`` if it is unknown.
    """

    kind: str
    name: str
    target: str

    def answer(self, data: BuildData) -> tuple[str | None, str | None]:
        """Return the recorded name and None; for an unknown object, None and the most similar name."""
        recorded = objects.canonical(data, self.kind, self.name)
        return recorded, None if recorded else nearest(self.name, objects.names(data, self.kind))

    def place(self, data: BuildData, docname: str) -> object:
        """Return the page and the place that the link points to."""
        return objects.find(data.shown, self.kind, self.target, docname)


@dataclass(frozen=True)
class RegistryEntries(Query["tuple[Gpu, ...] | tuple[Architecture, ...]"]):
    """Entries of a registry.

    Attributes:
        kind: ``objects.GPU`` or ``objects.MODEL``.
        names: the entries, by any of their names; empty for all.
    """

    kind: str
    names: tuple[str, ...] = ()

    def answer(self, data: BuildData) -> tuple[Gpu, ...] | tuple[Architecture, ...]:
        """Return the entries in the order of the registry or of the names.

        Raises:
            NoAnswerError: names are unknown.
        """
        registry = data.gpus if self.kind == objects.GPU else data.architectures
        unknown = [self._unknown(name, registry.names) for name in self.names if registry.get(name) is None]
        if unknown:
            raise NoAnswerError(*unknown)
        found = [registry.get(name) for name in self.names] or [*registry]
        return tuple({id(entry): entry for entry in found}.values())  # type: ignore[return-value]

    def fingerprint(self, answer: tuple[Gpu, ...] | tuple[Architecture, ...]) -> str:
        """Return a digest of the rows."""
        from ..views.registries import gpu_rows, model_rows

        rows: Callable[[Any], nodes.tgroup] = gpu_rows if self.kind == objects.GPU else model_rows
        return digest(rows(answer).pformat())

    def _unknown(self, name: str, known: Sequence[str]) -> Diagnostic:
        code = Code.unknown_gpu if self.kind == objects.GPU else Code.unknown_model
        message = f"unknown {objects.LABELS[self.kind]} {name!r}"
        return Diagnostic(Location(""), code, message, suggest_or(name, known, FILTERS[self.kind].remedy))


@dataclass(frozen=True)
class RegistryNames(RegistryEntries):
    """A check that a registry has the given names, for a page that shows nothing else of their entries."""

    def fingerprint(self, answer: tuple[Gpu, ...] | tuple[Architecture, ...]) -> str:
        """Return a constant: there is an answer only if all names are known."""
        return digest()
