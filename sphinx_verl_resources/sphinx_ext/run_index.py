"""The index of recorded runs, by size class."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sphinx.domains import Index, IndexEntry

from ..catalog.fields import natural
from ..catalog.names import SIZES
from ..i18n import _
from . import objects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .domain import VerlDomain


class RunIndex(Index):
    """Every run that some page shows, under its size class; ``:ref:`verl-runindex``` leads there."""

    name = "runindex"
    localname = "Recorded runs"  # see ``in_this_language``

    def generate(
        self, docnames: Iterable[str] | None = None
    ) -> tuple[list[tuple[str, list[IndexEntry]]], bool]:
        """The size classes that have a run, ascending, and their runs by title."""
        only = None if docnames is None else set(docnames)
        found: dict[str, list[IndexEntry]] = {size: [] for size in SIZES}
        for kind, name, page, shown in objects.every(cast("VerlDomain", self.domain).shown):
            if kind == objects.RUN and (only is None or page in only):
                entry = IndexEntry(shown.title, 0, page, shown.anchor, name, "", "")
                found[shown.group].append(entry)
        for entries in found.values():
            entries.sort(key=lambda entry: (natural(entry.name), entry.extra))
        return [(size, entries) for size, entries in found.items() if entries], False


def in_this_language() -> type[RunIndex]:
    """The index with its title, which Sphinx wants as plain text before it makes one."""
    return type("RunIndex", (RunIndex,), {"localname": _("Recorded runs")})
