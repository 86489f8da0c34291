"""Our nodes in HTML: charts, rows of runs, folded blocks, tables that scroll by keyboard, header scopes.

The theme's translator writes the tags of tables; attributes are added afterwards, because docutils passes on
only the ids and classes of a node. The rows of runs, which can be thousands, are written directly.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..i18n import _
from ..views.blocks import TABS_CLASS, verl_details, verl_summary, verl_tabs
from ..views.drawing import verl_chart
from ..views.fewest import TABLE_CLASS
from ..views.table import inline_nodes, is_ours, rows_of, verl_rows
from .transforms import OnOurPages, RenderRuns, ancestors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

    Visitors = tuple[
        Callable[[HTML5Translator, nodes.entry], None], Callable[[HTML5Translator, nodes.entry], None]
    ]

#: The region around a table that may be wider than the page.
SCROLL_CLASS = "verl-scroll"


class verl_scroll(nodes.General, nodes.Element):  # noqa: N801 - docutils names nodes in lower case
    """A region that scrolls.

    Attributes:
        label: its name for screen readers.
    """


class verl_column(nodes.entry):  # noqa: N801
    """The heading of a column."""


class verl_row(nodes.entry):  # noqa: N801
    """The heading of a row."""


class AccessibleTables(OnOurPages):
    """A transform that adds scopes to header cells of our tables, and makes them scroll by keyboard."""

    #: Before themes wrap tables in other elements.
    default_priority = RenderRuns.default_priority + 10
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Change each of our tables."""
        labels = Counter[str]()
        for table in list(self.document.findall(nodes.table)):
            if not is_ours(table):
                continue
            for group in table.findall(nodes.tgroup):
                head_columns(group)
                if TABLE_CLASS in table["classes"]:  # its first column also contains headings
                    _head_rows(group)
            label = label_of(table)
            labels[label] += 1
            if labels[label] > 1:  # Screen readers list regions by name.
                label = _("{text} ({count})").format(text=label, count=labels[label])
            region = verl_scroll(classes=[SCROLL_CLASS], label=label)
            # Not `replace_self`, which would also copy the ids and classes of the table to the region.
            table.parent.replace(table, region)
            region += table


def head_columns(group: nodes.tgroup) -> None:
    """Turn the cells above the columns into headings."""
    for head in group.children:
        if isinstance(head, nodes.thead):
            for row in head.children:
                replace_entries(row.children, verl_column)


def _head_rows(group: nodes.tgroup) -> None:
    """Turn the first cell of each row into its heading; docutils calls such a column a stub."""
    columns = [node for node in group.children if isinstance(node, nodes.colspec)]
    if len(columns) > 1:
        columns[0]["stub"] = 1
        for row in rows_of(group):
            replace_entries(row.children[:1], verl_row)


def replace_entries(entries: Iterable[nodes.Node], kind: type[nodes.entry]) -> None:
    """Replace cells with cells of another kind."""
    for entry in list(entries):
        if isinstance(entry, nodes.entry):
            entry.parent.replace(entry, kind("", *entry.children, **entry.attributes))


def label_of(table: nodes.table) -> str:
    """Return the name of a table: its caption, otherwise the title above it."""
    own = next(iter(table.findall(nodes.title)), None)
    if own is not None:
        return own.astext()
    folded = next((node for node in ancestors(table) if isinstance(node, verl_details)), None)
    if folded is not None:
        return folded.children[0].astext()
    section = next((node for node in ancestors(table) if isinstance(node, nodes.section)), None)
    title = section.next_node(nodes.title) if section is not None else None
    return _("Table: {title}").format(title=title.astext() if title is not None else "")


def _with(attribute: str) -> Visitors:
    """Return visitors that write a cell as the theme does, with one more attribute."""

    def visit(self: HTML5Translator, node: nodes.entry) -> None:
        start = len(self.body)
        self.visit_entry(node)
        self.body[start] = self.body[start].replace("<th", f"<th {attribute}", 1)

    def depart(self: HTML5Translator, node: nodes.entry) -> None:
        self.depart_entry(node)

    return visit, depart


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
                for child in nodes.paragraph("", "", *inline_nodes(cell)).children:
                    child.walkabout(self)
            self.body.append("</p></td>\n")
        self.body.append("</tr>\n")
    raise nodes.SkipNode


def _visit_scroll(self: HTML5Translator, node: nodes.Element) -> None:
    attributes = {"role": "region", "aria-label": node["label"], "tabindex": "0"}
    self.body.append(self.starttag(node, "div", **attributes))


def _visit_details(self: HTML5Translator, node: nodes.Element) -> None:
    self.body.append(self.starttag(node, "details"))


def _visit_summary(self: HTML5Translator, node: nodes.Element) -> None:
    self.body.append(self.starttag(node, "summary", ""))


def _visit_chart(self: HTML5Translator, node: verl_chart) -> None:
    # Many e-book readers do not show SVG inside text.
    if self.builder.name != "epub":
        self.body.append(self.starttag(node, "div", CLASS="docutils container"))
        self.body.append(f"{node['drawing'].svg(node['ids'][0])}</div>\n")


def _visit_tabs(self: HTML5Translator, node: verl_tabs) -> None:
    # An e-book shows one table after the other.
    if self.builder.name == "epub":
        raise nodes.SkipNode
    self.body.append(
        self.starttag(node, "div", CLASS=TABS_CLASS, role="group", **{"aria-label": node["label"]})
    )


def _write_nothing(self: nodes.NodeVisitor, node: nodes.raw) -> None:
    """Leave out a chart; the table next to it has the same numbers."""


def _skip(self: nodes.NodeVisitor, node: nodes.raw) -> None:
    """Leave out a node and its content."""
    raise nodes.SkipNode


def _closing(tag: str) -> Callable[[HTML5Translator, nodes.Element], None]:
    def depart(self: HTML5Translator, node: nodes.Element) -> None:
        self.body.append(f"</{tag}>\n")

    return depart


def add_nodes(app: Sphinx) -> None:
    """Register the nodes with their visitors."""
    app.add_node(verl_column, html=_with('scope="col"'))
    app.add_node(verl_row, html=_with('scope="row"'))
    app.add_node(verl_rows, html=(_write_rows, _write_nothing))
    app.add_node(verl_scroll, html=(_visit_scroll, _closing("div")))
    app.add_node(verl_details, html=(_visit_details, _closing("details")))
    app.add_node(verl_summary, html=(_visit_summary, _closing("summary")))
    # Other writers skip these because they are raw HTML; docutils' XML writer would not.
    app.add_node(verl_tabs, html=(_visit_tabs, _closing("div")), xml=(_skip, _write_nothing))
    app.add_node(verl_chart, html=(_visit_chart, _write_nothing), xml=(_write_nothing, _write_nothing))
