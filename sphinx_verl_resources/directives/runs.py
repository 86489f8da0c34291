"""``.. verl-runs::``: the tables of the hardware page."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from ..catalog import selection
from ..catalog.fields import PAGE_COLUMNS
from ..catalog.names import size_slug
from ..catalog.selection import RunQuery
from ..diagnostics import Code, Severity, nearest
from ..domain import ConfigUse, KnownUse, RunsUse, VerlDomain
from ..logs import log_at
from ..render.runs import TABLE_CLASS, templates_used
from ..render.table import empty_table, one_cell
from . import options
from .contribute import contribute_link
from .options import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
        problems = options.Problems()
        given = options.usable(self.options, self.option_spec, problems)
        query = self._query(given, problems)
        columns: tuple[str, ...] = PAGE_COLUMNS
        with problems.noted():
            columns = options.columns(given["columns"]) if "columns" in given else PAGE_COLUMNS
        with problems.noted():
            self._check_combination(given)
        if not problems:
            return self._show(query, columns)
        # What is allowed depends on the data: any change of them is a reason to look again.
        VerlDomain.of(self.env).note_use(RunsUse(RunQuery()))
        for problem in problems:
            log_at(self.get_location(), problem.code, f"{self.name}: {problem}", self.config)
        return [self._problem(nodes.Text(f"{self.name}: {problem}")) for problem in problems]

    def _check_combination(self, given: Mapping[str, str]) -> None:
        if self.content:
            raise OptionError("the directive takes options and size classes, and no text")
        for name in ("name", "class"):
            if name in given and "caption" not in given:
                raise OptionError(f":{name}: goes with :caption:, where there is one table to give it to")

    def _show(self, query: RunQuery, columns: Sequence[str]) -> list[nodes.Node]:
        domain = VerlDomain.of(self.env)
        self._look_at_settings(domain, (*columns, *(name for name, _ in query.sort)))
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
        return self._sections(runs, columns, broken, query)

    def _query(self, given: Mapping[str, str], problems: options.Problems) -> RunQuery:
        domain = VerlDomain.of(self.env)
        sizes: tuple[str, ...] = ()
        sort: tuple[tuple[str, bool], ...] = ()
        filters: list[tuple[str, tuple[str, ...]]] = []
        with problems.noted():
            sizes = options.sizes(self.arguments[0]) if self.arguments else ()
        for name in selection.FILTERS:
            with problems.noted():
                if name in given:
                    values = options.filter_values(domain.catalog, name, given[name])
                    filters.append((name, values))
                    for value in values:
                        domain.note_use(KnownUse(name, value))
        with problems.noted():
            sort = options.sort_fields(given["sort"]) if "sort" in given else ()
        return RunQuery(sizes, tuple(filters), sort)

    def _look_at_settings(self, domain: VerlDomain, names: Iterable[str]) -> None:
        """Warn of a setting that no run records: most likely it is misspelt."""
        for name in names:
            key = name.removeprefix("settings.")
            if key == name:
                continue
            domain.note_use(KnownUse("settings", key))
            if not selection.is_known(domain.catalog, "settings", key):
                domain.note_use(RunsUse(RunQuery()))  # whose settings the hint is chosen from
                near = nearest(key, sorted(selection.recorded_settings(domain.catalog)))
                hint = f"did you mean {near!r}?" if near else "check its spelling"
                message = f"{self.name}: no run records the setting {key!r}; {hint}"
                log_at(self.get_location(), Code.directive, message, self.config, Severity.WARNING)

    def _sections(
        self, runs: Sequence[Run], columns: Sequence[str], broken: Sequence[BrokenRun], query: RunQuery
    ) -> list[nodes.Node]:
        sections: list[nodes.Node] = []
        shown = selection.sizes_to_show([*runs, *broken], query)
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
        """The files that are missing from the table, then the table or what stands instead of it."""
        content: list[nodes.Node] = [self._broken(file) for file in broken]
        if runs:
            rows = verl_runs("", runs=[run.id for run in runs], columns=list(columns))
            content.append(self._table(rows))
        elif not broken or "caption" in self.options:
            empty = self._empty(size or ", ".join(query.sizes), filtered=bool(query.filters))
            # What refers to a caption must not lose its target with the last row.
            content.append(self._table(one_cell(empty)) if "caption" in self.options else empty)
        return content

    def _table(self, inside: nodes.Element) -> nodes.table:
        table = empty_table(TABLE_CLASS)
        self.set_source_info(table)
        table += inside
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
