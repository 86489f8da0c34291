"""All records of a snapshot, loaded on first use, and the queries of pages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

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

#: A part of the data with its own loading and problems: an attribute of ``Dataset``.
DataPart = Literal["accuracy", "analysis", "cases", "catalog", "config_keys"]
Answer = TypeVar("Answer", covariant=True)


class Dataset:
    """The records in the files of a snapshot. Importing this module loads neither pydantic nor PyYAML.

    Attributes:
        snapshot: the files.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    @cached_property
    def gpus(self) -> Registry[Gpu]:
        """The GPUs, by name and alias."""
        return self._registry(GPUS)

    @cached_property
    def architectures(self) -> Registry[Architecture]:
        """The model shapes, by the model's Hugging Face name."""
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

        return load_catalog(self.snapshot, self.gpus, self.architectures, self._judge)

    def _judge(self, run: Run, document: Document) -> Iterable[Diagnostic]:
        """Return the problems of a run that other layers check; none here."""
        return ()

    @cached_property
    def analysis(self) -> Analysis:
        """The memory analysis."""
        from .analysis import load_analysis

        return load_analysis(self.snapshot, self.gpus, self.architectures, self.config_keys)

    @cached_property
    def cases(self) -> Cases:
        """The cases that the estimator is tested on."""
        from .cases import load_cases

        return load_cases(self.snapshot.cases, recorded=True)

    def diagnostics_of(self, part: DataPart) -> tuple[Diagnostic, ...]:
        """Return every problem of one part of the data."""
        loaded: tuple[Diagnostic, ...] = getattr(self, part).diagnostics
        return loaded


class Query(Generic[Answer]):
    """A question about the data or the configuration: a hashable, picklable frozen dataclass.

    The domain stores each page's queries between builds, and reads a page again only if the fingerprint of
    an answer changes.
    """

    #: The parts of the data, besides the catalog, whose problems are reported if a page uses this query.
    reads: ClassVar[frozenset[DataPart]] = frozenset()

    def answer(self, data: Any) -> Answer:
        """Compute the answer.

        Args:
            data: a ``Dataset`` or an instance of a subclass.

        Raises:
            NoAnswerError: there is no answer.
        """
        raise NotImplementedError

    def key(self) -> Any:
        """Return plain values that identify the query."""
        return [f"{type(self).__module__}.{type(self).__qualname__}", plain(self)]

    def place(self, data: Any, docname: str) -> object:
        """Return the target of a page's link, known only after all pages are read; None without a link."""
        return None

    def fingerprint(self, answer: Any) -> str:
        """Return a text that changes if the shown part of the answer changes.

        By default that is every field. Queries with answers that are not plain override this.

        Raises:
            TypeError: the answer is not plain; see ``plain``.
        """
        return digest(plain(answer))


def digest(*shown: Any) -> str:
    """Return a digest of plain values: strings, numbers, and sequences and mappings of them.

    Raises:
        TypeError: a value is not plain; see ``plain``.

    >>> digest("7B", 8) == digest("7B", 8), digest("7B", 8) == digest("7B", 9)
    (True, False)
    """
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def plain(value: Any) -> Any:
    """Return all fields of a dataclass or of a recorded model as plain values for ``digest``.

    Raises:
        TypeError: the value, or one inside it, has another type.
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
    raise TypeError(f"{type(value).__name__} is not a plain value")
