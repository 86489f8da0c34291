"""The components that phases are made of."""

from __future__ import annotations

from ..memory.breakdown import Change, Component, Evidence, Formula


def part(
    key: str,
    label: str,
    evidence: Evidence,
    variables: tuple[tuple[str, float], ...],
    constant: float = 1,
    unit: str = "bytes",
    divide: float = 1,
    by: str = "",
) -> Component:
    """A component: variables × constant, divided by something or not."""
    changes = (Change("÷", divide, by),) if divide != 1 else ()
    constants = ((constant, unit),) if constant != 1 or unit == "bytes" else ()
    return Component(key, label, Formula(variables, constants, changes), evidence)


def fixed(key: str, label: str, evidence: Evidence, size: float, symbol: str) -> Component:
    """A component of a fixed size."""
    return Component(key, label, Formula(((symbol, size),)), evidence)


def states(
    key: str, label: str, count: float, size: float, shard: int, what: str = "parameters"
) -> Component:
    """States of parameters that are divided among a group of GPUs."""
    return part(key, label, "exact", ((what, count),), size, "bytes", shard, "GPUs")


def per_token(
    key: str, label: str, evidence: Evidence, tokens: float, width: float, symbol: str, constant: float = 1
) -> Component:
    """Something that grows with the tokens of a micro-batch."""
    unit = "" if symbol.startswith("bytes") else "bytes"
    return part(key, label, evidence, (("tokens", tokens), (symbol, width)), constant, unit)


def size_of(parts: tuple[Component, ...]) -> float:
    """Bytes of components together."""
    return sum([component.formula.value for component in parts])
