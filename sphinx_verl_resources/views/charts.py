"""Bar charts of estimates: memory by phase, and what settings save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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
    from ..estimator.sweeps import SavingSteps

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


class Piece(NamedTuple):
    """A piece of a bar.

    Attributes:
        start, end: in any unit; 0 is at the left.
        paint: its attributes.
    """

    start: float
    end: float
    paint: str


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        label: its name.
        value: its size, with the unit.
        pieces: its bar, from left to right; none if something else is drawn there.
        bold: whether it is a sum or the peak.
    """

    label: str
    value: str
    pieces: tuple[Piece, ...] = ()
    bold: bool = False

    @property
    def end(self) -> float:
        """The right end of its bar."""
        return self.pieces[-1].end if self.pieces else 0.0


@dataclass(frozen=True)
class Bars:
    """Lines with a bar below each, from top to bottom.

    Attributes:
        lines: the lines.
        scale: units of the drawing in a unit of the lines.
        capacity: in the unit of the lines; a line across the bars, and what exceeds it is hatched.
    """

    lines: Sequence[Line]
    scale: float
    capacity: float | None = None

    @property
    def first(self) -> int:
        """The upper edge of the first line, below the words of the capacity."""
        return LINE if self.capacity else 0

    @property
    def bottom(self) -> int:
        """The lower edge."""
        return self.first + ROW * len(self.lines)

    @property
    def rows(self) -> list[tuple[Line, int]]:
        """Each line, with the upper edge of its bar."""
        return [(line, self.first + index * ROW + _TOP) for index, line in enumerate(self.lines)]

    def draw(self) -> list[str]:
        """Draw bars and words."""
        shapes: dict[tuple[str, int], list[str]] = {}
        over = []
        for index, (line, top) in enumerate(self.rows):
            for piece in line.pieces:
                gap = 0 if piece is line.pieces[-1] else GAP
                shape = bar(piece.start * self.scale, piece.end * self.scale - gap, top)
                # One element for each category of all phases takes fewer bytes.
                shapes.setdefault((piece.paint, 0 if len(line.pieces) > 1 else index), []).append(shape)
            # A bar that begins further to the right is no total.
            if self.capacity and line.end > self.capacity and line.pieces[0].start == 0:
                over.append(bar(self.capacity * self.scale, line.end * self.scale, top))
        painted = [path(d, paint) for (paint, _index), d in shapes.items()]
        words = [(top - _TOP + FONT, line.label, line.value, line.bold) for line, top in self.rows]
        drawn = [*painted, hatched(over), headings(words), *self._across()]
        return [shape for shape in drawn if shape]

    def _across(self) -> list[str]:
        """Draw the line of the capacity, and its words."""
        if not self.capacity:
            return []
        x = self.capacity * self.scale
        tops = [top for line, top in self.rows if line.pieces]
        return [text_beside(x, _offered(self.capacity)), upright(x, tops)]


def phase_chart(estimate: Estimate, title: str, measured: Measured | None) -> Drawing:
    """Draw a bar for each phase, with the numbers of the table by phase.

    Args:
        estimate: of a run.
        title: the name of the chart.
        measured: the figure that the run reported, if any.
    """
    found = measured.gib * GIB if measured and measured.gib else 0.0
    marks = ticks(max(estimate.high, estimate.capacity or 0.0, found) / GIB)
    lines = [_phase_line(phase, estimate) for phase in estimate.phases]
    if measured and found:
        lines.append(Line(_(_COUNTERS[measured.counter]), gib(found)))
    bars = Bars(lines, WIDTH / marks[-1] / GIB, estimate.capacity)
    scale = bars.scale
    used = [category for category in Category if any(phase.sizes[category] for phase in estimate.phases)]
    names = [_(category.heading) for category in used]
    signs, legend, height = flowing(bars.bottom + 2 * LINE, [*names, _range(estimate)])
    parts = [*bars.draw(), *_letters(bars, dict(zip(used, signs, strict=False)))]
    if found:
        parts.append(_mark(found * scale, bars.rows[-1][1] + BAR / 2))
    parts.append(axis(bars.bottom + 2, marks, "GiB"))
    peak = next(top for line, top in bars.rows if line.bold)
    parts.append(_whisker(estimate.low * scale, estimate.high * scale, peak + BAR + 4))
    x, y = signs[-1]
    parts += [_whisker(x, x + BAR, y + BAR / 2), legend]
    return Drawing(title, _description(estimate, measured), height, tuple(parts))


def _phase_line(phase: Phase, estimate: Estimate) -> Line:
    is_peak = phase.name == estimate.peak_phase.name
    label = _("{phase} (peak)").format(phase=_(phase.label)) if is_peak else _(phase.label)
    pieces, end = [], 0.0
    for category, size in phase.sizes.items():
        start, end = end, end + size
        if size:
            pieces.append(Piece(start, end, _paint(category)))
    return Line(label, _with_excess(phase.total, estimate.capacity), tuple(pieces), is_peak)


def _paint(category: Category) -> str:
    return thick(PAINTS[category].colour)


def _letters(bars: Bars, signs: Mapping[Category, tuple[float, float]]) -> list[str]:
    """Draw the signs of the legend, and the letter of each category on them and on its pieces."""
    lettered = {_paint(category): [(x + BAR / 2, y + _BASE)] for category, (x, y) in signs.items()}
    capacity = bars.capacity
    for line, top in bars.rows:
        for start, end, paint in line.pieces:
            left, right = start, end
            if capacity and start < capacity < end:  # the letter goes into the larger part
                left, right = max((start, capacity), (capacity, end), key=lambda part: part[1] - part[0])
            if (right - left) * bars.scale - GAP >= _LETTER:
                lettered[paint].append(((left + right) / 2 * bars.scale - GAP / 2, top + _BASE))
    drawn = [path(bar(x, x + BAR, y), _paint(category)) for category, (x, y) in signs.items()]
    return [*drawn, letters((PAINTS[category], lettered[_paint(category)]) for category in signs)]


def _offered(capacity: float) -> str:
    """Name the line across the bars."""
    return _("The GPU offers {size}").format(size=gib(capacity))


def _with_excess(size: float, capacity: float | None) -> str:
    """Write a size, and by how much it exceeds the capacity."""
    if not capacity or size <= capacity:
        return gib(size)
    return _("{size}, {excess} over").format(size=gib(size), excess=f"+{gib(size - capacity)}")


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
    capacity, peak = sweep.start.capacity, sweep.start.peak
    lines = [_total(_("None of these"), peak, capacity)]
    for step in sweep.steps:
        start, end = sorted((peak, step.peak))
        setting = " ".join(word.removeprefix(_ROOT) for word in step.setting.split())
        value = signed(-step.saves, gib) if step.saves else gib(0)
        lines.append(Line(setting, value, (Piece(start, end, TAKEN if step.saves >= 0 else ADDED),)))
        peak = step.peak
    lines.append(_total(_("All of these"), peak, capacity))
    marks = ticks(max(*(line.end for line in lines), capacity or 0.0) / GIB)
    bars = Bars(lines, WIDTH / marks[-1] / GIB, capacity)
    described = [_("{part} {size}").format(part=line.label, size=line.value) for line in lines]
    described += [_offered(capacity)] if capacity else []
    parts = (*bars.draw(), axis(bars.bottom + 2, marks, "GiB"))
    return Drawing(title, _("; ").join(described), bars.bottom + LINE + 7, parts)


def _total(label: str, size: float, capacity: float | None) -> Line:
    return Line(label, _with_excess(size, capacity), (Piece(0, size, SUM),), bold=True)
