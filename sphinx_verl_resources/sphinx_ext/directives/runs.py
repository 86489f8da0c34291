"""``.. verl-runs::``: the tables of the hardware page."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from sphinx import addnodes

from ...catalog import selection
from ...catalog.names import PAGE_COLUMNS, row_id, size_slug
from ...catalog.selection import RunQuery, phrases
from ...diagnostics import Code, NoAnswerError, Severity
from ...i18n import N_, _
from ...views.runs import COMPUTED, TABLE_CLASS, run_about, run_title, templates_used, uncomputed_texts
from ...views.sentences import fill, listed
from ...views.table import one_cell
from ..domain import VerlDomain
from ..logs import log_at
from ..objects import RUN, SIZE, Target
from ..queries import ConfigValue, KnownValue, Runs
from . import options
from .base import VerlDirective, free_id
from .contribute import contribute_link
from .options import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ...catalog.catalog import BrokenRun
    from ...catalog.models.run import Run


class verl_runs(nodes.General, nodes.Element):  # noqa: N801 - docutils names nodes in lower case
    """The inside of a table, still to be made; the attributes are plain lists of strings, and a mapping.

    Attributes:
        runs: ids of the rows, in order.
        columns: field names.
        computed: by id, the texts of the columns that are computed.
        details: by id, the id of the block on the page that says more; absent without such blocks.
    """


#: The attribute that marks a section of ours until ``SectionsToCaptions`` has seen it.
SECTION_SIZE = "verl_size"
NONE_YET = N_("No run is recorded yet. {link}")


OPTIONS = (
    *(
        Option(name, f"Only runs {meaning}.", f"{values}, separated by commas")
        for name, meaning, values in (
            ("tag", "with one of these tags", "``MIN``, ``RECOMMENDED``"),
            ("task", "of one of these tasks", "tasks such as ``GRPO-LoRA``"),
            ("gpu", "on one of these GPUs, each by any of its names", "GPUs such as ``H100``"),
            ("train", "with one of these training backends", "backends such as ``fsdp``"),
            (
                "infer",
                "with one of these rollout engines, with or without version",
                "engines such as ``vllm``",
            ),
            ("kind", "of one of these kinds", "kinds such as ``tested``"),
            ("model", "of one of these models, by the checkpoint or by what the row shows", "models"),
        )
    ),
    Option(
        "columns",
        "The fields to show, by their names in the run file, dotted where they lie deeper: "
        "``model gpus measured.gib settings.data.max_response_length``. See :ref:`fields` for all of them.",
        "fields, separated by spaces or commas",
        f"``{' '.join(PAGE_COLUMNS)}``",
    ),
    Option(
        "sort",
        "The fields to sort by, each with a leading ``-`` to turn its order round. Numbers inside text "
        "count as numbers; what is not recorded comes last.",
        "fields, separated by spaces or commas",
        "tested runs first, MIN before RECOMMENDED, then by the day they were added, the number of GPUs and "
        "the id",
    ),
    Option(
        "details",
        "Below each table a block for each run with peak and capacity, status and evidence. Folded in HTML: "
        "the estimate with its chart, the settings to copy, links to the script and to the run's file.",
    ),
    Option("hide-empty", "Leave out size classes without a row."),
    Option("caption", "One table with this caption instead of sections.", "text"),
    Option("name", "A label for that table. It goes with ``caption``.", "label"),
    Option("class", "Further classes of that table. It goes with ``caption``.", "names, separated by spaces"),
)


class VerlRuns(VerlDirective):
    """Recorded runs, one section per size class, or one table with a caption."""

    option_spec: ClassVar[options.AnyOption] = options.AnyOption.of(*OPTIONS)

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """Make sections and tables; the rows follow when the page is written."""
        query = self._query(given, problems)
        columns: tuple[str, ...] = PAGE_COLUMNS
        with problems.noted():
            columns = options.columns(given["columns"]) if "columns" in given else PAGE_COLUMNS
        with problems.noted():
            self._check_combination(given)
        return [] if problems else self._show(query, columns)

    def _check_combination(self, given: Mapping[str, str]) -> None:
        for name in ("name", "class"):
            if name in given and "caption" not in given:
                raise OptionError(f":{name}: goes with :caption:, where there is one table to give it to")

    def _show(self, query: RunQuery, columns: Sequence[str]) -> list[nodes.Node]:
        domain = VerlDomain.of(self.env)
        self._look_at_settings(domain, (*columns, *(name for name, descending in query.sort)))
        found = domain.ask(Runs(query))
        runs, broken = list(found.runs), found.broken
        linked = [*columns, "script", "evidence"] if "details" in self.options else columns
        for template in sorted(templates_used(runs, linked)):
            domain.ask(ConfigValue(template))
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
                    values = phrases(given[name])
                    for value in values:
                        domain.ask(KnownValue(name, value))
                    filters.append((name, options.filter_values(domain.catalog, name, values)))
        with problems.noted():
            sort = options.sort_fields(given["sort"]) if "sort" in given else ()
        return RunQuery(sizes, tuple(filters), sort)

    def _look_at_settings(self, domain: VerlDomain, names: Iterable[str]) -> None:
        """Warn of a setting that no run records: most likely it is misspelt."""
        for name in names:
            key = name.removeprefix("settings.")
            if key == name:
                continue
            hint = domain.ask(KnownValue("settings", key))
            if hint is not None:
                message = f"{self.name}: no run records the setting {key!r}; {hint or 'check its spelling'}"
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
            title = nodes.title("", size, translatable=0)
            section += title
            section["names"].append(nodes.fully_normalize_name(size))
            section["ids"].append(free_id(size_slug(size), section, self.state.document))
            VerlDomain.of(self.env).note_object(SIZE, size, Target(section["ids"][0], size))
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
            ids = [run.id for run in runs]
            content.append(self._index(runs))
            asked = runs if COMPUTED.keys() & set(columns) else ()
            computed = {run.id: self._computed(run) for run in asked}
            rows = verl_runs("", runs=ids, columns=list(columns), computed=computed)
            content.append(self._runs_table(rows))
            if "details" in self.options:
                blocks = self._details(runs)
                rows["details"] = {run.id: block["ids"][0] for run, block in zip(runs, blocks, strict=True)}
                content += blocks
        elif not broken or "caption" in self.options:
            empty = self._empty(size or listed(query.sizes), filtered=bool(query.filters))
            # What refers to a caption must not lose its target with the last row.
            content.append(self._runs_table(one_cell(empty)) if "caption" in self.options else empty)
        return content

    def _details(self, runs: Iterable[Run]) -> list[nodes.Element]:
        """A block for each run."""
        from .run_details import run_details

        return [run_details(self, run) for run in runs]

    def _index(self, runs: Iterable[Run]) -> addnodes.index:
        """Note the rows that references lead to; returns their entries in the general index."""
        domain = VerlDomain.of(self.env)
        index = addnodes.index(entries=[])
        for run in runs:
            about = run_about(run)
            anchor = row_id(run.id)
            if domain.note_object(RUN, run.id, Target(anchor, run_title(run), run.size)):
                model = run.short_name.replace(";", ",")  # which would divide the entry
                index["entries"].append(("single", f"{model}; {about}", anchor, "", None))
        return index

    def _computed(self, run: Run) -> dict[str, str]:
        """What the estimator says of a run, for the columns that show it."""
        from ...estimator.questions import RunEstimate
        from ...views.estimate import run_texts

        try:
            return run_texts(VerlDomain.of(self.env).ask(RunEstimate(run.id)))
        except NoAnswerError:
            return uncomputed_texts(run)

    def _runs_table(self, inside: nodes.Element) -> nodes.table:
        return self.table(TABLE_CLASS, inside, "", with_options="caption" in self.options)

    def _empty(self, sizes: str, *, filtered: bool) -> nodes.paragraph:
        """Says that there is nothing, and how to change that."""
        paragraph = nodes.paragraph(classes=["verl-empty"])
        if filtered:
            text = _("No recorded run for {sizes} matches.") if sizes else _("No recorded run matches.")
            paragraph += nodes.Text(text.format(sizes=sizes))
        else:
            domain = VerlDomain.of(self.env)
            link = contribute_link(domain.ask(ConfigValue("add_run")), self.env.docname)
            text = _("No run is recorded for {sizes} yet. {link}") if sizes else _(NONE_YET)
            paragraph += fill(text, sizes=sizes, link=link)
        return paragraph

    def _broken(self, file: BrokenRun) -> nodes.error:
        text = " has errors and is not shown; the build log says which."
        return self.problem(nodes.literal("", file.shown), nodes.Text(text))
