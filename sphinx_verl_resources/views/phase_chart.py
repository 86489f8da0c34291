"""The chart of an estimate: a bar for each phase, beside the memory of the GPU."""

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

#: Only the first counter is comparable with the bars.
_COUNTERS = {
    "device": N_("Measured: in use on the GPU"),
    "torch-max-allocated": N_("Measured: allocated by PyTorch only"),
    "torch-max-reserved": N_("Measured: reserved by PyTorch only"),
    "not-stated": N_("Measured: counter not stated"),
}
#: Narrower pieces have no letter.
_LETTER = 14
#: The offsets of a bar in its row, and of its letters.
_TOP, _BASE = FONT + 5, 12.5


@dataclass(frozen=True)
class _Bar:
    """The bar of a phase.

    Attributes:
        phase: the phase.
        y: the top of its row, whose first line is the heading.
        is_peak: whether the phase sets the peak.
        pieces: start and end of each category, in bytes.
    """

    phase: Phase
    y: float
    is_peak: bool
    pieces: dict[Category, tuple[float, float]]

    @property
    def top(self) -> float:
        return self.y + _TOP


def phase_chart(estimate: Estimate, title: str, measured: Measured | None) -> Drawing:
    """Draw a bar for each phase, with the numbers of the table by phase.

    Args:
        estimate: of a run.
        title: the name of the chart.
        measured: the figure that the run reported, if any.
    """
    found = measured.gib * GIB if measured and measured.gib else 0.0
    capacity = estimate.capacity
    marks = ticks(max(estimate.high, capacity or 0.0, found) / GIB)
    scale = WIDTH / marks[-1] / GIB
    first = LINE if capacity else 0
    bars = [
        _Bar(phase, first + index * ROW, phase.name == estimate.peak_phase.name, _pieces(phase))
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
    used = [category for category in Category if any(category in line.pieces for line in bars)]
    names = [_(category.heading) for category in used]
    signs, legend, height = flowing(y + 2 * LINE, [*names, _range(estimate)])
    parts += _coloured(bars, dict(zip(used, signs, strict=False)), scale, capacity)
    if capacity:
        parts.append(text_beside(capacity * scale, offered(capacity)))
        parts.append(upright(capacity * scale, [line.top for line in bars]))
    low, high = estimate.low * scale, estimate.high * scale
    parts += [_whisker(low, high, line.top + BAR + 4) for line in bars if line.is_peak]
    x, y = signs[-1]
    parts += [_whisker(x, x + BAR, y + BAR / 2), legend]
    return Drawing(title, _description(estimate, measured), height, tuple(parts))


def _coloured(
    bars: Sequence[_Bar], signs: Mapping[Category, tuple[float, float]], scale: float, capacity: float | None
) -> list[str | Hatched]:
    """Paint the bars, the signs of the legend, everything over the capacity hatched, and the letters."""
    painted: list[str | Hatched] = []
    lettered = []
    for category, (x, top) in signs.items():
        shapes, places = [], []
        for line in bars:
            start, end = line.pieces.get(category, (0.0, 0.0))
            if not end:
                continue
            gap = 0 if category is next(reversed(line.pieces)) else GAP
            shapes.append(bar(start * scale, end * scale - gap, line.top))
            if capacity and start < capacity < end:  # the letter goes into the larger part
                start, end = max((start, capacity), (capacity, end), key=lambda part: part[1] - part[0])
            if (end - start) * scale - GAP >= _LETTER:
                places.append(((start + end) / 2 * scale - GAP / 2, line.top + _BASE))
        painted.append(path([*shapes, bar(x, x + BAR, top)], thick(PAINTS[category].colour)))
        lettered.append((PAINTS[category], [*places, (x + BAR / 2, top + _BASE)]))
    over = [line for line in bars if capacity and line.phase.total > capacity]
    if capacity and over:
        pieces = [bar(capacity * scale, line.phase.total * scale, line.top) for line in over]
        painted.append(Hatched("".join(pieces)))
    return [*painted, letters(lettered)]


def offered(capacity: float) -> str:
    """Name the line across the bars."""
    return _("The GPU offers {size}").format(size=gib(capacity))


def _heading(line: _Bar, capacity: float | None) -> tuple[float, str, str, bool]:
    label = _(line.phase.label)
    if line.is_peak:
        label = _("{phase} (peak)").format(phase=label)
    return line.y + FONT, label, with_excess(line.phase.total, capacity), line.is_peak


def with_excess(size: float, capacity: float | None) -> str:
    """Write a size, and by how much it exceeds the capacity."""
    if not capacity or size <= capacity:
        return gib(size)
    return _("{size}, {excess} over").format(size=gib(size), excess=f"+{gib(size - capacity)}")


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
    """Draw a line that ends in a diamond."""
    return path(f"M0 {short(y)}H{short(x)}", 'stroke="currentColor"') + path(
        f"M{short(x)} {short(y - 7)}l7 7-7 7-7-7z", 'fill="currentColor"'
    )


def _range(estimate: Estimate) -> str:
    return _("Range of the peak: {low} to {high}").format(
        low=gib_number(estimate.low), high=gib(estimate.high)
    )


def _description(estimate: Estimate, measured: Measured | None) -> str:
    """Describe the chart with its numbers; the parts are in the table."""
    sized = _("{part} {size}")
    found = [sized.format(part=_(phase.label), size=gib(phase.total)) for phase in estimate.phases]
    found.append(_("{phase} (peak phase)").format(phase=_(estimate.peak_phase.label)))
    found.append(_range(estimate))
    if estimate.capacity:
        found.append(offered(estimate.capacity))
    if measured and measured.gib:
        found.append(sized.format(part=_(_COUNTERS[measured.counter]), size=gib(measured.gib * GIB)))
    return _("; ").join(found)
