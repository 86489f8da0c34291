"""Allocations: the memory of one GPU, piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..breakdown import Change, Component, Evidence, Formula

if TYPE_CHECKING:
    from .kinds import Kind


class Allocation(NamedTuple):
    """One thing in the memory of one GPU. Sizes are bytes.

    An estimate makes some dozens of them, and most are never shown: the formula is made on demand.
    """

    kind: Kind
    evidence: Evidence
    size: float
    variables: tuple[tuple[str, float], ...]
    constant: float = 1
    unit: str = ""
    divide: float = 1
    by: str = ""

    @property
    def component(self) -> Component:
        """The allocation with its formula, which gives the same size."""
        changes = (Change("÷", self.divide, self.by),) if self.divide != 1 else ()
        constants = ((self.constant, self.unit),) if self.constant != 1 or self.unit == "bytes" else ()
        formula = Formula(self.variables, constants, changes)
        return Component(self.kind.key, self.kind.label, self.kind.category, formula, self.evidence)


Allocations = tuple[Allocation, ...]


def allocate(
    kind: Kind,
    evidence: Evidence,
    variables: tuple[tuple[str, float], ...],
    constant: float = 1,
    unit: str = "bytes",
    divide: float = 1,
    by: str = "",
) -> Allocation:
    """Multiply the variables and the constant, and divide by the GPUs that share the result."""
    size = 1.0
    for _, value in variables:
        size *= value
    size *= constant
    if divide != 1:
        size *= 1 / divide
    return Allocation(kind, evidence, size, variables, constant, unit, divide, by)


def fixed(kind: Kind, evidence: Evidence, size: float, symbol: str) -> Allocation:
    """Return an allocation of a fixed size."""
    return Allocation(kind, evidence, size, ((symbol, size),))


def sharded(kind: Kind, count: float, size: float, shard: int, symbol: str = "parameters") -> Allocation:
    """Return states of parameters that a group of GPUs shares."""
    return allocate(kind, "exact", ((symbol, count),), size, "bytes", shard, "GPUs")


def per_token(
    kind: Kind, evidence: Evidence, tokens: float, width: float, symbol: str, constant: float = 1
) -> Allocation:
    """Return an allocation that grows with the tokens of a micro-batch."""
    unit = "" if symbol.startswith("bytes") else "bytes"
    return allocate(kind, evidence, (("tokens", tokens), (symbol, width)), constant, unit)


def size_of(allocations: Allocations) -> float:
    """Add up the bytes of allocations."""
    return sum([item.size for item in allocations])
