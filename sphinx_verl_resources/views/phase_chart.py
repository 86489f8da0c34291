"""The memory of a run phase by phase as a drawing: a bar for each, against what the GPU offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..breakdown import Category
from ..i18n import N_, _
from ..units import GIB, gib, gib_number
from .drawing import (
    BAR,
    FONT,
    GAP,
    LINE,
    PAINTS,
    ROW,
    WIDTH,
    Drawing,
    Hatched,
    axis,
    bar,
    flowing,
    headings,
    letters,
    path,
    short,
    text_beside,
    thick,
    ticks,
    upright,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..catalog.models.run import Measured
    from ..estimator.estimate import Estimate
    from ..estimator.phases import Phase

#: What a counter counts; only the first is to be compared with the bars.
_COUNTERS = {
    "device": N_("Measured: in use on the GPU"),
    "torch-max-allocated": N_("Measured: allocated by PyTorch only"),
    "torch-max-reserved": N_("Measured: reserved by PyTorch only"),
    "not-stated": N_("Measured: counter not stated"),
}
#: Narrower pieces have no letter.
_LETTER = 14
#: Where a bar begins in its row, and its letters in it.
_TOP, _BASE = FONT + 5, 12.5


@dataclass(frozen=True)
class _Line:
    """A phase, and where its row begins."""

    phase: Phase
    y: float
    peak_phase: bool

    @property
    def top(self) -> float:
        return self.y + _TOP


def phase_chart(estimate: Estimate, title: str, measured: Measured | None) -> Drawing:
    """A bar for each phase; the numbers are those of the table by phase.

    Args:
        estimate: of a run.
        title: what it is of.
        measured: what the run reported, if anything.
    """
    found = measured.gib * GIB if measured and measured.gib else 0.0
    capacity = estimate.capacity
    marks = ticks(max(estimate.high, capacity or 0.0, found) / GIB)
    scale = WIDTH / marks[-1] / GIB
    first = LINE if capacity else 0
    bars = [
        _Line(phase, first + index * ROW, phase.name == estimate.peak_phase.name)
        for index, phase in enumerate(estimate.phases)
    ]
    shown = [_heading(line, capacity) for line in bars]
    y: float = first + len(bars) * ROW
    parts: list[str | Hatched] = []
    if measured and found:
        shown.append((y + FONT, _(_COUNTERS[measured.counter]), gib(found), False))
        parts.append(_mark(found * scale, y + _TOP + BAR / 2))
        y += ROW
    parts += [headings(shown), axis(y + 2, marks, "GiB")]
    used = [category for category in Category if any(category in _pieces(line.phase) for line in bars)]
    names = [_(category.heading) for category in used]
    signs, legend, height = flowing(y + 2 * LINE, [*names, _range(estimate)])
    parts += _coloured(bars, dict(zip(used, signs, strict=False)), scale, capacity)
    if capacity:
        parts.append(text_beside(capacity * scale, offered(capacity)))
        parts.append(upright(capacity * scale, [line.top for line in bars]))
    low, high = estimate.low * scale, estimate.high * scale
    parts += [_whisker(low, high, line.top + BAR + 4) for line in bars if line.peak_phase]
    x, y = signs[-1]
    parts += [_whisker(x, x + BAR, y + BAR / 2), legend]
    return Drawing(title, _description(estimate, measured), height, tuple(parts))


def _coloured(
    bars: Sequence[_Line], signs: Mapping[Category, tuple[float, float]], scale: float, capacity: float | None
) -> list[str | Hatched]:
    """All bars and the signs of the legend, what is over the capacity hatched, and their letters."""
    made: list[str | Hatched] = []
    found = []
    for category, (x, top) in signs.items():
        pieces = [*_shapes(category, bars, scale), bar(x, x + BAR, top)]
        made.append(path(pieces, thick(PAINTS[category].colour)))
        places = [*_letter_places(category, bars, scale, capacity), (x + BAR / 2, top + _BASE)]
        found.append((PAINTS[category], places))
    over = [line for line in bars if capacity and line.phase.total > capacity]
    if capacity and over:
        pieces = [bar(capacity * scale, line.phase.total * scale, line.top) for line in over]
        made.append(Hatched("".join(pieces)))
    return [*made, letters(found)]


def offered(capacity: float) -> str:
    """What the line across the bars means."""
    return _("The GPU offers {size}").format(size=gib(capacity))


def _heading(line: _Line, capacity: float | None) -> tuple[float, str, str, bool]:
    label = _(line.phase.label)
    if line.peak_phase:
        label = _("{phase} (binding)").format(phase=label)
    return line.y + FONT, label, with_excess(line.phase.total, capacity), line.peak_phase


def with_excess(size: float, capacity: float | None) -> str:
    """A size, and by how much it is over the capacity if it is."""
    if not capacity or size <= capacity:
        return gib(size)
    return _("{size}, {excess} over").format(size=gib(size), excess=f"+{gib(size - capacity)}")


def _shapes(category: Category, bars: Sequence[_Line], scale: float) -> list[str]:
    """All pieces of one colour. Each ends where the next begins, less a gap; the last one at the total."""
    made = []
    for line in bars:
        pieces = _pieces(line.phase)
        if category in pieces:
            start, end = pieces[category]
            gap = 0 if category is list(pieces)[-1] else GAP
            made.append(bar(start * scale, end * scale - gap, line.top))
    return made


def _letter_places(
    category: Category, bars: Sequence[_Line], scale: float, capacity: float | None
) -> list[tuple[float, float]]:
    """The middles of the pieces of one colour that are wide enough; of what a line cuts the larger part."""
    found = []
    for line in bars:
        start, end = _pieces(line.phase).get(category, (0.0, 0.0))
        if capacity and start < capacity < end:
            start, end = max((start, capacity), (capacity, end), key=lambda part: part[1] - part[0])
        if (end - start) * scale - GAP >= _LETTER:
            found.append(((start + end) / 2 * scale - GAP / 2, line.top + _BASE))
    return found


def _pieces(phase: Phase) -> dict[Category, tuple[float, float]]:
    """Return where each category that there is begins and ends, in bytes."""
    pieces, end = {}, 0.0
    for category, size in phase.sizes.items():
        start, end = end, end + size
        if size:
            pieces[category] = start, end
    return pieces


def _whisker(low: float, high: float, y: float) -> str:
    d = f"M{short(low)} {short(y - 2)}v4m0-2h{short(high - low)}m0-2v4"
    return path(d, 'fill="none" stroke="currentColor" stroke-width="1.5"')


def _mark(x: float, y: float) -> str:
    """A line that ends in a diamond."""
    return path(f"M0 {short(y)}H{short(x)}", 'stroke="currentColor"') + path(
        f"M{short(x)} {short(y - 7)}l7 7-7 7-7-7z", 'fill="currentColor"'
    )


def _range(estimate: Estimate) -> str:
    return _("Range of the peak: {low} to {high}").format(
        low=gib_number(estimate.low), high=gib(estimate.high)
    )


def _description(estimate: Estimate, measured: Measured | None) -> str:
    """What can be seen, with the numbers; the parts are in the table."""
    sized = _("{part} {size}")
    found = [sized.format(part=_(phase.label), size=gib(phase.total)) for phase in estimate.phases]
    found.append(_("{phase} (binding phase)").format(phase=_(estimate.peak_phase.label)))
    found.append(_range(estimate))
    if estimate.capacity:
        found.append(offered(estimate.capacity))
    if measured and measured.gib:
        found.append(sized.format(part=_(_COUNTERS[measured.counter]), size=gib(measured.gib * GIB)))
    return _("; ").join(found)
