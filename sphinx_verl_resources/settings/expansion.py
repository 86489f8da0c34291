"""Words with their variables filled in, as far as the script tells them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .arithmetic import UncountableError, calculate, read_number
from .syntax import Arithmetic, Literal, Opaque, Parameter, Word
from .variables import (
    ALWAYS_SET,
    MAX_PIECES,
    MAX_VALUE,
    Array,
    Budget,
    Field,
    Scope,
    Unknown,
    is_empty,
    known,
    reason,
    split_key,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .syntax import Part
    from .variables import Piece, Text, Value

_BLANKS = re.compile(r"[ \t\n]+")
_HOME = re.compile(r"~(?:/|\Z)")
_INDEX = re.compile(r"[0-9]{1,6}\Z")
_CHANGED = re.compile(
    r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*)[ \t]*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))"
)
_STEPPED = re.compile(r"(?:\+\+|--)[ \t]*([A-Za-z_][A-Za-z0-9_]*)")


class _Run(NamedTuple):
    """Pieces that end up in one field; a run that ``exists`` makes a field even if it is empty."""

    pieces: Sequence[Piece]
    at: int
    exists: bool


class Expansion:
    """Fills in words from the variables of a scope.

    Attributes:
        scope: the variables; ``${NAME:=default}`` adds to them.
        arguments: those of the function that is called; None for those of the script, which are not known.
        budget: what the script may still take.
    """

    def __init__(self) -> None:
        self.scope = Scope()
        self.arguments: tuple[Field, ...] | None = None
        self.budget = Budget()

    def fields(self, words: Iterable[Word]) -> tuple[Field, ...]:
        """The words of a command: expansions without quotes are split at blanks, and may leave nothing."""
        return tuple(field for word in words for field in self._fields(word))

    def text(self, word: Word) -> Text:
        """A word as one text, in which nothing is split."""
        return self.bounded([piece for part in word.parts for piece in self._part(part)])

    def value(self, word: Word) -> Text:
        """What an assignment sets: as ``text``, but that ``~`` in front is the home directory."""
        text = self.text(word)
        first = word.parts[0] if word.parts else None
        at_home = isinstance(first, Literal) and not first.quoted and _HOME.match(first.text)
        if at_home and isinstance(text[0], str) and text[0].startswith("~"):
            return (Unknown("~", _unset("HOME")), text[0][1:], *text[1:])
        return text

    def assign(self, name: str, value: Value | None) -> None:
        """Set a variable; None removes it."""
        self.budget.spend(len(value.words) if isinstance(value, Array) else 1)
        self.scope.own[name] = value

    def calculate(self, inner: Word, source: str) -> Text:
        """The value of what stands in ``$(( … ))``; variables that it changes are unknown from here on."""
        text = self.text(inner)
        expression = known(text)
        try:
            if expression is not None:
                return (str(calculate(expression.replace('"', ""), self._number)),)
            why = reason(text)
        except UncountableError as error:
            why = f"in {source[:80]!r}, {error}"
        for pattern in (_CHANGED, _STEPPED):
            for name in pattern.findall(written(text)):
                self.assign(name, (Unknown(f"${name}", f"${name} is calculated when the script runs"),))
        return (Unknown(source, why),)

    def bounded(self, pieces: Sequence[Piece]) -> Text:
        """Pieces as a text of a size that cannot grow without end."""
        size = sum(len(piece) if isinstance(piece, str) else len(piece.source) for piece in pieces)
        self.budget.spend(size + len(pieces) + 1)
        if size > MAX_VALUE or len(pieces) > MAX_PIECES:
            unknown = Unknown("…", f"it is longer than {MAX_VALUE} characters")
            key = split_key(tuple(pieces))[0]
            return (f"{key}=", unknown) if key else (unknown,)
        if all(isinstance(piece, str) for piece in pieces):
            return ("".join(map(str, pieces)),)
        return tuple(piece for piece in pieces if piece)

    def _fields(self, word: Word) -> Iterator[Field]:
        pieces: list[Piece] | None = None
        at = word.at
        for runs in self._runs(word.parts, word.at):
            for index, run in enumerate(runs):
                if index and pieces is not None:
                    yield Field(self.bounded(pieces), at)
                    pieces = None
                if pieces is None and (run.pieces or run.exists):
                    pieces, at = [], run.at
                if pieces is not None:
                    pieces += run.pieces
        if pieces is not None:
            yield Field(self.bounded(pieces), at)

    def _runs(self, parts: Iterable[Part], at: int) -> Iterator[list[_Run]]:
        """For each part its runs: the first goes on with the field at hand, each other begins a field."""
        for part in parts:
            value = self._parameter(part) if isinstance(part, Parameter) else self._part(part)
            if isinstance(value, Word):
                yield [_Run((), at, part.quoted)]
                yield from self._runs(value.parts, at)
            elif isinstance(value, tuple):
                yield [_Run(value, at, True)] if part.quoted else _split(value, at)
            elif part.quoted and isinstance(part, Parameter) and "*" in {part.name, part.index}:
                yield [_Run(_spaced(value), at, True)]
            elif part.quoted:
                yield [_Run(field.text, field.at or at, True) for field in value.words]
            else:
                yield [run for field in value.words for run in _split(field.text, field.at or at)]

    def _part(self, part: Part) -> Text:
        """A part as text in which nothing is split."""
        if isinstance(part, Literal):
            return (part.text,)
        if isinstance(part, Opaque):
            return (Unknown(part.source, part.reason),)
        if isinstance(part, Arithmetic):
            return self.calculate(part.inner, part.source)
        value = self._parameter(part)
        if isinstance(value, Word):
            return self.text(value)
        return value if isinstance(value, tuple) else _spaced(value)

    def _parameter(self, part: Parameter) -> Word | Value:
        """What ``$NAME`` or ``${NAME:-operand}`` stands for; the operand itself if that is taken."""
        value = self._lookup(part)
        operator, operand = part.operator, part.operand or Word((), 0)
        if operator == "length":
            return _length(value, part)
        if not operator:
            return (Unknown(part.source, _unset(part.name), unset=True),) if value is None else value
        empty = value is None or (_is_empty(value) if operator.startswith(":") else False)
        if operator.endswith("+"):
            if empty is None:
                return (Unknown(part.source, f"it depends on ${part.name}, which is not known"),)
            return () if empty else operand
        if value is not None and not empty:
            return value
        if operator.endswith("?"):
            return (Unknown(part.source, f"${part.name} has to be given when the script is started"),)
        if operator.endswith("="):
            assigned = self.text(operand)
            self.assign(part.name, assigned)
            return assigned
        return operand

    def _lookup(self, part: Parameter) -> Value | None:
        name, index = part.name, part.index
        if name in {"@", "*"}:
            return Array(self.arguments or ())
        if name == "#" and self.arguments is not None:
            return (str(len(self.arguments)),)
        value: Value | None
        if name.isdigit():
            value, index = Array(self.arguments or ()), str(int(name) - 1)
        else:
            value = self.scope.get(name)
            if value is None and (name in ALWAYS_SET or not name.isidentifier()):
                value = (Unknown(part.source, _unset(name)),)
        if value is None:
            return None
        if index in {"@", "*"}:
            return value if isinstance(value, Array) else Array((Field(value, 0),), known(value) is not None)
        number = int(index) if index and _INDEX.match(index) else 0 if index is None else -1
        words = value.words if isinstance(value, Array) else (Field(value, 0),)
        unsure = isinstance(value, Array) and not value.sure
        if unsure or (number < 0 and not name.isdigit()):
            return (Unknown(part.source, f"one element of ${name} is not followed"),)
        return words[number].text if 0 <= number < len(words) else None

    def _number(self, name: str) -> int:
        """The value of a variable in a calculation."""
        value = self._lookup(Parameter(name, f"${name}", True))
        if value is None:
            raise UncountableError(_unset(name))
        text = known(value) if isinstance(value, tuple) else ""
        if isinstance(value, tuple) and text is None:
            raise UncountableError(reason(value))
        number = read_number(text or "0")
        if number is None:
            raise UncountableError(f"${name} is {str(text)[:40]!r}, which is no whole number")
        return number


def _unset(name: str) -> str:
    if name.isdigit():
        return f"${name} is an argument of the script, which is not known"
    if name.isidentifier():
        return f"${name} is set nowhere in the script"
    return f"${name} is known only when the script runs"


def _is_empty(value: Value) -> bool | None:
    return not value.words if isinstance(value, Array) else is_empty(value)


def _length(value: Value | None, part: Parameter) -> Text:
    if isinstance(value, Array) and not value.sure:
        return (Unknown(part.source, f"the words of ${part.name} are not all known"),)
    if isinstance(value, Array):
        return (str(len(value.words)),)
    text = known(value) if value is not None else None
    return (Unknown(part.source, _unset(part.name)) if text is None else str(len(text)),)


def _spaced(value: Array) -> Text:
    """The words of an array as one text."""
    pieces: list[Piece] = []
    for field in value.words:
        pieces += [" ", *field.text]
    return tuple(pieces[1:])


def _split(text: Text, at: int) -> list[_Run]:
    """A text split at its blanks; what is unknown counts as one word."""
    runs: list[list[Piece]] = [[]]
    for piece in text:
        if isinstance(piece, Unknown):
            runs[-1].append(piece)
            continue
        first, *rest = _BLANKS.split(piece)
        runs[-1] += [first] if first else []
        runs += [[word] if word else [] for word in rest]
    return [_Run(pieces, at, False) for pieces in runs]
