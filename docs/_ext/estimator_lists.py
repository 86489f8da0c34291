"""Lists about the estimator, generated from the objects that it computes with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from sphinx_verl_resources.diagnostics import counted
from sphinx_verl_resources.memory import allocations
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.nodes import Cell, empty_table, table_group
from sphinx_verl_resources.units import GIB, MIB, share, short_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx


class Constants(SphinxDirective):
    """``.. docs-constants::``: every number that does not follow from a shape."""

    def run(self) -> list[nodes.Node]:
        table = empty_table("verl-docs-estimator")
        rows = [[*map(Cell.of, row)] for row in self.rows()]
        table += table_group(("Number", "Value", "Unit", "Evidence", "Source"), rows)
        self.set_source_info(table)
        return [table]

    def rows(self) -> Iterator[tuple[str, ...]]:
        for item in vars(allocations).values():
            if isinstance(item, allocations.Constant):
                size = item.unit.startswith("bytes") and item.value >= MIB
                value = short_number(round(item.value / GIB, 3) if size else float(item.value))
                unit = item.unit.replace("bytes", "GiB", 1) if size else item.unit
                yield item.name[0].upper() + item.name[1:], value, unit, item.evidence, item.source


class Errors(SphinxDirective):
    """``.. docs-errors::``: the errors by kind of run, and how they were measured."""

    def run(self) -> list[nodes.Node]:
        items = nodes.bullet_list()
        for kind in EstimatorContext().accuracy:
            cases, setups = counted(kind.cases, "case"), counted(kind.setups, "set-up")
            text = (
                f": {kind.compared}. {cases} ({setups}, {counted(kind.sources, 'source')}): "
                f"{share(kind.mean_error)} off on average and {share(kind.worst_error)} at most; "
                f"{kind.needed_more} needed more than computed. The range allows for {share(kind.error)}, "
                f"that of the counter for {share(kind.counter_error)}; {share(kind.inside)} are inside "
                "ranges from other sources."
            )
            name = nodes.strong("", kind.name)
            items += nodes.list_item("", nodes.paragraph("", "", name, nodes.Text(text)))
        return [items]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-constants", Constants)
    app.add_directive("docs-errors", Errors)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
