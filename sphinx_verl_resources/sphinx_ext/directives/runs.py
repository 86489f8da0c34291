"""``.. verl-runs::``: the tables of the hardware page."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx import addnodes

from ... import selection
from ...diagnostics import Code, Diagnostic, Location, NoAnswerError, Severity, printable
from ...i18n import N_, _
from ...records import PAGE_COLUMNS, WORDS, row_id, run_class, size_slug
from ...selection import RunSelection
from ...views.blocks import fill, listed
from ...views.runs import COMPUTED, run_about, run_title
from ...views.table import one_cell
from ..ids import claimed_id
from ..objects import RUN, SIZE, Target
from ..references import contribute_link, row_link
from .base import ABOUT_TABLE, VerlDirective
from .options import Option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...dataset import BrokenRun
    from ...estimator.estimate import Estimate
    from ...records import Run
    from ...views.blocks import verl_details


class verl_runs(nodes.General, nodes.Element):  # noqa: N801 - docutils names nodes in lower case
    """A placeholder for the rows of a table; its attributes are plain lists and mappings.

    Attributes:
        runs: ids of the runs, one for each row, in order.
        anchors: by run, the id of its first row on the page.
        columns: field names.
        computed: by run, the texts of the computed columns.
    """


#: The attribute that marks our sections for ``SectionsToCaptions``.
SECTION_SIZE = "verl_size"
#: The attribute of a block below a table that contains the id of its run.
OF_RUN = "verl_run"
NONE_YET = N_("No run is recorded yet. {link}")

#: The options about the table, if there is only one.
_WITH_CAPTION = {
    "caption": "Show one table with this caption instead of sections.",
    "name": "Label for links to that table. Requires ``caption``.",
    "class": "Additional CSS classes of that table. Requires ``caption``.",
}
OPTIONS = (
    *(
        Option(name, f"Only runs {meaning}.", f"one or more, separated by commas, such as ``{example}``")
        for name, (meaning, example, *_rest) in selection.FILTERS.items()
    ),
    Option(
        "columns",
        "Fields to show, by their names in the run file, with dots for nested ones: "
        "``model gpus measured.gib settings.data.max_response_length``. See :ref:`fields` for the list.",
        "fields, separated by spaces or commas",
        f"``{' '.join(PAGE_COLUMNS)}``",
        partial(selection.columns, computed=COMPUTED),
        PAGE_COLUMNS,
    ),
    Option(
        "sort",
        "Fields to sort by; a leading ``-`` means descending order. Numbers inside text are compared as "
        "numbers; missing values come last.",
        "fields, separated by spaces or commas",
        "tested runs first, MIN before RECOMMENDED, then by date added, number of GPUs and id",
        partial(selection.sort_fields, computed=COMPUTED),
        (),
    ),
    Option(
        "details",
        "Add a block below each table for every run with further data: status and peak and, folded in HTML, "
        "evidence, measured figures, remarks, the estimate with its chart, and the settings to copy.",
    ),
    Option("hide-empty", "List size classes without runs in one sentence instead of separate sections."),
    *(replace(option, help=_WITH_CAPTION[option.name]) for option in ABOUT_TABLE),
)


class VerlRuns(VerlDirective):
    """Recorded runs, one section per size class, or one table with a caption."""

    directive = "verl-runs"
    takes = OPTIONS
    #: The id of each run's row.
    _anchors: dict[str, str]

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of the data that estimates depend on, if the table shows any."""
        shows_estimates = "details" in self.options or "estimate." in str(self.options.get("columns"))
        return ("config_keys", "accuracy") if shows_estimates else ()

    def show(self) -> list[nodes.Node]:
        """Return sections and tables; the rows follow when the page is written."""
        chosen = self._chosen()
        name = next((name for name in ("name", "class") if name in self.given), "")
        if name and "caption" not in self.given:
            self.refuse("requires :caption:, which makes one table", option=name)
        return [] if self.problems else self._show(chosen, self.values["columns"])

    def _show(self, chosen: RunSelection, columns: Sequence[str]) -> list[nodes.Node]:
        self._look_at_settings((*columns, *(name for name, descending in chosen.sort)))
        runs = selection.select_runs(self.data, chosen)
        broken = selection.select_broken(self.data, chosen)
        self._anchors = self._reserved(runs)
        if "caption" in self.given:
            order = {size: index for index, size in enumerate(selection.sizes_to_show(runs, chosen))}
            if not chosen.sort:
                runs.sort(key=lambda run: (WORDS.index(run.word), order[run.size]))
            return self._content(runs, columns, broken, chosen)
        return self._sections(runs, columns, broken, chosen)

    def _chosen(self) -> RunSelection:
        sizes: tuple[str, ...] = ()
        filters: list[tuple[str, tuple[str, ...]]] = []
        with self.noted():
            sizes = selection.sizes(self.arguments[0]) if self.arguments else ()
        for name in selection.FILTERS:
            with self.noted(name):
                if name in self.given:
                    words = selection.phrases(self.given[name])
                    filters.append((name, selection.filter_values(self.data, name, words)))
        return RunSelection(sizes, tuple(filters), self.values["sort"])

    def _look_at_settings(self, names: Iterable[str]) -> None:
        """Warn about a setting that no run records, because it is probably misspelt."""
        for name in names:
            key = name.removeprefix("settings.")
            if key == name:
                continue
            hint = selection.hint_if_unknown(self.data, "settings", key)
            if hint is not None:
                message, remedy = f"no run records the setting {key!r}", hint or "check its spelling"
                self.log(Diagnostic(Location(""), Code.directive, message, remedy, Severity.WARNING))

    def _sections(
        self, runs: Sequence[Run], columns: Sequence[str], broken: Sequence[BrokenRun], chosen: RunSelection
    ) -> list[nodes.Node]:
        sections: list[nodes.section] = []
        empty: list[str] = []
        shown = selection.sizes_to_show([*runs, *broken], chosen)
        homeless = [file for file in broken if file.size not in shown]
        for size in shown:
            own = [run for run in runs if run.size == size]
            own_broken = [file for file in broken if file.size == size]
            if size == shown[0]:
                own_broken += homeless
            if not own and not own_broken and "hide-empty" in self.given:
                empty.append(size)
                continue
            section = nodes.section()
            section[SECTION_SIZE] = size
            self.set_source_info(section)
            title = nodes.title("", size, translatable=0)
            section += title
            self._note_size(size, section)
            section += self._content(own, columns, own_broken, chosen, size)
            sections.append(section)
        if not empty:
            return [*sections]
        sentence = self._empty(listed(empty) if sections else "", filtered=bool(chosen.filters))
        for size in empty:
            target = nodes.target()
            self._note_size(size, target)
            sentence.insert(0, target)
        if not sections:
            return [sentence]
        sections[-1] += [sentence]
        return [*sections]

    def _note_size(self, size: str, place: nodes.Element) -> None:
        """Set the id that references to a size class link to."""
        place["ids"].append(claimed_id(size_slug(size), place, self.state.document))
        self.domain.note_object(SIZE, size, Target(place["ids"][0], size))

    def _content(
        self,
        runs: Sequence[Run],
        columns: Sequence[str],
        broken: Sequence[BrokenRun],
        chosen: RunSelection,
        size: str = "",
    ) -> list[nodes.Node]:
        """Return a box for each broken file, then the table, or a sentence if it has no rows."""
        content: list[nodes.Node] = [self._broken(file) for file in broken]
        if runs:
            ids = [run.id for run in runs]
            content.append(self._index(runs))
            asked = runs if COMPUTED.keys() & set(columns) else ()
            computed = {run.id: self._computed(run) for run in asked}
            anchors = {run: self._anchors[run] for run in ids}
            rows = verl_runs("", runs=ids, anchors=anchors, columns=list(columns), computed=computed)
            content.append(self._runs_table(rows))
            if "details" in self.given:
                content += self._all_details(runs)
        elif not broken or "caption" in self.given:
            empty = self._empty(size or listed(chosen.sizes), filtered=bool(chosen.filters))
            # Keep the captioned table, so that references to it do not break with the last row.
            content.append(self._runs_table(one_cell(empty)) if "caption" in self.given else empty)
        return content

    def _reserved(self, runs: Iterable[Run]) -> dict[str, str]:
        """Return the id of each run's row, which is the same for all tables of a page."""
        shown = self.domain.shown.get(self.env.docname, {}).get(RUN, {})
        place, page = verl_runs(), self.state.document
        return {
            run.id: shown[run.id].anchor if run.id in shown else claimed_id(row_id(run.id), place, page)
            for run in runs
        }

    def _index(self, runs: Iterable[Run]) -> addnodes.index:
        """Record the rows that references link to; return their entries in the general index."""
        index = addnodes.index(entries=[])
        for run in runs:
            about = run_about(run)
            anchor = self._anchors[run.id]
            if self.domain.note_object(RUN, run.id, Target(anchor, run_title(run), run.size)):
                model = run.short_name.replace(";", ",")  # a semicolon would split the entry
                index["entries"].append(("single", f"{model}; {about}", anchor, "", None))
        return index

    def _estimate(self, run: Run) -> Estimate | None:
        """Return the estimate of a run; None if its settings allow none."""
        from ...estimator.recorded import estimate_run

        try:
            return estimate_run(run, self.data.registries)
        except NoAnswerError:
            return None

    def _computed(self, run: Run) -> dict[str, str]:
        """Return the texts of the computed columns."""
        from ...views.estimate import run_texts

        estimate = self._estimate(run)
        return {} if estimate is None else run_texts(estimate)

    def _all_details(self, runs: Sequence[Run]) -> Iterator[verl_details]:
        """Yield the block of each run that has one."""
        from ...views.run_details import says_more, titles

        title_of = titles(runs)
        for run in filter(says_more, runs):
            block = self._details(run, title_of[run.id])
            block["classes"].append(run_class(run.id))
            block["ids"].append(self.free_id(f"{row_id(run.id)}-details", block))
            block[OF_RUN] = run.id
            yield block

    def _details(self, run: Run, title: str) -> verl_details:
        """Return the details of a run: status and peak, then a folded block with everything else."""
        from ...answer.answer import answer_run
        from ...answer.command import as_arguments
        from ...estimator.recorded import credible, version_of_run
        from ...estimator.registries import capacity_of
        from ...views import run_details as render
        from ...views.blocks import details
        from ...views.charts import phase_chart
        from ...views.estimate import MEMORY_CLASS, phase_rows

        settings = self.domain.settings
        estimate = self._estimate(run)
        if estimate is not None and not estimate.is_complete:
            estimate = None
        gpu = self.data.gpu_of(run)
        capacity = capacity_of(gpu) if gpu else None
        found = None if estimate is None else answer_run(run, self.data)
        content: list[nodes.Node] = [
            render.facts(run, settings.links),
            *render.verdict(run, found, partial(row_link, self.env)),
        ]
        if shown := estimate and credible(estimate):
            drawn = phase_chart(shown, run_title(run), run.measured)
            content.append(self.chart(drawn, run.id))
            # Without a caption, it is not numbered with the page's tables.
            rows = phase_rows(shown)
            content.append(self.table(rows, with_options=False, table_class=MEMORY_CLASS))
        edit = settings.edit_address(f"runs/{run.id}.yaml")
        arguments = as_arguments(run.settings, version_of_run(run), self.data.registries)
        content += [*render.flags(run, arguments), *render.edit_link(edit)]
        return details(render.summary(run, title, capacity, estimate), content)

    def _runs_table(self, inside: nodes.Element) -> nodes.table:
        return self.table(inside, with_options="caption" in self.given)

    def _empty(self, sizes: str, *, filtered: bool) -> nodes.paragraph:
        """Return a sentence about missing runs, with a link to add one."""
        paragraph = nodes.paragraph(classes=["verl-empty"])
        if filtered:
            text = _("No recorded run for {sizes} matches.") if sizes else _("No recorded run matches.")
            paragraph += nodes.Text(text.format(sizes=sizes))
        else:
            link = contribute_link(self.domain.settings.add_run, self.env.docname)
            text = _("No run is recorded for {sizes} yet. {link}") if sizes else _(NONE_YET)
            paragraph += fill(text, sizes=sizes, link=link)
        return paragraph

    def _broken(self, file: BrokenRun) -> nodes.error:
        text = " has errors and is not shown; see the build log."
        return self.box(nodes.literal("", printable(file.shown)), nodes.Text(text))
