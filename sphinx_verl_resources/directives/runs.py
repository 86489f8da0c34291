"""``.. verl-runs::``: the tables of the hardware page."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from ..catalog import selection
from ..catalog.fields import PAGE_COLUMNS
from ..catalog.names import TAGS, size_slug
from ..catalog.selection import RunQuery
from ..domain import RunsUse, VerlDomain
from ..logs import log_at
from ..render.runs import row_id
from . import options
from .contribute import contribute_link
from .options import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sphinx.util.typing import OptionSpec

    from ..catalog.catalog import BrokenRun
    from ..catalog.models.run import Run


class verl_runs(nodes.General, nodes.Element):  # noqa: N801 - docutils names nodes in lower case
    """One table still to be made; the attributes are plain strings and lists.

    Attributes:
        runs: ids of the rows, in order.
        columns: field names.
        anchors: ids of the runs whose rows are link targets on this page.
        caption: title of the table, or empty.
        table_id: id of a table with a caption.
    """


#: The attribute that marks a section of ours until ``SectionsToCaptions`` has seen it.
SECTION_SIZE = "verl_size"


def set_caption(node: verl_runs, caption: str, document: nodes.document) -> None:
    """Give a table a title, and the id that Sphinx's permanent link to it needs."""
    stem = table_id = nodes.make_id(f"verl-runs-{caption}")
    number = 1
    while document.ids.setdefault(table_id, node) is not node:
        number += 1
        table_id = f"{stem}-{number}"
    node["caption"], node["table_id"] = caption, table_id


class VerlRuns(SphinxDirective):
    """Recorded runs, one section per size class, or one table with a caption."""

    optional_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[OptionSpec] = {
        **dict.fromkeys(selection.FILTERS, directives.unchanged_required),
        "columns": directives.unchanged_required,
        "sort": directives.unchanged_required,
        "caption": directives.unchanged_required,
        "hide-empty": directives.flag,
    }

    def run(self) -> list[nodes.Node]:
        """Make sections and placeholders; the rows follow when the page is written."""
        try:
            return self._run()
        except OptionError as problem:
            message = f"{self.name}: {problem}"
            log_at(self.get_location(), problem.code, message, self.config)
            return [self._problem(nodes.Text(message))]

    def _run(self) -> list[nodes.Node]:
        domain = VerlDomain.of(self.env)
        query = self._query(domain)
        columns = options.columns(self.options["columns"]) if "columns" in self.options else PAGE_COLUMNS
        domain.note_use(RunsUse(query))
        runs = selection.select_runs(domain.catalog, query)
        broken = selection.select_broken(domain.catalog, query)
        if "caption" in self.options:
            order = {size: index for index, size in enumerate(selection.sizes_to_show(runs, query))}
            if not query.sort:
                runs.sort(key=lambda run: order[run.size])
            return self._content(runs, columns, broken, query)
        return self._sections(runs, columns, broken, query)

    def _query(self, domain: VerlDomain) -> RunQuery:
        sizes = options.sizes(self.arguments[0]) if self.arguments else ()
        filters = []
        for name in selection.FILTERS:
            if name in self.options:
                allowed = list(TAGS) if name == "tag" else selection.allowed_values(domain.catalog, name)
                filters.append((name, options.filter_values(name, self.options[name], allowed)))
        sort = options.sort_fields(self.options["sort"]) if "sort" in self.options else ()
        return RunQuery(sizes, tuple(filters), sort)

    def _sections(
        self, runs: Sequence[Run], columns: Sequence[str], broken: Sequence[BrokenRun], query: RunQuery
    ) -> list[nodes.Node]:
        sections: list[nodes.Node] = []
        shown = selection.sizes_to_show(runs, query)
        homeless = [file for file in broken if file.size not in shown]
        for size in shown:
            own = [run for run in runs if run.size == size]
            own_broken = [file for file in broken if file.size == size]
            if size == shown[0]:
                own_broken += homeless
            if not own and not own_broken and "hide-empty" in self.options:
                continue
            section = nodes.section()
            section[SECTION_SIZE] = size
            self.set_source_info(section)
            title = nodes.title("", size)
            self.set_source_info(title)
            section += title
            section["names"].append(nodes.fully_normalize_name(size))
            if size_slug(size) not in self.state.document.ids:
                section["ids"].append(size_slug(size))
            self.state.document.note_implicit_target(section, section)
            section += self._content(own, columns, own_broken, query, size)
            sections.append(section)
        return sections or [self._empty("", filtered=bool(query.filters))]

    def _content(
        self,
        runs: Sequence[Run],
        columns: Sequence[str],
        broken: Sequence[BrokenRun],
        query: RunQuery,
        size: str = "",
    ) -> list[nodes.Node]:
        """A table or what stands instead of it, then the files that may be missing from it."""
        content: list[nodes.Node] = [self._broken(file) for file in broken]
        if runs:
            content.insert(0, self._table(runs, columns))
        elif not broken:
            content.append(self._empty(size or ", ".join(query.sizes), filtered=bool(query.filters)))
        return content

    def _table(self, runs: Sequence[Run], columns: Sequence[str]) -> verl_runs:
        node = verl_runs("", runs=[run.id for run in runs], columns=list(columns), caption="")
        # Reserved now, while other ids are given out; a run that the page has shown before keeps its row.
        ids = self.state.document.ids
        node["anchors"] = [run.id for run in runs if ids.setdefault(row_id(run.id), node) is node]
        self.set_source_info(node)
        if "caption" in self.options:
            set_caption(node, self.options["caption"], self.state.document)
        return node

    def _empty(self, sizes: str, *, filtered: bool) -> nodes.paragraph:
        """Says that there is nothing, and how to change that."""
        about = f" for {sizes}" if sizes else ""
        paragraph = nodes.paragraph(classes=["verl-empty"])
        self.set_source_info(paragraph)
        if filtered:
            paragraph += nodes.Text(f"No recorded run{about} matches.")
        else:
            paragraph += nodes.Text(f"No run is recorded{about} yet. ")
            paragraph += contribute_link(VerlDomain.of(self.env).settings.add_run, self.env.docname)
        return paragraph

    def _broken(self, file: BrokenRun) -> nodes.error:
        text = " has errors and is not shown; the build log says which."
        return self._problem(nodes.literal("", file.shown), nodes.Text(text))

    def _problem(self, *content: nodes.Node) -> nodes.error:
        """A box that no reader of the page overlooks."""
        paragraph = nodes.paragraph("", "", *content)
        paragraph["support_smartquotes"] = False
        self.set_source_info(paragraph)
        return nodes.error("", paragraph, classes=["verl-problem"])
