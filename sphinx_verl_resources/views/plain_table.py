"""A table for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tabulate import tabulate

if TYPE_CHECKING:
    from collections.abc import Sequence


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]], align: Sequence[str]) -> str:
    """Return the text of a table.

    Args:
        headings: of the columns.
        rows: their cells, as they are shown.
        align: ``left`` or ``right`` for each column.
    """
    # Without rows tabulate knows of no columns to align.
    sides = tuple(align) if rows else None
    table = tabulate(rows, headings, tablefmt="simple", disable_numparse=True, colalign=sides)
    return "\n".join(line.rstrip() for line in table.splitlines())
