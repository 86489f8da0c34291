"""Names of the files beside the pages, and of what needs them on a page.

Apart from what makes the files, which only pages that need one import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docutils import nodes

FORM_CLASS = "verl-what-if"
#: Of the links to recorded runs in a form, which its script shows.
RUNS_CLASS = "verl-what-if-runs"
#: Before the name of the grid of a form, as a class of the form.
GRID_CLASS = "verl-grid-"
SCRIPT = "verl-what-if.js"
_GRID = "verl-what-if-{}.js"
_STATIC = "_static/"
#: Which files are grids; as many signs as a name has.
GRID_FILES = _STATIC + _GRID.format("?" * 12)

#: Of the name of a file for programs, which becomes a link where the file is written.
DOWNLOAD_CLASS = "verl-download"
JSON, SCHEMA, CSV = "verl-resources.json", "verl-resources.schema.json", "verl-resources.csv"


def grid_path(name: str) -> str:
    """Return the path of the file of a grid in the output."""
    return _STATIC + _GRID.format(name)


def script_of_form(node: nodes.container) -> str:
    """Return the name of the file with the grid of a form, in the folder of static files."""
    grid = next(name for name in node["classes"] if name.startswith(GRID_CLASS))
    return _GRID.format(grid.removeprefix(GRID_CLASS))
