"""Transforms that complete the output of directives: sections on reading, rows on writing a page."""

from __future__ import annotations

from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform

from ..diagnostics import Code
from ..units import MINUS
from ..views.blocks import verl_details
from ..views.remarks import Numbering, verl_remarks
from ..views.table import html_group, is_ours, table_group, verl_marks
from .directives.base import set_caption
from .directives.runs import OF_RUN, SECTION_SIZE, verl_runs
from .domain import VerlDomain
from .logs import log_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..views.runs import RowAnchors


#: Before the rows of runs are rendered, so that these transforms need not walk through them.
BEFORE_ROWS = 290


class SectionsToCaptions(SphinxTransform):
    """A transform that replaces a section inside a note or a list by its table, captioned with the title.

    A directive cannot do this: only the parser knows the nodes around it, and parsers store them differently.
    """

    default_priority = 200

    def apply(self, **kwargs: Any) -> None:
        """Visit each of our sections once."""
        if not VerlDomain.of(self.env).may_show(self.env.docname):
            return
        for section in list(self.document.findall(nodes.section)):
            size = section.attributes.pop(SECTION_SIZE, None)
            if size is None:
                continue
            around = next(parent for parent in ancestors(section) if not isinstance(parent, addnodes.only))
            if isinstance(around, (nodes.document, nodes.section)):
                # Only now, because MyST makes every named node of an `eval-rst` an explicit target.
                section["names"].append(nodes.fully_normalize_name(size))
                self.document.note_implicit_target(section, section)
                continue
            # The first node gets the id of the section, and an index entry cannot have one.
            content = sorted(section.children[1:], key=lambda node: isinstance(node, addnodes.index))
            for node in content:
                if isinstance(node, nodes.table):
                    set_caption(node, size, self.document)
            section.replace_self(content)
        for table in list(self.document.findall(nodes.table)):
            inside = any(isinstance(parent, nodes.entry) for parent in ancestors(table))
            if inside and is_ours(table):
                self._refuse(table)

    def _refuse(self, table: nodes.table) -> None:
        """Replace a table inside a table with an error, because plain-text builders cannot write it."""
        directive = table["classes"][0]
        message = f"{directive}: a table cannot be inside a table; move the directive out of it"
        log_at(f"{table.source}:{table.line}", Code.directive, message, self.config)
        paragraph = nodes.paragraph("", message)
        table.replace_self(nodes.error("", paragraph, classes=["verl-problem"]))


def ancestors(node: nodes.Node) -> Iterator[nodes.Element]:
    """Yield the parents of a node, from the inside out."""
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


class OnOurPages(SphinxPostTransform):
    """A transform that skips pages without our nodes."""

    def apply(self, **kwargs: Any) -> None:
        """Transform the page if it can contain a node of ours."""
        if VerlDomain.of(self.env).may_show(self.env.docname):
            super().apply(**kwargs)

    @cached_property
    def writes_html(self) -> bool:
        """True if the builder writes HTML."""
        # Sphinx 9 deprecates the `app` of transforms, and no other public attribute gives the builder.
        return ForHtml(self.document).is_supported()


class ForHtml(SphinxPostTransform):
    """A transform used only to check whether the builder writes HTML."""

    formats = ("html",)


class ForEpub(SphinxPostTransform):
    """A transform used only to check whether the builder writes EPUB."""

    builders = ("epub",)


class JoinedPages(OnOurPages):
    """A transform of a document in which a builder may have joined many pages."""

    def page_of(self, node: nodes.Node) -> str:
        """Return the page that a node comes from.

        Builders note the page in each section that they move; the parents of moved nodes are not reliable.
        """
        named = (str(parent["docname"]) for parent in ancestors(node) if "docname" in parent)
        return next(named, self.env.docname)

    def id_space(self, node: nodes.Node) -> str:
        """Return the space in which an id must be unique: the HTML file, otherwise the page."""
        return "" if self.writes_html else self.page_of(node)


class NumberRemarks(JoinedPages):
    """A transform that numbers the remarks of each page in the order of their marks, and lists each once."""

    default_priority = BEFORE_ROWS + 1

    def run(self, **kwargs: Any) -> None:
        """Replace each placeholder, in the order of the document."""
        placeholders = [
            node for node in self.document.findall() if isinstance(node, (verl_marks, verl_remarks))
        ]
        spaces = {space: Numbering() for space in {*map(self.id_space, placeholders)}}
        for node in placeholders:
            numbering = spaces[self.id_space(node)]
            if isinstance(node, verl_marks):
                numbering.mark(node)
            else:
                numbering.list(node)


class RenderRuns(JoinedPages):
    """A transform that renders the rows of runs.

    It runs after references and ``only`` are resolved, so that these steps need not walk through thousands of
    cells. It runs before links are collected for linkcheck (800) and for LaTeX's footnotes (400).
    """

    default_priority = 300

    def run(self, **kwargs: Any) -> None:
        """Replace each placeholder; links point to the first row of a run in an HTML file or on a page."""
        placeholders = list(self.document.findall(verl_runs))
        if not placeholders:
            return
        from ..views.runs import RowAnchors

        reached: dict[str, dict[str, str]] = {}
        for number, node in enumerate(placeholders, 1):
            in_space = reached.setdefault(self.id_space(node), {})
            anchors = {run: id_ for run, id_ in node["anchors"].items() if run not in in_space}
            in_space |= anchors
            self.fill(node, RowAnchors(number, anchors, in_space))

    def fill(self, node: verl_runs, anchors: RowAnchors) -> None:
        """Replace one placeholder with rows, and put their remarks after the table or into the details."""
        from ..views.runs import notes_list, runs_rows

        domain = VerlDomain.of(self.env)
        recorded = domain.records.runs
        # The EPUB builder looks for links among the nodes, to write their addresses below the text.
        without_nodes = self.writes_html and not ForEpub(self.document).is_supported()
        table = node.parent
        blocks = details_below(table)
        group, notes = runs_rows(
            [recorded[run_id] for run_id in node["runs"]],
            node["columns"],
            domain.settings.links,
            computed=node["computed"],
            anchors=anchors,
            details={run_id: block["ids"][0] for run_id, block in blocks.items()},
            make_group=html_group if without_nodes else table_group,
        )
        node.replace_self(group)
        if blocks:
            from ..views.run_details import add_remarks  # this also imports the estimator

            add_remarks(blocks, notes)
        elif notes:
            below = notes_list(notes, recorded, anchors.on_page)
            below.source, below.line = table.source, table.line
            table.parent.insert(table.parent.index(table) + 1, below)


def details_below(table: nodes.Element) -> dict[str, verl_details]:
    """Return the details directly below a table of runs, by run id."""
    after = table.parent.children[table.parent.index(table) + 1 :]
    return {block[OF_RUN]: block for block in takewhile(lambda node: isinstance(node, verl_details), after)}


class UnfoldDetails(OnOurPages):
    """A transform that writes the summary as a paragraph above the content, in formats that cannot fold."""

    default_priority = RenderRuns.default_priority + 5

    def is_supported(self) -> bool:
        """Return whether the builder writes no HTML."""
        return not self.writes_html

    def run(self, **kwargs: Any) -> None:
        """Replace each block."""
        for block in list(self.document.findall(verl_details)):
            summary, *content = block.children
            paragraph = nodes.paragraph()
            # Every format can link to a target, but not to a paragraph.
            paragraph += [nodes.target("", "", ids=[id_]) for id_ in block["ids"]]
            stands_out = any(isinstance(node, nodes.strong) for node in summary.children)
            paragraph += summary.children if stands_out else [nodes.strong("", "", *summary.children)]
            block.parent.replace(block, [paragraph, *content])


class TypesetMinus(OnOurPages):
    """A transform that replaces the minus sign, which LaTeX's fonts may lack."""

    default_priority = RenderRuns.default_priority + 10
    formats = ("latex",)

    def run(self, **kwargs: Any) -> None:
        """Replace it in the cells of tables."""
        cells = self.document.findall(nodes.entry)
        for text in [text for cell in cells for text in cell.findall(nodes.Text) if MINUS in text]:
            first, *others = text.split(MINUS)
            pieces: list[nodes.Node] = [nodes.Text(first)]
            for other in others:
                pieces += [nodes.raw("", "$-$", format="latex"), nodes.Text(other)]
            text.parent.replace(text, pieces)
