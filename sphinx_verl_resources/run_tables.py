"""``.. verl-runs::``: the tables of the hardware page.

Sections, titles and ids are made when a page is read, the rows when it is written, after references and
``only`` are resolved, so that these steps need not walk through thousands of cells.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from . import selection
from .diagnostics import Diagnostic, Location, NoAnswerError, Severity, printable
from .directive import ABOUT_TABLE, Option, VerlDirective
from .domain import RUN, SIZE, Target, VerlDomain
from .i18n import _
from .nodes import (
    Cell,
    ancestors,
    between_commas,
    details,
    fill,
    listed,
    marks,
    numbered_notes,
    one_cell,
    one_line,
    table_group,
    titled,
    titled_item,
    verl_details,
    verl_table,
)
from .records import PAGE_COLUMNS, WORDS, row_id, run_class, size_slug
from .references import contribute_link
from .run_cells import COMPUTED, detail_texts, run_about, run_cells, run_heading, run_title, status
from .selection import RunSelection
from .units import GIB, crossed, gib, gib_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .dataset import BrokenRun
    from .records import Note, Run


@dataclass(frozen=True)
class Rows:
    """The rows of a table, until they are written.

    Attributes:
        anchors: by run, in the order of the rows, the id of its first row on the page.
        columns: field names.
        computed: by run, the texts of the computed columns.
    """

    anchors: dict[str, str]
    columns: tuple[str, ...]
    computed: dict[str, dict[str, str]]


#: The attribute of a table without its rows yet, and of a block of details with the id of its run.
ROWS, OF_RUN = "verl_rows", "verl_run"
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

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        """The parts of the data that estimates depend on, if the table shows any."""
        shows_estimates = "details" in self.options or "estimate." in str(self.options.get("columns"))
        return ("config_keys", "accuracy") if shows_estimates else ()

    def show(self) -> list[nodes.Node]:
        """Return sections and tables; the rows follow when the page is written."""
        chosen = self._chosen()
        name = next((name for name in ("name", "class") if name in self.given), "")
        if name and "caption" not in self.given:
            with self.noted(name):
                raise NoAnswerError.because("requires :caption:, which makes one table")
        if self.problems:
            return []
        self._look_at_settings([*self.values["columns"], *(name for name, _reverse in chosen.sort)])
        runs = selection.select_runs(self.data, chosen)
        broken = selection.select_broken(self.data, chosen)
        if "caption" in self.given:
            order = {size: index for index, size in enumerate(selection.sizes_to_show(runs, chosen))}
            if not chosen.sort:
                runs.sort(key=lambda run: (WORDS.index(run.word), order[run.size]))
            return self._content(runs, broken, chosen)
        return self._sections(runs, broken, chosen)

    def _chosen(self) -> RunSelection:
        sizes: tuple[str, ...] = ()
        filters: list[tuple[str, tuple[str, ...]]] = []
        with self.noted():
            sizes = selection.sizes(self.arguments[0]) if self.arguments else ()
        for name in filter(self.given.__contains__, selection.FILTERS):
            with self.noted(name):
                words = selection.phrases(self.given[name])
                filters.append((name, selection.filter_values(self.data, name, words)))
        return RunSelection(sizes, tuple(filters), self.values["sort"])

    def _look_at_settings(self, names: Iterable[str]) -> None:
        """Warn about a setting that no run records, because it is probably misspelt."""
        keys = (name.removeprefix("settings.") for name in names if name.startswith("settings."))
        for key in keys:
            hint = selection.hint_if_unknown(self.data, "settings", key)
            if hint is not None:
                message, remedy = f"no run records the setting {key!r}", hint or "check its spelling"
                self.log(Diagnostic(Location(""), "directive", message, remedy, Severity.WARNING))

    def _sections(
        self, runs: Sequence[Run], broken: Sequence[BrokenRun], chosen: RunSelection
    ) -> list[nodes.Node]:
        """Return a section for each size class; inside a note or a list, which has none, captioned tables."""
        around = self.state_machine.node
        is_section = isinstance(around, (nodes.document, nodes.section, addnodes.only))
        content: list[nodes.Node] = []
        empty: list[str] = []
        shown = selection.sizes_to_show([*runs, *broken], chosen)
        for size in shown:
            own = [run for run in runs if run.size == size]
            # A file without a known size class is named in the first section.
            homeless = size == shown[0]
            own_broken = [
                file for file in broken if file.size == size or (homeless and file.size not in shown)
            ]
            if not own and not own_broken and "hide-empty" in self.given:
                empty.append(size)
                continue
            inside = self._content(own, own_broken, chosen, size, caption="" if is_section else size)
            place: nodes.Element = nodes.target()
            if is_section:
                place = nodes.section("", nodes.title("", size, translatable=0), *inside)
                self.set_source_info(place)
            content += [place] if is_section else [place, *inside]
            self._note_size(size, place)
        if empty:
            sentence = self._empty(listed(empty) if content else "", filtered=bool(chosen.filters))
            for size in empty:
                sentence.insert(0, nodes.target())
                self._note_size(size, sentence.children[0])  # type: ignore[arg-type]
            last = content[-1] if content and is_section else None
            if isinstance(last, nodes.section):
                last += sentence
            else:
                content.append(sentence)
        return content

    def _note_size(self, size: str, place: nodes.Element) -> None:
        """Set the id that references to a size class link to."""
        anchor = self.reserve(size_slug(size), place)
        self.domain.here(SIZE).setdefault(size, Target(anchor, size))

    def _content(
        self,
        runs: Sequence[Run],
        broken: Sequence[BrokenRun],
        chosen: RunSelection,
        size: str = "",
        caption: str = "",
    ) -> list[nodes.Node]:
        """Return a box for each broken file, then the table, or a sentence if it has no rows."""
        text = " has errors and is not shown; see the build log."
        content: list[nodes.Node] = [
            self.box(nodes.literal("", printable(file.shown)), nodes.Text(text)) for file in broken
        ]
        is_single = "caption" in self.given
        if runs:
            rows, index = self._rows(runs)
            table = self.table(None, caption, with_options=is_single)
            table[ROWS] = rows
            content += [index, table]
            if "details" in self.given:
                content += self._all_details(runs)
        elif not broken or is_single:
            empty = self._empty(size or listed(chosen.sizes), filtered=bool(chosen.filters))
            # Keep the captioned table, so that references to it do not break with the last row.
            content.append(self.table(one_cell(empty)) if is_single else empty)
        return content

    def _rows(self, runs: Iterable[Run]) -> tuple[Rows, addnodes.index]:
        """Return the rows of a table with their ids, and their entries in the general index."""
        columns, here = self.values["columns"], self.domain.here(RUN)
        index = addnodes.index(entries=[])
        for run in runs:
            if run.id not in here:
                anchor = self.reserve(row_id(run.id), nodes.target())
                here[run.id] = Target(anchor, run_title(run), run.size)
                model = run.short_name.replace(";", ",")  # a semicolon would split the entry
                index["entries"].append(("single", f"{model}; {run_about(run)}", anchor, "", None))
        computed = {}
        if COMPUTED.keys() & set(columns):
            texts_of = self.domain.room("columns")
            computed = {run.id: texts_of(run, self.data) for run in runs}
        anchors = {run.id: here[run.id].anchor for run in runs}
        return Rows(anchors, columns, computed), index

    def _all_details(self, runs: Sequence[Run]) -> Iterator[verl_details]:
        """Yield a block for each run with data besides its row: its facts, folded below status and peak.

        Titles that are equal name backend and engine too.
        """
        alike: defaultdict[str, list[Run]] = defaultdict(list)
        for run in runs:
            alike[run_title(run)].append(run)
        for run in runs:
            if not (run.settings or run.measured or run.notes):
                continue
            group = alike[run_title(run)]
            parts = [
                own for own, *others in zip(*map(_backends, (run, *group)), strict=True) if len({*others}) > 1
            ]
            yield self._details(run, listed([run_title(run), *filter(None, parts)]))

    def _details(self, run: Run, title: str) -> verl_details:
        settings = self.domain.settings
        items = nodes.bullet_list(classes=["verl-facts"])
        for name, pieces in detail_texts(run, settings.links):
            linked = (nodes.reference("", text, refuri=to) if to else nodes.Text(text) for text, to in pieces)
            items += titled_item(name, between_commas(linked))
        figures, capacity, more = self.domain.room("details")(self, run)
        known = []
        if run.measured and run.measured.gib:
            known.append(_("measured {peak}").format(peak=gib_number(run.measured.gib * GIB)))
        if figures:
            known.append(_("estimated {peak}").format(peak=figures))
        texts = [status(run)]
        if known and capacity is None:
            texts.append(_("peak {figures} GiB").format(figures=listed(known)))
        elif known:
            of_gpu = _("peak {figures} of {capacity}")
            texts.append(of_gpu.format(figures=listed(known), capacity=gib(capacity)))
        if address := settings.edit_address(f"runs/{run.id}.yaml"):
            edit = nodes.reference("", _("Edit this row"), refuri=address)
            more = [*more, nodes.paragraph("", "", edit)]
        line = fill(_("{run}: {facts}"), run=nodes.strong("", title), facts=_("; ").join(texts))
        block = details(line, [items, *more])
        self.reserve(f"{row_id(run.id)}-details", block)
        block["classes"].append(run_class(run.id))
        block[OF_RUN] = run.id
        return block

    def _empty(self, sizes: str, *, filtered: bool) -> nodes.paragraph:
        """Return a sentence about missing runs, with a link to add one."""
        paragraph = nodes.paragraph(classes=["verl-empty"])
        if filtered:
            text = _("No recorded run for {sizes} matches.") if sizes else _("No recorded run matches.")
            paragraph += nodes.Text(text.format(sizes=sizes))
        else:
            link = contribute_link(self.env, self.domain.settings.add_run)
            for_sizes = _("No run is recorded for {sizes} yet. {link}")
            text = for_sizes if sizes else _("No run is recorded yet. {link}")
            paragraph += fill(text, sizes=sizes, link=link)
        return paragraph


def _backends(run: Run) -> tuple[str, str]:
    return run.train, run.infer.engine if run.infer else ""


# -- rows


@dataclass
class PlacedNote:
    """A remark on one or more runs of a table.

    Attributes:
        note: the remark.
        number: its place in the order of the rows.
        anchors: by run id, an id for the remark.
    """

    note: Note
    number: int
    anchors: dict[str, str] = field(default_factory=dict)

    def target(self, run: str) -> nodes.target:
        """Return the target of the mark in the row of a run."""
        return nodes.target("", "", ids=[self.anchors[run]])


class OnOurPages(SphinxPostTransform):
    """A transform that skips pages without our nodes."""

    def apply(self, **kwargs: Any) -> None:
        """Transform the page if it can contain a node of ours."""
        if VerlDomain.of(self.env).may_show(self.env.docname):
            super().apply(**kwargs)


class WriteRows(OnOurPages):
    """A transform that writes the rows of runs, and their remarks below the table or into the details.

    It runs before links are collected for linkcheck (800) and for LaTeX's footnotes (400).
    """

    default_priority = 300
    for_html = False

    def run(self, **kwargs: Any) -> None:
        """Fill each table; the first row of a run in an HTML file, or on a page of a book, has its id."""
        reached: set[tuple[str, str]] = set()
        for number, table in enumerate(list(self.document.findall(verl_table)), 1):
            if ROWS in table:
                asked = table.attributes.pop(ROWS)
                # Builders that join pages note the page in each section that they move.
                pages = (node["docname"] for node in ancestors(table) if "docname" in node)
                page = "" if self.for_html else next(pages, "")
                own = {run: anchor for run, anchor in asked.anchors.items() if (page, run) not in reached}
                reached |= {(page, run) for run in own}
                self.fill(table, asked, own, number)

    def fill(self, table: verl_table, asked: Rows, own: dict[str, str], number: int) -> None:
        """Fill one table; ``own`` has the ids of its rows."""
        domain = VerlDomain.of(self.env)
        runs = [domain.records.runs[run_id] for run_id in asked.anchors]
        below = table.parent.children[table.parent.index(table) + 1 :]
        blocks = {
            block[OF_RUN]: block for block in takewhile(lambda node: isinstance(node, verl_details), below)
        }
        targets = {run_id: block["ids"][0] for run_id, block in blocks.items()}
        for block in () if self.for_html else blocks.values():  # every format can link to a target
            block.children[0].insert(0, nodes.target("", "", ids=block["ids"]))
            block["ids"] = []
        notes: dict[Note, PlacedNote] = {}
        for run in runs:
            suffix = "" if run.id in own else f"-table-{number}"
            for index, note in enumerate(run.notes, 1):
                placed = notes.setdefault(note, PlacedNote(note, len(notes) + 1))
                placed.anchors.setdefault(run.id, f"note-{run.id}-{index}{suffix}")

        def cells_of(run: Run) -> list[Cell]:
            cells = run_cells(run, asked.columns, domain.settings.links, asked.computed.get(run.id, {}))
            cells[0].anchor = own.get(run.id, "")
            if run.id in blocks and "model" in asked.columns:
                cell = cells[asked.columns.index("model")]
                link = nodes.reference("", cell.text, refid=targets[run.id], internal=True)
                cell.pieces, cell.after = [], [link]
            for placed in sorted((notes[note] for note in {*run.notes}), key=lambda placed: placed.number):
                about = placed.note.about
                cell = cells[asked.columns.index(about) if about in asked.columns else 0]
                # The list below the table contains each remark once.
                anchor = placed.anchors[run.id if blocks else next(iter(placed.anchors))]
                cell.after += marks((f"[{placed.number}]", anchor))
            return cells

        headings, names = [*map(run_heading, asked.columns)], [run_class(run.id) for run in runs]
        table += table_group(headings, map(cells_of, runs), names, for_html=self.for_html)
        if blocks:
            add_remarks(blocks, notes.values())
        elif notes:
            listing = notes_list(notes.values(), {run.id: run for run in runs}, asked.anchors)
            table.parent.insert(table.parent.index(table) + 1, listing)


class WriteHtmlRows(WriteRows):
    """The same for HTML, where the rows are one node; EPUB looks for links among the nodes."""

    default_priority = WriteRows.default_priority - 1
    formats = ("html",)
    for_html = True

    def is_supported(self) -> bool:
        """Return whether the builder writes HTML, but no EPUB."""
        return super().is_supported() and not ForEpub(self.document).is_supported()


class ForEpub(SphinxPostTransform):
    """A transform used only to check whether the builder writes EPUB."""

    builders = ("epub",)


def add_remarks(blocks: dict[str, verl_details], notes: Iterable[PlacedNote]) -> None:
    """Add remarks to the facts of their runs, numbered like the marks in the rows that link to them."""
    for placed in notes:
        for run in placed.anchors:
            title = nodes.strong("", _("Remark {mark}").format(mark=f"[{placed.number}]"))
            text = titled(title, one_line(placed.note.text))
            items = next(iter(blocks[run].findall(nodes.bullet_list)))
            items += nodes.list_item("", nodes.paragraph("", "", placed.target(run), *text))


def notes_list(
    notes: Iterable[PlacedNote], runs: dict[str, Run], on_page: dict[str, str]
) -> nodes.enumerated_list:
    """Make the list of the remarks below a table, numbered like their marks, with links to the rows."""
    paragraphs = []
    for placed in notes:
        titles: dict[str, str] = {}
        for run in map(runs.__getitem__, placed.anchors):
            title = _("{model} on {gpus}").format(model=run.short_name, gpus=crossed(run.gpus))
            titles.setdefault(title, on_page[run.id])
        named = between_commas(
            nodes.reference("", title, refid=anchor, internal=True) for title, anchor in titles.items()
        )
        text = fill(_("{runs}: {note}"), runs=named, note=one_line(placed.note.text))
        paragraphs.append(nodes.paragraph("", "", placed.target(next(iter(placed.anchors))), *text))
    return numbered_notes(*paragraphs)
