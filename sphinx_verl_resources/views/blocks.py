"""Blocks of text as nodes: translated sentences, recorded text, notes, formulas, and folded blocks."""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING

from docutils import nodes

from ..i18n import _
from .table import remark_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..breakdown import Breakdown, Component

LEGEND_CLASS = "verl-legend"
NOTES_CLASS = "verl-notes"
DETAILS_CLASS = "verl-details"
TABS_CLASS = "verl-tabs"
FORMULA_CLASS = "verl-formula"
FORMULAS_CLASS = "verl-formulas"


def fill(message: str, **content: str | nodes.Node | Sequence[nodes.Node]) -> list[nodes.Node]:
    """Replace the names in braces of a translated message with texts or nodes."""
    pieces: list[nodes.Node] = []
    text = ""
    for before, name, *_rest in Formatter().parse(message):
        text += before
        value = content[name] if name else ""
        if isinstance(value, str):
            text += value
            continue
        pieces += [nodes.Text(text)] if text else []
        pieces += [value] if isinstance(value, nodes.Node) else value
        text = ""
    return [*pieces, nodes.Text(text)] if text else pieces


def titled(title: str | nodes.Node, content: str | Sequence[nodes.Node]) -> list[nodes.Node]:
    """Put a title before the content of a list item."""
    return fill(_("{title}: {text}"), title=title, text=content)


def titled_item(title: str, content: str | Sequence[nodes.Node]) -> nodes.list_item:
    """Make a list item that begins with a bold title."""
    return nodes.list_item("", nodes.paragraph("", "", *titled(nodes.strong("", title), content)))


def between_commas(items: Iterable[nodes.Node]) -> list[nodes.Node]:
    """Put commas between nodes."""
    return [node for item in items for node in (nodes.Text(_(", ")), item)][1:]


def code_block(code: str, language: str, name: str) -> nodes.literal_block:
    """Make a block of code with the class ``name``."""
    return nodes.literal_block(code, code, language=language, classes=[name])


def in_a_row(*sentences: str) -> str:
    """Join sentences as the language does."""
    text = sentences[0]
    for sentence in sentences[1:]:
        text = _("{sentence} {next}").format(sentence=text, next=sentence)
    return text


def listed(names: Sequence[str]) -> str:
    """Join names for a sentence."""
    return _(", ").join(names)


def recorded(text: str, *content: nodes.Node) -> nodes.paragraph:
    """Make a paragraph of recorded text or formulas, which are not translated."""
    return nodes.paragraph("", " ".join(text.split()), *content, translatable=0)


def legend(text: str) -> nodes.paragraph:
    """Make the paragraph that explains a table."""
    return nodes.paragraph("", text, classes=[LEGEND_CLASS])


def notes_title(*content: nodes.Node | str) -> nodes.paragraph:
    """Make the line above notes."""
    texts = (nodes.Text(item) if isinstance(item, str) else item for item in content)
    return nodes.paragraph("", "", *texts, classes=["verl-notes-title"])


def numbered_notes(*paragraphs: nodes.paragraph, start: int = 1) -> nodes.enumerated_list:
    """Make a list of notes, numbered like the marks in a table."""
    notes = nodes.enumerated_list(classes=[NOTES_CLASS], enumtype="arabic", prefix="", suffix=".")
    if start > 1:
        notes["start"] = start
    notes += [nodes.list_item("", paragraph) for paragraph in paragraphs]
    return notes


class verl_details(nodes.General, nodes.Element):  # noqa: N801 - docutils names nodes in lower case
    """A block that HTML can fold; its first child is a ``verl_summary``."""


class verl_summary(nodes.General, nodes.TextElement):  # noqa: N801
    """The visible line of a folded block."""


class verl_tabs(nodes.raw):  # noqa: N801
    """Links that choose one of several blocks. Builders without a visitor for it skip it as raw HTML.

    Attributes:
        label: the name of the choice.
    """


def details(summary: Sequence[nodes.Node], content: Sequence[nodes.Node]) -> verl_details:
    """Make a folded block.

    Args:
        summary: inline nodes.
        content: the folded part.
    """
    block = verl_details(classes=[DETAILS_CLASS])
    block += verl_summary("", "", *summary)
    block += list(content)
    return block


def formula_items() -> nodes.definition_list:
    """Return an empty list for ``formula_item``."""
    # "simple" keeps sphinx_rtd_theme from styling the terms as signatures.
    return nodes.definition_list(classes=[FORMULAS_CLASS, "simple"])


def formula_item(
    term: str, formulas: Iterable[tuple[str, str]], marks: Sequence[str] = (), text: str = ""
) -> nodes.definition_list_item:
    """Return a term with its formulas.

    Args:
        term: the result of the formulas.
        formulas: pairs of a title, which may be empty, and a formula.
        marks: names of remarks about the term.
        text: a recorded sentence about the term; like it, the term is then not translated.
    """
    title = nodes.term("", term)
    title += remark_marks(marks)
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
    """Return the sum of all components; ``number`` writes each with enough digits to add them up."""
    return (
        f"total = {' + '.join(number(item.size) for item in breakdown.components)} = {size(breakdown.total)}"
    )
