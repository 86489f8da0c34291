"""Nodes on pages: tables of cells, folded blocks, marks of remarks, and texts with nodes inside.

Nodes of ours derive from nodes that every builder knows; only HTML has visitors, for what browsers need.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import repeat
from string import Formatter
from typing import TYPE_CHECKING, Any, TypeVar

from docutils import nodes
from docutils.utils import column_width

from .i18n import _

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

T = TypeVar("T")
#: The minimum and maximum width of a column in characters; a page has 80 to 200.
MIN_WIDTH, MAX_WIDTH = 4, 60
#: Class of a cell with a long name, which may break over lines.
PATH_CLASS = "verl-path"
NOTES_CLASS = "verl-notes"
LEGEND_CLASS = "verl-legend"


class verl_table(nodes.table):  # noqa: N801 - docutils names nodes in lower case
    """A table that browsers scroll by keyboard, in a region with a name."""


class verl_details(nodes.container):  # noqa: N801
    """A block that HTML can fold; its first child is a ``verl_summary``."""


class verl_summary(nodes.paragraph):  # noqa: N801
    """The visible line of a folded block."""


class verl_rows(nodes.Part, nodes.Element):  # noqa: N801
    """The rows of a long table in HTML, as one node; its text is for the search.

    Attributes:
        rows: the cells of each row.
        names: the classes of each row, starting with the class of its run.
    """


# -- tables


@dataclass(slots=True)
class Cell:
    """A cell: pieces of text, each with the address of its link or None, followed by nodes.

    Attributes:
        pieces: text and address.
        after: inline nodes after the pieces: marks, and links to other pages.
        anchor: an id that links can point to.
        classes: classes for the style sheet.
        strong: whether its text is bold, as in a total.
    """

    pieces: list[tuple[str, str | None]]
    after: list[nodes.Node] = field(default_factory=list)
    anchor: str = ""
    classes: tuple[str, ...] = ()
    strong: bool = False

    @classmethod
    def of(cls, text: str, after: Iterable[nodes.Node] = ()) -> Cell:
        """Make a cell of plain text."""
        return cls([(text, None)], [*after])

    @classmethod
    def path(cls, *names: str, after: Iterable[nodes.Node] = ()) -> Cell:
        """Make a cell with long names."""
        return cls([(name, None) for name in names], [*after], classes=(PATH_CLASS,))

    @classmethod
    def number(cls, text: str) -> Cell:
        """Make a cell with a number."""
        return cls([(text, None)], classes=("num",))

    @property
    def text(self) -> str:
        """The text of the cell."""
        text = ", ".join(text for text, _ in self.pieces)
        return text + "".join(node.astext() for node in self.after) if self.after else text

    @property
    def is_text(self) -> bool:
        """True for a cell without links and marks."""
        return not self.after and not any(address for _, address in self.pieces)

    def inline(self) -> list[nodes.Node]:
        """Return the content of the cell."""
        content: list[nodes.Node] = []
        for text, address in self.pieces:
            content += [nodes.Text(", ")] if content else []
            content.append(nodes.reference("", text, refuri=address) if address else nodes.Text(text))
        if self.strong and self.text:
            content = [nodes.strong("", "", *content)]
        return [*content, *self.after]


def bold(cells: Iterable[Cell]) -> list[Cell]:
    """Make cells bold, for a row such as a total."""
    cells = list(cells)
    for cell in cells:
        cell.strong = True
    return cells


def empty_table(name: str) -> verl_table:
    """Make a table with the class ``name``, without rows.

    It is on the page from the start, so that labels, numbers and captions work as for any other table.
    """
    # In LaTeX, a table of any height may break over pages.
    return verl_table(classes=[name, "longtable", "colwidths-given"])


def is_ours(node: nodes.Element) -> bool:
    """Return whether one of our directives made a node; its classes show that."""
    return any(name.startswith("verl-") for name in node["classes"])


def table_group(
    headings: Sequence[str | Cell],
    rows: Iterable[Sequence[Cell]],
    names: Sequence[str] = (),
    *,
    for_html: bool = False,
) -> nodes.tgroup:
    """Make the content of a table, with the structure of a ``list-table``: columns, a header row and a body.

    Widths are in characters: the text builder wraps at them; LaTeX and browsers use them as proportions.

    Args:
        headings: the headings of the columns; a text is aligned like the numbers below it.
        rows: the cells of each row.
        names: the classes of each row, if it has any.
        for_html: whether the rows become one node, which only HTML can write, ten times as fast.
    """
    rows = list(rows)
    columns = list(zip(*rows, strict=True)) or [()] * len(headings)
    first = [
        heading if isinstance(heading, Cell) else Cell([(heading, None)], classes=_alignment(below))
        for heading, below in zip(headings, columns, strict=True)
    ]
    widths = (
        max(MIN_WIDTH, *(_width(cell.text) for cell in (head, *below)))
        for head, below in zip(first, columns, strict=True)
    )
    body = nodes.tbody()
    if for_html:
        words = nodes.Text("\n".join(cell.text for cells in rows for cell in cells))
        body += verl_rows("", words, rows=rows, names=names)
    else:
        body += [_row(cells, name) for cells, name in zip(rows, names or repeat(""), strict=False)]
    specs = [nodes.colspec(colwidth=min(width, MAX_WIDTH)) for width in widths]
    return nodes.tgroup("", *specs, nodes.thead("", _row(first)), body, cols=len(headings))


def _alignment(below: Iterable[Cell]) -> tuple[str, ...]:
    return ("num",) if any("num" in cell.classes for cell in below) else ()


def _width(text: str) -> int:
    return len(text) if text.isascii() else column_width(text)


def _row(cells: Iterable[Cell], name: str = "") -> nodes.row:
    row = nodes.row(classes=name.split())
    for cell in cells:
        # LaTeX cannot link to the id of a row, but to a target in its first cell.
        anchor = [nodes.target("", "", ids=[cell.anchor])] if cell.anchor else []
        row += nodes.entry("", nodes.paragraph("", "", *anchor, *cell.inline()), classes=list(cell.classes))
    return row


def column_table(
    items: Iterable[T], columns: Iterable[tuple[str | Cell, Callable[[T], Cell | str]]]
) -> nodes.tgroup:
    """Make the content of a table with one row per item.

    Args:
        items: the items, in order.
        columns: for each column its heading, and a function that makes the cell of an item, or its text.
    """
    headings, makers = zip(*columns, strict=True)
    made = ([make(item) for make in makers] for item in items)
    return table_group(
        headings, [[Cell.of(cell) if isinstance(cell, str) else cell for cell in row] for row in made]
    )


def one_cell(*content: nodes.Node) -> nodes.tgroup:
    """Make the content of a table without rows: one cell with the reason."""
    body = nodes.tbody("", nodes.row("", nodes.entry("", *content)))
    return nodes.tgroup("", nodes.colspec(colwidth=MAX_WIDTH), body, cols=1)


# -- texts


def fill(message: str, **content: str | nodes.Node | Sequence[nodes.Node]) -> list[nodes.Node]:
    """Replace the names in braces of a translated message with texts or nodes."""
    pieces: list[nodes.Node] = []
    for before, name, *_rest in Formatter().parse(message):
        value = content[name] if name else ()
        for piece in (before, *([value] if isinstance(value, (str, nodes.Node)) else value)):
            if isinstance(piece, str) and pieces and isinstance(pieces[-1], nodes.Text):
                pieces[-1] = nodes.Text(pieces[-1].astext() + piece)
            elif piece != "":
                pieces.append(nodes.Text(piece) if isinstance(piece, str) else piece)
    return pieces


def titled(title: str | nodes.Node, content: str | Sequence[nodes.Node]) -> list[nodes.Node]:
    """Put a title before the content of a list item."""
    return fill(_("{title}: {text}"), title=title, text=content)


def titled_item(title: str, content: str | Sequence[nodes.Node]) -> nodes.list_item:
    """Make a list item that begins with a bold title."""
    return nodes.list_item("", nodes.paragraph("", "", *titled(nodes.strong("", title), content)))


def between_commas(items: Iterable[nodes.Node]) -> list[nodes.Node]:
    """Put commas between nodes."""
    return [node for item in items for node in (nodes.Text(_(", ")), item)][1:]


def listed(names: Iterable[str]) -> str:
    """Join names for a sentence."""
    return _(", ").join(names)


def in_a_row(*sentences: str) -> str:
    """Join sentences as the language does."""
    text = sentences[0]
    for sentence in sentences[1:]:
        text = _("{sentence} {next}").format(sentence=text, next=sentence)
    return text


def one_line(text: str) -> str:
    """Return a recorded text on one line."""
    return " ".join(text.split())


def code_block(code: str, language: str, name: str) -> nodes.literal_block:
    """Make a block of code with the class ``name``."""
    return nodes.literal_block(code, code, language=language, classes=[name])


def recorded(text: str, *content: nodes.Node) -> nodes.paragraph:
    """Make a paragraph of recorded text or formulas, which are not translated."""
    return nodes.paragraph("", one_line(text), *content, translatable=0)


def legend(text: str) -> nodes.paragraph:
    """Make the paragraph that explains a table."""
    return nodes.paragraph("", text, classes=[LEGEND_CLASS])


def notes_title(*content: nodes.Node | str) -> nodes.paragraph:
    """Make the line above notes."""
    texts = (nodes.Text(item) if isinstance(item, str) else item for item in content)
    return nodes.paragraph("", "", *texts, classes=["verl-notes-title"])


def numbered_notes(*paragraphs: nodes.paragraph, start: int = 1) -> nodes.enumerated_list:
    """Make a list of notes, numbered like the marks in a table."""
    items = (nodes.list_item("", paragraph) for paragraph in paragraphs)
    notes = nodes.enumerated_list("", *items, classes=[NOTES_CLASS], enumtype="arabic", prefix="", suffix=".")
    if start > 1:
        notes["start"] = start
    return notes


def marks(*targets: tuple[str, str]) -> list[nodes.Node]:
    """Return marks: pairs of a printed mark and the id it refers to on the same page.

    A no-break space before a mark keeps it from starting a line.
    """
    return [
        node
        for text, target in targets
        for node in (
            nodes.Text("\N{NO-BREAK SPACE}"),
            nodes.reference("", text, refid=target, internal=True, classes=["verl-mark"]),
        )
    ]


def details(
    summary: Sequence[nodes.Node], content: Sequence[nodes.Node], name: str = "verl-details"
) -> verl_details:
    """Make a folded block.

    Args:
        summary: inline nodes; other formats than HTML show them as a paragraph.
        content: the folded part.
        name: the class of the block.
    """
    line = verl_summary("", "", *summary, translatable=0)
    return verl_details("", line, *content, classes=[name])


# -- HTML


def _visit_table(self: HTML5Translator, node: verl_table) -> None:
    labels: Counter[str] = self.__dict__.setdefault("verl_labels", Counter())
    label = _name_of(node)
    labels[label] += 1
    if labels[label] > 1:  # screen readers list regions by name
        label = _("{text} ({count})").format(text=label, count=labels[label])
    classes = " ".join(["verl-scroll", *node.get("around", ())])
    about: dict[str, Any] = {"role": "region", "aria-label": label, "tabindex": "0"}
    self.body.append(self.starttag(nodes.container(), "div", CLASS=classes, **about))
    node["start"] = len(self.body)
    self.visit_table(node)


def _depart_table(self: HTML5Translator, node: verl_table) -> None:
    self.depart_table(node)
    # docutils passes on only the ids and classes of a cell.
    for index in range(node["start"], len(self.body)):
        if self.body[index].startswith("<th"):
            scope = "col" if "head" in self.body[index] else "row"
            self.body[index] = re.sub(r"\A<th(?=[ >])", f'<th scope="{scope}"', self.body[index])
    self.body.append("</div>\n")


def _name_of(table: nodes.table) -> str:
    """Return the name of a table: its caption, otherwise the line or the title above it."""
    own = next(iter(table.findall(nodes.title)), None)
    if own is not None:
        return own.astext()
    for node in ancestors(table):
        if isinstance(node, verl_details):
            return node.children[0].astext()
        if isinstance(node, nodes.section):
            return _("Table: {title}").format(title=node.children[0].astext())
    return _("Table: {title}").format(title="")


def ancestors(node: nodes.Node) -> Iterator[nodes.Element]:
    """Yield the parents of a node, from the inside out."""
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def _write_rows(self: HTML5Translator, node: verl_rows) -> None:
    """Write rows as the theme's translator would; it still writes links and marks itself."""
    for number, (cells, name) in enumerate(zip(node["rows"], node["names"], strict=True)):
        self.body.append(f'<tr class="{name} row-{"odd" if number % 2 else "even"}">')
        for cell in cells:
            classes = f' class="{" ".join(cell.classes)}"' if cell.classes else ""
            anchor = f'<span class="target" id="{cell.anchor}"></span>' if cell.anchor else ""
            self.body.append(f"<td{classes}><p>{anchor}")
            if cell.is_text:
                self.body.append(self.encode(cell.text))
            else:
                for child in nodes.paragraph("", "", *cell.inline()).children:
                    child.walkabout(self)
            self.body.append("</p></td>\n")
        self.body.append("</tr>\n")
    raise nodes.SkipNode


def _element(tag: str) -> tuple[Callable[[Any, nodes.Element], None], Callable[[Any, nodes.Element], None]]:
    """Return the visitors of a node that is one HTML element."""

    def visit(self: HTML5Translator, node: nodes.Element) -> None:
        self.body.append(self.starttag(node, tag, ""))

    def depart(self: HTML5Translator, node: nodes.Element) -> None:
        self.body.append(f"</{tag}>\n")

    return visit, depart


#: docutils' own writer of XML looks for visitors by the exact name of a class.
_AS_XML = (
    lambda self, node: self.default_visit(node),
    lambda self, node: self.default_departure(node),
)


def add_nodes(app: Sphinx) -> None:
    """Register the nodes with their visitors."""
    app.add_enumerable_node(verl_table, "table", html=(_visit_table, _depart_table), xml=_AS_XML)
    app.add_node(verl_details, html=_element("details"), xml=_AS_XML)
    app.add_node(verl_summary, html=_element("summary"), xml=_AS_XML)
    app.add_node(verl_rows, html=(_write_rows, None))
