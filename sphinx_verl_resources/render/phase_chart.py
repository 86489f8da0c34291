"""The memory of a run phase by phase as a drawing: a bar for each, against what the GPU offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..units import GIB, gib, gib_number
from ..words import N_, _
from .drawing import (
    BAR,
    COLOURS,
    FONT,
    GAP,
    HATCHED,
    LINE,
    ROW,
    WIDTH,
    axis,
    bar,
    drawing,
    flowing,
    hatching,
    headings,
    letters,
    path,
    short,
    text_beside,
    thick,
    ticks,
    upright,
)
from .estimate import ENGINE, OTHER, OUTSIDE, column_sums

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from docutils import nodes

    from ..catalog.models.run import Measured
    from ..estimator.estimate import Estimate
    from ..estimator.phases import Phase

#: What has one colour, in this order: its letter, its name, and the columns of the table that it adds up.
GROUPS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "weights": ("W", N_("Weights, gathered ones too"), ("Weights", "Gathered")),
    "gradients": ("G", N_("Gradients"), ("Gradients",)),
    "optimizer": ("O", N_("Optimizer"), ("Optimizer",)),
    "activations": ("A", N_("Activations and logits"), ("Activations", "Logits")),
    "kv-cache": ("R", N_("Rollout engine, KV cache"), (ENGINE,)),
    "other": ("X", N_("Outside PyTorch, other"), (OUTSIDE, OTHER)),
}
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
    binding: bool

    @property
    def top(self) -> float:
        return self.y + _TOP


def phase_chart(estimate: Estimate, title: str, measured: Measured | None) -> nodes.container:
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
        _Line(phase, first + index * ROW, phase.name == estimate.binding.name)
        for index, phase in enumerate(estimate.phases)
    ]
    shown = [_heading(line, capacity) for line in bars]
    y = first + len(bars) * ROW
    parts = [path(_pieces_of(key, bars, scale), thick(COLOURS[key])) for key in GROUPS]
    if capacity:
        parts += _over([bar for bar in bars if bar.phase.total > capacity], capacity, scale)
        parts.append(text_beside(capacity * scale, offered(capacity)))
        parts.append(upright(capacity * scale, [line.top for line in bars]))
    parts += [letters(GROUPS[key][0], _letter_places(key, bars, scale, capacity), key) for key in GROUPS]
    low, high = estimate.low * scale, estimate.high * scale
    parts += [_whisker(low, high, line.top + BAR + 4) for line in bars if line.binding]
    if measured and found:
        shown.append((y + FONT, _(_COUNTERS[measured.counter]), gib(found), False))
        parts.append(_mark(found * scale, y + _TOP + BAR / 2))
        y += ROW
    parts.append(headings(shown))
    parts.append(axis(y + 2, marks, "GiB"))
    legend, height = flowing(y + 2 * LINE, _legend(estimate, bars))
    return drawing(title, _description(estimate, measured), height, [*parts, legend])


def offered(capacity: float) -> str:
    """What the line across the bars means."""
    return _("The GPU offers {size}").format(size=gib(capacity))


def _heading(line: _Line, capacity: float | None) -> tuple[float, str, str, bool]:
    label, total = _(line.phase.label), gib(line.phase.total)
    if line.binding:
        label = _("{phase} (binding)").format(phase=label)
    if capacity and line.phase.total > capacity:
        total = _("{size}, {excess} over").format(size=total, excess=f"+{gib(line.phase.total - capacity)}")
    return line.y + FONT, label, total, line.binding


def _pieces_of(key: str, bars: Sequence[_Line], scale: float) -> list[str]:
    """All pieces of one colour. Each ends where the next begins, less a gap; the last one at the total."""
    made = []
    for line in bars:
        for name, start, size in _pieces(line.phase):
            if name == key and size:
                last = start + size >= line.phase.total * (1 - 1e-9)
                made.append(bar(start * scale, (start + size) * scale - (0 if last else GAP), line.top))
    return made


def _over(bars: Sequence[_Line], capacity: float, scale: float) -> list[str]:
    """What is beyond the capacity, hatched."""
    if not bars:
        return []
    pieces = [bar(capacity * scale, line.phase.total * scale, line.top) for line in bars]
    return [hatching(), path(pieces, HATCHED)]


def _letter_places(
    key: str, bars: Sequence[_Line], scale: float, capacity: float | None
) -> list[tuple[float, float]]:
    """The middles of the pieces of one colour that are wide enough; of what a line cuts the larger part."""
    found = []
    for line in bars:
        for name, start, size in _pieces(line.phase):
            ends = start, start + size
            if capacity and start < capacity < start + size:
                ends = max((start, capacity), (capacity, start + size), key=lambda part: part[1] - part[0])
            if name == key and (ends[1] - ends[0]) * scale - GAP >= _LETTER:
                found.append((sum(ends) / 2 * scale - GAP / 2, line.top + _BASE))
    return found


def _pieces(phase: Phase) -> Iterator[tuple[str, float, float]]:
    """The groups with where each begins and how large it is, in bytes."""
    sums, start = column_sums(phase), 0.0
    for key, (_letter, _name, columns) in GROUPS.items():
        size = sum(sums.get(column, 0.0) for column in columns)
        yield key, start, size
        start += size


def _whisker(low: float, high: float, y: float) -> str:
    d = f"M{short(low)} {short(y - 2)}v4m0-2h{short(high - low)}m0-2v4"
    return path(d, 'fill="none" stroke="currentColor" stroke-width="1.5"')


def _mark(x: float, y: float) -> str:
    """A line that ends in a diamond."""
    return path(f"M0 {short(y)}H{short(x)}", 'stroke="currentColor"') + path(
        f"M{short(x)} {short(y - 7)}l7 7-7 7-7-7z", 'fill="currentColor"'
    )


def _legend(estimate: Estimate, bars: Sequence[_Line]) -> Iterator[tuple[str, str]]:
    shown = {key for line in bars for key, start, size in _pieces(line.phase) if size}
    for key, (letter, name, _columns) in GROUPS.items():
        if key in shown:
            sign = path(bar(0, BAR, 0), thick(COLOURS[key]))
            yield sign + letters(letter, [(BAR / 2, _BASE)], key), _(name)
    yield _whisker(0, BAR, BAR / 2), _range(estimate)


def _range(estimate: Estimate) -> str:
    return _("Range of the peak: {low} to {high}").format(
        low=gib_number(estimate.low), high=gib(estimate.high)
    )


def _description(estimate: Estimate, measured: Measured | None) -> str:
    """What can be seen, with the numbers; the parts are in the table."""
    sized = _("{part} {size}")
    found = [sized.format(part=_(phase.label), size=gib(phase.total)) for phase in estimate.phases]
    found.append(_("{phase} (binding phase)").format(phase=_(estimate.binding.label)))
    found.append(_range(estimate))
    if estimate.capacity:
        found.append(offered(estimate.capacity))
    if measured and measured.gib:
        found.append(sized.format(part=_(_COUNTERS[measured.counter]), size=gib(measured.gib * GIB)))
    return _("; ").join(found)
