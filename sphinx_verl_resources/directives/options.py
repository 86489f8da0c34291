"""Reading the options of directives, with errors that say what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from docutils.parsers.rst import directives

from ..catalog.fields import UnknownFieldError, field_name
from ..catalog.names import SIZES, fold
from ..diagnostics import Code, did_you_mean, suggest_or

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class OptionError(ValueError):
    """An argument or option that cannot be used."""

    def __init__(self, message: str, code: Code = Code.directive) -> None:
        super().__init__(message)
        self.code = code


class AnyOption(dict[str, Callable[[str], Any]]):
    """An option specification that lets every option through as text.

    docutils reports an unknown option in several lines and without a hint; the directive does it itself.
    """

    @classmethod
    def of(cls, *names: str) -> AnyOption:
        """A specification that knows these names."""
        return cls((name, directives.unchanged) for name in names)

    def __missing__(self, name: str) -> Callable[[str], Any]:
        return directives.unchanged


def check(given: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuse options that do not exist, and options without a value.

    Raises:
        OptionError: there is such an option.
    """
    for name, value in given.items():
        if name not in set(known):
            raise OptionError(f":{name}: unknown option; {did_you_mean(name, known)}")
        if name in FLAGS and value:
            raise OptionError(f":{name}: takes no value, got {value!r}")
        if name not in FLAGS and not str(value or "").strip():
            raise OptionError(f":{name}: a value is missing")


#: What to do about a name that a filter cannot know.
REGISTRIES = {"gpu": "add it to gpus.yaml", "model": "add it to architectures.yaml"}
#: Options that are there or not.
FLAGS = frozenset({"hide-empty"})


def words(text: str) -> list[str]:
    """The items of a list that is separated by commas or spaces."""
    return [word for word in re.split(r"[,\s]+", text) if word]


def phrases(text: str) -> list[str]:
    """The items of a list that is separated by commas, so that an item may hold spaces."""
    return [phrase for part in text.split(",") if (phrase := " ".join(part.split()))]


def sizes(text: str) -> tuple[str, ...]:
    """Size classes, in the order given.

    Raises:
        OptionError: a size class does not exist, or stands there twice.
    """
    known = {size.lower(): size for size in SIZES}
    found: list[str] = []
    for word in words(text):
        size = known.get(word.lower())
        if size is None:
            hint = f"the size classes are {', '.join(SIZES)}"
            raise OptionError(f"there is no size class {word!r}; {hint}", Code.unknown_size)
        if size in found:
            raise OptionError(f"the size class {size!r} stands there twice")
        found.append(size)
    if not found:
        raise OptionError("name at least one size class, or leave the argument out", Code.unknown_size)
    return tuple(found)


def columns(text: str) -> tuple[str, ...]:
    """Field names for ``:columns:``.

    Raises:
        OptionError: a field does not exist, or none is named.
    """
    found: list[str] = []
    for word in words(text):
        name = _field(word, "columns")
        if name in found:
            raise OptionError(f":columns: the field {word!r} stands there twice")
        found.append(name)
    if not found:
        raise OptionError(":columns: name at least one field")
    return tuple(found)


def sort_fields(text: str) -> tuple[str, ...]:
    """Field names for ``:sort:``, each with an optional leading ``-``.

    Raises:
        OptionError: a field does not exist, or none is named.
    """
    found = tuple(
        f"-{_field(word[1:], 'sort')}" if word.startswith("-") else _field(word, "sort")
        for word in words(text)
    )
    if not found:
        raise OptionError(":sort: name at least one field")
    return found


def filter_values(name: str, text: str, allowed: list[str] | None) -> tuple[str, ...]:
    """The values of the filter ``name``: any, or among ``allowed`` but for case and separators.

    Raises:
        OptionError: a value that nothing can match, or no value.
    """
    found = phrases(text)
    if not found:
        raise OptionError(f":{name}: name at least one value")
    known = {fold(value) for value in allowed or found}
    for value in found:
        if fold(value) not in known:
            hint = suggest_or(value, allowed or (), REGISTRIES[name]) if name in REGISTRIES else None
            hint = hint or did_you_mean(value, allowed or ()) or "no run has it"
            raise OptionError(f":{name}: unknown value {value!r}; {hint}")
    return tuple(found)


def _field(word: str, option: str) -> str:
    try:
        return field_name(word)
    except UnknownFieldError as error:
        raise OptionError(f":{option}: {error}") from None
