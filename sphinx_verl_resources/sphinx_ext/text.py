"""Tables as plain text: long ones in parts.

For every cell that it writes, Sphinx's text writer walks through all rows of the table, so that a table
twice as long takes four times as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..views.table import is_ours
from .transforms import OnOurPages, RenderRuns

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Rows of a part. Parts of 10 or 25 take as long, parts of 100 a tenth longer.
ROWS = 50


class SplitTables(OnOurPages):
    """Makes tables of ours with many rows a series of tables, each under the headings."""

    default_priority = RenderRuns.default_priority + 10
    formats = ("text",)

    def run(self, **kwargs: Any) -> None:
        """Look at each table of ours."""
        for table in list(self.document.findall(nodes.table)):
            if is_ours(table):
                table.parent.insert(table.parent.index(table) + 1, list(continuations(table)))


def continuations(table: nodes.table) -> Iterator[nodes.table]:
    """Take the rows that are too many out of a table, and give them back as tables like it."""
    body = next(iter(table.findall(nodes.tbody)))
    rows, body.children = body.children, body.children[:ROWS]
    frame = [node for node in body.parent.children if node is not body]
    for start in range(ROWS, len(rows), ROWS):
        part = nodes.tbody("", *rows[start : start + ROWS])
        group = nodes.tgroup("", *(node.deepcopy() for node in frame), part, **body.parent.attributes)
        yield nodes.table("", group, classes=list(table["classes"]))
