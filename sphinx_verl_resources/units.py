"""Sizes of memory: units and formats, and breakdowns into components with formulas.

GiB is 2^30 bytes, the unit of GPUs and of verl. GB is 10^9 bytes, the unit of the memory analysis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Literal, NamedTuple

from .i18n import N_

MIB = 2**20
GIB = 2**30
GB = 10**9

#: A true minus sign, as wide as a plus.
MINUS = "\N{MINUS SIGN}"


def gb_number(size: float) -> str:
    """Return bytes as a number of GB without the unit: ``21.5``."""
    return _rounded(size / GB)


def gib_number(size: float) -> str:
    """Return bytes as a number of GiB without the unit."""
    return _rounded(size / GIB)


def gb(size: float) -> str:
    """Return bytes in GB with the unit: ``21.5 GB``."""
    return f"{gb_number(size)} GB"


def gib(size: float) -> str:
    """Return bytes in GiB with the unit: ``20.0 GiB``."""
    return f"{gib_number(size)} GiB"


def share(value: float) -> str:
    """Return a share of a whole: 0.123 as ``12.3 %``."""
    return f"{value:.1%}".replace("%", " %").replace("-", MINUS)


def signed(value: float, write: Callable[[float], str]) -> str:
    """Format a number with ``write``, with a plus if it is not negative."""
    return write(value) if value < 0 else f"+{write(value)}"


def short_number(value: float) -> str:
    """Return a number in its shortest form: ``0.3``, ``2048``, with commas from five digits: ``32,000``."""
    number = f"{Decimal(repr(value)):,f}".removesuffix(".0")
    return number if abs(value) >= 10_000 else number.replace(",", "")


def _rounded(value: float) -> str:
    """Format with one decimal, or two below one, where one decimal would be too coarse."""
    text = f"{value:,.1f}" if abs(value) >= 1 or not value else f"{value:.2f}"
    return text.replace("-", MINUS)


def crossed(gpus: object) -> str:
    """Return GPUs as written in a sentence.

    >>> crossed("8*H20")
    '8×H20'
    """
    return str(gpus).replace("*", "×")


# -- breakdowns

#: exact: follows from counts and sizes. measured: from cited observations. assumed: a rule of thumb.
Evidence = Literal["exact", "measured", "assumed"]


class Category(Enum):
    """The use of an allocation: a column of the tables, a colour of the charts, a value in JSON.

    Attributes:
        value: its name in JSON.
        heading: its displayed name.
        colour: its colour in charts; neighbours in a bar differ in lightness too.
        letter: its letter on bars.
    """

    heading: str
    colour: str
    letter: str

    WEIGHTS = "weights", N_("Weights"), "#3450a4", "W"
    GRADIENTS = "gradients", N_("Gradients"), "#d98a1f", "G"
    OPTIMIZER = "optimizer", N_("Optimizer"), "#ded0f8", "O"
    ACTIVATIONS = "activations", N_("Activations"), "#2a7a8a", "A"
    LOGITS = "logits", N_("Logits"), "#f0a9c8", "L"
    GATHERED = "gathered", N_("Gathered"), "#3a2a66", "U"
    ROLLOUT_ENGINE = "rollout-engine", N_("Rollout engine"), "#c9a27c", "R"
    RUNTIME_OVERHEAD = "runtime-overhead", N_("Outside PyTorch"), "#676459", "X"

    def __new__(cls, value: str, heading: str, colour: str, letter: str) -> Category:
        """Store heading, colour and letter with the value."""
        member = object.__new__(cls)
        member._value_, member.heading, member.colour, member.letter = value, heading, colour, letter
        return member


class Factor(NamedTuple):
    """A factor of a formula, or a divisor.

    Attributes:
        symbol: its name, such as ``batch``; for a constant, the number and its unit, such as ``2 bytes``.
        value: the number.
        sign: ``÷`` if the formula divides by the value.
    """

    symbol: str
    value: float
    sign: Literal["×", "÷"] = "×"


@dataclass(frozen=True)
class Component:
    """A part of the memory of one GPU.

    Attributes:
        key: its name in data and options, for example ``kv-cache``.
        label: its displayed name.
        category: the use of the memory.
        factors: the product that gives its bytes, shown exactly as it is computed.
        evidence: the evidence for the formula.
    """

    key: str
    label: str
    category: Category
    factors: tuple[Factor, ...]
    evidence: Evidence

    @cached_property
    def size(self) -> float:
        """Bytes."""
        return math.prod((value if sign == "×" else 1 / value for _, value, sign in self.factors), start=1.0)

    @property
    def symbols(self) -> str:
        """The formula with names: ``batch × sequence × hidden × layers × 2 bytes``."""
        return "".join(f" {factor.sign} {factor.symbol}" for factor in self.factors)[3:]

    @property
    def numbers(self) -> str:
        """The formula with numbers: ``32 × 2048 × 2560 × 32 × 2``."""
        return "".join(f" {factor.sign} {short_number(factor.value)}" for factor in self.factors)[3:]

    def equation(self, write: Callable[[float], str]) -> str:
        """Return the formula with names, with numbers, and its result; ``write`` adds the unit to bytes."""
        return f"{self.symbols} = {self.numbers} = {write(self.size)}"

    def changed(self, factor: Factor) -> Component:
        """Return the component with a further factor, such as that of an optimisation."""
        return replace(self, factors=(*self.factors, factor))


@dataclass(frozen=True)
class Breakdown:
    """Components in order. All sizes are bytes per GPU."""

    components: tuple[Component, ...]

    @property
    def total(self) -> float:
        """The bytes of all components together."""
        return math.fsum(component.size for component in self.components)

    def of(self, keys: Container[str]) -> float:
        """Add up the bytes of some components."""
        return math.fsum(component.size for component in self.components if component.key in keys)

    def equation(self, number: Callable[[float], str], write: Callable[[float], str]) -> str:
        """Return the sum; ``number`` writes each size precisely, ``write`` the total with its unit."""
        terms = " + ".join(number(component.size) for component in self.components)
        return f"total = {terms} = {write(self.total)}"
