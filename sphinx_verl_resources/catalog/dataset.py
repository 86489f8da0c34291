"""All records of a snapshot, each kind loaded when it is first needed, and the questions that pages ask."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from .files import ACCURACY, ARCHITECTURES, CONFIG_KEYS, GPUS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..diagnostics import Diagnostic
    from .analysis import Analysis
    from .cases import Cases
    from .catalog import Catalog, Registry
    from .files import Snapshot
    from .models.architecture import Architecture
    from .models.registries import Accuracy, ConfigKey, Gpu
    from .models.run import Run
    from .yaml_data import Document

#: A part of the data that is loaded, and has problems, by itself: an attribute of ``Dataset``.
DataPart = Literal["accuracy", "analysis", "cases", "catalog", "config_keys"]
Answer = TypeVar("Answer", covariant=True)
Item = TypeVar("Item")


class Progress(Protocol):
    """A function that hands items on and shows how many are done."""

    def __call__(self, items: Sequence[Item], what: str, /) -> Iterable[Item]:
        """Yield the items; ``what`` names them."""


def no_progress(items: Sequence[Item], what: str, /) -> Iterable[Item]:
    """Return the items and show nothing."""
    return items


class Dataset:
    """The records in the files of a snapshot; importing this loads neither pydantic nor a reader of YAML.

    Attributes:
        snapshot: the files.
    """

    def __init__(self, snapshot: Snapshot, progress: Progress = no_progress) -> None:
        self.snapshot = snapshot
        self._progress = progress

    @cached_property
    def gpus(self) -> Registry[Gpu]:
        """The GPUs, by name and alias."""
        return self._registry(GPUS)

    @cached_property
    def architectures(self) -> Registry[Architecture]:
        """The model shapes, by the name of the checkpoint."""
        return self._registry(ARCHITECTURES)

    @cached_property
    def config_keys(self) -> Registry[ConfigKey]:
        """The keys of verl's configuration."""
        return self._registry(CONFIG_KEYS)

    @cached_property
    def accuracy(self) -> Registry[Accuracy]:
        """The accuracy of the estimator, by group of cases."""
        return self._registry(ACCURACY)

    def _registry(self, name: str) -> Registry[Any]:
        from .catalog import load_registry

        return load_registry(self.snapshot, name)

    @cached_property
    def catalog(self) -> Catalog:
        """The runs, with GPUs and architectures."""
        from .catalog import load_catalog

        run_files = self._progress(self.snapshot.runs, "run files")
        return load_catalog(self.snapshot, run_files, self.gpus, self.architectures, self._judge)

    def _judge(self, run: Run, document: Document) -> Iterable[Diagnostic]:
        """Return the problems of a run that its own file does not show; none here."""
        return ()

    @cached_property
    def analysis(self) -> Analysis:
        """The memory analysis."""
        from .analysis import load_analysis

        return load_analysis(self.snapshot, self.gpus, self.architectures, self.config_keys)

    @cached_property
    def cases(self) -> Cases:
        """The observations that the estimator is tested on."""
        from .cases import load_cases

        return load_cases(self.snapshot.cases, self.gpus, recorded=True)


class Query(Generic[Answer]):
    """A question about the data or the configuration, as a frozen dataclass that can be hashed and pickled.

    The domain keeps each page's queries between builds. It reads a page again exactly when the fingerprint
    of one of its answers changes.
    """

    #: The parts of the data, beyond the catalog, whose problems are reported when a page asks this.
    reads: ClassVar[frozenset[DataPart]] = frozenset()

    def answer(self, data: Any) -> Answer:
        """Compute the answer.

        Args:
            data: what the query is about, a ``Dataset`` or a subclass of it.

        Raises:
            NoAnswerError: there is none.
        """
        raise NotImplementedError

    def key(self) -> Any:
        """Return plain values that tell the query from every other."""
        return [f"{type(self).__module__}.{type(self).__qualname__}", plain(self)]

    def place(self, data: Any, docname: str) -> object:
        """Return where the link of a page leads, which is known only when all pages have been read.

        None for a query about nothing that pages link.
        """
        return None

    def fingerprint(self, answer: Any) -> str:
        """Return a text that changes when what pages show of the answer changes.

        These are all fields of plain values, records and results. A query with another answer names what is
        shown.

        Raises:
            TypeError: the answer holds something else; see ``plain``.
        """
        return digest(plain(answer))


def digest(*shown: Any) -> str:
    """Return a digest of plain values: texts, numbers, and sequences and mappings of them.

    Raises:
        TypeError: a value is not plain; see ``plain``.

    >>> digest("7B", 8) == digest("7B", 8), digest("7B", 8) == digest("7B", 9)
    (True, False)
    """
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def plain(value: Any) -> Any:
    """Return all fields of a dataclass or of a recorded model as plain values for ``digest``.

    Raises:
        TypeError: a value within it is none of these.
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if is_dataclass(value):
        return [plain(getattr(value, item.name)) for item in fields(value)]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted(plain(item) for item in value)
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is no plain value")
