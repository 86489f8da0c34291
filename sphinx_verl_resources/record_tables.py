"""The directives of recorded data: ``verl-runs``, ``verl-gpus`` and ``verl-models``.

Everything is made when a page is read. Only the cells of runs become nodes when it is written, after
references are resolved, so that these steps need not walk through thousands of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from docutils import nodes
from sphinx import addnodes

from . import domain, selection
from . import nodes as blocks
from .dataset import Dataset
from .diagnostics import Code, NoAnswerError, did_you_mean, one_line, printable
from .directive import ABOUT_TABLE, Option, VerlDirective
from .domain import ADD_A_RUN, GPU, LABEL, LABELS, MODEL, RECORD, RUN, SIZE, Target
from .i18n import N_, _
from .nodes import Cell, table_group
from .records import PAGE_COLUMNS, PAGE_SIZES, SIZES, Run, row_id
from .texts import run_cells, run_heading, run_title
from .units import GIB, MIB, gib_number, short_number
from .validation import value_at

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
        "runs that ran and RECOMMENDED ones first, by tag, date added, number of GPUs and id",
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
        return ("config_keys", "accuracy") if "details" in self.texts else ()

    def show(self) -> list[nodes.Node]:
        """Return sections or a table, after a box for each broken file."""
        sizes = selection.sizes(self.arguments[0]) if self.arguments else ()
        filters = {}
        for name in filter(self.texts.__contains__, selection.FILTERS):
            with self.note_errors(name):
                filters[name] = selection.filter_values(self.data, name, selection.phrases(self.texts[name]))
        if self.problems:
            return []
        runs = selection.select_runs(self.data, sizes, filters, self.values["sort"])
        used = {*PAGE_SIZES, *(run.size for run in runs)}
        classes = sizes or [size for size in SIZES if size in used]
        others = [size for size in SIZES if sizes and size not in sizes]
        why = " has errors and is not shown; see the build log."
        boxes = [
            self.box(nodes.literal("", printable(file.label)), nodes.Text(why))
            for file, run in self.data.run_files.items()
            if not run and value_at(file.document.data, "size") not in others
        ]
        if "caption" not in self.texts:
            return [*boxes, *self._sections(runs, classes)]
        return [*boxes, *self._table(runs, blocks.listed(classes))]

    def _sections(self, runs: Sequence[Run], sizes: Sequence[str]) -> list[nodes.Node]:
        """Return a section for each size class; inside a note or a list, which has none, captioned tables."""
        is_section = isinstance(self.state_machine.node, (nodes.document, nodes.section, addnodes.only))
        content, empty = list[Any](), dict[str, nodes.Node]()
        for size in sizes:
            own = [run for run in runs if run.size == size]
            place: nodes.Element = nodes.target()
            if not own and "hide-empty" in self.texts:
                empty[size] = place
            elif is_section:
                title = nodes.title("", size, translatable=0)
                place = nodes.section("", title, *self._table(own, size), classes=[blocks.SIZE_CLASS])
                content.append(place)
            else:
                content += [place, *self._table(own, size, size)]
            anchor = self.reserve(f"size-{size.lower().replace('.', '-')}", place)
            # References to a size class link here.
            self.domain.here(SIZE).setdefault(size, Target(anchor, size))
        if empty:
            sentence = self._empty(blocks.listed(empty))
            sentence.insert(0, [*empty.values()])
            (content[-1] if content and is_section else content).append(sentence)
        return content

    def _empty(self, sizes: str) -> nodes.paragraph:
        """Return a sentence about missing runs, with a link to add one."""
        text = _("No run is recorded for {sizes} yet. {link}")
        if self.texts.keys() & selection.FILTERS.keys():
            text = _("No recorded run for {sizes} matches.")
        words, command = _("Add one."), nodes.literal("", "verl-resources new --help")
        how = domain.link_later(self.env, LABEL, ADD_A_RUN, words, nodes.Text(f"{words} "), command)
        return nodes.paragraph("", "", *blocks.fill(text, sizes=sizes, link=how), classes=["verl-empty"])

    def _table(self, runs: Sequence[Run], sizes: str, caption: str = "") -> list[nodes.Node]:
        """Return a table with remarks or details below, or a sentence if there are no runs."""
        if not runs:
            return [self._empty(sizes)]
        columns, here = self.values["columns"], self.domain.here(RUN)
        rows: dict[str, list[Cell]] = {}
        notes, details, count = blocks.numbered_notes(), list[nodes.Node](), 1
        for run in runs:
            cells = rows[run.id] = run_cells(run, columns, self.domain.links)
            if run.id not in here:  # the first row of a run on the page has its id
                target = nodes.target()  # to which LaTeX can link, unlike to a row
                here[run.id] = Target(self.reserve(row_id(run.id), target), run_title(run), run.size)
                cells[0].after.append(target)
            remarks = [*self._remarks(run, cells, count)]
            count += len(remarks)
            if "details" in self.texts and (run.settings or run.measured or run.notes):
                details.append(block := self.domain.part("details")(self, run, remarks))
                if "model" in columns:
                    model = cells[columns.index("model")]
                    model.pieces = [(model.pieces[0][0], f"#{block['ids'][0]}")]
            else:
                notes += remarks
        group = table_group(map(run_heading, columns), rows.values(), [*rows])
        return [self.table(group, caption), *([notes] if notes.children else []), *details]

    def _remarks(self, run: Run, cells: Sequence[Cell], first: int) -> Iterator[nodes.list_item]:
        """Yield the remarks about a run, and mark its cells with their numbers from ``first`` on."""
        columns, place = self.values["columns"], self.domain.here(RUN)[run.id]
        for number, note in enumerate(run.notes, first):
            target, mark = nodes.target(), f"[{number}]"
            anchor = self.reserve(f"note-{run.id}-{number - first + 1}", target)
            about = columns.index(note.about) if note.about in columns else 0
            cells[about].after += blocks.marks((mark, anchor))
            title: nodes.Node = blocks.link(place.title, f"#{place.anchor}")
            if "details" in self.texts:
                title = nodes.strong("", _("Remark {mark}").format(mark=mark))
            text = blocks.titled(title, one_line(note.text))
            yield nodes.list_item("", nodes.paragraph("", "", target, *text, support_smartquotes=False))


# -- registries

#: The beginning of the address of a model.
HUB = "https://huggingface.co/"
_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "huawei": "Huawei", "intel": "Intel"}
#: For each registry, the cell or text of an entry by the heading of its column; the first cell gets an id.
_COLUMNS: dict[str, dict[str, Callable[[Any], Cell]]] = {
    GPU: {
        N_("GPU"): lambda gpu: Cell.of(gpu.name),
        N_("Vendor"): lambda gpu: Cell.of(_VENDORS[gpu.vendor]),
        N_("Nominal (GB)"): lambda gpu: _number(gpu.memory_gb),
        N_("Memory (GiB)"): lambda gpu: _number(gpu.memory_mib * MIB, write=gib_number),
        N_("For CUDA (GiB)"): lambda gpu: _number((gpu.cuda_total_gib or 0) * GIB, write=gib_number),
        N_("Other names"): lambda gpu: Cell.of(", ".join(gpu.aliases)),
    },
    MODEL: {
        N_("Model"): lambda arch: Cell([(arch.hf_id, HUB + arch.hf_id)], classes=(blocks.PATH_CLASS,)),
        N_("Parameters (billion)"): lambda arch: _number(arch.parameters, write=_billions),
        N_("Active (billion)"): lambda arch: _number(arch.parameters_active, write=_billions),
        N_("Layers"): lambda arch: _number(arch.num_hidden_layers),
        N_("Hidden size"): lambda arch: _number(arch.hidden_size),
        N_("Heads (query/key)"): lambda arch: _number(arch.num_attention_heads, arch.num_key_value_heads),
        N_("Vocabulary"): lambda arch: _number(arch.vocab_size),
        N_("Same shape"): lambda arch: Cell.of(", ".join(arch.aliases), (), blocks.PATH_CLASS),
    },
}


def _number(*numbers: float | None, write: Callable[[float], str] = short_number) -> Cell:
    return Cell.number("/".join(write(number) for number in numbers if number))


def _billions(parameters: float) -> str:
    return f"{parameters / 1e9:,.2f}"


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
    entries = [registry.get(name) for name in names] or [*registry]
    return tuple({id(entry): entry for entry in entries}.values())


class RegistryDirective(VerlDirective):
    """A table of the entries of a registry: those in the argument, otherwise all."""

    takes = ABOUT_TABLE
    kind: ClassVar[str]

    def show(self) -> list[nodes.Node]:
        """Return the table."""
        columns, here, rows = _COLUMNS[self.kind], self.domain.here(self.kind), []
        for entry in entries_named(self.data, self.kind, selection.phrases(" ".join(self.arguments))):
            cells, target = [make(entry) for make in columns.values()], nodes.target()
            name = entry.lookup_names[0]
            here.setdefault(name, Target(self.reserve(nodes.make_id(f"{self.kind}-{name}"), target), name))
            cells[0].after.append(target)
            rows.append(cells)
        return [self.table(table_group(map(_, columns), rows))]


class VerlGpus(RegistryDirective):
    """The GPUs, with their memory."""

    directive, kind = "verl-gpus", GPU
    reads = ("gpus",)


class VerlModels(RegistryDirective):
    """The models, with the values that determine their memory, and other models of the same shape."""

    directive, kind = "verl-models", MODEL
    reads = ("architectures",)
