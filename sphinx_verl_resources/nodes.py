"""Nodes on pages: tables of cells, folded blocks, marks of remarks, and texts with nodes inside.

Nodes of ours derive from nodes that every builder knows. HTML and LaTeX have visitors of their own, for what
browsers and narrow columns need.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import starmap
from string import Formatter
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.nodes import Node
from docutils.utils import column_width

from .diagnostics import one_line
from .i18n import _

if TYPE_CHECKING:  # commands do not need Sphinx
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator
    from sphinx.writers.latex import LaTeXTranslator

#: What ``fill`` puts into a message.
Content = str | Node | Sequence[Node]

#: The minimum and maximum width of a column in characters; a page has 80 to 200.
MIN_WIDTH, MAX_WIDTH = 4, 60
#: The attribute of the body of a table with the cells of its rows by run id, until ``WriteRows`` writes them.
ROWS = "verl_rows"
#: Class of a cell with a long name, which may break over lines.
PATH_CLASS = "verl-path"
#: Class of the section of a size class.
SIZE_CLASS = "verl-size"
NOTES_CLASS = "verl-notes"


class verl_table(nodes.table):  # noqa: N801 - docutils names nodes in lower case
    """A table that browsers scroll by keyboard, in a region with a name."""


class verl_details(nodes.container):  # noqa: N801
    """A block that HTML can fold; its first child is a ``verl_summary``."""


class verl_summary(nodes.paragraph):  # noqa: N801
    """The visible line of a folded block."""


# -- tables


@dataclass(slots=True)
class Cell:
    """A cell: pieces of text, each with the address of its link or None, followed by nodes.

    Attributes:
        pieces: text and address; ``#`` and an id is an address on the same page.
        after: nodes after the pieces, such as marks; a target among them is written first.
        classes: classes for the style sheet.
        strong: whether its text is bold, as in a total.
    """

    pieces: list[tuple[str, str | None]]
    after: list[Node] = field(default_factory=list)
    classes: tuple[str, ...] = ()
    strong: bool = False

    @classmethod
    def of(cls, text: str, after: Iterable[Node] = (), *classes: str) -> Cell:
        """Make a cell of plain text."""
        return cls([(text, None)], [*after], classes=classes)

    @classmethod
    def number(cls, text: str) -> Cell:
        """Make a cell with a number."""
        return cls.of(text, (), "num")

    @property
    def text(self) -> str:
        """The text of the cell."""
        return ", ".join(text for text, _ in self.pieces) + "".join(node.astext() for node in self.after)

    def inline(self) -> list[Node]:
        """Return the content of the cell."""
        content = between_commas(starmap(link, self.pieces))
        if self.strong and self.text:
            content = [nodes.strong("", "", *content)]
        # The target comes first: TeX must not hyphenate a tag.
        return sorted([*content, *self.after], key=lambda node: not isinstance(node, nodes.target))


def bold(cells: Iterable[Cell]) -> list[Cell]:
    """Make cells bold, for a row such as a total."""
    return [replace(cell, strong=True) for cell in cells]


def empty_table(name: str) -> verl_table:
    """Make a table with the class ``name``, without content."""
    # In LaTeX, a table of any height may break over pages.
    return verl_table(classes=[name, "longtable", "colwidths-given"])


def table_group(
    headings: Iterable[str | Cell], rows: Iterable[Iterable[str | Cell]], runs: Sequence[str] | None = None
) -> nodes.tgroup:
    """Make the content of a table, with the structure of a ``list-table``: columns, a header row and a body.

    Widths are in characters: the text builder wraps at them; LaTeX and browsers use them as proportions.

    Args:
        headings: the headings of the columns; they are aligned like the numbers below them.
        rows: the cells or texts of each row.
        runs: the id of the run in each row, if ``WriteRows`` is to write them.
    """
    every = [[Cell.of(cell) if isinstance(cell, str) else cell for cell in row] for row in (headings, *rows)]
    specs = []
    for heading, *below in zip(*every, strict=True):
        if any("num" in cell.classes for cell in below):
            heading.classes += ("num",)
        width = max(map(column_width, {cell.text for cell in (heading, *below)}))
        specs.append(nodes.colspec(colwidth=min(max(width, MIN_WIDTH), MAX_WIDTH)))
    head, *others = (("", cells) for cells in every)
    body = nodes.tbody("", *(row_nodes(others) if runs is None else ()))
    if runs is not None:
        body[ROWS] = dict(zip(runs, every[1:], strict=True))
    return nodes.tgroup("", *specs, nodes.thead("", *row_nodes([head])), body, cols=len(specs))


def row_nodes(rows: Iterable[tuple[str, Sequence[Cell]]]) -> Iterator[nodes.row]:
    """Make rows from their classes and cells."""
    for name, cells in rows:
        row = nodes.row(classes=name.split())
        for cell in cells:
            row += nodes.entry("", nodes.paragraph("", "", *cell.inline()), classes=[*cell.classes])
        yield row


def row_html(rows: Iterable[tuple[str, Sequence[Cell]]]) -> nodes.raw:
    """Write rows as a theme would, ten times as fast; their cells contain only texts, links and targets."""
    html: list[str] = []
    for number, (name, cells) in enumerate(rows):
        html.append(f'<tr class="{name} row-{"odd" if number % 2 else "even"}">')
        for cell in cells:
            classes = f' class="{" ".join(cell.classes)}"' if cell.classes else ""
            html.append(f"<td{classes}><p>{''.join(map(_html, cell.inline()))}</p></td>\n")
        html.append("</tr>\n")
    return nodes.raw("", "".join(html), format="html")


def _html(node: Node) -> str:
    if isinstance(node, nodes.target):
        return f'<span class="target" id="{node["ids"][0]}"></span>'
    text = escape(node.astext())
    if not isinstance(node, nodes.reference):
        return text
    address, kind = (f"#{node['refid']}", "internal") if "refid" in node else (node["refuri"], "external")
    return f'<a class="{" ".join([*node["classes"], "reference", kind])}" href="{escape(address)}">{text}</a>'


# -- texts


def link(text: str, address: str | None, *classes: str) -> nodes.Text | nodes.reference:
    """Make a link to an address, or to an id on the same page after ``#``; without an address, a text."""
    if not address:
        return nodes.Text(text)
    if address.startswith("#"):
        return nodes.reference("", text, refid=address[1:], internal=True, classes=[*classes])
    return nodes.reference("", text, refuri=address)


def fill(message: str, **content: Content) -> list[Node]:
    """Replace the names in braces of a translated message with texts or nodes."""
    pieces: list[str | Node] = []
    for before, name, *_rest in Formatter().parse(message):
        value = content[name] if name else ()
        pieces += [before, *([value] if isinstance(value, (str, Node)) else value)]
    return [nodes.Text(piece) if isinstance(piece, str) else piece for piece in pieces if piece != ""]


def titled(title: Content, content: Content) -> list[Node]:
    """Put a title before the content of a list item."""
    return fill(_("{title}: {text}"), title=title, text=content)


def between_commas(items: Iterable[Node]) -> list[Node]:
    """Put commas between nodes."""
    every = [*items]
    return every[:1] + [node for item in every[1:] for node in (nodes.Text(_(", ")), item)]


def listed(names: Iterable[str]) -> str:
    """Join names for a sentence."""
    return _(", ").join(names)


def code_block(code: str, language: str, name: str) -> nodes.literal_block:
    """Make a block of code with the class ``name``."""
    return nodes.literal_block(code, code, language=language, classes=[name], force=True)


def recorded(text: str, *content: Node) -> nodes.paragraph:
    """Make a paragraph of recorded text or formulas, which are not translated."""
    return nodes.paragraph("", one_line(text), *content, translatable=0)


def notes_title(text: str, *content: Node) -> nodes.paragraph:
    """Make the line above notes."""
    return nodes.paragraph("", text, *content, classes=["verl-notes-title"])


def numbered_notes(*paragraphs: nodes.paragraph, start: int = 1) -> nodes.enumerated_list:
    """Make a list of notes, numbered like the marks in a table."""
    items = (nodes.list_item("", paragraph) for paragraph in paragraphs)
    about = {"enumtype": "arabic", "prefix": "", "suffix": ".", "start": start}
    return nodes.enumerated_list("", *items, classes=[NOTES_CLASS], **about)


def marks(*targets: tuple[str, str]) -> list[Node]:
    """Return marks: pairs of a printed mark and the id it refers to on the same page.

    A no-break space before a mark keeps it from starting a line.
    """
    each = ((nodes.Text("\N{NO-BREAK SPACE}"), link(text, f"#{to}", "verl-mark")) for text, to in targets)
    return [node for both in each for node in both]


def details(summary: Iterable[Node], content: Iterable[Node], name: str = "verl-details") -> verl_details:
    """Make a folded block.

    Args:
        summary: inline nodes; other formats than HTML show them as a paragraph.
        content: the folded part.
        name: the classes of the block.
    """
    return verl_details("", verl_summary("", "", *summary, translatable=0), *content, classes=name.split())


# -- HTML


def _visit_table(self: HTML5Translator, node: verl_table) -> None:
    # Screen readers list regions by name: the caption, otherwise the title of what contains the table.
    place: nodes.Element = node
    while place.parent and not isinstance(place[0], (nodes.title, verl_summary)):
        place = place.parent
    title = place[0].astext() if place.parent else ""
    number = self.__dict__["verl_tables"] = self.__dict__.get("verl_tables", 0) + 1
    label = self.attval(_("{title}, table {number}").format(title=title, number=number))
    self.body.append(f'<div class="verl-scroll" role="region" aria-label="{label}" tabindex="0">\n')
    node["start"] = len(self.body)
    self.visit_table(node)


def _depart_table(self: HTML5Translator, node: verl_table) -> None:
    self.depart_table(node)
    # docutils passes on only the ids and classes of a cell.
    html = "".join(self.body[node["start"] :]).replace('<th class="head', '<th scope="col" class="head')
    self.body[node["start"] :] = [html.replace('<th class="stub', '<th scope="row" class="stub'), "</div>\n"]


def _visit_latex(self: LaTeXTranslator, node: verl_table) -> None:
    # LaTeX cuts a word that is wider than its column, so a column is little wider than its longest word.
    # Capitals are wider than other letters, and a cell has margins of three letters.
    columns = zip(*(row.children for row in node.findall(nodes.row)), strict=True)
    for spec, cells in zip(node.findall(nodes.colspec), columns, strict=True):
        words = [word for cell in cells for word in re.split("[ _-]", cell.astext())]
        widest = max(len(word) + sum(map(str.isupper, word)) // 2 for word in words)
        spec["colwidth"] = widest + 3 + max(len(cell.astext()) for cell in cells) // 8
    self.body.append("\n\\begingroup\\footnotesize\\def\\_{\\textunderscore\\hspace{0pt}}\n")
    self.visit_table(node)


def _depart_latex(self: LaTeXTranslator, node: verl_table) -> None:
    self.depart_table(node)
    self.body.append("\\endgroup\n")


def _visitors(tag: str) -> tuple[Callable[[Any, Node], None], Callable[[Any, Node], None]]:
    """Return the visitors of a node that is one HTML element."""
    return (
        lambda self, node: self.body.append(self.starttag(node, tag, "")),
        lambda self, node: self.body.append(f"</{tag}>\n"),
    )


def add_nodes(app: Sphinx) -> None:
    """Register the nodes with their visitors."""
    html, latex = (_visit_table, _depart_table), (_visit_latex, _depart_latex)
    app.add_enumerable_node(verl_table, "table", html=html, latex=latex)
    app.add_node(verl_details, html=_visitors("details"))
    app.add_node(verl_summary, html=_visitors("summary"))
