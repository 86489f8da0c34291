"""Arithmetic as the shell does it: whole numbers of 64 bits; nothing changes a variable."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

#: Brackets inside brackets, and powers of powers.
MAX_DEPTH = 12

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9][0-9A-Za-z_#@]{0,40})|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>\*\*|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>!~&|^?:()])|(?P<other>\S.{0,9}))",
    re.DOTALL,
)
_NUMBER = re.compile(
    r"(?P<sign>[-+]?)(?:(?P<decimal>[1-9][0-9]{0,18})|0[xX](?P<hexadecimal>[0-9A-Fa-f]{1,16})|(?P<octal>0[0-7]{0,22}))"
)


class UncountableError(ValueError):
    """An expression has no value; the message says why."""


def calculate(expression: str, number_of: Callable[[str], int]) -> int:
    """Return the value of an arithmetic expression.

    Args:
        expression: numbers, names, ``+ - * / % **``, comparisons, ``&& || ! ?:``, bit operators and brackets.
        number_of: the value of a variable; raises ``UncountableError`` if it has none.

    Raises:
        UncountableError: not an expression, a division by zero, or a value beyond 64 bits.

    >>> calculate("(max_prompt + 2048) * 2 / 3", {"max_prompt": 512}.__getitem__)
    1706
    >>> calculate("-7 / 2", {}.__getitem__)
    -3
    """
    return _Calculation(expression.strip(), number_of).result()


def read_number(text: str) -> int | None:
    """Return a whole number as the shell writes it, decimal, hexadecimal or octal; None if it is none.

    >>> [read_number(text) for text in ("-8", "0x10", "010", "08", "1e3", "")]
    [-8, 16, 8, None, None, None]
    """
    match = _NUMBER.fullmatch(text.strip())
    if not match:
        return None
    base = 10 if match["decimal"] else 16 if match["hexadecimal"] else 8
    return int(match["sign"] + match[match.lastindex or 0], base)


def _divide(one: int, other: int) -> int:
    if other == 0:
        _fail("a number is divided by zero")
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        _fail("an exponent is negative")
    if exponent > 64 and abs(base) > 1:
        _fail(_TOO_LARGE)
    return int(base ** (exponent if exponent <= 64 else 2 - exponent % 2))


def _shifted_by(count: int) -> int:
    return count if 0 <= count < 64 else _fail("a number is shifted by too much")


_TOO_LARGE = "a number is beyond 64 bits"
#: How close each operator binds, and its result.
_OPERATORS: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (1, lambda one, other: bool(one or other)),
    "&&": (2, lambda one, other: bool(one and other)),
    "|": (3, operator.or_),
    "^": (4, operator.xor),
    "&": (5, operator.and_),
    "==": (6, operator.eq),
    "!=": (6, operator.ne),
    "<": (7, operator.lt),
    ">": (7, operator.gt),
    "<=": (7, operator.le),
    ">=": (7, operator.ge),
    "<<": (8, lambda one, other: one << _shifted_by(other)),
    ">>": (8, lambda one, other: one >> _shifted_by(other)),
    "+": (9, operator.add),
    "-": (9, operator.sub),
    "*": (10, operator.mul),
    "/": (10, _divide),
    "%": (10, lambda one, other: one - other * _divide(one, other)),
    "**": (11, _power),
}
_SIGNS: dict[str, Callable[[int], int]] = {
    "+": operator.pos,
    "-": operator.neg,
    "!": operator.not_,
    "~": operator.invert,
}


class _Calculation:
    """One expression, read from left to right."""

    def __init__(self, text: str, number_of: Callable[[str], int]) -> None:
        self._number_of = number_of
        self._depth = 0
        self._tokens = _TOKEN.finditer(text)
        self._advance()

    def result(self) -> int:
        if self._token is None:
            return 0  # $(( )) is 0.
        value = self._choice()
        if self._token is not None:
            _fail(f"{self._token[0].strip()!r} stands where an operator is expected")
        return value

    def _advance(self) -> None:
        self._token = next(self._tokens, None)
        if self._token and (other := self._token["other"]):
            _fail(f"{other!r} is not read in a calculation")

    def _sign(self) -> str:
        return (self._token["sign"] or "") if self._token else ""

    def _deepen(self, levels: int) -> None:
        self._depth += levels
        if self._depth > MAX_DEPTH:
            _fail(f"brackets are nested deeper than {MAX_DEPTH} levels")

    def _choice(self) -> int:
        """Evaluate ``condition ? one : other``, or anything that binds closer."""
        self._deepen(1)
        value = self._operation(1)
        if self._sign() == "?":
            self._advance()
            one = self._choice()
            self._expect(":")
            other = self._choice()
            value = one if value else other
        self._depth -= 1
        return value

    def _operation(self, weakest: int) -> int:
        """Evaluate operands joined by operators that bind at least as close as ``weakest``."""
        value = self._operand()
        while True:
            sign = self._sign()
            strength, function = _OPERATORS.get(sign, (0, operator.add))
            if strength < weakest:
                return value
            groups_from_the_right = sign == "**"
            self._advance()
            self._deepen(groups_from_the_right)
            value = _checked(function(value, self._operation(strength + (not groups_from_the_right))))
            self._depth -= groups_from_the_right

    def _operand(self) -> int:
        signs: list[Callable[[int], int]] = []
        while self._sign() in _SIGNS:
            signs.append(_SIGNS[self._sign()])
            self._advance()
        value = self._plain()
        for sign in reversed(signs):
            value = _checked(sign(value))
        return value

    def _plain(self) -> int:
        """Evaluate a number, a variable, or an expression in brackets."""
        token = self._token
        if token is None:
            _fail("a number is missing at the end")
        if token["sign"] == "(":
            self._advance()
            value = self._choice()
            self._expect(")")
            return value
        if token["name"]:
            value = self._number_of(token["name"])
        elif token["number"]:
            number = read_number(token["number"])
            value = number if number is not None else _fail(f"{token['number']!r} is no whole number")
        else:
            _fail(f"{token['sign']!r} stands where a number is expected")
        value = _checked(value)
        self._advance()
        return value

    def _expect(self, sign: str) -> None:
        if self._sign() != sign:
            _fail(f"{sign!r} is missing")
        self._advance()


def _checked(value: int) -> int:
    """Return the value of an operation as a number of 64 bits."""
    return int(value) if -(1 << 63) <= value < 1 << 63 else _fail(_TOO_LARGE)


def _fail(message: str) -> NoReturn:
    raise UncountableError(message)
