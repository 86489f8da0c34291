"""Translated sentences as nodes, and recorded text that no catalog translates."""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING

from docutils import nodes

from ..i18n import _

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    return nodes.paragraph("", text, *content, translatable=0)
