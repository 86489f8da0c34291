"""Bar charts of estimates: memory by phase, and what settings save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..breakdown import Category
from ..i18n import N_, _
from ..units import GIB, gib, gib_number, signed
from .drawing import (
    BAR,
    FONT,
    GAP,
    LINE,
    PAINTS,
    ROW,
    WIDTH,
    Drawing,
    axis,
    bar,
    flowing,
    hatched,
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
    from ..estimator.sweeps import Saving, SavingSteps

#: The prefix of most keys, for which the chart has no room.
_ROOT = "actor_rollout_ref."
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
#: The paint of a sum, of what a step takes away, and of what a step adds.
SUM = f'{thick("currentColor")} stroke-opacity="0.6"'
TAKEN = f'{thick("currentColor")} stroke-opacity="0.6" stroke-dasharray="2 3"'
ADDED = thick(PAINTS[Category.GRADIENTS].colour)


@dataclass(frozen=True)
class Line:
    """A line of a waterfall.

    Attributes:
        label: its name.
        value: its size, with the unit.
        start, end: of its bar, in any unit; 0 is at the left.
        paint: attributes of its bar.
        bold: whether it is a sum.
    """

    label: str
    value: str
    start: float
    end: float
    paint: str
    bold: bool = False


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
    parts: list[str] = []
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
        parts.append(text_beside(capacity * scale, _offered(capacity)))
        parts.append(upright(capacity * scale, [line.top for line in bars]))
    low, high = estimate.low * scale, estimate.high * scale
    parts += [_whisker(low, high, line.top + BAR + 4) for line in bars if line.is_peak]
    x, y = signs[-1]
    parts += [_whisker(x, x + BAR, y + BAR / 2), legend]
    return Drawing(title, _description(estimate, measured), height, tuple(parts))


def _coloured(
    bars: Sequence[_Bar], signs: Mapping[Category, tuple[float, float]], scale: float, capacity: float | None
) -> list[str]:
    """Paint the bars, the signs of the legend, everything over the capacity hatched, and the letters."""
    painted = []
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
    over = [
        bar(capacity * scale, line.phase.total * scale, line.top)
        for line in bars
        if capacity and line.phase.total > capacity
    ]
    return [*painted, hatched(over), letters(lettered)]


def _offered(capacity: float) -> str:
    """Name the line across the bars."""
    return _("The GPU offers {size}").format(size=gib(capacity))


def _heading(line: _Bar, capacity: float | None) -> tuple[float, str, str, bool]:
    label = _(line.phase.label)
    if line.is_peak:
        label = _("{phase} (peak)").format(phase=label)
    return line.y + FONT, label, _with_excess(line.phase.total, capacity), line.is_peak


def _with_excess(size: float, capacity: float | None) -> str:
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
        found.append(_offered(estimate.capacity))
    if measured and measured.gib:
        found.append(sized.format(part=_(_COUNTERS[measured.counter]), size=gib(measured.gib * GIB)))
    return _("; ").join(found)


def savings_chart(sweep: SavingSteps, title: str) -> Drawing:
    """Draw the peak after each setting, with the numbers of the table."""
    capacity = sweep.start.capacity
    lines = _saving_lines(sweep, capacity)
    marks = ticks(max(*(line.end for line in lines), (capacity or 0.0) / GIB))
    scale = WIDTH / marks[-1]
    top = LINE if capacity else 0
    parts = waterfall_lines(lines, scale, top)
    described = [_("{part} {size}").format(part=line.label, size=line.value) for line in lines]
    if capacity:
        label, x = _offered(capacity), capacity / GIB * scale
        tops = [top + index * ROW + FONT + 5 for index in range(len(lines))]
        over = [
            bar(x, line.end * scale, at)
            for line, at in zip(lines, tops, strict=True)
            if line.bold and line.end * scale > x
        ]
        parts += [hatched(over), text_beside(x, label), upright(x, tops)]
        described.append(label)
    bottom = top + len(lines) * ROW + 2
    parts.append(axis(bottom, marks, "GiB"))
    return Drawing(title, _("; ").join(described), bottom + LINE + 5, tuple(parts))


def _saving_lines(sweep: SavingSteps, capacity: float | None) -> list[Line]:
    """Make the bars, in GiB as the axis."""
    before = sweep.start.peak
    made = [Line(_("None of these"), _with_excess(before, capacity), 0, before / GIB, SUM, True)]
    for step in sweep.steps:
        start, end = sorted((before / GIB, step.peak / GIB))
        paint = TAKEN if step.saves >= 0 else ADDED
        made.append(Line(_short_setting(step), _change(step.saves), start, end, paint))
        before = step.peak
    return [*made, Line(_("All of these"), _with_excess(before, capacity), 0, before / GIB, SUM, True)]


def _short_setting(step: Saving) -> str:
    return " ".join(setting.removeprefix(_ROOT) for setting in step.setting.split())


def _change(saves: float) -> str:
    return signed(-saves, gib) if saves else gib(0)


def waterfall_lines(lines: Sequence[Line], scale: float, top: float = 0) -> list[str]:
    """Draw each line with its bar below it.

    Args:
        lines: from top to bottom.
        scale: units of the drawing in a unit of the lines.
        top: the upper edge of the first line.
    """
    made, shown = [], []
    for index, line in enumerate(lines):
        y = top + index * ROW
        made.append(path(bar(line.start * scale, line.end * scale, y + FONT + 5), line.paint))
        shown.append((y + FONT, line.label, line.value, line.bold))
    return [*made, headings(shown)]
