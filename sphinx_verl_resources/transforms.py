"""Turning what directives left behind into tables, when a page is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sphinx.transforms.post_transforms import SphinxPostTransform

from .directives.runs import verl_runs
from .domain import VerlDomain

if TYPE_CHECKING:
    from docutils import nodes


class RenderRuns(SphinxPostTransform):
    """Fills in the rows.

    Runs late, so that no other transform has to walk through thousands of cells.
    """

    default_priority = 900

    def run(self, **kwargs: Any) -> None:
        """Replace each placeholder."""
        for node in list(self.document.findall(verl_runs)):
            node.replace_self([*self._render(node)])

    def _render(self, node: verl_runs) -> list[nodes.Element]:
        from .render.runs import runs_table

        domain = VerlDomain.of(self.env)
        table, *notes = runs_table(
            [domain.catalog.runs[run_id] for run_id in node["runs"]],
            node["columns"],
            domain.settings.links,
            anchors=set(node["anchors"]),
            caption=node["caption"],
            source=(node.source, node.line),
        )
        if "table_id" in node:
            table["ids"].append(node["table_id"])
        return [table, *notes]
