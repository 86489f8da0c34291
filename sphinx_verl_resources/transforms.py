"""Finishing what directives left behind: sections when a page is read, tables when it is written."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform

from .directives.runs import SECTION_SIZE, set_caption, verl_runs
from .domain import VerlDomain


class SectionsToCaptions(SphinxTransform):
    """Where no section can stand, in a note or a list, its title becomes the caption of its table.

    A directive cannot tell: what is around it only the parser knows, and each keeps it elsewhere.
    """

    default_priority = 200

    def apply(self, **kwargs: Any) -> None:
        """Look at each section of ours once."""
        for section in list(self.document.findall(nodes.section)):
            size = section.attributes.pop(SECTION_SIZE, None)
            if size is None or isinstance(section.parent, (nodes.document, nodes.section, addnodes.only)):
                continue
            content = section.children[1:]
            for node in content:
                if isinstance(node, verl_runs):
                    set_caption(node, size, self.document)
            section.replace_self(content)


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
