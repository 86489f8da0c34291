"""The tables of a hand-typed page: which heading each stands under, and its cells as text and links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from docutils import nodes

from .page_parser import ListedRows
from .page_text import SIZE_TITLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docutils.nodes import Element, Node

#: What people type where nothing is recorded.
_PLACEHOLDERS = frozenset(
    {"", "\\", "/", "-", "--", "\N{EN DASH}", "\N{EM DASH}", "?", "n/a", "na", "none", "not recorded", "tbd"}
)


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: what a reader sees, on one line.
        line: of the page; 0 where docutils does not say.
        links: the addresses that it links to.
        broken: whether it holds a link, or other markup, that leads nowhere.
    """

    text: str
    line: int = 0
    links: tuple[str, ...] = ()
    broken: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is recorded in it."""
        return self.text.casefold() in _PLACEHOLDERS and not self.links


@dataclass(frozen=True)
class TypedTable:
    """One table.

    Attributes:
        title: of the section that it stands in and that names a size class, None if there is none.
        line: where it begins.
        rows: all of them, with that of the headings; the line of one that is no list of cells.
    """

    title: str | None
    line: int
    rows: tuple[tuple[Cell, ...] | int, ...]


def tables_of(document: nodes.document) -> Iterator[TypedTable]:
    """The tables of a page in its order."""
    for node in document.findall(lambda node: isinstance(node, (nodes.table, ListedRows))):
        assert isinstance(node, nodes.Element)
        rows = _listed(node) if isinstance(node, ListedRows) else _typed(node)
        lines = [cell.line for row in rows if not isinstance(row, int) for cell in row if cell.line]
        yield TypedTable(_title_of(node), node.line or min(lines, default=1), rows)


def _listed(node: Element) -> tuple[tuple[Cell, ...] | int, ...]:
    """The rows of a list of lists."""
    lists = [child for child in node if isinstance(child, nodes.bullet_list)]
    rows: list[tuple[Cell, ...] | int] = []
    for item in (item for outer in lists for item in outer):
        inner = _without_messages(item)
        if len(inner) == 1 and isinstance(inner[0], nodes.bullet_list):
            rows.append(tuple(map(_cell, inner[0].children)))
        else:
            rows.append(_cell(item).line)
    return tuple(rows)


def _typed(node: Element) -> tuple[tuple[Cell, ...] | int, ...]:
    """The rows of a table that docutils has read; a table within a cell is one of its own."""
    groups = (group for group in node if isinstance(group, nodes.tgroup))
    parts = (part for group in groups for part in group if isinstance(part, (nodes.thead, nodes.tbody)))
    return tuple(tuple(map(_cell, row.children)) for part in parts for row in part)


def _cell(node: Node) -> Cell:
    """One cell; in what docutils has to say of it nobody is interested here."""
    texts = [text.astext() for text in node.findall(nodes.Text) if not _is_remark(text, node)]
    lines = [inner.line for inner in node.findall() if inner.line and not _is_remark(inner, node)]
    links = [str(reference["refuri"]) for reference in node.findall(nodes.reference) if "refuri" in reference]
    inside = [
        *node.findall(nodes.problematic),
        *(r for r in node.findall(nodes.reference) if "refuri" not in r),
    ]
    return Cell(
        " ".join("".join(texts).split()), min(lines, default=0), tuple(dict.fromkeys(links)), bool(inside)
    )


def _is_remark(node: Node, cell: Node) -> bool:
    while node is not cell:
        if isinstance(node, nodes.system_message):
            return True
        node = node.parent
    return False


def _without_messages(node: Node) -> list[Node]:
    return [child for child in node.children if not isinstance(child, nodes.system_message)]


def _title_of(node: Element) -> str | None:
    """The title of the innermost section around a node that begins with a size."""
    parent = node.parent
    while parent is not None:
        if isinstance(parent, nodes.section):
            title = next((child.astext() for child in parent if isinstance(child, nodes.title)), "")
            if SIZE_TITLE.match(title.strip()):
                return " ".join(title.split())
        parent = parent.parent
    return None
