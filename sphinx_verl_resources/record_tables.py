"""The directives of recorded data: ``verl-runs``, ``verl-gpus``, ``verl-models`` and ``verl-downloads``.

Everything is made when a page is read. Only the cells of runs become nodes when it is written, after
references are resolved, so that these steps need not walk through thousands of cells.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from sphinx import addnodes

from . import domain, selection
from .diagnostics import NoAnswerError, did_you_mean, printable
from .directive import ABOUT_TABLE, Option, VerlDirective
from .domain import ADD_A_RUN, GPU, LABEL, LABELS, MODEL, RECORD, RUN, SIZE, Target
from .i18n import N_, _
from .nodes import (
    MORE_CLASS,
    PATH_CLASS,
    Cell,
    between_commas,
    column_table,
    details,
    fill,
    link,
    listed,
    marks,
    numbered_notes,
    one_line,
    table_group,
    titled,
    titled_item,
)
from .records import PAGE_COLUMNS, PAGE_SIZES, SIZES, WORDS, row_id, run_class
from .selection import FIELDS
from .texts import field_pieces, run_cells, run_heading, run_title, status
from .units import GIB, MIB, crossed, gib_number, short_number
from .validation import value_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .dataset import Dataset
    from .diagnostics import Code
    from .nodes import verl_details
    from .records import Note, Run

# -- runs

_FIELDS = "fields, separated by spaces or commas"
OPTIONS = (
    *(
        Option(name, f"Only runs {meaning}.", f"one or more, separated by commas, such as ``{example}``")
        for name, (meaning, example, *_rest) in selection.FILTERS.items()
    ),
    Option(
        "columns",
        "Fields to show, with dots for nested ones, such as ``model gpus measured.gib``; see :ref:`fields`.",
        _FIELDS,
        f"``{' '.join(PAGE_COLUMNS)}``",
        selection.columns,
        PAGE_COLUMNS,
    ),
    Option(
        "sort",
        "Fields to sort by; a leading ``-`` means descending order. Missing values come last.",
        _FIELDS,
        "tested runs first, MIN before RECOMMENDED, then by date added, number of GPUs and id",
        selection.sort_fields,
        (),
    ),
    Option("details", "Add a block for each run: its facts, remarks, estimate, and the settings to copy."),
    Option("hide-empty", "List size classes without runs in one sentence instead of separate sections."),
    replace(ABOUT_TABLE[0], help="Show one table with this caption instead of sections."),
    *ABOUT_TABLE[1:],
)


class VerlRuns(VerlDirective):
    """Recorded runs, one section per size class, or one table with a caption."""

    directive = "verl-runs"
    takes = OPTIONS

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        """The parts of the data that estimates depend on, if the table shows any."""
        return ("config_keys", "accuracy") if "details" in self.options else ()

    def show(self) -> list[nodes.Node]:
        """Return sections or a table, after a box for each broken file."""
        sizes = selection.sizes(self.arguments[0]) if self.arguments else ()
        filters = {}
        for name in filter(self.given.__contains__, selection.FILTERS):
            with self.noted(name):
                words = selection.phrases(self.given[name])
                filters[name] = selection.filter_values(self.data, name, words)
        if self.problems:
            return []
        runs = selection.select_runs(self.data, sizes, filters, self.values["sort"])
        used = {*PAGE_SIZES, *(run.size for run in runs)}
        shown = sizes or [size for size in SIZES if size in used]
        others = [size for size in SIZES if sizes and size not in sizes]
        why = " has errors and is not shown; see the build log."
        boxes = [
            self.box(nodes.literal("", printable(file.shown)), nodes.Text(why))
            for file, run in self.data.run_files.items()
            if not run and value_at(file.document.data, "size") not in others
        ]
        if "caption" not in self.given:
            return [*boxes, *self._sections(runs, shown)]
        if not self.values["sort"]:
            runs.sort(key=lambda run: (WORDS.index(run.word), shown.index(run.size)))
        return [*boxes, *self._table(runs, listed(shown))]

    def _sections(self, runs: Sequence[Run], sizes: Sequence[str]) -> list[nodes.Node]:
        """Return a section for each size class; inside a note or a list, which has none, captioned tables."""
        around = self.state_machine.node
        is_section = isinstance(around, (nodes.document, nodes.section, addnodes.only))
        content: list[Any] = []
        empty: dict[str, nodes.Node] = {}
        for size in sizes:
            own = [run for run in runs if run.size == size]
            place: nodes.Element = nodes.target()
            if not own and "hide-empty" in self.given:
                empty[size] = place
            elif is_section:
                place = nodes.section("", nodes.title("", size, translatable=0), *self._table(own, size))
                content.append(place)
            else:
                content += [place, *self._table(own, size, size)]
            # References to a size class link here. Sphinx's search would split an id at a dot.
            anchor = self.reserve(f"size-{size.lower().replace('.', '-')}", place)
            self.domain.here(SIZE).setdefault(size, Target(anchor, size))
        if empty:
            sentence = self._empty(listed(empty))
            sentence.insert(0, [*empty.values()])
            (content[-1] if content and is_section else content).append(sentence)
        return content

    def _empty(self, sizes: str) -> nodes.paragraph:
        """Return a sentence about missing runs, with a link to add one."""
        text = _("No run is recorded for {sizes} yet. {link}")
        if self.given.keys() & selection.FILTERS.keys():
            text = _("No recorded run for {sizes} matches.")
        words, command = _("Add one."), nodes.literal("", "verl-resources new --help")
        how = domain.link(self.env, LABEL, ADD_A_RUN, words, nodes.Text(f"{words} "), command)
        return nodes.paragraph("", "", *fill(text, sizes=sizes, link=how), classes=["verl-empty"])

    def _table(self, runs: Sequence[Run], sizes: str, caption: str = "") -> list[nodes.Node]:
        """Return a table with remarks or details below, or a sentence if there are no runs."""
        if not runs:
            return [self._empty(sizes)]
        columns, here = self.values["columns"], self.domain.here(RUN)
        rows: dict[str, list[Cell]] = {}
        blocks: dict[str, verl_details] = {}
        for run in runs:
            cells = run_cells(run, columns, self.domain.links)
            if run.id not in here:  # the first row of a run on the page has its id
                cells[0].anchor = self.reserve(row_id(run.id), nodes.target())
                here[run.id] = Target(cells[0].anchor, run_title(run), run.size)
            if "details" in self.given and (run.settings or run.measured or run.notes):
                blocks[run.id] = self._details(run)
                if "model" in columns:
                    model = cells[columns.index("model")]
                    model.pieces = [(model.text, f"#{blocks[run.id]['ids'][0]}")]
            rows[run.id] = cells
        remarks = self._remarks(runs, rows, blocks)
        group = table_group(map(run_heading, columns), rows.values(), [*map(_classes, runs)])
        return [self.table(group, caption), *remarks, *blocks.values()]

    def _remarks(
        self, runs: Sequence[Run], rows: Mapping[str, list[Cell]], blocks: Mapping[str, Any]
    ) -> list[nodes.Node]:
        """Mark the cells with remarks, and add these to the details of their runs; without, return a list."""
        noted: dict[Note, list[Run]] = {}
        for run in runs:
            for note in run.notes:
                noted.setdefault(note, []).append(run)
        paragraphs = []
        for number, (note, about) in enumerate(noted.items(), 1):
            mark, columns, links = f"[{number}]", self.values["columns"], dict[str, str]()
            # The details of each run contain the remark; the list contains it once.
            for group in [[run] for run in about] if blocks else [about]:
                first, target = group[0], nodes.target()
                anchor = self.reserve(f"note-{first.id}-{first.notes.index(note) + 1}", target)
                for run in group:
                    cell = rows[run.id][columns.index(note.about) if note.about in columns else 0]
                    cell.after += marks((mark, anchor))
                    name = _("{model} on {gpus}").format(model=run.short_name, gpus=crossed(run.gpus))
                    links.setdefault(name, f"#{self.domain.here(RUN)[run.id].anchor}")
                title = between_commas(map(link, links, links.values()))
                if blocks:
                    title = [nodes.strong("", _("Remark {mark}").format(mark=mark))]
                text = titled(title, one_line(note.text))
                paragraphs.append(nodes.paragraph("", "", target, *text, support_smartquotes=False))
                if blocks:
                    blocks[first.id].children[1] += nodes.list_item("", paragraphs.pop())
        return [numbered_notes(*paragraphs)] if paragraphs else []

    def _details(self, run: Run) -> verl_details:
        """Return the facts of a run, folded below status and peak."""
        items = nodes.bullet_list(classes=["verl-facts"])
        for field in FIELDS:
            if (field.detail or field.name == "added") and field.value(run) is not None:
                pieces = field_pieces(run, field.name, self.domain.links)
                linked = (link(text, to) if to else nodes.Text(text) for text, to in pieces)
                items += titled_item(_(field.detail or field.heading), between_commas(linked))
        peak, more = self.domain.room("details")(self, run)
        title = nodes.strong("", listed([run_title(run), run.train]))
        texts = _("; ").join(filter(None, [status(run), peak]))
        block = details(fill(_("{run}: {facts}"), run=title, facts=texts), [items, *more])
        block["classes"] += _classes(run).split()
        self.reserve(f"{row_id(run.id)}-details", block)
        return block


def _classes(run: Run) -> str:
    return run_class(run.id) if run.word == "ran" else f"{run_class(run.id)} {MORE_CLASS}"


# -- registries

#: The beginning of the address of a model.
HUB = "https://huggingface.co/"
_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "huawei": "Huawei", "intel": "Intel"}
_KNOWN_FROM = {
    "reading": N_("driver output"),
    "derived": N_("a GPU with the same memory"),
    "nominal": N_("product specification"),
}
#: The columns of each registry: the heading, and the cell or text of an entry; the first cell gets an id.
_COLUMNS: dict[str, list[tuple[str, Callable[[Any], Any]]]] = {
    GPU: [
        (N_("GPU"), lambda gpu: Cell.of(gpu.name)),
        (N_("Vendor"), lambda gpu: _VENDORS[gpu.vendor]),
        (N_("Nominal (GB)"), lambda gpu: _number(gpu.memory_gb)),
        (N_("Memory (GiB)"), lambda gpu: _gib(gpu.memory_mib * MIB)),
        (N_("For CUDA (GiB)"), lambda gpu: _gib((gpu.cuda_total_gib or 0) * GIB)),
        (N_("Source of the memory size"), lambda gpu: _(_KNOWN_FROM[gpu.kind])),
        (N_("Other names"), lambda gpu: ", ".join(gpu.aliases)),
    ],
    MODEL: [
        (N_("Model"), lambda arch: Cell([(arch.hf_id, HUB + arch.hf_id)], classes=(PATH_CLASS,))),
        (N_("Parameters (billion)"), lambda arch: _billions(arch.parameters)),
        (N_("Active (billion)"), lambda arch: _billions(arch.parameters_active)),
        (N_("Layers"), lambda arch: _number(arch.num_hidden_layers)),
        (N_("Hidden size"), lambda arch: _number(arch.hidden_size)),
        (N_("Heads (query/key)"), lambda arch: _number(arch.num_attention_heads, arch.num_key_value_heads)),
        (N_("Vocabulary"), lambda arch: _number(arch.vocab_size)),
        (N_("Same shape"), lambda arch: Cell.path(*arch.aliases, *arch.aliases_unverified)),
    ],
}


def _number(*numbers: float) -> Cell:
    return Cell.number("/".join(map(short_number, numbers)))


def _gib(size: float) -> Cell:
    return Cell.number(gib_number(size) if size else "")


def _billions(parameters: int | None) -> Cell:
    return Cell.number(f"{parameters / 1e9:,.2f}" if parameters else "")


def entries_named(data: Dataset, kind: str, names: Sequence[str]) -> tuple[Any, ...]:
    """Return entries of a registry in its order or in that of the names; all for no names.

    Raises:
        NoAnswerError: a name is unknown.
    """
    registry: Any = data.gpus if kind == GPU else data.architectures
    code: Code = "unknown_gpu" if kind == GPU else "unknown_model"
    for name in names:
        if registry.get(name) is None:
            remedy = did_you_mean(name, registry.names, RECORD[kind])
            raise NoAnswerError.because(f"unknown {LABELS[kind]} {name!r}", remedy, code=code)
    found = [registry.get(name) for name in names] or [*registry]
    return tuple({id(entry): entry for entry in found}.values())


class RegistryDirective(VerlDirective):
    """A table of the entries of a registry: those in the argument, otherwise all."""

    takes = ABOUT_TABLE
    kind: ClassVar[str]

    def show(self) -> list[nodes.Node]:
        """Return the table."""
        entries = entries_named(self.data, self.kind, selection.phrases(" ".join(self.arguments)))
        (heading, make), *others = _COLUMNS[self.kind]

        def first(entry: Any) -> Cell:
            cell: Cell = make(entry)
            name = entry.lookup_names[0]
            cell.anchor = self.reserve(nodes.make_id(f"{self.kind}-{name}"), nodes.target())
            self.domain.here(self.kind).setdefault(name, Target(cell.anchor, name))
            return cell

        columns = [(_(heading), first), *((_(other), make) for other, make in others)]
        return [self.table(column_table(entries, columns))]


class VerlGpus(RegistryDirective):
    """The GPUs, with their memory."""

    directive, kind = "verl-gpus", GPU


class VerlModels(RegistryDirective):
    """The models, with the values that determine their memory, and other models of the same shape."""

    directive, kind = "verl-models", MODEL


class VerlDownloads(VerlDirective):
    """A list of the files to download, which HTML builders write next to the pages."""

    directive = "verl-downloads"
    instead_of_argument = "leave it out"
    reads = ("config_keys", "accuracy")

    def show(self) -> list[nodes.Node]:
        """Return the list, and remember the files for the builder."""
        items = nodes.bullet_list(classes=[self.directive])
        for name, (content, text) in self.domain.room("export")(self.data).items():
            self.domain.note_file(name, text)
            file = domain.link(self.env, domain.FILE, name, name, nodes.literal("", name))
            items += nodes.list_item("", nodes.paragraph("", "", *titled(file, _(content))))
        return [items]
