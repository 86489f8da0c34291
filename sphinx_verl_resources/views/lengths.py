"""What longer responses take, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..breakdown import Category
from ..i18n import _
from ..units import gib_number, plain
from .accuracy import VERDICTS
from .table import Cell, table_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from docutils import nodes

    from ..estimator.estimate import Estimate
    from ..estimator.sweeps import Longer

TABLE_CLASS = "verl-lengths"
#: The columns of the table by phase that grow with the lengths.
GROWING = (Category.ACTIVATIONS, Category.LOGITS)


def length_rows(rows: Sequence[Longer]) -> nodes.tgroup:
    """One limit a row; activations and logits are those of the phase that has most of them."""
    headings = [
        _("Response (tokens)"),
        _("Activations (GiB)"),
        _("Logits (GiB)"),
        _("Sequences in the KV cache"),
        _("Peak (GiB)"),
        _("Binding phase"),
        _("On this GPU"),
    ]
    return table_group(headings, [_cells(row) for row in rows])


def _cells(row: Longer) -> list[Cell]:
    found = row.estimate
    first = Cell.number(f"{row.response:,}")
    if found is None:
        return [first, *(Cell.of("") for column in range(5)), Cell.of(row.diagnostics[0].message)]
    return [
        first,
        *(Cell.number(gib_number(_most(found, category))) for category in GROWING),
        Cell.number(plain(int(row.sequences)) if row.sequences < 1e6 else _("any number")),
        Cell.number(gib_number(found.peak)),
        Cell.of(_(found.peak_phase.label)),
        Cell.of(_(VERDICTS[found.verdict])),
    ]


def _most(found: Estimate, category: Category) -> float:
    return max(phase.sizes[category] for phase in found.phases)
