"""Values of a shell, which may be unknown: texts, words and arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ..diagnostics import Location


class Cause(NamedTuple):
    """The reason why a value is unknown.

    Attributes:
        text: the reason, a clause.
        names: the environment variables that determine the value.
        place: the place of the condition or loop that determines it, if any.
    """

    text: str
    names: tuple[str, ...] = ()
    place: Location | None = None

    def remedy(self, what: str) -> str:
        """Return the remedy: give the variables, or write ``what`` out.

        >>> Cause("the script does not set $HOME", ("HOME",)).remedy("the value")
        'add --env HOME=…'
        """
        arguments = " ".join(f"--env {name}=…" for name in self.names[:3])
        return f"add {arguments}" if arguments else f"write {what} out"


class Unknown(NamedTuple):
    """A piece of text that is only known when the script runs.

    Attributes:
        source: the text as written.
        cause: the reason why it is unknown.
        unset: whether it is a variable that the script does not set and that may therefore be empty.
    """

    source: str
    cause: Cause
    unset: bool = False


#: A text with pieces that may be unknown.
Text: TypeAlias = tuple[str | Unknown, ...]


class Word(NamedTuple):
    """A word of a command or an array, with its place in the script."""

    text: Text
    place: Location = Location("")


@dataclass(frozen=True)
class Array:
    """The words of an array; not ``sure`` if there may be more or fewer of them."""

    words: tuple[Word, ...] = ()
    sure: bool = True


#: The content of a variable.
Value: TypeAlias = Text | Array


def if_known(text: Text) -> str | None:
    """Return the text, or None if a part of it is unknown.

    >>> if_known(("a", "b")), if_known(("a", Unknown("$B", Cause("…"))))
    ('ab', None)
    """
    return None if cause_of(text) else source_of(text)


def source_of(text: Text) -> str:
    """Return the text, with unknown parts as written in the script.

    >>> source_of((Unknown("$HOME", Cause("…")), "/data"))
    '$HOME/data'
    """
    return "".join(piece if isinstance(piece, str) else piece.source for piece in text)


def cause_of(text: Text) -> Cause | None:
    """Return the cause if a part of the text is unknown; otherwise None."""
    return next((piece.cause for piece in text if isinstance(piece, Unknown)), None)


def names_in(texts: Iterable[Text]) -> tuple[str, ...]:
    """Return the environment variables that the unknown parts of texts depend on."""
    unknown = (piece for text in texts for piece in text if isinstance(piece, Unknown))
    return tuple(name for piece in unknown for name in piece.cause.names)


def as_array(value: Value, place: Location) -> Array:
    """Return an array unchanged, and a text as an array of one word."""
    return value if isinstance(value, Array) else Array((Word(value, place),), if_known(value) is not None)


def split_key(text: Text) -> tuple[str, Text]:
    """Split a text at its first equals sign; the first half is empty if it is unknown.

    >>> split_key(("a.b=1", "2"))
    ('a.b', ('1', '2'))
    """
    first = text[0] if text else ""
    if isinstance(first, Unknown) or "=" not in first:
        return "", text
    key, _, rest = first.partition("=")
    return key, (rest, *text[1:])


def join_values(name: str, values: list[Value | None], why: Cause) -> Value | None:
    """Return the value of a variable after several branches, each of which leaves it with a value or unset.

    Where the branches differ, a text is unknown, and so is the value of each ``key=value`` in an array.
    """
    if all(value == values[0] for value in values):
        return values[0]
    arrays = [value or Array() for value in values if not isinstance(value, tuple)]
    tails = [{word.text: word for word in array.words} for array in arrays]
    if len(arrays) < len(values) or not any(values):
        return (Unknown(f"${name}", why),)
    common = set.intersection(*map(set, tails))
    words: dict[Text | str, Word] = {}
    for text, word in (item for tail in tails for item in tail.items()):
        key, value = split_key(text)
        unknown = Unknown(source_of(value), why)
        if text in common:
            words.setdefault(text, word)
        else:
            words[key or text] = Word((f"{key}=", unknown) if key else (unknown,), word.place)
    return Array(tuple(words.values()), sure=False)
