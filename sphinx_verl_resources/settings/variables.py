"""Variables of a shell script, of which some cannot be known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from .syntax import TooMuchError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Characters in one value, pieces of one value, words in one array.
MAX_VALUE, MAX_PIECES, MAX_WORDS = 100_000, 1_000, 2_000
#: Characters that may be made of one script, steps included.
MAX_TOTAL = 1_000_000

#: What every shell has, so that a default for it is never taken.
ALWAYS_SET = frozenset(
    {"EUID", "HOME", "HOSTNAME", "IFS", "LINENO", "LOGNAME", "OLDPWD", "PATH", "PPID", "PWD", "RANDOM"}
    | {"SECONDS", "SHELL", "SHLVL", "UID", "USER"}
)


@dataclass(frozen=True)
class Unknown:
    """A piece of text that only the shell that runs the script knows.

    Attributes:
        source: as written.
        reason: why it is not known.
        unset: it is a variable that the script leaves to the environment, and that may therefore be empty.
    """

    source: str
    reason: str
    unset: bool = False


Piece: TypeAlias = str | Unknown
#: A text of which some pieces may be unknown.
Text: TypeAlias = tuple[Piece, ...]


@dataclass(frozen=True)
class Field:
    """One word with its variables filled in; ``at`` counts characters of the script."""

    text: Text
    at: int


@dataclass(frozen=True)
class Array:
    """The words of an array; not ``sure`` if some of them may be there or not."""

    words: tuple[Field, ...]
    sure: bool = True


#: What a variable holds.
Value: TypeAlias = "Text | Array"


def known(text: Text) -> str | None:
    """The text if all of it is known, else None.

    >>> known(("a", "b")), known(("a", Unknown("$B", "…")))
    ('ab', None)
    """
    if any(isinstance(piece, Unknown) for piece in text):
        return None
    return "".join(map(str, text))


def written(text: Text) -> str:
    """The text with what is known filled in and the rest as the script has it.

    >>> written((Unknown("$HOME", "…"), "/data"))
    '$HOME/data'
    """
    return "".join(piece if isinstance(piece, str) else piece.source for piece in text)


def reason(text: Text) -> str:
    """Why the text is not known; empty if it is."""
    return next((piece.reason for piece in text if isinstance(piece, Unknown)), "")


def is_empty(text: Text) -> bool | None:
    """Whether the text has no characters; None if that depends on what is unknown."""
    if any(piece for piece in text if isinstance(piece, str)):
        return False
    return None if any(isinstance(piece, Unknown) for piece in text) else True


def split_key(text: Text) -> tuple[str, Text]:
    """What stands before the first equals sign and what stands behind it; the former empty if not known.

    >>> split_key(("a.b=1", "2"))
    ('a.b', ('1', '2'))
    """
    first = text[0] if text else ""
    if isinstance(first, Unknown) or "=" not in first:
        return "", text
    key, _, rest = first.partition("=")
    return key, (rest, *text[1:])


class Budget:
    """What one script may still take, so that no script takes for ever."""

    def __init__(self) -> None:
        self._left = MAX_TOTAL

    def spend(self, amount: int) -> None:
        """Take ``amount``; raises ``TooMuchError`` when nothing is left."""
        self._left -= amount
        if self._left < 0:
            raise TooMuchError("it expands to more than a launch script ever does")


class Scope:
    """Variables; those of a scope within another hide those of the outer one until both are joined."""

    def __init__(self, outer: Scope | None = None) -> None:
        self._outer = outer
        self.own: dict[str, Value | None] = {}
        self.ended = False

    def get(self, name: str) -> Value | None:
        """The value of a variable; None if it is set nowhere."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.own:
                return scope.own[name]
            scope = scope._outer
        return None

    def join(self, ways: Iterable[Scope], why: str) -> None:
        """Take over what several ways, of which one was taken, leave behind.

        Args:
            ways: scopes within this one; those that end the script do not count.
            why: the reason for which a variable that they set differently is not known.
        """
        going_on = [way for way in ways if not way.ended]
        self.ended = self.ended or not going_on
        for name in dict.fromkeys(name for way in going_on for name in way.own):
            values = [way.get(name) for way in going_on]
            self.own[name] = _joined(name, values, why)


def _joined(name: str, values: list[Value | None], why: str) -> Value | None:
    first = values[0]
    if all(value == first for value in values):
        return first
    arrays = [value or Array(()) for value in values if value is None or isinstance(value, Array)]
    if len(arrays) < len(values) or not any(values):
        return (Unknown(f"${name}", f"${name} {why}"),)
    return Array(tuple(_joined_words([array.words for array in arrays], f"it {why}")), sure=False)


def _joined_words(ways: list[tuple[Field, ...]], why: str) -> Iterable[Field]:
    """The words that all ways have as they are, the others with an unknown value, each key once."""
    rows = enumerate(zip(*ways, strict=False))
    alike = next((at for at, words in rows if len(set(words)) > 1), min(map(len, ways)))
    tails = [words[alike:] for words in ways]
    common = set.intersection(*({field.text for field in words} for words in tails))
    joined: dict[Text | str, Field] = {}
    for field in (field for words in tails for field in words):
        if field.text in common:
            joined.setdefault(field.text, field)
        else:
            key, value = split_key(field.text)
            doubtful = (f"{key}=", Unknown(written(value), why)) if key else (Unknown(written(value), why),)
            joined[key or field.text] = Field(doubtful, field.at)
    return (*ways[0][:alike], *joined.values())
