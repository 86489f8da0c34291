"""Breakdowns: named memory components, each with its category and a formula for its bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from .i18n import N_
from .units import short_number

if TYPE_CHECKING:
    from collections.abc import Iterable

#: exact: follows from counts and sizes. measured: from cited observations. assumed: a rule of thumb.
Evidence = Literal["exact", "measured", "assumed"]


class Category(Enum):
    """The use of an allocation: a column of the tables, a colour of the charts, a value in JSON.

    Attributes:
        value: its name in JSON.
        heading: its displayed name.
    """

    heading: str

    WEIGHTS = "weights", N_("Weights")
    GRADIENTS = "gradients", N_("Gradients")
    OPTIMIZER = "optimizer", N_("Optimizer")
    ACTIVATIONS = "activations", N_("Activations")
    LOGITS = "logits", N_("Logits")
    GATHERED = "gathered", N_("Gathered")
    ROLLOUT_ENGINE = "rollout-engine", N_("Rollout engine")
    RUNTIME_OVERHEAD = "runtime-overhead", N_("Outside PyTorch")

    def __new__(cls, value: str, heading: str) -> Category:
        """Store the heading with the value."""
        member = object.__new__(cls)
        member._value_, member.heading = value, heading
        return member


@dataclass(frozen=True)
class Change:
    """The effect of an optimisation on a component: a further factor of its formula.

    Attributes:
        sign: ``÷`` or ``×``.
        value: the factor or the divisor.
        symbol: the name of the value; empty to show the number itself.
    """

    sign: Literal["÷", "×"]
    value: float
    symbol: str = ""

    @property
    def factor(self) -> float:
        """The factor as a multiplier."""
        return 1 / self.value if self.sign == "÷" else self.value


@dataclass(frozen=True)
class Formula:
    """A product that gives bytes, shown exactly as it is computed.

    Attributes:
        variables: symbols and their values, in order.
        constants: numbers and their units, in order; ``numbers`` shows their product.
        changes: further factors, in order.
    """

    variables: tuple[tuple[str, float], ...]
    constants: tuple[tuple[float, str], ...] = ()
    changes: tuple[Change, ...] = ()

    @cached_property
    def value(self) -> float:
        """Bytes."""
        size = 1.0
        for _, value in self.variables:
            size *= value
        for value, _ in self.constants:
            size *= value
        for change in self.changes:
            size *= change.factor
        return size

    @property
    def symbols(self) -> str:
        """The formula with names: ``batch × sequence × hidden × layers × 2 bytes``."""
        factors = [symbol for symbol, _ in self.variables]
        factors += [f"{short_number(value)} {unit}".strip() for value, unit in self.constants]
        changes = (f" {change.sign} {change.symbol or short_number(change.value)}" for change in self.changes)
        return " × ".join(factors) + "".join(changes)

    @property
    def numbers(self) -> str:
        """The formula with numbers: ``32 × 2048 × 2560 × 32 × 2``."""
        factors = [short_number(value) for _, value in self.variables]
        factors += [short_number(self._constant)] if self.constants else []
        changes = (f" {change.sign} {short_number(change.value)}" for change in self.changes)
        return " × ".join(factors) + "".join(changes)

    @property
    def _constant(self) -> float:
        return math.prod(value for value, _ in self.constants)


@dataclass(frozen=True)
class Component:
    """A part of the memory of one GPU.

    Attributes:
        key: its name in data and options, for example ``kv-cache``.
        label: its displayed name.
        category: the use of the memory.
        formula: the formula of its bytes.
        evidence: the evidence for the formula.
    """

    key: str
    label: str
    category: Category
    formula: Formula
    evidence: Evidence

    @property
    def size(self) -> float:
        """Bytes."""
        return self.formula.value

    def changed(self, change: Change) -> Component:
        """Return the component with a further factor."""
        return replace(self, formula=replace(self.formula, changes=(*self.formula.changes, change)))


@dataclass(frozen=True)
class Breakdown:
    """Components in order. All sizes are bytes per GPU."""

    components: tuple[Component, ...]

    @property
    def total(self) -> float:
        """The bytes of all components together."""
        return math.fsum(component.size for component in self.components)

    def of(self, keys: Iterable[str]) -> float:
        """Add up the bytes of some components."""
        sizes = {component.key: component.size for component in self.components}
        return math.fsum(sizes[key] for key in keys)
