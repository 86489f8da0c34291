"""Finishing what directives left behind: sections when a page is read, rows when it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform

from ..catalog.names import row_id
from ..diagnostics import Code
from ..views.details import verl_details
from ..views.drawing import CHART_CLASS, ID
from ..views.marks import verl_marks, verl_remarks
from ..views.remarks import Numbering
from ..views.table import is_ours
from .directives.base import free_name, set_caption
from .directives.runs import SECTION_SIZE, verl_runs
from .domain import VerlDomain
from .logs import log_at

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Before the rows of runs are made, through which nothing else should have to walk.
BEFORE_ROWS = 290


class SectionsToCaptions(SphinxTransform):
    """Where no section can stand, in a note or a list, its title becomes the caption of its table.

    A directive cannot tell: what is around it only the parser knows, and each keeps it elsewhere.
    """

    default_priority = 200

    def apply(self, **kwargs: Any) -> None:
        """Look at each section of ours once."""
        if not VerlDomain.of(self.env).may_show(self.env.docname):
            return
        for section in list(self.document.findall(nodes.section)):
            size = section.attributes.pop(SECTION_SIZE, None)
            around = next(parent for parent in ancestors(section) if not isinstance(parent, addnodes.only))
            if size is None or isinstance(around, (nodes.document, nodes.section)):
                continue
            # What comes first takes the id of the section over, and an index entry cannot carry it.
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
        """Builders of plain text stop at a table inside a table."""
        directive = table["classes"][0]
        message = f"{directive}: a table cannot stand inside a table; move the directive out of it"
        log_at(f"{table.source}:{table.line}", Code.directive, message, self.config)
        paragraph = nodes.paragraph("", message)
        table.replace_self(nodes.error("", paragraph, classes=["verl-problem"]))


def ancestors(node: nodes.Node) -> Iterator[nodes.Element]:
    """What a node lies in, from the inside out."""
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def is_chart(node: nodes.Element) -> bool:
    """Whether a node is one of our drawings."""
    return isinstance(node, nodes.container) and CHART_CLASS in node["classes"]


def ids_of(document: nodes.document) -> set[str]:
    """Every id of a document."""
    return {id_ for node in document.findall(nodes.Element) for id_ in node["ids"]}


class OnOurPages(SphinxPostTransform):
    """A transform that leaves pages alone which show nothing of ours: most pages of a documentation."""

    def apply(self, **kwargs: Any) -> None:
        """Transform the page if it can hold a node of ours."""
        if VerlDomain.of(self.env).may_show(self.env.docname):
            super().apply(**kwargs)


class PagesApart(OnOurPages):
    """A transform that gives ids, which count for one page each."""

    def id_space(self, node: nodes.Node) -> str:
        """The page that a node comes from, also where a builder has put all pages into one document.

        Such a builder notes the page in each section; the parents of what it has moved are not reliable.
        """
        named = (str(parent["docname"]) for parent in ancestors(node) if "docname" in parent)
        return next(named, self.env.docname)


class PagesJoined(PagesApart):
    """The same for HTML, where an id counts for the whole file, however many pages are joined in it."""

    formats = ("html",)

    def id_space(self, node: nodes.Node) -> str:
        """All pages share one."""
        return ""


def is_own(id_: str, node: nodes.Element) -> bool:
    """Whether an id is one of those that directives of ours have made up."""
    if isinstance(node, (nodes.table, nodes.target)) or is_chart(node):
        return id_.startswith("verl-")
    return isinstance(node, verl_details)


class IdsOfOneFile(PagesJoined):
    """Gives another id to a table, drawing or note of ours whose id another page in the same file has.

    Directives keep ids apart on each page; what pages are joined in one file they cannot know.
    """

    default_priority = BEFORE_ROWS

    def run(self, **kwargs: Any) -> None:
        """Change ids, and the links to them from the same page."""
        if next(self.document.findall(addnodes.start_of_file), None) is None:
            return
        every, seen = ids_of(self.document), set[str]()
        changed: dict[tuple[str, str], str] = {}
        for node in self.document.findall(nodes.Element):
            for index, id_ in enumerate(node["ids"]):
                if id_ in seen and is_own(id_, node):
                    new = free_name(id_, every)
                    every.add(new)
                    changed[PagesApart.id_space(self, node), id_] = node["ids"][index] = new
                seen.add(id_)
        for link in self.document.findall(nodes.reference):
            if "refid" in link:
                link["refid"] = changed.get((PagesApart.id_space(self, link), link["refid"]), link["refid"])


class DrawCharts(OnOurPages):
    """Gives each drawing its id, once ids are those of the file."""

    default_priority = IdsOfOneFile.default_priority + 1
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Replace what stands for the id."""
        for chart in filter(is_chart, self.document.findall(nodes.Element)):
            for raw in list(chart.findall(nodes.raw)):
                raw.replace_self(nodes.raw("", raw.astext().replace(ID, chart["ids"][0]), format="html"))


class LeaveOutCharts(OnOurPages):
    """Leaves out the drawings that have no id yet: those of what is no page of HTML.

    The table behind a drawing says the same.
    """

    default_priority = DrawCharts.default_priority + 1

    def run(self, **kwargs: Any) -> None:
        """Look at each drawing."""
        for chart in list(filter(is_chart, self.document.findall(nodes.Element))):
            if ID in chart.astext():
                chart.parent.remove(chart)


class LeaveOutChartsOfBooks(LeaveOutCharts):
    """The same for electronic books: many of their readers know no SVG within text."""

    default_priority = DrawCharts.default_priority - 1
    builders = ("epub",)


class NumberRemarks(PagesApart):
    """Numbers the remarks of each page by the order of their marks, and lists each remark once."""

    default_priority = BEFORE_ROWS

    def run(self, **kwargs: Any) -> None:
        """Replace each placeholder, in the order of the document."""
        placeholders = [
            node for node in self.document.findall() if isinstance(node, (verl_marks, verl_remarks))
        ]
        taken = ids_of(self.document) if placeholders else set()
        pages: dict[str, Numbering] = {}
        for node in placeholders:
            numbering = pages.setdefault(self.id_space(node), Numbering(taken))
            if isinstance(node, verl_marks):
                numbering.mark(node)
            else:
                numbering.list(node)


class NumberRemarksOfOneFile(PagesJoined, NumberRemarks):
    """The same for HTML."""

    default_priority = NumberRemarks.default_priority - 1


class RenderRuns(PagesApart):
    """Fills in the rows.

    Runs after references are resolved and ``only`` is decided, so that nothing of that walks through
    thousands of cells; and before links are collected for linkcheck (800) and for LaTeX's footnotes (400).
    """

    default_priority = 300

    def run(self, **kwargs: Any) -> None:
        """Replace each placeholder; the first row of a run on a page is the one that links lead to."""
        placeholders = list(self.document.findall(verl_runs))
        taken = ids_of(self.document) if placeholders else set()
        targets: dict[str, set[str]] = {}
        for number, node in enumerate(placeholders, 1):
            on_page = targets.setdefault(self.id_space(node), set())
            free = (run_id for run_id in node["runs"] if row_id(run_id) not in taken)
            anchors = set(free) - on_page
            on_page |= anchors
            self._fill(node, anchors, on_page, number)

    def _fill(self, node: verl_runs, anchors: set[str], targets: set[str], number: int) -> None:
        from ..views.runs import runs_rows

        domain = VerlDomain.of(self.env)
        runs = [domain.catalog.runs[run_id] for run_id in node["runs"]]
        links = domain.settings.links
        group, notes = runs_rows(
            runs,
            node["columns"],
            links,
            computed=node["computed"],
            anchors=anchors,
            targets=targets,
            number=number,
            details=node.get("details", {}),
        )
        table = node.parent
        node.replace_self(group)
        if notes is not None:
            notes.source, notes.line = table.source, table.line
            table.parent.insert(table.parent.index(table) + 1, notes)


class RenderRunsOfOneFile(PagesJoined, RenderRuns):
    """The same for HTML."""

    default_priority = RenderRuns.default_priority - 1
