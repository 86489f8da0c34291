"""Expand the variables and calculations in words, as far as the script determines them."""

from __future__ import annotations

import ast
import operator
import re
from typing import TYPE_CHECKING, TypeVar, cast

from .syntax import Arithmetic, Cause, Parameter, TooMuchError, Unknown, Word
from .variables import (
    ALWAYS_SET,
    Argument,
    Array,
    Environment,
    Scope,
    as_array,
    cause_of,
    gpu_answer,
    is_empty,
    known,
    split_key,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .syntax import Part
    from .variables import Piece, Text, Value

#: The maximum number of characters, and of pieces, in a value.
MAX_VALUE, MAX_PIECES = 100_000, 1_000
#: The maximum number of characters that a script may expand to, including a cost per step.
MAX_TOTAL = 1_000_000
#: The maximum length of a calculation in characters; real ones have a tenth of this.
MAX_CALCULATION = 500

_Some = TypeVar("_Some")

_BLANKS = re.compile(r"[ \t\n]+")
_INDEX = re.compile(r"[0-9]{1,6}\Z")
_CHANGED = re.compile(
    r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*)[ \t]*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))"
)
_STEPPED = re.compile(r"(?:\+\+|--)[ \t]*([A-Za-z_][A-Za-z0-9_]*)")
_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})")
#: Expressions that mean the same in the shell and in Python, so that Python can parse them.
_CALCULATION = re.compile(
    r"(?:[ ()*/%]|\b(?:0[xX][0-9A-Fa-f]+|[0-9]+|[A-Za-z_]\w*)\b|\+(?!\+)|-(?!-)|[<>](?![<>])|[<>=!]=)*",
    re.ASCII,
)


class Expansion:
    """The expansion of words with the variables of a scope.

    Attributes:
        environment: the environment of the script.
        scope: the variables; ``${NAME:=default}`` adds to them. ``@`` has the arguments of a function; it is
            missing outside functions, because the script's arguments are unknown.
        detected: the commands so far that detect the device.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = Environment(environment)
        self.scope = Scope(self.environment)
        self.detected: list[str] = []
        self._left = MAX_TOTAL

    def spend(self, amount: int) -> None:
        """Subtract from the work budget, which limits the time for a script.

        Raises:
            TooMuchError: the script needs too much work.
        """
        self._left -= amount
        if self._left < 0:
            raise TooMuchError("the script expands to too much text")

    def words(self, words: Iterable[Word]) -> tuple[Argument, ...]:
        """Expand the words of a command; unquoted expansions are split at blanks and may vanish."""
        return tuple(argument for word in words for argument in self._arguments(word))

    def text(self, word: Word) -> Text:
        """Expand a word to one text, without splitting."""
        return self.bounded(piece for part in word.parts for piece in self._part(part))

    def assign(self, name: str, value: Value | None) -> None:
        """Set a variable; None removes it."""
        self.spend(len(value.words) if isinstance(value, Array) else 1)
        self.scope.own[name] = value

    def doubt(self, name: str, why: Cause) -> None:
        """Make a variable unknown."""
        self.assign(name, (Unknown(f"${name}", why),))

    def calculate(self, inner: Word, source: str) -> Text:
        """Return the value of ``$(( … ))``; variables that it changes become unknown."""
        text = self.text(inner)
        why = cause_of(text)
        try:
            if why is None:
                return (str(calculate(written(text).replace('"', ""), self._number)),)
        except UncountableError as error:
            why = error.cause or Cause(f"in {source[:80]!r}, {error}")
        for pattern in (_CHANGED, _STEPPED):
            for name in pattern.findall(written(text)):
                self.doubt(name, Cause(f"${name} is calculated when the script runs"))
        return (Unknown(source, why),)

    def bounded(self, pieces: Iterable[Piece]) -> Text:
        """Join pieces to a text, and limit its size."""
        text = tuple(pieces)
        size = len(written(text))
        self.spend(size + len(text) + 1)
        if size > MAX_VALUE or len(text) > MAX_PIECES:
            key = split_key(text)[0]
            unknown = Unknown("…", Cause(f"it is longer than {MAX_VALUE} characters"))
            return (f"{key}=", unknown) if key else (unknown,)
        return tuple(piece for piece in text if piece) if cause_of(text) else (written(text),)

    def _arguments(self, word: Word) -> Iterator[Argument]:
        pieces: list[Piece] | None = None
        at = word.at
        for piece, place in self._pieces(word.parts, word.at):
            if piece is None:
                if pieces is not None:
                    yield Argument(self.bounded(pieces), at)
                pieces = None
                continue
            if pieces is None:
                pieces, at = [], place
            if piece:
                pieces.append(piece)
        if pieces is not None:
            yield Argument(self.bounded(pieces), at)

    def _pieces(self, parts: Iterable[Part], at: int) -> Iterator[tuple[Piece | None, int]]:
        """Yield the pieces of arguments with places; None ends an argument, an empty piece begins one."""
        for part in parts:
            content, quoted = part
            value: Word | Value
            if not isinstance(content, Parameter):
                value = self._part(part)
            elif isinstance(value := self._parameter(content), Word):
                if quoted:
                    yield "", at
                for piece, place in self._pieces(value.parts, at):
                    yield _given_by(content, piece), place
                continue
            if quoted and isinstance(content, Parameter) and "*" in {content.name, content.element}:
                value = _spaced(value)
            for index, word in enumerate(as_array(value).words):
                place = word.at or at
                if index:
                    yield None, place
                for piece in ("", *word.text) if quoted else _split(word.text):
                    yield piece, place

    def _part(self, part: Part) -> Text:
        """Expand a part to text, without splitting."""
        content = part.content
        if isinstance(content, Arithmetic):
            return self.calculate(content.inner, content.source)
        if isinstance(content, Unknown):
            answer = gpu_answer(content.source)
            self.detected += [content.source] if answer else []
            return (answer or content,)
        if not isinstance(content, Parameter):
            return (content,)
        value = self._parameter(content)
        if isinstance(value, Word):
            return tuple(_given_by(content, piece) for piece in self.text(value))
        return _spaced(value)

    def _parameter(self, parameter: Parameter) -> Word | Value:
        """Return the value of ``$NAME`` or ``${NAME:-operand}``, which may be the operand itself."""
        name, source, _, operator, operand = parameter
        value = self._lookup(parameter)
        if operator == "length":
            return _length(value, parameter)
        if operator == "from":
            return _from(value, int(parameter.element or "1"), parameter)
        if not operator:
            return (Unknown(source, _unset(name), unset=True),) if value is None else value
        empty = value is None or (operator.startswith(":") and is_empty(value))
        operand = operand or Word(())
        if operator.endswith("+"):
            if empty is None:
                return (Unknown(source, Cause(f"it depends on ${name}, which is unknown")),)
            return () if empty else operand
        if value is not None and not empty:
            return value
        if operator.endswith("?"):
            return (Unknown(source, Cause(f"the script requires ${name}", (name,))),)
        if operator.endswith("="):
            assigned = tuple(_given_by(parameter, piece) for piece in self.text(operand))
            self.assign(name, assigned)
            return assigned
        return operand

    def _lookup(self, parameter: Parameter) -> Value | None:
        name, source, index, *_ = parameter
        arguments = self.scope.get("@")
        if name in {"@", "*"}:
            return arguments or Array()
        if name == "#" and arguments is not None:
            return _length(arguments, parameter)
        value: Value | None
        if name.isdigit():
            value, index = arguments or Array(), str(int(name) - 1)
        else:
            value = self.scope.get(name)
            if value is None and (name in ALWAYS_SET or not name.isidentifier()):
                value = (Unknown(source, _unset(name)),)
        if value is None:
            return None
        if index in {"@", "*"}:
            return as_array(value)
        number = int(index) if index and _INDEX.match(index) else 0 if index is None else -1
        if (isinstance(value, Array) and not value.sure) or (number < 0 and not name.isdigit()):
            return (Unknown(source, Cause(f"this element of ${name} cannot be determined")),)
        words = as_array(value).words
        return words[number].text if 0 <= number < len(words) else None

    def _number(self, name: str) -> int:
        """Return the value of a variable in a calculation."""
        value = self._lookup(Parameter(name, f"${name}"))
        text = value if isinstance(value, tuple) else ()
        if why := _unset(name) if value is None else cause_of(text):
            raise UncountableError(why.text, why)
        number = read_number(written(text) or "0")
        if number is None:
            raise UncountableError(f"${name} is {written(text)[:40]!r}, not a whole number")
        return number


class UncountableError(ValueError):
    """A calculation without a value; the message is the reason.

    Attributes:
        cause: the cause if a variable is unknown.
    """

    def __init__(self, message: str, cause: Cause | None = None) -> None:
        super().__init__(message)
        self.cause = cause


def calculate(expression: str, number_of: Callable[[str], int]) -> int:
    """Return the value of a calculation as in the shell, with integers of 64 bits.

    Args:
        expression: numbers, names, ``+ - * / %``, comparisons and brackets.
        number_of: returns the value of a variable, or raises ``UncountableError``.

    Raises:
        UncountableError: the expression has anything else, a division by zero, or a value beyond 64 bits.

    >>> calculate("(max_prompt + 2048) * 2 / 3", {"max_prompt": 512}.__getitem__)
    1706
    >>> calculate("-7 / 2", {}.__getitem__)
    -3
    """
    text = " ".join(expression.split()) or "0"  # $(( )) is 0
    try:
        if len(text) <= MAX_CALCULATION and _CALCULATION.fullmatch(text):
            return _result(ast.parse(text, mode="eval").body, number_of)
    except (SyntaxError, RecursionError, MemoryError):
        pass
    raise UncountableError("only + - * / %, comparisons and brackets are supported")


def _result(node: ast.expr, number_of: Callable[[str], int]) -> int:
    """Return the value of a part of a calculation.

    Raises:
        SyntaxError: the part is valid in Python but not in the shell.
    """
    match node:
        case ast.Constant(value=constant) if type(constant) is int:
            value = constant
        case ast.Name(id=name):
            value = number_of(name)
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as sign, operand=operand):
            value = _result(operand, number_of) * (-1 if isinstance(sign, ast.USub) else 1)
        case (
            ast.BinOp(left=left, op=sign, right=right)
            | ast.Compare(left=left, ops=[sign], comparators=[right])
        ) if type(sign) in _OPERATORS:
            value = int(_OPERATORS[type(sign)](_result(left, number_of), _result(right, number_of)))
        case _:
            raise SyntaxError
    if not -(1 << 63) <= value < 1 << 63:
        raise UncountableError("a number exceeds 64 bits")
    return value


def _divide(one: int, other: int) -> int:
    if other == 0:
        raise UncountableError("the divisor is zero")
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.Mod: lambda one, other: one - other * _divide(one, other),
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def read_number(text: str) -> int | None:
    """Parse a whole number that is the same in every shell; return None for other text.

    >>> [read_number(text) for text in ("-8", "10", "010", "1e3", "")]
    [-8, 10, None, None, None]
    """
    return int(text) if _NUMBER.fullmatch(text.strip()) else None


def _unset(name: str) -> Cause:
    if name.isdigit():
        return Cause(f"the script's argument ${name} is unknown")
    if name.isidentifier():
        return Cause(f"the script does not set ${name}", (name,))
    return Cause(f"${name} is only known when the script runs")


def _given_by(parameter: Parameter, piece: _Some) -> _Some:
    """Record the variable as a way to set an unknown piece of its default value."""
    if isinstance(piece, Unknown) and not piece.cause.names:
        return cast("_Some", piece._replace(cause=piece.cause._replace(names=(parameter.name,))))
    return piece


def _length(value: Value | None, parameter: Parameter) -> Text:
    if isinstance(value, Array) and not value.sure:
        return (Unknown(parameter.source, Cause(f"some words of ${parameter.name} are unknown")),)
    if isinstance(value, Array):
        return (str(len(value.words)),)
    text = known(value) if value is not None else None
    return (Unknown(parameter.source, _unset(parameter.name)) if text is None else str(len(text)),)


def _from(value: Value | None, first: int, parameter: Parameter) -> Value:
    """Return the arguments from ``first`` on; argument 0 is the name of the script."""
    if not isinstance(value, Array) or not value.sure or first == 0:
        return (Unknown(parameter.source, Cause(f"some words of ${parameter.name} are unknown")),)
    return Array(value.words[first - 1 :])


def _spaced(value: Value) -> Text:
    """Join the words of an array with blanks."""
    if not isinstance(value, Array):
        return value
    pieces: list[Piece] = []
    for word in value.words:
        pieces += [" ", *word.text]
    return tuple(pieces[1:])


def _split(text: Text) -> Iterator[Piece | None]:
    """Yield the pieces of a text, and None for each run of blanks."""
    for piece in text:
        if isinstance(piece, Unknown):
            yield piece
            continue
        for index, word in enumerate(_BLANKS.split(piece)):
            if index:
                yield None
            if word:
                yield word
