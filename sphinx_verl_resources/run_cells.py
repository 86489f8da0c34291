"""Recorded runs as cells and in words, for pages and for printed tables."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from .i18n import N_, _
from .nodes import PATH_CLASS, Cell, in_a_row, listed
from .selection import every_field, field_named, is_numeric
from .units import GIB, crossed, gib

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .records import Evidence, Links, Measured, Run, Word

    #: A text, and the address of its link or None.
    Piece = tuple[str, str | None]

#: Computed columns, and their headings; rooms compute them.
COMPUTED = {"estimate.peak": N_("Estimated peak (GiB)"), "estimate.phase": N_("Peak phase")}
#: The evidence words of runs.
WORD_TEXTS: Mapping[Word, str] = {"ran": N_("ran"), "reported": N_("reported"), "claimed": N_("claimed")}
#: For each counter, a measured figure with what it counts.
_COUNTERS = {
    "torch-max-allocated": N_("{size}: PyTorch's peak of allocated memory; compare it with verl's metric."),
    "torch-max-reserved": N_("{size}: PyTorch's peak of reserved memory."),
    "device": N_("{size}: memory in use on the GPU; compare it with the peak."),
    "not-stated": N_("{size}: the source does not state how it was counted."),
}
#: The other measured figures in the details.
_FIGURES = ("measured.host_ram_gib", "measured.step_seconds", "measured.mfu", "measured.response_tokens")
#: The classes of cells.
_CLASSES = {"tag": ("verl-col-tag",), "script": (PATH_CLASS,), "evidence": (PATH_CLASS,)}

# -- words


def run_title(run: Run) -> str:
    """Return the title of a run."""
    return _("{model}, {task} on {gpus}").format(model=run.short_name, task=run.task, gpus=crossed(run.gpus))


def status(run: Run) -> str:
    """Return the tag of a run and its evidence word."""
    word = _(WORD_TEXTS[run.word])
    return _("{tag}, {word}").format(tag=run.tag, word=word) if run.tag else word


def measured_text(measured: Measured) -> str:
    """Return the measured memory of a run in a sentence."""
    assert measured.gib
    return _(_COUNTERS[measured.counter]).format(size=gib(measured.gib * GIB))


# -- cells


def row_classes(run: Run) -> str:
    """Return the classes of all page elements about a run; without evidence that it ran, they are folded."""
    return f"verl-run-{run.id}" if run.word == "ran" else f"verl-run-{run.id} verl-more"


def run_heading(name: str) -> Cell:
    """Return the heading of a column, with a class that is the same in every language."""
    column = name.replace(".", "-").replace("_", "-")
    text = _(COMPUTED.get(name) or field_named(name).heading)
    return Cell([(text, None)], classes=(f"verl-col-{column}",))


def run_cells(
    run: Run, columns: Sequence[str], links: Links, computed: Mapping[str, str] = MappingProxyType({})
) -> list[Cell]:
    """Return the cells of a run; unless it ran, one of them contains its evidence word.

    Args:
        run: the run.
        columns: names of fields, and names in ``COMPUTED``.
        links: the link templates.
        computed: the texts of the columns in ``COMPUTED``.
    """
    cells = []
    for name in columns:
        if name in COMPUTED:
            text = computed.get(name, "")
            cells.append(Cell.number(text) if text[:1].isdigit() else Cell.of(text))
        else:
            numeric = ("num",) if is_numeric(field_named(name).value(run)) else ()
            cells.append(Cell(field_pieces(run, name, links), classes=_CLASSES.get(name, numeric)))
    if run.word != "ran" and not {"tag", "kind"} & {*columns}:
        text, address = cells[0].pieces[0]
        cells[0].pieces[0] = (_with_word(text, run), address)
    return cells


def _with_word(text: str, run: Run) -> str:
    word = _(WORD_TEXTS[run.word])
    return _("{text} ({word})").format(text=text, word=word) if text else word


def field_pieces(run: Run, name: str, links: Links) -> list[Piece]:
    """Return one field of a run as texts with addresses; an empty text if nothing is recorded."""
    make = _PIECES.get(name)
    return (make and make(run, links)) or [(field_named(name).text(run), None)]


def _script(run: Run, links: Links) -> list[Piece]:
    """Return the launch script with its address, otherwise the first piece of evidence."""
    if run.script:
        return [(str(run.script), links.file(run.script.ref, run.script.path))]
    return [_evidence(item, links) for item in run.evidence[:1]]


def _evidence(item: Evidence, links: Links) -> Piece:
    if item.url:
        return item.kind, item.url
    assert item.ref is not None
    if item.path:
        return item.path.rsplit("/", 1)[-1], links.file(item.ref, item.path, item.lines)
    return f"{item.kind} {item.ref[:9]}", links.commit(item.ref)


def _measured(run: Run, _links: Links) -> list[Piece]:
    """Return the measured memory in a sentence, and the other figures."""
    fields = [every_field()[name] for name in _FIGURES]
    shown = [field for field in fields if field.text(run)]
    figures = [_("{title}: {text}").format(title=_(one.heading), text=one.text(run)) for one in shown]
    sentences = [measured_text(run.measured)] if run.measured and run.measured.gib else []
    sentences += [listed(figures)] if figures else []
    return [(in_a_row(*sentences), None)] if sentences else []


#: The fields whose cells contain more than the text of their value.
_PIECES: Mapping[str, Callable[[Run, Links], list[Piece]]] = {
    "tag": lambda run, _links: [
        (run.tag if run.tag and run.word == "ran" else _with_word(run.tag or "", run), None)
    ],
    "kind": lambda run, _links: [(_(WORD_TEXTS[run.word]), None)],
    "script": _script,
    "versions": lambda run, _links: [(f"{name} {text}", None) for name, text in run.versions or () if text],
    "measured": _measured,
    "evidence": lambda run, links: [_evidence(item, links) for item in run.evidence],
    "contributor": lambda run, _links: (
        [(run.contributor.name, run.contributor.url)] if run.contributor else []
    ),
}
