"""Sweeps: the chart and the table of saving settings, and the table of response lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..breakdown import Category
from ..estimator.phases import LABELS
from ..i18n import _
from ..units import GIB, MINUS, gib, gib_number, plain, signed
from .accuracy import VERDICTS
from .drawing import (
    FONT,
    LINE,
    ROW,
    WIDTH,
    Drawing,
    Hatched,
    axis,
    bar,
    text_beside,
    ticks,
    upright,
)
from .phase_chart import offered, with_excess
from .sentences import in_a_row, legend
from .table import PATH_CLASS, Cell, bold, table_group
from .waterfall_chart import ADDED, SUM, TAKEN, Line, waterfall_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from docutils import nodes

    from ..estimator.estimate import Estimate
    from ..estimator.sweeps import Longer, Saving, SavingSteps

LENGTHS_CLASS = "verl-lengths"
#: The categories that grow with the lengths.
_GROWING = (Category.ACTIVATIONS, Category.LOGITS)
#: The prefix of most keys, for which the chart has no room.
_ROOT = "actor_rollout_ref."


def saving_rows(sweep: SavingSteps) -> nodes.tgroup:
    """Make one row for each setting, between those of no setting and of all."""
    rows = [_sum_row(_("None of these"), sweep.start, "", "")]
    rows += map(_row, sweep.steps)
    saved = sweep.start.peak - sweep.end.peak
    added = sweep.end.host.total - sweep.start.host.total
    rows.append(_sum_row(_("All of these"), sweep.end, _saved(saved), _added(added)))
    headings = [
        _("Setting"),
        _("Saved on the GPU (GiB)"),
        _("Peak after it (GiB)"),
        _("Phase that sets it"),
        _("Added on the host (GiB per node)"),
        _("Verdict"),
    ]
    return table_group(headings, rows)


def _row(step: Saving) -> list[Cell]:
    return [
        Cell([(step.setting, None)], classes=(PATH_CLASS,)),
        Cell.number(_saved(step.saves)),
        Cell.number(gib_number(step.peak)),
        Cell.of(_(LABELS[step.peak_phase])),
        Cell.number(_added(step.host)),
        Cell.of(_(VERDICTS[step.verdict])),
    ]


def _sum_row(label: str, estimate: Estimate, saved: str, added: str) -> list[Cell]:
    cells = [
        Cell.of(label),
        Cell.number(saved),
        Cell.number(gib_number(estimate.peak)),
        Cell.of(_(estimate.peak_phase.label)),
        Cell.number(added),
        Cell.of(_(VERDICTS[estimate.verdict])),
    ]
    return bold(cells)


def saving_note() -> nodes.paragraph:
    """Explain how to read the table."""
    return legend(
        in_a_row(
            _("The peak is a maximum over phases."),
            _("A setting that saves nothing here lowers a phase that does not set the peak."),
            _("Another order gives other numbers, and the same end."),
        )
    )


def savings_chart(sweep: SavingSteps, title: str) -> Drawing:
    """Draw the peak after each setting, with the numbers of the table."""
    capacity = sweep.start.capacity
    lines = _lines(sweep, capacity)
    marks = ticks(max(*(line.end for line in lines), (capacity or 0.0) / GIB))
    scale = WIDTH / marks[-1]
    top = LINE if capacity else 0
    parts: list[str | Hatched] = [*waterfall_lines(lines, scale, top)]
    described = [_("{part} {size}").format(part=line.label, size=line.value) for line in lines]
    if capacity:
        label, x = offered(capacity), capacity / GIB * scale
        tops = [top + index * ROW + FONT + 5 for index in range(len(lines))]
        over = [
            bar(x, line.end * scale, at)
            for line, at in zip(lines, tops, strict=True)
            if line.bold and line.end * scale > x
        ]
        parts += [Hatched("".join(over))] if over else []
        parts += [text_beside(x, label), upright(x, tops)]
        described.append(label)
    bottom = top + len(lines) * ROW + 2
    parts.append(axis(bottom, marks, "GiB"))
    return Drawing(title, _("; ").join(described), bottom + LINE + 5, tuple(parts))


def _lines(sweep: SavingSteps, capacity: float | None) -> list[Line]:
    """Make the bars, in GiB as the axis."""
    before = sweep.start.peak
    made = [Line(_("None of these"), with_excess(before, capacity), 0, before / GIB, SUM, True)]
    for step in sweep.steps:
        start, end = sorted((before / GIB, step.peak / GIB))
        paint = TAKEN if step.saves >= 0 else ADDED
        made.append(Line(_short(step), _change(step.saves), start, end, paint))
        before = step.peak
    return [*made, Line(_("All of these"), with_excess(before, capacity), 0, before / GIB, SUM, True)]


def _short(step: Saving) -> str:
    return " ".join(setting.removeprefix(_ROOT) for setting in step.setting.split())


def _change(saves: float) -> str:
    return signed(gib(abs(saves)), -saves) if saves else gib(0)


def _saved(saves: float) -> str:
    return gib_number(saves) if saves >= 0 else f"{MINUS}{gib_number(-saves)}"


def _added(size: float) -> str:
    return signed(gib_number(abs(size)), size) if size else "0"


def length_rows(rows: Sequence[Longer]) -> nodes.tgroup:
    """Make one row for each limit; activations and logits are those of the phase with most of them."""
    headings = [
        _("Response (tokens)"),
        _("Activations (GiB)"),
        _("Logits (GiB)"),
        _("Sequences in the KV cache"),
        _("Peak (GiB)"),
        _("Peak phase"),
        _("On this GPU"),
    ]
    return table_group(headings, [_length_cells(row) for row in rows])


def _length_cells(row: Longer) -> list[Cell]:
    found = row.estimate
    first = Cell.number(f"{row.response:,}")
    if found is None:
        return [first, *(Cell.of("") for column in range(5)), Cell.of(row.diagnostics[0].message)]
    return [
        first,
        *(Cell.number(gib_number(_most(found, category))) for category in _GROWING),
        Cell.number(plain(int(row.sequences)) if row.sequences < 1e6 else _("any number")),
        Cell.number(gib_number(found.peak)),
        Cell.of(_(found.peak_phase.label)),
        Cell.of(_(VERDICTS[found.verdict])),
    ]


def _most(found: Estimate, category: Category) -> float:
    return max(phase.sizes[category] for phase in found.phases)
