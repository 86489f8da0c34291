"""``.. verl-runs::``: the tables of the hardware page."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
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
            paragraph = nodes.paragraph("", message)
            self.set_source_info(paragraph)
            return [nodes.error("", paragraph, classes=["verl-problem"])]

    def _run(self) -> list[nodes.Node]:
        domain = VerlDomain.of(self.env)
        query = self._query(domain)
        columns = options.columns(self.options["columns"]) if "columns" in self.options else PAGE_COLUMNS
        domain.note_use(RunsUse(query))
        runs = selection.select_runs(domain.catalog, query)
        broken = selection.select_broken(domain.catalog, query)
        if "caption" in self.options or not self._takes_sections():
            caption = self.options.get("caption") or " ".join(("Recorded runs", *query.sizes))
            order = {size: index for index, size in enumerate(selection.sizes_to_show(runs, query))}
            if not query.sort:
                runs.sort(key=lambda run: order[run.size])
            return self._content(runs, columns, broken, query, caption=caption)
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

    def _takes_sections(self) -> bool:
        """Whether titles may stand here; inside an admonition or a list they may not."""
        parent = getattr(self.state, "parent", None)
        return isinstance(parent, (nodes.document, nodes.section, addnodes.only))

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
            self.set_source_info(section)
            title = nodes.title("", size)
            self.set_source_info(title)
            section += title
            section["names"].append(nodes.fully_normalize_name(size))
            if size_slug(size) not in self.state.document.ids:
                section["ids"].append(size_slug(size))
            self.state.document.note_implicit_target(section, section)
            section += self._content(own, columns, own_broken, query, size=size)
            sections.append(section)
        return sections

    def _content(
        self,
        runs: Sequence[Run],
        columns: Sequence[str],
        broken: Sequence[BrokenRun],
        query: RunQuery,
        *,
        caption: str = "",
        size: str = "",
    ) -> list[nodes.Node]:
        """A table or what stands instead of it, then the files that may be missing from it."""
        content: list[nodes.Node] = [self._broken(file) for file in broken]
        if runs:
            content.insert(0, self._table(runs, columns, caption))
        elif not broken:
            content.append(self._empty(size or ", ".join(query.sizes), filtered=bool(query.filters)))
        return content

    def _table(self, runs: Sequence[Run], columns: Sequence[str], caption: str) -> verl_runs:
        node = verl_runs("", runs=[run.id for run in runs], columns=list(columns), caption=caption)
        # Reserved now, while other ids are given out; a run that the page has shown before keeps its row.
        ids = self.state.document.ids
        node["anchors"] = [run.id for run in runs if ids.setdefault(row_id(run.id), node) is node]
        self.set_source_info(node)
        if caption:  # Sphinx gives every table with a caption a permanent link, so it needs an id
            stem = number = nodes.make_id(f"verl-runs-{caption}")
            while ids.setdefault(number, node) is not node:
                number = f"{stem}-{len(ids)}"
            node["table_id"] = number
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
        paragraph = nodes.paragraph()
        paragraph += nodes.literal("", file.shown)
        paragraph += nodes.Text(" has errors and is not shown; the build log says which.")
        self.set_source_info(paragraph)
        return nodes.error("", paragraph, classes=["verl-problem"])
