"""``.. verl-runs::``: the tables of the hardware page."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from ..catalog import selection
from ..catalog.fields import PAGE_COLUMNS
from ..catalog.names import size_slug
from ..catalog.selection import RunQuery
from ..diagnostics import Code, Severity, did_you_mean
from ..domain import ConfigUse, RunsUse, VerlDomain
from ..logs import log_at
from ..render.runs import TABLE_CLASS, templates_used
from ..render.table import empty_table
from . import options
from .contribute import contribute_link
from .options import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sphinx.util.typing import OptionSpec

    from ..catalog.catalog import BrokenRun
    from ..catalog.models.run import Run


class verl_runs(nodes.General, nodes.Element):  # noqa: N801 - docutils names nodes in lower case
    """The inside of a table, still to be made; the attributes are plain lists of strings.

    Attributes:
        runs: ids of the rows, in order.
        columns: field names.
    """


#: The attribute that marks a section of ours until ``SectionsToCaptions`` has seen it.
SECTION_SIZE = "verl_size"


def set_caption(table: nodes.table, caption: str, document: nodes.document) -> None:
    """Give a table a title, and the id that Sphinx's permanent link to it needs."""
    table.insert(0, nodes.title("", caption))
    table["ids"].append(free_id(nodes.make_id(f"verl-runs-{caption}"), table, document))


def free_id(stem: str, node: nodes.Element, document: nodes.document) -> str:
    """``stem``, or ``stem-2`` and so on where the page has it already; reserved for ``node``."""
    found, number = stem, 1
    while document.ids.setdefault(found, node) is not node:
        number += 1
        found = f"{stem}-{number}"
    return found


class VerlRuns(SphinxDirective):
    """Recorded runs, one section per size class, or one table with a caption."""

    has_content = True  # to say that there must be none
    optional_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[OptionSpec] = options.AnyOption.of(
        *selection.FILTERS, "columns", "sort", "caption", "hide-empty", "name", "class"
    )

    def run(self) -> list[nodes.Node]:
        """Make sections and tables; the rows follow when the page is written."""
        try:
            return self._run()
        except OptionError as problem:
            # What is allowed depends on the data: any change of them is a reason to look again.
            VerlDomain.of(self.env).note_use(RunsUse(RunQuery()))
            message = f"{self.name}: {problem}"
            log_at(self.get_location(), problem.code, message, self.config)
            return [self._problem(nodes.Text(message))]

    def _run(self) -> list[nodes.Node]:
        options.check(self.options, self.option_spec)
        if self.content:
            raise OptionError("the directive takes options and size classes, and no text")
        domain = VerlDomain.of(self.env)
        query = self._query(domain)
        columns = options.columns(self.options["columns"]) if "columns" in self.options else PAGE_COLUMNS
        self._look_at_settings(domain, (*columns, *query.sort))
        domain.note_use(RunsUse(query))
        runs = selection.select_runs(domain.catalog, query)
        for template in sorted(templates_used(runs, columns)):
            domain.note_use(ConfigUse(template))
        broken = selection.select_broken(domain.catalog, query)
        if "caption" in self.options:
            order = {size: index for index, size in enumerate(selection.sizes_to_show(runs, query))}
            if not query.sort:
                runs.sort(key=lambda run: order[run.size])
            return self._content(runs, columns, broken, query)
        for name in ("name", "class"):
            if name in self.options:
                raise OptionError(f":{name}: goes with :caption:, where there is one table to give it to")
        return self._sections(runs, columns, broken, query)

    def _query(self, domain: VerlDomain) -> RunQuery:
        sizes = options.sizes(self.arguments[0]) if self.arguments else ()
        filters = []
        for name in selection.FILTERS:
            if name in self.options:
                allowed = selection.allowed_values(domain.catalog, name)
                filters.append((name, options.filter_values(name, self.options[name], allowed)))
        sort = options.sort_fields(self.options["sort"]) if "sort" in self.options else ()
        return RunQuery(sizes, tuple(filters), sort)

    def _look_at_settings(self, domain: VerlDomain, names: Sequence[str]) -> None:
        """Warn of a setting that no run records: most likely it is misspelt."""
        for name in names:
            key = name.lstrip("-").removeprefix("settings.")
            if key == name.lstrip("-"):
                continue
            known = {setting for run in domain.catalog.runs.values() for setting in run.settings}
            if key not in known:
                near = did_you_mean(key, sorted(known))
                hint = near if near.startswith("did") else "check its spelling"
                message = f"{self.name}: no run records the setting {key!r}; {hint}"
                log_at(self.get_location(), Code.directive, message, self.config, Severity.WARNING)

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
            section["ids"].append(free_id(size_slug(size), section, self.state.document))
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

    def _table(self, runs: Sequence[Run], columns: Sequence[str]) -> nodes.table:
        table = empty_table(TABLE_CLASS)
        self.set_source_info(table)
        table += verl_runs("", runs=[run.id for run in runs], columns=list(columns))
        if "caption" in self.options:
            set_caption(table, self.options["caption"], self.state.document)
            self.set_source_info(table[0])
            table["classes"] += self.options.get("class", "").split()
            self.add_name(table)
        return table

    def _empty(self, sizes: str, *, filtered: bool) -> nodes.paragraph:
        """Says that there is nothing, and how to change that."""
        about = f" for {sizes}" if sizes else ""
        paragraph = nodes.paragraph(classes=["verl-empty"])
        self.set_source_info(paragraph)
        if filtered:
            paragraph += nodes.Text(f"No recorded run{about} matches.")
        else:
            paragraph += nodes.Text(f"No run is recorded{about} yet. ")
            domain = VerlDomain.of(self.env)
            domain.note_use(ConfigUse("add_run"))
            paragraph += contribute_link(domain.settings.add_run, self.env.docname)
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
