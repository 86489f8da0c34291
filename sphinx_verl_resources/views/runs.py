"""Recorded runs as table rows, and the remarks that marks in the rows link to."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from docutils import nodes

from ..fields import field_named, is_numeric
from ..i18n import N_, _
from ..records import run_class
from ..units import crossed
from .blocks import between_commas, fill, numbered_notes
from .table import PATH_CLASS, Cell, table_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..fields import Field
    from ..links import Links
    from ..records import Evidence, Note, Run, Word

    #: A text, and the address of its link or None.
    Piece = tuple[str, str | None]
    #: A function that makes the nodes of a table from its headings, its rows, and a class for each row.
    GroupMaker = Callable[[Sequence[Cell], Iterable[Sequence[Cell]], Sequence[str]], nodes.tgroup]

TABLE_CLASS = "verl-runs"
#: Computed columns, and their headings.
COMPUTED = {"estimate.peak": N_("Estimated peak (GiB)"), "estimate.phase": N_("Peak phase")}
#: The evidence words of runs.
WORD_TEXTS: Mapping[Word, str] = {"ran": N_("ran"), "reported": N_("reported"), "claimed": N_("claimed")}


@dataclass
class RowAnchors:
    """The ids of the rows and remarks of one table.

    Attributes:
        number: the number of the table on the page, for the ids of remarks that a page shows repeatedly.
        rows: by run, the id of its row; only the first row of a run on a page has one.
        on_page: by run, the id of its row here or in an earlier table of the page.
    """

    number: int
    rows: Mapping[str, str]
    on_page: Mapping[str, str]

    def of_note(self, run: str, index: int) -> str:
        """Return an id for a remark of a run."""
        suffix = "" if run in self.rows else f"-table-{self.number}"
        return f"note-{run}-{index}{suffix}"


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
    anchors: dict[str, str]

    @property
    def mark(self) -> str:
        """The mark in the rows."""
        return f"[{self.number}]"


def runs_rows(
    runs: Sequence[Run],
    columns: Sequence[str],
    links: Links,
    *,
    computed: Mapping[str, Mapping[str, str]],
    anchors: RowAnchors,
    details: Mapping[str, str] = MappingProxyType({}),
    make_group: GroupMaker = table_group,
) -> tuple[nodes.tgroup, list[PlacedNote]]:
    """Make the content of the table of ``runs``; return it with the remarks that its marks link to.

    Args:
        runs: the runs, one per row, in order.
        columns: names of fields, and names in ``COMPUTED``.
        links: the link templates.
        computed: by run id, the texts of the columns in ``COMPUTED``.
        anchors: the ids of rows and remarks.
        details: by run id, the id of the block on the same page with its details.
        make_group: the function that makes the nodes.
    """
    notes = _place_notes(runs, anchors)

    def cells_of(run: Run) -> list[Cell]:
        cells = run_cells(run, columns, links, computed.get(run.id, {}))
        cells[0].anchor = anchors.rows.get(run.id, "")
        if run.id in details and "model" in columns:
            _link(cells[columns.index("model")], details[run.id])
        for placed in sorted((notes[note] for note in set(run.notes)), key=lambda placed: placed.number):
            first = next(iter(placed.anchors))  # the list below the table contains each remark once
            _add_mark(cells, columns, placed, placed.anchors[run.id if details else first])
        return cells

    names = [run_class(run.id) for run in runs]
    return make_group([_heading(name) for name in columns], map(cells_of, runs), names), [*notes.values()]


def run_about(run: Run) -> str:
    """Return the task and the GPUs of a run."""
    return _("{task} on {gpus}").format(task=run.task, gpus=crossed(run.gpus))


def run_title(run: Run) -> str:
    """Return the title of a run."""
    return _("{model}, {task} on {gpus}").format(model=run.short_name, task=run.task, gpus=crossed(run.gpus))


def title_and_batch(run: Run) -> str:
    """Return the title of a run, with the largest batch that fitted if it is known."""
    title = run_title(run)
    return _("{run} (MaxBatch {count})").format(run=title, count=run.max_batch) if run.max_batch else title


def run_cells(
    run: Run, columns: Sequence[str], links: Links, computed: Mapping[str, str] = MappingProxyType({})
) -> list[Cell]:
    """Return the cells of a run; unless it ran, one of them contains its evidence word.

    ``computed`` contains the texts of the columns in ``COMPUTED``.
    """
    cells = [
        _computed_cell(computed.get(name, ""))
        if name in COMPUTED
        else run_cell(run, field_named(name), links)
        for name in columns
    ]
    if run.word != "ran" and not {"tag", "kind"} & set(columns):
        text, address = cells[0].pieces[0]
        cells[0].pieces[0] = (_with_word(text, run), address)
    return cells


def _computed_cell(text: str) -> Cell:
    return Cell([(text, None)], classes=("num",) if text[:1].isdigit() else ())


def run_cell(run: Run, field: Field, links: Links) -> Cell:
    """Return the cell of one field of a run; empty if nothing is recorded."""
    make = _PIECES.get(field.name)
    pieces = (make and make(run, links)) or [(field.text(run), None)]
    numeric = ("num",) if is_numeric(field.value(run)) else ()
    return Cell(pieces, classes=_CLASSES.get(field.name, numeric))


def _script_pieces(run: Run, links: Links) -> list[Piece]:
    """Return the launch script with its address, otherwise the first piece of evidence."""
    if run.script:
        return [(str(run.script), links.file(run.script.ref, run.script.path))]
    return [_evidence(item, links) for item in run.evidence[:1]]


def _contributor_pieces(run: Run, _links: Links) -> list[Piece]:
    return [(run.contributor.name, run.contributor.url)] if run.contributor else []


def _tag_pieces(run: Run, _links: Links) -> list[Piece]:
    """Return the tag; unless the run ran, with its evidence word."""
    if run.tag and run.word == "ran":
        return [(run.tag, None)]
    return [(_with_word(run.tag or "", run), None)]


def _evidence(item: Evidence, links: Links) -> Piece:
    if item.url:
        return item.kind, item.url
    assert item.ref is not None
    if item.path:
        return item.path.rsplit("/", 1)[-1], links.file(item.ref, item.path, item.lines)
    return f"{item.kind} {item.ref[:9]}", links.commit(item.ref)


#: The fields whose cells contain more than the text of their value.
_PIECES: Mapping[str, Callable[[Run, Links], list[Piece]]] = {
    "tag": _tag_pieces,
    "kind": lambda run, _links: [(_(WORD_TEXTS[run.word]), None)],
    "script": _script_pieces,
    "evidence": lambda run, links: [_evidence(item, links) for item in run.evidence],
    "contributor": _contributor_pieces,
}


#: The classes of cells; the style sheet hides contributors on narrow screens, and makes tags small.
_CLASSES = {
    "tag": ("verl-col-tag",),
    "script": (PATH_CLASS,),
    "evidence": (PATH_CLASS,),
    "contributor": ("verl-col-contributor",),
}


def _heading(name: str) -> Cell:
    """Return the heading of a column, with a class that is the same in every language."""
    text = _(COMPUTED.get(name) or field_named(name).heading)
    column = name.replace(".", "-").replace("_", "-")
    return Cell([(text, None)], classes=(f"verl-col-{column}",))


def _with_word(text: str, run: Run) -> str:
    word = _(WORD_TEXTS[run.word])
    return _("{text} ({word})").format(text=text, word=word) if text else word


def status(run: Run) -> str:
    """Return the tag of a run and its evidence word."""
    word = _(WORD_TEXTS[run.word])
    return _("{tag}, {word}").format(tag=run.tag, word=word) if run.tag else word


def _link(cell: Cell, target: str) -> None:
    """Link the text of a cell to a place on the same page."""
    text = cell.text
    cell.pieces, cell.links = [], [nodes.reference("", text, refid=target, internal=True)]


def _place_notes(runs: Sequence[Run], anchors: RowAnchors) -> dict[Note, PlacedNote]:
    """Number the remarks of all runs in the order of the rows, each once."""
    found: dict[Note, PlacedNote] = {}
    for run in runs:
        for index, note in enumerate(run.notes, 1):
            placed = found.setdefault(note, PlacedNote(note, len(found) + 1, {}))
            placed.anchors.setdefault(run.id, anchors.of_note(run.id, index))
    return found


def _add_mark(cells: Sequence[Cell], columns: Sequence[str], placed: PlacedNote, anchor: str) -> None:
    """Put the mark of a note into the cell that it is about, otherwise into the first."""
    cell = cells[columns.index(placed.note.about) if placed.note.about in columns else 0]
    cell.marks = [*cell.marks, (placed.mark, anchor)]


def notes_list(
    notes: Iterable[PlacedNote], runs: Mapping[str, Run], targets: Mapping[str, str]
) -> nodes.enumerated_list:
    """Make the list of the remarks below a table, numbered like their marks.

    Args:
        notes: the remarks.
        runs: all runs.
        targets: by run, the id of its row on the page, if links can point to one.
    """
    paragraphs = []
    for placed in notes:
        paragraph = nodes.paragraph()
        paragraph += note_target(placed, next(iter(placed.anchors)))
        titles: dict[str, Run] = {}
        for run in map(runs.__getitem__, placed.anchors):
            title = _("{model} on {gpus}").format(model=run.short_name, gpus=crossed(run.gpus))
            titles.setdefault(title, run)
        named = between_commas(
            nodes.reference("", title, refid=targets[run.id], internal=True)
            if run.id in targets
            else nodes.Text(title)
            for title, run in titles.items()
        )
        paragraph += fill(_("{runs}: {note}"), runs=named, note=" ".join(placed.note.text.split()))
        paragraphs.append(paragraph)
    return numbered_notes(*paragraphs)


def note_target(placed: PlacedNote, run: str) -> nodes.target:
    """Make the target of the mark in the row of a run."""
    return nodes.target("", "", ids=[placed.anchors[run]])
