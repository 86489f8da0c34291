"""Arithmetic as the shell does it: whole numbers of 64 bits, and nothing that changes a variable."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

#: Brackets inside brackets, and signs before signs.
MAX_DEPTH = 12

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9][0-9A-Za-z_#@]{0,40})|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>\*\*|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>!~&|^?:()]))"
)
_BLANKS = re.compile(r"\s*")
_HEX = re.compile(r"0[xX][0-9A-Fa-f]{1,16}\Z")
_OCTAL = re.compile(r"0[0-7]{0,22}\Z")
_DECIMAL = re.compile(r"[1-9][0-9]{0,18}\Z")


class UncountableError(ValueError):
    """The expression has no value; the message says why."""


def calculate(expression: str, number_of: Callable[[str], int]) -> int:
    """The value of an arithmetic expression.

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
    return _Calculation(expression, number_of).result()


def read_number(text: str) -> int | None:
    """A whole number as the shell writes it, decimal, hexadecimal or octal; None if it is none.

    >>> [read_number(text) for text in ("-8", "0x10", "010", "08", "1e3", "")]
    [-8, 16, 8, None, None, None]
    """
    digits = text.strip()
    sign = -1 if digits[:1] == "-" else 1
    digits = digits[1:] if digits[:1] in {"-", "+"} else digits
    if _DECIMAL.match(digits):
        return sign * int(digits)
    if _HEX.match(digits):
        return sign * int(digits, 16)
    if _OCTAL.match(digits):
        return sign * int(digits, 8)
    return None


def _divide(one: int, other: int) -> int:
    if other == 0:
        _fail("a number is divided by zero")
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        _fail("an exponent is negative")
    if exponent > 64:  # Anything but these is beyond 64 bits.
        exponent = {0: 1, 1: 1, -1: exponent % 2}.get(base, 65)
    return int(base**exponent) if exponent <= 64 else 1 << 64


def _shift(move: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda one, other: (
        move(one, other) if 0 <= other < 64 else _fail("a number is shifted by too much")
    )


_OPERATORS: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (1, lambda one, other: int(bool(one or other))),
    "&&": (2, lambda one, other: int(bool(one and other))),
    "|": (3, operator.or_),
    "^": (4, operator.xor),
    "&": (5, operator.and_),
    "==": (6, lambda one, other: int(one == other)),
    "!=": (6, lambda one, other: int(one != other)),
    "<": (7, lambda one, other: int(one < other)),
    ">": (7, lambda one, other: int(one > other)),
    "<=": (7, lambda one, other: int(one <= other)),
    ">=": (7, lambda one, other: int(one >= other)),
    "<<": (8, _shift(operator.lshift)),
    ">>": (8, _shift(operator.rshift)),
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
        self._text = text
        self._number_of = number_of
        self._depth = 0
        self._token: re.Match[str] | None = None
        self._advance(0)

    def result(self) -> int:
        if self._token is None:
            return 0  # $(( )) is 0.
        value = self._choice()
        if self._token is not None:
            _fail(f"{self._token[0].strip()!r} stands where an operator is expected")
        return value

    def _advance(self, at: int | None = None) -> None:
        start = self._token.end() if at is None and self._token else at or 0
        self._token = _TOKEN.match(self._text, start)
        rest = _BLANKS.match(self._text, start)
        if not self._token and rest and rest.end() < len(self._text):
            _fail(f"{self._text[rest.end() : rest.end() + 10]!r} is not read in a calculation")

    def _sign(self) -> str:
        return (self._token["sign"] or "") if self._token else ""

    def _choice(self) -> int:
        """``condition ? one : other``, or anything that binds closer."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            _fail(f"brackets are nested deeper than {MAX_DEPTH} levels")
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
        """Operands joined by operators that bind at least as close as ``weakest``."""
        value = self._operand()
        while True:
            strength, function = _OPERATORS.get(self._sign(), (0, None))
            if function is None or strength < weakest:
                return value
            is_power = self._sign() == "**"  # which alone groups from the right
            self._advance()
            self._depth += is_power
            if self._depth > MAX_DEPTH:
                _fail(f"brackets are nested deeper than {MAX_DEPTH} levels")
            value = _checked(function(value, self._operation(strength if is_power else strength + 1)))
            self._depth -= is_power

    def _operand(self) -> int:
        signs: list[Callable[[int], int]] = []
        while self._sign() in _SIGNS:
            signs.append(_SIGNS[self._sign()])
            self._advance()
        value = self._plain()
        for sign in reversed(signs):
            value = _checked(int(sign(value)))
        return value

    def _plain(self) -> int:
        """A number, a variable, or an expression in brackets."""
        token = self._token
        if token is None:
            _fail("a number is missing at the end")
        if token["name"]:
            value = _checked(self._number_of(token["name"]))
        elif token["number"]:
            number = read_number(token["number"])
            value = number if number is not None else _fail(f"{token['number']!r} is no whole number")
        elif self._sign() == "(":
            self._advance()
            value = self._choice()
            self._expect(")")
            return value
        else:
            _fail(f"{self._sign()!r} stands where a number is expected")
        self._advance()
        return _checked(value)

    def _expect(self, sign: str) -> None:
        if self._sign() != sign:
            _fail(f"{sign!r} is missing")
        self._advance()


def _checked(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        _fail("a number is beyond 64 bits")
    return value


def _fail(message: str) -> NoReturn:
    raise UncountableError(message)
