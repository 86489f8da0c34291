"""Tables as docutils nodes, with the same structure as those of ``list-table``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from docutils import nodes
from docutils.utils import column_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

T = TypeVar("T")
#: The minimum and maximum width of a column in characters; a page has 80 to 200.
MIN_WIDTH, MAX_WIDTH = 4, 60
#: Class of a cell with a long name, which may break over lines.
PATH_CLASS = "verl-path"
#: The blank before a mark, so that the mark does not start a line.
BEFORE_MARK = "\N{NO-BREAK SPACE}"
#: Width of a mark without a number yet.
MARK_WIDTH = len(" [00]")


class verl_marks(nodes.Inline, nodes.Element):  # noqa: N801 - docutils names nodes in lower case
    """Marks of remarks that are numbered when the page is written.

    Attributes:
        remarks: names of the remarks that they link to.
    """


class verl_rows(nodes.Part, nodes.Element):  # noqa: N801
    """The rows of a long table in HTML, as one node; its text is for the search.

    Attributes:
        rows: the cells of each row.
        names: the classes of each row, starting with the class of its run.
    """


@dataclass(slots=True)
class Cell:
    """A cell: pieces of text, each with the address of its link or None, followed by marks.

    Attributes:
        pieces: text and address.
        marks: pairs of a printed mark and the id it refers to on the same page.
        remarks: names of remarks of the analysis, whose marks are numbered when the page is written.
        links: links to other pages, after the pieces; resolved after all pages are read.
        anchor: an id that links can point to.
        classes: classes for the style sheet.
        strong: whether its text is bold, as in a total.
    """

    pieces: list[tuple[str, str | None]]
    marks: Sequence[tuple[str, str]] = ()
    anchor: str = ""
    classes: tuple[str, ...] = ()
    strong: bool = False
    remarks: Sequence[str] = ()
    links: Sequence[nodes.Element] = ()

    @classmethod
    def of(cls, text: str, remarks: Sequence[str] = ()) -> Cell:
        """Make a cell of plain text."""
        return cls([(text, None)], remarks=remarks)

    @classmethod
    def path(cls, *names: str, remarks: Sequence[str] = ()) -> Cell:
        """Make a cell with long names."""
        return cls([(name, None) for name in names], remarks=remarks, classes=(PATH_CLASS,))

    @classmethod
    def number(cls, text: str) -> Cell:
        """Make a cell with a number."""
        return cls([(text, None)], classes=("num",))

    @property
    def text(self) -> str:
        """The text of the cell, without marks."""
        if len(self.pieces) == 1 and not self.links:  # almost always the case
            return self.pieces[0][0]
        return ", ".join([*(text for text, _ in self.pieces), *(link.astext() for link in self.links)])

    @property
    def is_text(self) -> bool:
        """True for a cell without links and marks."""
        return not (self.links or self.marks or self.remarks or any(address for _, address in self.pieces))

    @property
    def width(self) -> int:
        """The width of the cell on one line, in characters."""
        marks = sum(len(mark) + 1 for mark, _ in self.marks)
        text = self.text
        width = len(text) if text.isascii() else column_width(text)
        return width + marks + MARK_WIDTH * len(self.remarks)


def bold(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells in bold, for a row such as a total."""
    return [replace(cell, strong=True) for cell in cells]


def empty_table(name: str) -> nodes.table:
    """Make a table with the class ``name``, without rows.

    It is on the page from the start, so that labels, numbers and captions work as for any other table.
    """
    # In LaTeX, a table of any height may break over pages.
    return nodes.table(classes=[name, "longtable", "colwidths-given"])


def is_ours(node: nodes.Element) -> bool:
    """Return whether one of our directives made a node; its classes show that."""
    return any(name.startswith("verl-") for name in node["classes"])


def one_cell(*content: nodes.Node) -> nodes.tgroup:
    """Make the content of a table without rows: one cell with the reason."""
    return nodes.tgroup(
        "",
        nodes.colspec(colwidth=MAX_WIDTH),
        nodes.tbody("", nodes.row("", nodes.entry("", *content))),
        cols=1,
    )


def table_group(
    headings: Sequence[str | Cell], rows: Iterable[Sequence[Cell]], names: Sequence[str] = ()
) -> nodes.tgroup:
    """Make the content of a table: columns with their widths, a header row and a body.

    Args:
        headings: the headings of the columns.
        rows: the cells of each row.
        names: the classes of each row, if it has any.
    """
    rows = list(rows)
    body = nodes.tbody("", *map(_row, rows))
    for row, name in zip(body.findall(nodes.row), names, strict=False):
        row["classes"] += name.split()
    return _group(headings, rows, body)


def html_group(
    headings: Sequence[str | Cell], rows: Iterable[Sequence[Cell]], names: Sequence[str] = ()
) -> nodes.tgroup:
    """Make the content of a table as ``table_group`` does, for HTML only."""
    rows = list(rows)
    words = nodes.Text("\n".join(cell.text for cells in rows for cell in cells))
    return _group(headings, rows, nodes.tbody("", verl_rows("", words, rows=rows, names=names)))


def _group(headings: Sequence[str | Cell], rows: Sequence[Sequence[Cell]], body: nodes.tbody) -> nodes.tgroup:
    """Put columns and a header row before a body.

    Widths are in characters: the text builder wraps at them; LaTeX and browsers use them as proportions.
    """
    first = [
        heading if isinstance(heading, Cell) else _heading(heading, (cells[index] for cells in rows))
        for index, heading in enumerate(headings)
    ]
    widths = [max(MIN_WIDTH, *(cell.width for cell in column)) for column in zip(first, *rows, strict=True)]
    columns = [nodes.colspec(colwidth=min(width, MAX_WIDTH)) for width in widths]
    return nodes.tgroup("", *columns, nodes.thead("", _row(first)), body, cols=len(headings))


def _heading(text: str, below: Iterable[Cell]) -> Cell:
    """Make the heading of a column, aligned like the numbers below it if there are any."""
    return Cell([(text, None)], classes=("num",) if any("num" in cell.classes for cell in below) else ())


def column_table(
    items: Iterable[T], columns: Iterable[tuple[str | Cell, Callable[[T], Cell]]]
) -> nodes.tgroup:
    """Make the content of a table with one row per item.

    Args:
        items: the items, in order.
        columns: for each column its heading, and a function that makes the cell of an item.
    """
    headings, makers = zip(*columns, strict=True)
    return table_group(headings, [[make(item) for make in makers] for item in items])


def rows_of(group: nodes.tgroup) -> list[nodes.row]:
    """Return the rows of a table's body."""
    bodies = (child for child in group if isinstance(child, nodes.tbody))
    return [row for body in bodies for row in body if isinstance(row, nodes.row)]


def remark_marks(remarks: Sequence[str]) -> list[nodes.Node]:
    """Return the marks of remarks, which are numbered later."""
    return [verl_marks("", remarks=list(remarks))] if remarks else []


def _marks(marks: Sequence[tuple[str, str]]) -> Iterator[nodes.Node]:
    """Yield marks; one without an id is text between marks."""
    for mark, target in marks:
        if target:
            yield nodes.Text(BEFORE_MARK)
            yield nodes.reference("", mark, refid=target, internal=True, classes=["verl-mark"])
        else:
            yield nodes.Text(mark)


def inline_nodes(cell: Cell) -> list[nodes.Node]:
    """Return the content of a cell."""
    content: list[nodes.Node] = []
    for text, address in cell.pieces:
        content += [nodes.Text(", ")] if content else []
        content.append(nodes.reference("", text, refuri=address) if address else nodes.Text(text))
    if cell.strong:
        content = [nodes.strong("", "", *content)] if cell.text else []
    return [*content, *cell.links, *_marks(cell.marks), *remark_marks(cell.remarks)]


def _row(cells: Sequence[Cell]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        paragraph = nodes.paragraph()
        if cell.anchor:
            # LaTeX cannot link to the id of a row, but to a target in its first cell.
            paragraph += nodes.target("", "", ids=[cell.anchor])
        paragraph += inline_nodes(cell)
        row += nodes.entry("", paragraph, classes=list(cell.classes))
    return row
