"""``.. docs-limits::``: what is read at most, from the constants that hold it there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sphinx.util.docutils import SphinxDirective

from sphinx_verl_resources.catalog.files import MAX_FILES, MAX_TOTAL
from sphinx_verl_resources.catalog.yaml_data import MAX_BYTES, MAX_DEPTH, MAX_ITEMS, MAX_PROBLEMS
from sphinx_verl_resources.diagnostics import MAX_MESSAGE
from sphinx_verl_resources.settings.read import MAX_LENGTH
from sphinx_verl_resources.settings.shell.expansion import MAX_TOTAL as MAX_EXPANSION
from sphinx_verl_resources.settings.shell.expansion import MAX_VALUE
from sphinx_verl_resources.settings.shell.follow import MAX_DEPTH as MAX_CALLS
from sphinx_verl_resources.views.table import Cell, empty_table, table_group

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

LIMITS = (
    ("Size of a data file", f"{MAX_BYTES >> 20} MiB", "The file is not read; an error names it."),
    (
        "Size of all data files",
        f"{MAX_TOTAL >> 20} MiB",
        "The files behind are not read; an error names the first.",
    ),
    ("Files of a folder", f"{MAX_FILES:,}", "Those behind are not read; an error names the first."),
    ("Nesting of a data file", f"{MAX_DEPTH} levels", "The file is not read; an error names the place."),
    (
        "Items of a list, keys of a mapping",
        f"{MAX_ITEMS:,}",
        "The file is not read; an error names the place.",
    ),
    ("Problems of a file", f"{MAX_PROBLEMS}", "The others are counted."),
    ("Length of a message, and of its hint", f"{MAX_MESSAGE} characters", "The middle is left out."),
    ("Length of a launch script", f"{MAX_LENGTH:,} characters", "The script is not read; an error says so."),
    ("A value in a launch script", f"{MAX_VALUE:,} characters", "The value counts as not known."),
    (
        "All values of a launch script",
        f"{MAX_EXPANSION:,} characters",
        "The script is not read; an error says so.",
    ),
    ("Functions that call each other", f"{MAX_CALLS} levels", "The script is not read; an error says so."),
)


class Limits(SphinxDirective):
    """The table."""

    def run(self) -> list[nodes.Node]:
        table = empty_table("docs-limits")
        rows = [[Cell.of(text) for text in row] for row in LIMITS]
        table += table_group(("What", "At most", "Beyond it"), rows)
        self.set_source_info(table)
        return [table]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-limits", Limits)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
