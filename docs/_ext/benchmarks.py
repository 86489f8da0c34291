"""``.. docs-benchmarks:: PART``: figures of ``benchmarks.json``.

``machine`` is a sentence, ``targets`` a sentence and a table, ``tables`` all other tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark_report import Report
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from sphinx_verl_resources.views.table import Cell, empty_table, table_group

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sphinx.application import Sphinx

FILE = "benchmarks.json"


class Benchmarks(SphinxDirective):
    """One part of the report."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(FILE)
        report = Report.read(Path(self.env.srcdir) / FILE)
        parts = {"machine": machine, "targets": targets, "tables": tables}
        return list(parts[self.arguments[0]](report))


def machine(report: Report) -> Iterator[nodes.Node]:
    yield nodes.paragraph("", report.machine)


def targets(report: Report) -> Iterator[nodes.Node]:
    found = report.targets()
    met = sum(target.met for target in found)
    yield nodes.paragraph("", f"{met} of {len(found)} aims are met.")
    yield table("", report.TARGET_HEADINGS, [target.cells for target in found])


def tables(report: Report) -> Iterator[nodes.Node]:
    for item in report.tables():
        yield table(item.title, item.headings, item.rows)


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> nodes.table:
    cells = [[Cell.of(text) for text in row] for row in rows]
    made = empty_table("verl-docs-benchmarks")
    made += [nodes.title("", title)] if title else []
    made += table_group(headings, cells)
    return made


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-benchmarks", Benchmarks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
