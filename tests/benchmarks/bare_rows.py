"""A minimal extension that makes these tables late: nodes from JSON, in a post-transform."""

from __future__ import annotations

import json
from pathlib import Path

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

HEADINGS = ("Tag", "Model", "Task", "Resource", "MaxBatch", "Train", "Infer", "Link", "Contributor")


class bare_rows(nodes.General, nodes.Element):  # noqa: N801
    """A placeholder for the rows of a file."""


class BareRows(SphinxDirective):
    required_arguments = 1

    def run(self):
        relative, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(relative)
        return [
            nodes.table("", bare_rows("", path=path), classes=["verl-runs", "longtable", "colwidths-given"])
        ]


class RenderRows(SphinxPostTransform):
    default_priority = 300

    def run(self):
        for node in list(self.document.findall(bare_rows)):
            rows = json.loads(Path(node["path"]).read_text("utf-8"))
            widths = [
                max(map(len, column))
                for column in zip(HEADINGS, *(texts for _, texts, _ in rows), strict=False)
            ]
            group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in widths), cols=len(widths))
            group += nodes.thead("", row([nodes.Text(text) for text in HEADINGS]))
            body = nodes.tbody()
            for name, texts, address in rows:
                cells = [nodes.Text(text) for text in texts]
                cells[7] = nodes.reference("", texts[7], refuri=address)
                body += row(cells, nodes.target("", "", ids=[name]))
            group += body
            node.replace_self(group)


def row(cells, *first):
    entries = []
    for index, cell in enumerate(cells):
        classes = {4: ["num"], 7: ["verl-path"]}.get(index, []) if first else []
        entries.append(
            nodes.entry("", nodes.paragraph("", "", *([] if index else first), cell), classes=classes)
        )
    return nodes.row("", *entries)


def setup(app):
    app.add_node(bare_rows)
    app.add_directive("bare-rows", BareRows)
    app.add_post_transform(RenderRows)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
