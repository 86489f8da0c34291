"""Queries of pages, and fingerprints of their answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, Literal, TypeVar

#: A part of the data with its own loading and problems: an attribute of ``EstimatorContext``.
DataPart = Literal["accuracy", "analysis", "cases", "runs", "config_keys"]
Answer = TypeVar("Answer", covariant=True)


class Query(Generic[Answer]):
    """A question about the data or the configuration: a hashable, picklable frozen dataclass.

    The domain stores each page's queries between builds, and reads a page again only if the fingerprint of
    an answer changes.
    """

    #: The parts of the data, besides the runs, whose problems are reported if a page uses this query.
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
