"""Nodes on pages: tables of cells, folded blocks, marks of remarks, and texts with nodes inside.

Nodes of ours derive from nodes that every builder knows; only HTML has visitors, for what browsers need.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import reduce
from html import escape
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
#: The attribute of the body of a table with its rows, until ``WriteRows`` writes them: cells, then classes.
ROWS = "verl_rows"
#: Class of a cell with a long name, which may break over lines.
PATH_CLASS = "verl-path"
#: Class of the rows and details of runs that did not run, which are folded until a reader unfolds them.
MORE_CLASS = "verl-more"
NOTES_CLASS = "verl-notes"
LEGEND_CLASS = "verl-legend"


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
        after: nodes after the pieces: marks, and links to other pages.
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
        return ", ".join(text for text, _ in self.pieces) + "".join(node.astext() for node in self.after)

    def inline(self) -> list[nodes.Node]:
        """Return the content of the cell."""
        content: list[nodes.Node] = []
        for text, address in self.pieces:
            content += [nodes.Text(", ")] if content else []
            content.append(link(text, address) if address else nodes.Text(text))
        if self.strong and self.text:
            content = [nodes.strong("", "", *content)]
        return [*content, *self.after]


def bold(cells: Iterable[Cell]) -> list[Cell]:
    """Make cells bold, for a row such as a total."""
    return [replace(cell, strong=True) for cell in cells]


def empty_table(name: str) -> verl_table:
    """Make a table with the class ``name``, without content."""
    # In LaTeX, a table of any height may break over pages.
    return verl_table(classes=[name, "longtable", "colwidths-given"])


def table_group(
    headings: Iterable[str | Cell],
    rows: Iterable[Sequence[str | Cell]],
    names: Sequence[str] | None = None,
) -> nodes.tgroup:
    """Make the content of a table, with the structure of a ``list-table``: columns, a header row and a body.

    Widths are in characters: the text builder wraps at them; LaTeX and browsers use them as proportions.

    Args:
        headings: the headings of the columns; a text is aligned like the numbers below it.
        rows: the cells or texts of each row.
        names: the classes of each row, if ``WriteRows`` is to write them.
    """
    cells = [[cell if isinstance(cell, Cell) else Cell.of(cell) for cell in row] for row in rows]
    first, specs = [], []
    for heading, *below in zip(headings, *cells, strict=True):
        make = Cell.number if any("num" in cell.classes for cell in below) else Cell.of
        first.append(heading if isinstance(heading, Cell) else make(heading))
        width = max(MIN_WIDTH, *(column_width(cell.text) for cell in (first[-1], *below)))
        specs.append(nodes.colspec(colwidth=min(width, MAX_WIDTH)))
    body = nodes.tbody("", *(row_nodes(cells) if names is None else ()))
    if names is not None:
        body[ROWS] = cells, names
    return nodes.tgroup("", *specs, nodes.thead("", *row_nodes([first])), body, cols=len(specs))


def row_nodes(rows: Iterable[Sequence[Cell]], names: Iterable[str] = repeat("")) -> Iterator[nodes.row]:
    """Make rows, each with its classes."""
    for cells, name in zip(rows, names, strict=False):
        row = nodes.row(classes=name.split())
        for cell in cells:
            # LaTeX cannot link to the id of a row, but to a target in its first cell.
            anchor = [nodes.target("", "", ids=[cell.anchor])] if cell.anchor else []
            row += nodes.entry("", nodes.paragraph("", "", *anchor, *cell.inline()), classes=[*cell.classes])
        yield row


def row_html(rows: Iterable[Sequence[Cell]], names: Iterable[str]) -> nodes.raw:
    """Write rows as a theme would, ten times as fast; their cells contain only texts and links."""
    html: list[str] = []
    for number, (cells, name) in enumerate(zip(rows, names, strict=True)):
        html.append(f'<tr class="{name} row-{"odd" if number % 2 else "even"}">')
        for cell in cells:
            classes = f' class="{" ".join(cell.classes)}"' if cell.classes else ""
            anchor = f'<span class="target" id="{cell.anchor}"></span>' if cell.anchor else ""
            html.append(f"<td{classes}><p>{anchor}{''.join(map(_html, cell.inline()))}</p></td>\n")
        html.append("</tr>\n")
    return nodes.raw("", "".join(html), format="html")


def _html(node: nodes.Node) -> str:
    text = escape(node.astext())
    if not isinstance(node, nodes.reference):
        return text
    address, kind = (f"#{node['refid']}", "internal") if "refid" in node else (node["refuri"], "external")
    return f'<a class="{" ".join([*node["classes"], "reference", kind])}" href="{escape(address)}">{text}</a>'


def column_table(
    items: Iterable[T], columns: Iterable[tuple[str | Cell, Callable[[T], Cell | str]]]
) -> nodes.tgroup:
    """Make the content of a table with one row per item.

    Args:
        items: the items, in order.
        columns: for each column its heading, and a function that makes the cell of an item, or its text.
    """
    headings, makers = zip(*columns, strict=True)
    return table_group(headings, [[make(item) for make in makers] for item in items])


# -- texts


def link(text: str, address: str, *classes: str) -> nodes.reference:
    """Make a link to an address, or to an id on the same page after ``#``."""
    if address.startswith("#"):
        return nodes.reference("", text, refid=address[1:], internal=True, classes=[*classes])
    return nodes.reference("", text, refuri=address)


def fill(message: str, **content: str | nodes.Node | Sequence[nodes.Node]) -> list[nodes.Node]:
    """Replace the names in braces of a translated message with texts or nodes."""
    pieces: list[str | nodes.Node] = []
    for before, name, *_rest in Formatter().parse(message):
        value = content[name] if name else ()
        pieces += [before, *([value] if isinstance(value, (str, nodes.Node)) else value)]
    return [nodes.Text(piece) if isinstance(piece, str) else piece for piece in pieces if piece != ""]


def titled(
    title: str | nodes.Node | Sequence[nodes.Node], content: str | Sequence[nodes.Node]
) -> list[nodes.Node]:
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
    return reduce(lambda text, more: _("{sentence} {next}").format(sentence=text, next=more), sentences)


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
    about = {"enumtype": "arabic", "prefix": "", "suffix": ".", "start": start}
    return nodes.enumerated_list("", *items, classes=[NOTES_CLASS], **about)


def marks(*targets: tuple[str, str]) -> list[nodes.Node]:
    """Return marks: pairs of a printed mark and the id it refers to on the same page.

    A no-break space before a mark keeps it from starting a line.
    """
    each = ((nodes.Text("\N{NO-BREAK SPACE}"), link(text, f"#{to}", "verl-mark")) for text, to in targets)
    return [node for both in each for node in both]


def details(
    summary: Iterable[nodes.Node], content: Iterable[nodes.Node], name: str = "verl-details"
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
    label, labels = _name_of(node), self.__dict__.setdefault("verl_labels", Counter())
    labels[label] += 1
    if labels[label] > 1:  # screen readers list regions by name
        label = _("{text} ({count})").format(text=label, count=labels[label])
    about: dict[str, Any] = {"role": "region", "aria-label": label, "tabindex": "0"}
    self.body.append(self.starttag(nodes.container(), "div", CLASS="verl-scroll", **about))
    node["start"] = len(self.body)
    self.visit_table(node)


def _depart_table(self: HTML5Translator, node: verl_table) -> None:
    self.depart_table(node)
    # docutils passes on only the ids and classes of a cell.
    html = "".join(self.body[node["start"] :])
    for kind, scope in (("head", "col"), ("stub", "row")):
        html = html.replace(f'<th class="{kind}', f'<th scope="{scope}" class="{kind}')
    self.body[node["start"] :] = [html, "</div>\n"]


def _name_of(table: nodes.Element) -> str:
    """Return the caption of a table; without one, the title of what contains it."""
    place = table
    while place.parent and not isinstance(place.children[0], (nodes.title, verl_summary)):
        place = place.parent
    name = place.children[0].astext() if place.parent else ""
    is_own = isinstance(place, (nodes.table, verl_details))
    return name if is_own else _("Table: {title}").format(title=name)


def _element(tag: str) -> tuple[Callable[[Any, nodes.Element], None], Callable[[Any, nodes.Element], None]]:
    """Return the visitors of a node that is one HTML element."""
    return (
        lambda self, node: self.body.append(self.starttag(node, tag, "")),
        lambda self, node: self.body.append(f"</{tag}>\n"),
    )


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
