"""Recorded runs as cells and in words, for pages and for printed tables."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from .fields import every_field, field_named, is_numeric
from .i18n import N_, _
from .nodes import PATH_CLASS, Cell, in_a_row, listed
from .units import GIB, crossed, gib

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .fields import Field
    from .links import Links
    from .records import Evidence, Measured, Run, Word

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
#: The classes of cells; the style sheet hides contributors on narrow screens, and makes tags small.
_CLASSES = {
    "tag": ("verl-col-tag",),
    "script": (PATH_CLASS,),
    "evidence": (PATH_CLASS,),
    "contributor": ("verl-col-contributor",),
}

# -- words


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


def status(run: Run) -> str:
    """Return the tag of a run and its evidence word."""
    word = _(WORD_TEXTS[run.word])
    return _("{tag}, {word}").format(tag=run.tag, word=word) if run.tag else word


def measured_text(measured: Measured) -> str:
    """Return the measured memory of a run in a sentence."""
    assert measured.gib
    return _(_COUNTERS[measured.counter]).format(size=gib(measured.gib * GIB))


# -- cells


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
        text = computed.get(name, "")
        if name not in COMPUTED:
            cells.append(_cell(run, field_named(name), links))
        else:
            cells.append(Cell.number(text) if text[:1].isdigit() else Cell.of(text))
    if run.word != "ran" and not {"tag", "kind"} & set(columns):
        text, address = cells[0].pieces[0]
        cells[0].pieces[0] = (_with_word(text, run), address)
    return cells


def _cell(run: Run, field: Field, links: Links) -> Cell:
    numeric = ("num",) if is_numeric(field.value(run)) else ()
    return Cell(field_pieces(run, field, links), classes=_CLASSES.get(field.name, numeric))


def field_pieces(run: Run, field: Field, links: Links) -> list[Piece]:
    """Return one field of a run as texts with addresses; an empty text if nothing is recorded."""
    make = _PIECES.get(field.name)
    return (make and make(run, links)) or [(field.text(run), None)]


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


def _with_word(text: str, run: Run) -> str:
    word = _(WORD_TEXTS[run.word])
    return _("{text} ({word})").format(text=text, word=word) if text else word


#: The fields whose cells contain more than the text of their value.
_PIECES: Mapping[str, Callable[[Run, Links], list[Piece]]] = {
    "tag": lambda run, _links: [
        (run.tag if run.tag and run.word == "ran" else _with_word(run.tag or "", run), None)
    ],
    "kind": lambda run, _links: [(_(WORD_TEXTS[run.word]), None)],
    "script": _script,
    "evidence": lambda run, links: [_evidence(item, links) for item in run.evidence],
    "contributor": lambda run, _links: (
        [(run.contributor.name, run.contributor.url)] if run.contributor else []
    ),
}


def run_heading(name: str) -> Cell:
    """Return the heading of a column, with a class that is the same in every language."""
    column = name.replace(".", "-").replace("_", "-")
    text = _(COMPUTED.get(name) or field_named(name).heading)
    return Cell([(text, None)], classes=(f"verl-col-{column}",))


# -- details


def detail_texts(run: Run, links: Links) -> list[tuple[str, list[Piece]]]:
    """Return titles and texts of the facts about a run that its row does not show in full."""
    text = status(run)
    if run.contributor:
        text = _("{status}, contributed by {name}").format(status=text, name=run.contributor.name)
    if run.added:
        text = _("{status}, added {date}").format(status=text, date=run.added.isoformat())
    facts: list[tuple[str, list[Piece]]] = [(_("Status"), [(text, None)])]
    for field in every_field().values():
        if field.detail and field.value(run) is not None:
            make = _TEXTS.get(field.name)
            pieces = field_pieces(run, field, links)
            facts.append((_(field.detail), [(make(run), None)] if make else pieces))
    return facts


def _engine(run: Run) -> str:
    assert run.infer
    version = run.infer.version or _("version not recorded")
    return f"{run.infer.engine} {version}"


def _versions(run: Run) -> str:
    assert run.versions
    named = (("verl", run.versions.verl), ("PyTorch", run.versions.torch))
    return listed(f"{name} {version}" for name, version in named if version)


def _measured(run: Run) -> str:
    assert run.measured
    names = ("host_ram_gib", "step_seconds", "mfu", "response_tokens")
    fields = (every_field()[f"measured.{name}"] for name in names)
    others = listed(
        _("{title}: {text}").format(title=_(field.heading), text=field.text(run))
        for field in fields
        if field.value(run) is not None
    )
    if not run.measured.gib:
        return others
    return in_a_row(measured_text(run.measured), *filter(None, [others]))


#: Fields with a longer text in the details than in their column.
_TEXTS: Mapping[str, Callable[[Run], str]] = {"infer": _engine, "versions": _versions, "measured": _measured}
