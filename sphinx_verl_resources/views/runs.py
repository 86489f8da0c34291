"""Recorded runs as table rows, and the notes that go under the table."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from docutils import nodes

from ..catalog.fields import NOT_RECORDED, as_text, field_named, is_numeric
from ..catalog.names import row_id, run_class
from ..i18n import N_, _
from .sentences import fill
from .table import PATH_CLASS, Cell, rows_of, table_group

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ..catalog.fields import Field
    from ..catalog.links import Links
    from ..catalog.models.run import Evidence, Note, Run

    #: Text and the address that it links to, None for none.
    Piece = tuple[str, str | None]

TABLE_CLASS = "verl-runs"
#: Columns that are computed and not recorded, and their headings.
COMPUTED = {"estimate.peak": N_("Computed peak (GiB)"), "estimate.phase": N_("Binding phase")}
NOT_COMPUTED = N_("not computed")
NOTES_CLASS = "verl-notes"
#: How a run came about.
KIND_WORDS = {
    "tested": N_("tested"),
    "measured": N_("measured"),
    "stated": N_("stated"),
    "script-default": N_("script default"),
}


@dataclass
class PlacedNote:
    """A note with the mark that leads to it, and all the runs that it is about.

    Sources often say one thing about several runs; the page says it once.
    """

    mark: str
    anchor: str
    note: Note
    runs: list[Run]


def runs_rows(
    runs: Sequence[Run],
    columns: Sequence[str],
    links: Links,
    *,
    computed: Mapping[str, Mapping[str, str]],
    anchors: Collection[str],
    targets: Collection[str],
    number: int,
    details: Mapping[str, str] = MappingProxyType({}),
) -> tuple[nodes.tgroup, nodes.enumerated_list | None]:
    """The inside of the table of ``runs`` and, if any has one, the list of their notes.

    Args:
        runs: one per row, in order.
        columns: field names, and names in ``COMPUTED``.
        links: makes the addresses.
        computed: by the ids of runs, what stands in the columns of ``COMPUTED``.
        anchors: ids of the runs whose rows are link targets here; a run shown twice on a page is one once.
        targets: ids of the runs that have such a row anywhere on the page.
        number: which table of the page this is, for the ids of notes that the page shows more than once.
        details: by the ids of runs, the ids of the blocks on the same page that say more about them.
    """
    notes = _place_notes(runs, anchors, number)
    rows = []
    for run in runs:
        cells = run_cells(run, columns, links, computed.get(run.id, {}))
        if run.id in anchors:
            cells[0].anchor = row_id(run.id)
        if run.id in details and "model" in columns:
            _link(cells[columns.index("model")], details[run.id])
        _add_marks(run, cells, columns, notes)
        rows.append(cells)
    group = table_group([_heading(name) for name in columns], rows)
    for run, row in zip(runs, rows_of(group), strict=True):
        row["classes"].append(run_class(run.id))
    return group, _notes_list(notes, targets) if notes else None


def run_about(run: Run) -> str:
    """What a run did, on which hardware."""
    return _("{task} on {gpus}").format(task=run.task, gpus=run.gpus)


def run_title(run: Run) -> str:
    """What a run is called."""
    return _("{model}, {task} on {gpus}").format(model=run.short_name, task=run.task, gpus=run.gpus)


def templates_used(runs: Sequence[Run], columns: Sequence[str]) -> set[str]:
    """Which link templates the table of ``runs`` needs: ``script_url``, ``commit_url``."""
    used: set[str] = set()
    for run in runs:
        shown = run.evidence if "evidence" in columns else ()
        if "script" in columns:
            if run.script:
                used.add("script_url")
            else:
                shown = shown or run.evidence[:1]
        for item in shown:
            if item.ref:
                used.add("script_url" if item.path else "commit_url")
    return used


def uncomputed_texts(run: Run) -> dict[str, str]:
    """What stands in the columns of ``COMPUTED`` where there is no estimate."""
    return dict.fromkeys(COMPUTED, _(NOT_COMPUTED if run.settings else NOT_RECORDED))


def run_cells(
    run: Run, columns: Sequence[str], links: Links, computed: Mapping[str, str] = MappingProxyType({})
) -> list[Cell]:
    """The fields of a run as cells; anything but a tested run says so in one of them.

    ``computed`` is what stands in the columns of ``COMPUTED``.
    """
    cells = [
        Cell([(computed[name], None)], classes=_number(computed[name]))
        if name in computed
        else run_cell(run, field_named(name), links)
        for name in columns
    ]
    if run.kind != "tested" and not {"tag", "kind"} & set(columns):
        text, address = cells[0].pieces[0]
        cells[0].pieces[0] = (_with_kind(text, run), address)
    return cells


def run_cell(run: Run, field: Field, links: Links) -> Cell:
    """Return the cell of one field of a run."""
    make = _PIECES.get(field.name)
    if make and (pieces := make(run, links)):
        return Cell(pieces, classes=(PATH_CLASS,) if field.name in {"script", "evidence"} else ())
    value = field.value(run)
    text = as_text(value) if value is not None else field.absent and _(field.absent)
    return Cell([(text, None)], classes=("num",) if is_numeric(value) else ())


def _heading(name: str) -> Cell:
    """What stands above a column, with a class that has the same name in every language."""
    text = _(COMPUTED.get(name) or field_named(name).heading)
    column = name.replace(".", "-").replace("_", "-")
    return Cell([(text, None)], classes=(f"verl-col-{column}",))


def _tag(run: Run) -> str:
    """The tag; anything but a tested run says so here."""
    if run.kind == "tested":
        return str(run.tag)
    return _with_kind(run.tag, run) if run.tag else _(KIND_WORDS[run.kind])


def _with_kind(text: str, run: Run) -> str:
    return _("{text} ({kind})").format(text=text, kind=_(KIND_WORDS[run.kind]))


def _link(cell: Cell, target: str) -> None:
    """Let the text of a cell lead to a place on the same page."""
    text = cell.text
    cell.pieces, cell.links = [], [nodes.reference("", text, refid=target, internal=True)]


def _number(text: str) -> tuple[str, ...]:
    return ("num",) if text[:1].isdigit() else ()


def _add_marks(run: Run, cells: Sequence[Cell], columns: Sequence[str], notes: Iterable[PlacedNote]) -> None:
    for placed in notes:
        if any(run is noted for noted in placed.runs):
            index = columns.index(placed.note.about) if placed.note.about in columns else 0
            cells[index].marks = [*cells[index].marks, (placed.mark, placed.anchor)]


def status(run: Run) -> str:
    """How a run came about, and its tag."""
    kind = _(KIND_WORDS[run.kind])
    return _("{tag}, {kind}").format(tag=run.tag, kind=kind) if run.tag else kind


def script_pieces(run: Run, links: Links) -> list[Piece]:
    """Return the launch script with its address, or else the first piece of evidence."""
    if run.script:
        return [(str(run.script), links.file(run.script.ref, run.script.path))]
    return evidence_pieces(run, links)[:1] or [(_(NOT_RECORDED), None)]


def evidence_pieces(run: Run, links: Links) -> list[Piece]:
    """Return each piece of evidence with its address."""
    return [_evidence(item, links) for item in run.evidence]


def _contributor_pieces(run: Run, _links: Links) -> list[Piece]:
    return [(run.contributor.name, run.contributor.url)] if run.contributor else []


def _evidence(item: Evidence, links: Links) -> Piece:
    if item.url:
        return item.kind, item.url
    assert item.ref is not None
    if item.path:
        return item.path.rsplit("/", 1)[-1], links.file(item.ref, item.path, item.lines)
    return f"{item.kind} {item.ref[:9]}", links.commit(item.ref)


#: The fields whose cells hold more than the text of their value.
_PIECES: Mapping[str, Callable[[Run, Links], list[Piece]]] = {
    "script": script_pieces,
    "evidence": evidence_pieces,
    "contributor": _contributor_pieces,
    "tag": lambda run, _links: [(_tag(run), None)],
}


def _place_notes(runs: Sequence[Run], anchors: Collection[str], number: int) -> list[PlacedNote]:
    placed: dict[Note, PlacedNote] = {}
    for run in runs:
        suffix = "" if run.id in anchors else f"-table-{number}"
        for index, note in enumerate(run.notes, 1):
            anchor = f"note-{run.id}-{index}{suffix}"
            first = placed.setdefault(note, PlacedNote(f"[{len(placed) + 1}]", anchor, note, []))
            first.runs.append(run)
    return list(placed.values())


def _notes_list(notes: Sequence[PlacedNote], targets: Collection[str]) -> nodes.enumerated_list:
    """The notes, numbered as their marks are."""
    items = nodes.enumerated_list(classes=[NOTES_CLASS], enumtype="arabic", prefix="", suffix=".")
    for placed in notes:
        paragraph = nodes.paragraph()
        paragraph += nodes.target("", "", ids=[placed.anchor])
        titles: dict[str, Run] = {}
        for run in placed.runs:
            title = _("{model} on {gpus}").format(model=run.short_name, gpus=run.gpus)
            titles.setdefault(title, run)
        named: list[nodes.Node] = []
        for title, run in titles.items():
            named += [nodes.Text(_(", "))] if named else []
            if run.id in targets:
                named.append(nodes.reference("", title, refid=row_id(run.id), internal=True))
            else:
                named.append(nodes.Text(title))
        paragraph += fill(_("{runs}: {note}"), runs=named, note=" ".join(placed.note.text.split()))
        items += nodes.list_item("", paragraph)
    return items
