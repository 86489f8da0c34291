"""The bar chart of an estimate: memory by phase."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from docutils.utils import column_width

from ..charts import BAR, FONT, NAME, WIDTH, Drawing, short, text
from ..i18n import N_, _
from ..units import GIB, Category, gib, gib_number, short_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..memory.estimate import Estimate
    from ..memory.phases import Phase
    from ..records import Measured

#: Only the first counter is comparable with the bars.
_COUNTERS = {
    "device": N_("Measured: in use on the GPU"),
    "torch-max-allocated": N_("Measured: allocated by PyTorch only"),
    "torch-max-reserved": N_("Measured: reserved by PyTorch only"),
    "not-stated": N_("Measured: counter not stated"),
}
#: The letter of each category on its pieces of bars, and the colour of the letter.
LETTERS: Mapping[Category, tuple[str, str]] = {
    Category.WEIGHTS: ("W", "#fff"),
    Category.GRADIENTS: ("G", "#000"),
    Category.OPTIMIZER: ("O", "#fff"),
    Category.ACTIVATIONS: ("A", "#000"),
    Category.LOGITS: ("L", "#000"),
    Category.GATHERED: ("U", "#000"),
    Category.ROLLOUT_ENGINE: ("R", "#fff"),
    Category.RUNTIME_OVERHEAD: ("X", "#000"),
}
#: The height of a line of text.
LINE = 18
#: The space between pieces of a bar.
GAP = 2
#: Widths of characters in parts of the font size, rounded up: wide ones, capitals, narrow ones, others.
_WIDE, _CAPITAL, _NARROW, _OTHER = 1.0, 0.75, 0.38, 0.61
#: Narrower pieces have no letter.
_LETTER = 12
#: The space below a bar, and the base of its letters.
_SPACE, _BASE = 9, 13


class Piece(NamedTuple):
    """A piece of a bar.

    Attributes:
        start, end: its ends, in any unit; 0 is at the left.
        paint: its SVG attributes.
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
        pieces: the pieces of its bar, from left to right; none if something else is drawn there.
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


class Row(NamedTuple):
    """A line with its position.

    Attributes:
        line: the line.
        label: its label, broken into lines of text.
        y: the upper edge of the label.
    """

    line: Line
    label: Sequence[str]
    y: int

    @property
    def top(self) -> int:
        """The upper edge of its bar."""
        return self.y + LINE * len(self.label) + 1


@dataclass(frozen=True)
class Bars:
    """Lines with a bar below each, from top to bottom.

    Attributes:
        lines: the lines.
        scale: units of the drawing per unit of the lines.
        capacity: in the unit of the lines; marked on each bar, which is hatched beyond the mark.
    """

    lines: Sequence[Line]
    scale: float
    capacity: float | None = None

    @cached_property
    def rows(self) -> list[Row]:
        """The lines with their positions."""
        rows, y = [], 0
        for line in self.lines:
            row = Row(line, wrap(line.label, width_of(line.value) + FONT), y)
            rows.append(row)
            y = row.top + BAR + _SPACE
        return rows

    @property
    def bottom(self) -> int:
        """The lower edge."""
        return self.rows[-1].top + BAR + _SPACE if self.rows else 0

    @property
    def excess(self) -> float:
        """The largest excess of a bar over the capacity."""
        ends = [line.end for line in self.lines]
        return max(0.0, max(ends, default=0.0) - self.capacity) if self.capacity else 0.0

    @property
    def keys(self) -> list[Key]:
        """The legend entries of the marks and of the hatching."""
        keys = []
        if self.capacity:
            offered = _offered(self.capacity)
            keys.append(Key(offered, lambda x, y: upright(x + BAR / 2, [y])))
        if self.excess:
            words = _("Over capacity, by up to {size}").format(size=gib(self.excess))
            keys.append(Key(words, lambda x, y: path(bar(x, x + BAR, y), HATCH)))
        return keys

    def draw(self) -> list[str]:
        """Draw bars and words."""
        shapes: dict[str, list[str]] = {}  # one element per paint saves bytes
        over = []
        for row in self.rows:
            line = row.line
            for piece in line.pieces:
                gap = 0 if piece is line.pieces[-1] else GAP
                shape = bar(piece.start * self.scale, piece.end * self.scale - gap, row.top)
                shapes.setdefault(piece.paint, []).append(shape)
            if self.capacity and line.end > self.capacity:
                over.append(bar(self.capacity * self.scale, line.end * self.scale, row.top))
        painted = [path(d, paint) for paint, d in shapes.items()]
        words = [(row.y + FONT, row.label, row.line.value, row.line.bold) for row in self.rows]
        crossed = [row.top for row in self.rows if row.line.pieces]
        marks = upright(self.capacity * self.scale, crossed) if self.capacity else ""
        return [shape for shape in (*painted, hatched(over), headings(words), marks) if shape]


def phase_chart(estimate: Estimate, title: str, measured: Measured | None) -> Drawing:
    """Draw a bar for each phase, with the numbers of the table by phase.

    Args:
        estimate: the estimate of a run.
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
    keys = [bar_key(_(category.heading), _paint(category)) for category in used]
    keys.append(Key(_range(estimate), lambda x, y: _whisker(x, x + BAR, y + BAR / 2)))
    signs, legend, height = draw_legend(bars.bottom + 2 * LINE, [*keys, *bars.keys])
    parts = [*bars.draw(), legend, _letters(bars, dict(zip(used, signs, strict=False)))]
    if found:
        parts.append(_mark(found * scale, bars.rows[-1].top + BAR / 2))
    parts.append(axis(bars.bottom + 2, marks, "GiB"))
    peak = next(row.top for row in bars.rows if row.line.bold)
    parts.append(_whisker(estimate.low * scale, estimate.high * scale, peak + BAR + 4))
    return Drawing(title, _description(estimate, measured), height, tuple(parts))


def _phase_line(phase: Phase, estimate: Estimate) -> Line:
    is_peak = phase.name == estimate.peak_phase.name
    label = _("{phase} (peak)").format(phase=_(phase.label)) if is_peak else _(phase.label)
    pieces, end = [], 0.0
    for category, size in phase.sizes.items():
        start, end = end, end + size
        if size:
            pieces.append(Piece(start, end, _paint(category)))
    return Line(label, gib(phase.total), tuple(pieces), is_peak)


def _paint(category: Category) -> str:
    return thick(category.colour)


def _letters(bars: Bars, signs: Mapping[Category, tuple[float, float]]) -> str:
    """Write the letter of each category on its sign in the legend and on its pieces of bars."""
    lettered = {_paint(category): [(x + BAR / 2, y + _BASE)] for category, (x, y) in signs.items()}
    capacity = bars.capacity
    for row in bars.rows:
        for start, end, paint in row.line.pieces:
            left, right = start, end
            if capacity and start < capacity < end:  # the letter goes into the larger part
                left, right = max((start, capacity), (capacity, end), key=lambda part: part[1] - part[0])
            if (right - left) * bars.scale - GAP >= _LETTER:
                middle = (left + right) / 2 * bars.scale - GAP / 2
                lettered[paint].append((middle, row.top + _BASE))
    return letters((LETTERS[category], lettered[_paint(category)]) for category in signs)


def _offered(capacity: float) -> str:
    """Return the words for the marks on the bars."""
    return _("GPU capacity: {size}").format(size=gib(capacity))


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
    """Return a description of the chart with its numbers; the parts are in the table."""
    sized = _("{part} {size}")
    found = [sized.format(part=_(phase.label), size=gib(phase.total)) for phase in estimate.phases]
    found.append(_("{phase} (peak phase)").format(phase=_(estimate.peak_phase.label)))
    found.append(_range(estimate))
    if estimate.capacity:
        found.append(_offered(estimate.capacity))
    if measured and measured.gib:
        found.append(sized.format(part=_(_COUNTERS[measured.counter]), size=gib(measured.gib * GIB)))
    return _("; ").join(found)


# -- shapes


def bar(start: float, end: float, y: float) -> str:
    """Return a bar as path data, at least one unit long; ``thick`` sets its width."""
    left = round(start)
    return f"M{left} {short(y + BAR / 2)}h{max(round(end) - left, 1)}"


def path(d: Sequence[str] | str, attributes: str) -> str:
    """Write one element for many shapes; nothing if there are none."""
    return f'<path {attributes} d="{"".join(d)}"/>' if d else ""


def thick(colour: str) -> str:
    """Return the attributes that paint bars."""
    return f'stroke-width="{BAR}" stroke="{colour}"'


def headings(lines: Iterable[tuple[float, Sequence[str], str, bool]]) -> str:
    """Write the words beside or above bars: labels on the left, values on the right.

    Args:
        lines: for each bar, the base of the first line, the label's lines, the value, and whether it is bold.
    """
    left, right = "", ""  # the values have no place across; their group aligns them
    for y, label, value, bold in lines:
        left += "".join(text(0, y + index * LINE, line, bold=bold) for index, line in enumerate(label))
        right += text(0, y, value, bold=bold)
    return f'{left}<g transform="translate({WIDTH})" text-anchor="end">{right}</g>'


class Key(NamedTuple):
    """An entry of a legend: its words, and a function that draws its sign, given the upper left corner."""

    words: str
    sign: Callable[[float, float], str]


def bar_key(words: str, paint: str) -> Key:
    """Return the legend entry of a paint."""
    return Key(words, lambda x, y: path(bar(x, x + BAR, y), paint))


def draw_legend(y: float, keys: Sequence[Key]) -> tuple[list[tuple[float, float]], str, float]:
    """Draw signs and words; return the places of the signs, the drawing, and the lower edge.

    A sign is as large as a bar is thick.
    """
    places: list[tuple[float, float]] = []
    svg, x = "", 0.0
    for key in keys:
        shown = clip(key.words, WIDTH - LINE - 4)
        needed = LINE + 4 + width_of(shown)
        if x and x + needed > WIDTH:
            x, y = 0.0, y + LINE + 3
        places.append((round(x), y))
        svg += key.sign(*places[-1]) + text(round(x) + LINE + 4, y + 13, shown)
        x += needed + FONT
    return places, svg, y + LINE


def width_of(content: str) -> float:
    """Return the width in units of a line of text in a rather wide font."""
    return sum(map(_width, content)) * FONT


def clip(content: str, room: float) -> str:
    """Cut a text to ``room`` units, ending with an ellipsis if it is too long.

    >>> clip("actor.use_dynamic_bsz", 100)
    'actor.use_d…'
    """
    if width_of(content) <= room:
        return content
    left, kept = room / FONT - _WIDE, 0
    while kept < len(content) and left >= _width(content[kept]):
        left -= _width(content[kept])
        kept += 1
    return content[:kept].rstrip() + "…"


def _width(character: str) -> float:
    if column_width(character) > 1 or character in "MWmw%@—…":
        return _WIDE
    if character.isupper():
        return _CAPITAL
    return _NARROW if character in " ijlftr.,:;|()" else _OTHER


def hatched(d: Sequence[str]) -> str:
    """Hatch bars that are over a capacity; nothing if there are none."""
    if not d:
        return ""
    return (
        f'<pattern id="{NAME}--over" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path d="M0 0v6" stroke="currentColor" stroke-width="2"/>'
        f"</pattern>{path(d, HATCH)}"
    )


#: The attributes of hatched bars; ``hatched`` draws their pattern.
HATCH = thick(f"url(#{NAME}--over)")


def letters(found: Iterable[tuple[tuple[str, str], Sequence[tuple[float, float]]]]) -> str:
    """Write letters, each with its colour, at their places, each the middle of a piece of a bar."""
    svg = ""
    for (letter, ink), places in found:
        if places:
            xs, ys = (" ".join(map(short, numbers)) for numbers in zip(*places, strict=True))
            svg += f'<text x="{xs}" y="{ys}" fill="{ink}">{letter * len(places)}</text>'
    return f'<g text-anchor="middle">{svg}</g>' if svg else ""


def ticks(most: float) -> list[float]:
    """Return at most six round numbers, from 0 to at least ``most``.

    >>> ticks(79.2), ticks(0.31)
    ([0.0, 20.0, 40.0, 60.0, 80.0], [0.0, 0.1, 0.2, 0.3, 0.4])
    """
    size = 10.0 ** math.floor(math.log10(most)) if most > 0 else 1.0
    steps = (size * factor for factor in (0.1, 0.2, 0.25, 0.5, 1, 2, 5))
    step = next(step for step in steps if step * 5 >= most * (1 - 1e-9))
    return [round(step * index, 10) for index in range(max(1, math.ceil(most / step - 1e-9)) + 1)]


def axis(y: float, marks: Sequence[float], unit: str) -> str:
    """Draw a line from edge to edge, with the numbers of ``marks`` below it; the first has the unit."""
    scale = WIDTH / marks[-1]
    lines = "".join(f"M{short(mark * scale)} {short(y)}v5" for mark in marks[1:-1])
    svg = path(f"M0 {short(y + 5)}v-5h{WIDTH}v5{lines}", 'fill="none" stroke="currentColor"')
    for mark in marks:
        anchor = "start" if mark == 0 else "end" if mark == marks[-1] else "middle"
        number = short_number(mark)
        svg += text(mark * scale, y + LINE, number if mark else f"{number} {unit}", anchor=anchor)
    return svg


#: The attributes of a line across bars.
UPRIGHT = 'stroke="currentColor" stroke-width="3"'


def upright(x: float, tops: Iterable[float]) -> str:
    """Draw a line across the bars that begin at ``tops``, but not across the words between them."""
    inside = short(min(max(x, 1.5), WIDTH - 1.5))
    return path([f"M{inside} {short(top - 1)}v{BAR + 3}" for top in tops], UPRIGHT)


def wrap(content: str, beside: float) -> list[str]:
    """Break a text into lines: at spaces, words at dots, and their parts at underscores.

    Args:
        content: the text; a part that is too long for a line and cannot break ends with an ellipsis.
        beside: the units of the first line that are already used.

    >>> wrap("model.enable_gradient_checkpointing=True", 90)
    ['model.', 'enable_gradient_checkpointing=True']
    """
    lines = [""]

    def place(piece: str, breaks: str) -> None:
        room = WIDTH - (beside if len(lines) == 1 else 0.0)
        if width_of((lines[-1] + piece).rstrip()) <= room:
            lines[-1] += piece
        elif breaks and (not lines[-1] or width_of(piece) > WIDTH):
            for part in re.split(f"(?<={re.escape(breaks[0])})", piece):
                place(part, breaks[1:])
        elif lines[-1]:
            lines.append("")
            place(piece, breaks)
        else:
            lines[-1] = clip(piece, room)

    place(content, " ._")
    return [line.rstrip() for line in lines]
