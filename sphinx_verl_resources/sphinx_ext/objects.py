"""Objects that references link to: runs, GPUs, models and size classes, and the index of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sphinx.domains import Index, IndexEntry

from ..fields import natural
from ..i18n import N_, _
from ..records import SIZES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..dataset import Dataset

#: The kinds of objects; ``:any:`` prefers them in this order.
RUN, SIZE, GPU, MODEL = KINDS = ("run", "size", "gpu", "model")
#: Their names for readers.
LABELS = {RUN: N_("run"), SIZE: N_("size class"), GPU: N_("GPU"), MODEL: N_("model")}


class Target(NamedTuple):
    """One object on one page.

    Attributes:
        anchor: its id on the page.
        title: the text of a reference without an explicit text.
        group: its heading in the index of runs; empty for other objects.
    """

    anchor: str
    title: str
    group: str = ""


#: The objects by document name, then by kind and name: plain data, which Sphinx pickles with its environment.
Objects = dict[str, dict[str, dict[str, Target]]]


def canonical(catalog: Dataset, kind: str, name: str) -> str | None:
    """Return the recorded name of an object, given any of its names; None if it is unknown."""
    if kind == RUN:
        return name if name in catalog.runs else None
    if kind == SIZE:
        return next((size for size in SIZES if size.casefold() == name.casefold()), None)
    if kind == GPU:
        gpu = catalog.gpus.get(name)
        return gpu.name if gpu else None
    model = catalog.architectures.get(name)
    return model.hf_id if model else None


def names(catalog: Dataset, kind: str) -> list[str]:
    """Return all names of the objects of a kind, for hints."""
    if kind == RUN:
        return list(catalog.runs)
    if kind == SIZE:
        return list(SIZES)
    return (catalog.gpus if kind == GPU else catalog.architectures).names


def note(objects: Objects, docname: str, kind: str, name: str, target: Target) -> bool:
    """Remember that a page shows an object.

    Returns:
        True for the first place on the page, which is the one that references link to.
    """
    of_kind = objects.setdefault(docname, {}).setdefault(kind, {})
    return of_kind.setdefault(name, target) is target


def find(objects: Objects, kind: str, name: str, docname: str) -> tuple[str, Target] | None:
    """Return the page of an object to link to: ``docname``, or the page with the most objects of its kind.

    Returns:
        The document name, and the object there; None if no page shows it.
    """
    pages = [page for page, kinds in objects.items() if name in kinds.get(kind, ())]
    if not pages:
        return None
    page = docname if docname in pages else min(pages, key=lambda page: _rank(objects, kind, page))
    return page, objects[page][kind][name]


def every(objects: Objects) -> Iterator[tuple[str, str, str, Target]]:
    """Yield kind, name, page and target of every object, once, on the page with the most of its kind."""
    for kind in KINDS:
        found: dict[str, str] = {}
        shown = (page for page, kinds in objects.items() if kind in kinds)
        for page in sorted(shown, key=lambda page: _rank(objects, kind, page)):
            for name in objects[page][kind]:
                found.setdefault(name, page)
        for name in sorted(found):
            yield kind, name, found[name], objects[found[name]][kind][name]


def matches(objects: Objects, target: str) -> list[tuple[str, str]]:
    """Return kind and name of every object with the name ``target``."""
    return [
        (kind, target) for kind in KINDS if any(target in kinds.get(kind, ()) for kinds in objects.values())
    ]


def _rank(objects: Objects, kind: str, page: str) -> tuple[int, str]:
    return -len(objects[page][kind]), page


class RunIndex(Index):
    """The index of all runs on pages, by size class; ``:ref:`verl-runindex``` links to it."""

    name = "runindex"
    localname = "Recorded runs"  # see ``in_this_language``

    def generate(
        self, docnames: Iterable[str] | None = None
    ) -> tuple[list[tuple[str, list[IndexEntry]]], bool]:
        """Return the size classes that have a run, ascending, and their runs by title."""
        only = None if docnames is None else set(docnames)
        found: dict[str, list[IndexEntry]] = {size: [] for size in SIZES}
        for kind, name, page, shown in every(self.domain.data["objects"]):
            if kind == RUN and (only is None or page in only):
                entry = IndexEntry(shown.title, 0, page, shown.anchor, name, "", "")
                found[shown.group].append(entry)
        for entries in found.values():
            entries.sort(key=lambda entry: (natural(entry.name), entry.extra))
        return [(size, entries) for size, entries in found.items() if entries], False


def in_this_language() -> type[RunIndex]:
    """Return the index with its translated title, which Sphinx needs in advance as plain text."""
    return type("RunIndex", (RunIndex,), {"localname": _("Recorded runs")})
