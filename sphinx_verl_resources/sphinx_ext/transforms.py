"""Transforms that complete the output of directives: sections on reading, rows on writing a page."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform

from ..catalog.names import free_name
from ..diagnostics import Code
from ..views.blocks import verl_details
from ..views.remarks import Numbering, verl_remarks
from ..views.table import html_group, is_ours, table_group, verl_marks
from .directives.base import set_caption
from .directives.runs import OF_RUN, SECTION_SIZE, verl_runs
from .domain import VerlDomain
from .ids import is_own, rename_links, row_ids
from .logs import log_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sphinx.environment import BuildEnvironment

    from ..views.runs import RowAnchors


#: Before the rows of runs are rendered, so that these transforms need not walk through them.
BEFORE_ROWS = 290
#: Rows per table in plain text. Writing takes just as long with 10 or 25, and a tenth longer with 100.
ROWS = 50


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

    def taken(self) -> dict[str, set[str]]:
        """Return the ids in each space, including those reserved for rows."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for node in self.document.findall(nodes.Element):
            if node["ids"] or row_ids(node) or isinstance(node, (verl_marks, verl_remarks)):
                found[self.id_space(node)].update(node["ids"], row_ids(node))
        return found

    def id_space(self, node: nodes.Node) -> str:
        """Return the space in which an id must be unique: the HTML file, otherwise the page."""
        return "" if self.writes_html else self.page_of(node)


class UniqueIds(JoinedPages):
    """A transform that renames our ids that occur on several pages in one HTML file.

    Directives keep ids unique on each page, but cannot know which pages a builder joins.
    """

    default_priority = BEFORE_ROWS
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Rename the ids, and update the links to them."""
        if next(self.document.findall(addnodes.start_of_file), None) is None:
            return
        others, own = set[str](), dict[tuple[str, str], None]()
        for node in self.document.findall(nodes.Element):
            for id_ in (*node["ids"], *row_ids(node)):
                if id_ in node["ids"] and not is_own(id_, node):
                    others.add(id_)
                else:
                    own.setdefault((self.page_of(node), id_))
        seen, taken = set(others), others.union(id_ for _page, id_ in own)
        renamed: dict[str, dict[str, str]] = {}
        for page, id_ in own:
            new = free_name(id_, taken) if id_ in seen else id_
            seen.add(id_)
            taken.add(new)
            renamed.setdefault(page, {})[id_] = new
        for node in self.document.findall(nodes.Element):
            self.rename(node, renamed)
        for page, ids in renamed.items():
            rename_titles(self.env, page, ids)

    def rename(self, node: nodes.Element, renamed: Mapping[str, Mapping[str, str]]) -> None:
        """Rename the ids and the link of a node, including links to other pages, which Sphinx 9 breaks."""
        if node["ids"] or "refid" in node or row_ids(node):
            of_page = renamed.get(self.page_of(node), {})
            node["ids"] = [of_page.get(id_, id_) if is_own(id_, node) else id_ for id_ in node["ids"]]
            rename_links(node, of_page)
        page, _, id_ = node.get("refuri", "").partition("#document-")[2].partition("#")
        if id_ in renamed.get(page, {}):
            del node["refuri"]
            node["refid"] = renamed[page][id_]


def rename_titles(env: BuildEnvironment, page: str, renamed: Mapping[str, str]) -> None:
    """Update the table of contents and the section and figure numbers for the new ids of a page."""
    for link in env.tocs[page].findall(nodes.reference):
        id_ = link["anchorname"].removeprefix("#")
        link["anchorname"] = f"#{renamed[id_]}" if id_ in renamed else link["anchorname"]
    sections, figures = env.toc_secnumbers.get(page, {}), env.toc_fignumbers.get(page, {})
    for old, new in renamed.items():
        if f"#{old}" in sections:
            sections[f"#{new}"] = sections[f"#{old}"]
        for numbers in figures.values():
            if old in numbers:
                numbers[new] = numbers[old]


class NumberRemarks(JoinedPages):
    """A transform that numbers the remarks of each page in the order of their marks, and lists each once."""

    default_priority = BEFORE_ROWS + 1

    def run(self, **kwargs: Any) -> None:
        """Replace each placeholder, in the order of the document."""
        placeholders = [
            node for node in self.document.findall() if isinstance(node, (verl_marks, verl_remarks))
        ]
        taken = self.taken() if placeholders else {}
        spaces = {space: Numbering(taken[space]) for space in {*map(self.id_space, placeholders)}}
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
        """Replace each placeholder; links point to the first row of a run on a page."""
        placeholders = list(self.document.findall(verl_runs))
        if not placeholders:
            return
        from ..views.runs import RowAnchors

        taken = self.taken()
        reached: dict[str, dict[str, str]] = {}
        for number, node in enumerate(placeholders, 1):
            of_page = reached.setdefault(self.page_of(node), {})
            anchors = {run: id_ for run, id_ in node["anchors"].items() if run not in of_page}
            of_page |= anchors
            self.fill(node, RowAnchors(number, anchors, of_page, taken[self.id_space(node)]))

    def fill(self, node: verl_runs, anchors: RowAnchors) -> None:
        """Replace one placeholder with rows, and put their remarks after the table or into the details."""
        from ..views.runs import notes_list, runs_rows

        domain = VerlDomain.of(self.env)
        recorded = domain.catalog.runs
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


class SplitTables(OnOurPages):
    """A transform that splits our long tables in plain text into tables of ``ROWS`` rows with headings.

    Sphinx's text writer walks through all rows for each cell: twice the rows take four times as long.
    """

    default_priority = RenderRuns.default_priority + 10
    formats = ("text",)

    def run(self, **kwargs: Any) -> None:
        """Split each of our tables."""
        for table in list(self.document.findall(nodes.table)):
            if is_ours(table):
                table.parent.insert(table.parent.index(table) + 1, list(continuations(table)))


def continuations(table: nodes.table) -> Iterator[nodes.table]:
    """Cut a table after ``ROWS`` rows, and return the other rows as tables like it."""
    body = next(iter(table.findall(nodes.tbody)))
    rows, body.children = body.children, body.children[:ROWS]
    frame = [node for node in body.parent.children if node is not body]
    for start in range(ROWS, len(rows), ROWS):
        part = nodes.tbody("", *rows[start : start + ROWS])
        group = nodes.tgroup("", *(node.deepcopy() for node in frame), part, **body.parent.attributes)
        yield nodes.table("", group, classes=list(table["classes"]))
