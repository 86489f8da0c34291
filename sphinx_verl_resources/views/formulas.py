"""Formulas of components: symbols, the numbers put in, and the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from .sentences import recorded, titled
from .table import add_remarks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..breakdown import Breakdown, Component

FORMULA_CLASS = "verl-formula"
FORMULAS_CLASS = "verl-formulas"


def formula_items() -> nodes.definition_list:
    """Return an empty list for ``formula_item``."""
    # "simple" keeps sphinx_rtd_theme from taking the terms for signatures.
    return nodes.definition_list(classes=[FORMULAS_CLASS, "simple"])


def formula_item(
    term: str, formulas: Iterable[tuple[str, str]], marks: Sequence[str] = (), text: str = ""
) -> nodes.definition_list_item:
    """Return a term with its formulas.

    Args:
        term: what the formulas give.
        formulas: each with the title before it, which may be empty.
        marks: names of remarks about the term.
        text: a recorded sentence about the term, which is then recorded too.
    """
    title = nodes.term("", term)
    add_remarks(title, marks)
    definition = nodes.definition()
    if text:
        title["translatable"] = 0
        definition += recorded(text)
    for name, formula in formulas:
        inline = nodes.inline("", formula, classes=[FORMULA_CLASS])
        definition += recorded("", *(titled(name, [inline]) if name else [inline]))
    return nodes.definition_list_item("", title, definition)


def component_formula(component: Component, size: Callable[[float], str]) -> str:
    """Return a component's formula; ``size`` writes bytes with a unit."""
    formula = component.formula
    return f"{formula.symbols} = {formula.numbers} = {size(component.size)}"


def sum_formula(breakdown: Breakdown, number: Callable[[float], str], size: Callable[[float], str]) -> str:
    """Return the sum of all components; ``number`` keeps enough digits of each for adding them up."""
    return (
        f"total = {' + '.join(number(item.size) for item in breakdown.components)} = {size(breakdown.total)}"
    )
