"""The parts that phases are made of."""

from __future__ import annotations

from typing import NamedTuple

from ..breakdown import Change, Component, Evidence, Formula


class Allocation(NamedTuple):
    """A component before it is written out.

    Every estimate makes some dozens of them, and only their sizes count until somebody looks at one.
    Sizes are bytes per GPU.
    """

    key: str
    label: str
    evidence: Evidence
    size: float
    variables: tuple[tuple[str, float], ...]
    constant: float = 1
    unit: str = ""
    divide: float = 1
    by: str = ""

    @property
    def component(self) -> Component:
        """Its formula, which gives the same size."""
        changes = (Change("÷", self.divide, self.by),) if self.divide != 1 else ()
        constants = ((self.constant, self.unit),) if self.constant != 1 or self.unit == "bytes" else ()
        return Component(self.key, self.label, Formula(self.variables, constants, changes), self.evidence)


Allocations = tuple[Allocation, ...]


def part(
    key: str,
    label: str,
    evidence: Evidence,
    variables: tuple[tuple[str, float], ...],
    constant: float = 1,
    unit: str = "bytes",
    divide: float = 1,
    by: str = "",
) -> Allocation:
    """Variables × constant, divided by something or not."""
    size = 1.0
    for _, value in variables:
        size *= value
    size *= constant
    if divide != 1:
        size *= 1 / divide
    return Allocation(key, label, evidence, size, variables, constant, unit, divide, by)


def fixed(key: str, label: str, evidence: Evidence, size: float, symbol: str) -> Allocation:
    """Something of a fixed size."""
    return Allocation(key, label, evidence, size, ((symbol, size),))


def states(
    key: str, label: str, count: float, size: float, shard: int, what: str = "parameters"
) -> Allocation:
    """States of parameters that are divided among a group of GPUs."""
    return part(key, label, "exact", ((what, count),), size, "bytes", shard, "GPUs")


def per_token(
    key: str, label: str, evidence: Evidence, tokens: float, width: float, symbol: str, constant: float = 1
) -> Allocation:
    """Something that grows with the tokens of a micro-batch."""
    unit = "" if symbol.startswith("bytes") else "bytes"
    return part(key, label, evidence, (("tokens", tokens), (symbol, width)), constant, unit)


def size_of(parts: Allocations) -> float:
    """Bytes of parts together."""
    return sum([item.size for item in parts])
