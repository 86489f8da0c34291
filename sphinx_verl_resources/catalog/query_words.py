"""Which runs and fields are asked for, as people type it: in options of directives and of commands alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..diagnostics import Code, NoAnswerError, did_you_mean, suggest_or
from .fields import find_field
from .names import SIZES, sizes_hint
from .selection import allowed_values, is_known, other_values

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from .catalog import Catalog

#: What to do about a name that a filter cannot know.
REGISTRIES = {"gpu": "add it to gpus.yaml", "model": "add it to architectures.yaml"}


class QueryError(ValueError):
    """Words that ask for nothing that there is; the text says why."""

    def __init__(self, message: str, code: Code = Code.directive) -> None:
        super().__init__(message)
        self.code = code


def words(text: str) -> list[str]:
    """The items of a list that is separated by commas or spaces."""
    return [word for word in re.split(r"[,\s]+", text) if word]


def phrases(text: str) -> list[str]:
    """The items of a list that is separated by commas, so that an item may hold spaces."""
    return [phrase for part in text.split(",") if (phrase := " ".join(part.split()))]


def sizes(text: str) -> tuple[str, ...]:
    """Size classes, in the order given.

    Raises:
        QueryError: a size class does not exist, or stands there twice.
    """
    known = {size.lower(): size for size in SIZES}
    found: list[str] = []
    for word in words(text):
        size = known.get(word.lower())
        if size is None:
            raise QueryError(f"there is no size class {word!r}; {sizes_hint(word)}", Code.unknown_size)
        if size in found:
            raise QueryError(f"the size class {size!r} stands there twice; keep one of the two")
        found.append(size)
    if not found:
        raise QueryError("name at least one size class, or leave the argument out", Code.unknown_size)
    return tuple(found)


def columns(text: str, computed: Collection[str]) -> tuple[str, ...]:
    """Names of fields, and of columns that are computed.

    Raises:
        QueryError: there is no such column, none is named, or one is twice.
    """
    found: list[str] = []
    for word in words(text):
        name = _computed(word, computed) or _field(word, computed)
        if name in found:
            raise QueryError(f"the field {word!r} stands there twice; keep one of the two")
        found.append(name)
    if not found:
        raise QueryError("name at least one field")
    return tuple(found)


def sort_fields(text: str, computed: Collection[str]) -> tuple[tuple[str, bool], ...]:
    """Names of fields, and whether a leading ``-`` turns the order round.

    Raises:
        QueryError: a field does not exist or is computed, or none is named.
    """
    found = tuple((_field(word.removeprefix("-"), computed), word.startswith("-")) for word in words(text))
    if not found:
        raise QueryError("name at least one field")
    return found


def filter_values(catalog: Catalog, name: str, found: Sequence[str]) -> tuple[str, ...]:
    """The values of the filter ``name``, each one that the data know.

    Raises:
        QueryError: a value that nothing can match, or no value.
    """
    if not found:
        raise QueryError("name at least one value")
    for value in found:
        if not is_known(catalog, name, value):
            hint = other_values(catalog, name, value) or "no run has it"
            if name in REGISTRIES:
                hint = suggest_or(value, allowed_values(catalog, name) or (), REGISTRIES[name])
            raise QueryError(f"unknown value {value!r}; {hint}")
    return tuple(found)


def _computed(word: str, computed: Collection[str]) -> str | None:
    """The column that is computed and not recorded, None for any other."""
    name = word.lower()
    if name.startswith("estimate.") and name not in computed:
        raise QueryError(f"unknown field {word!r}; {did_you_mean(name, computed)}")
    return name if name in computed else None


def _field(word: str, computed: Collection[str]) -> str:
    if _computed(word, computed):
        raise QueryError(f"{word!r} is computed; name a field of the run files")
    try:
        return find_field(word).name
    except NoAnswerError as error:
        raise QueryError(str(error)) from None
