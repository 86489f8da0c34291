"""Translated sentences as nodes, and recorded text that no catalog translates."""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING

from docutils import nodes

from ..i18n import _

if TYPE_CHECKING:
    from collections.abc import Sequence

LEGEND_CLASS = "verl-legend"
NOTES_CLASS = "verl-notes"


def fill(message: str, **content: str | nodes.Node | Sequence[nodes.Node]) -> list[nodes.Node]:
    """Replace the names in braces of a translated message by texts or nodes."""
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


def in_a_row(*sentences: str) -> str:
    """Join sentences in the way of the language."""
    text = sentences[0]
    for sentence in sentences[1:]:
        text = _("{sentence} {next}").format(sentence=text, next=sentence)
    return text


def listed(names: Sequence[str]) -> str:
    """Join names for a sentence."""
    return _(", ").join(names)


def recorded(text: str, *content: nodes.Node) -> nodes.paragraph:
    """Make a paragraph of recorded text or formulas, which no catalog translates."""
    return nodes.paragraph("", " ".join(text.split()), *content, translatable=0)


def legend(text: str) -> nodes.paragraph:
    """Make the paragraph that explains a table."""
    return nodes.paragraph("", text, classes=[LEGEND_CLASS])


def notes_title(*content: nodes.Node | str) -> nodes.paragraph:
    """Make the line above notes."""
    texts = (nodes.Text(item) if isinstance(item, str) else item for item in content)
    return nodes.paragraph("", "", *texts, classes=["verl-notes-title"])


def numbered_notes(*paragraphs: nodes.paragraph, start: int = 1) -> nodes.enumerated_list:
    """Make a list of notes; the marks in a table have the numbers of its items."""
    notes = nodes.enumerated_list(classes=[NOTES_CLASS], enumtype="arabic", prefix="", suffix=".")
    if start > 1:
        notes["start"] = start
    notes += [nodes.list_item("", paragraph) for paragraph in paragraphs]
    return notes
