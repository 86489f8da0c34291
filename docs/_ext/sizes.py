"""``.. docs-sizes::``: the sizes of the files that pages load or offer for download."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

from sphinx_verl_resources.sphinx_ext.assets import STATIC
from sphinx_verl_resources.sphinx_ext.domain import VerlDomain
from sphinx_verl_resources.views.drawing import verl_chart
from sphinx_verl_resources.views.table import Cell, empty_table, table_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

CLASS = "verl-docs-sizes"
#: The prefix of the names of files with answers.
ANSWERS = "verl-what-if-"
#: The use of each file, by the start or end of its name.
ABOUT = {
    ".json": "for download",
    ".csv": "for download",
    "verl-resources.css": "every page that uses this extension",
    "verl-resources.js": "pages with a table of runs",
    "verl-tables.js": "every page that uses this extension",
    "verl-what-if.js": "pages with the form",
}


class Sizes(SphinxDirective):
    """A placeholder of the table, which needs all pages to be read."""

    def run(self) -> list[nodes.Node]:
        for path in STATIC.iterdir():
            self.env.note_dependency(str(path))
        return [empty_table(CLASS)]


class FillSizes(SphinxPostTransform):
    """Fills in the rows before other transforms read the table."""

    default_priority = 5

    def run(self, **kwargs: Any) -> None:
        for table in self.document.findall(nodes.table):
            if CLASS in table["classes"]:
                table += table_group(
                    ("File", "Bytes", "Compressed (gzip)", "Loaded by"), list(rows(self.env))
                )


def rows(env: BuildEnvironment) -> Iterator[list[Cell]]:
    """Yield a row for each file, and for the extremes of answers and drawings."""
    files = {path.name: path.read_bytes() for path in sorted(STATIC.iterdir())}
    files |= {path.rpartition("/")[2]: content for path, content in VerlDomain.of(env).files.items()}
    answers = sorted((files.pop(name) for name in list(files) if name.startswith(ANSWERS)), key=len)
    for name, content in files.items():
        about = next(text for part, text in ABOUT.items() if name.startswith(part) or name.endswith(part))
        yield row(name, content, about)
    yield from extremes(
        "answers of the form for a model", answers, "that page, when a reader first selects the model"
    )
    drawings = sorted((text.encode() for text in drawn(env)), key=len)
    yield from extremes("drawing", drawings, "its page")


def extremes(name: str, contents: list[bytes], about: str) -> Iterator[list[Cell]]:
    """Yield a row for the smallest and for the largest of many."""
    for word, content in zip(("smallest", "largest"), contents[:1] + contents[-1:], strict=False):
        yield row(f"{word}: {name}", content, about)


def row(name: str, content: bytes, about: str) -> list[Cell]:
    """Return a row with the size, plain and compressed."""
    sizes = (len(content), len(gzip.compress(content, 9, mtime=0)))
    return [Cell.of(name), *(Cell.number(f"{size:,}") for size in sizes), Cell.of(about)]


def drawn(env: BuildEnvironment) -> Iterator[str]:
    """Yield every drawing of every page."""
    for docname in sorted(env.found_docs):
        for chart in env.get_doctree(docname).findall(verl_chart):
            yield chart["drawing"].svg(chart["ids"][0])


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-sizes", Sizes)
    app.add_post_transform(FillSizes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
