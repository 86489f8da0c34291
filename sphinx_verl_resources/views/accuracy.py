"""Computed and observed memory: the errors by group, every case, and a plot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from docutils import nodes

from ..breakdown import Category
from ..catalog.names import EASYR1, FSDP, FSDP_TODAY, MEGATRON, OTHER, TRAINING
from ..estimator.backtest import GROUPS
from ..i18n import N_, _, plural
from ..units import GIB, gib_number, percent, share, short_number
from .blocks import numbered_notes, recorded
from .charts import Key, draw_legend
from .drawing import BAR, FONT, LINE, PAINTS, WIDTH, Drawing, path, text
from .table import PATH_CLASS, Cell, column_table
from .verdicts import label, short

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..catalog.models.case import Case
    from ..catalog.models.registries import Accuracy
    from ..catalog.names import Verdict
    from ..estimator.backtest import Outcomes, Score

#: The outcomes of cases without a compared figure.
_OUTCOMES = {"fits": N_("ran"), "oom": N_("out of memory"), "measured": N_("ran")}
#: The agreement of a verdict with the outcome.
_AGREES = {True: N_("{verdict}: agrees"), False: N_("{verdict}: contradicts")}
_INSIDE = {True: N_("yes"), False: N_("no"), None: ""}


def summary_rows(summaries: Iterable[Accuracy]) -> nodes.tgroup:
    """Make one row per group."""
    return column_table(summaries, [
        (_("Compared with"), lambda item: Cell.of(_(GROUPS[item.name]))),
        (_("Cases (n)"), lambda item: Cell.number(short_number(item.cases))),
        (_("Mean error"), lambda item: Cell.number(share(item.mean_error))),
        (_("Mean error, fitted to other sources"), lambda item: Cell.number(share(item.out_of_fold))),
        (_("Median error"), lambda item: Cell.number(share(item.median_error))),
        (_("Worst error"), lambda item: Cell.number(share(item.worst_error))),
        (_("Inside the range"), lambda item: Cell.number(share(item.inside))),
        (_("Half width of the range"), lambda item: Cell.number(f"±{share(item.half_width)}")),
    ])  # fmt: skip


def verdict_rows(counts: Mapping[Verdict, Outcomes]) -> nodes.tgroup:
    """Make one row per verdict, with the numbers of cases by outcome."""
    return column_table(counts.items(), [
        (_("Verdict"), lambda item: Cell.of(label(item[0]))),
        (_("Ran (n)"), lambda item: Cell.number(short_number(item[1].ran))),
        (_("Out of memory (n)"), lambda item: Cell.number(short_number(item[1].oom))),
    ])  # fmt: skip


def case_rows(scores: Iterable[Score], marks: Mapping[str, tuple[str, str]]) -> nodes.tgroup:
    """Make one row per case.

    Args:
        scores: the cases.
        marks: by the reason why a case does not count, the mark and the id of that reason.
    """

    def judged(item: Score) -> Cell:
        return Cell([(_inside(item), None)], marks=[marks[note]] if (note := reason(item)) else ())

    return column_table(scores, [
        (_("Case and source"), lambda item: _case(item.case)),
        (_("Model"), lambda item: Cell.of(item.case.model.rpartition("/")[2])),
        (_("GPUs"), lambda item: Cell.of(_gpus(item.case))),
        (_("Compared"), lambda item: Cell.of(_compared(item))),
        (_("Computed (GiB)"), lambda item: Cell.number(_computed(item)[0])),
        (_("Range (GiB)"), lambda item: Cell.of(_computed(item)[1])),
        (_("Observed (GiB)"), _observed),
        (_("Error"), lambda item: Cell.number(_error(item))),
        (_("Inside, or verdict"), judged),
    ])  # fmt: skip


def reason(item: Score) -> str:
    """Return the reason why a case does not count; empty if it does."""
    text = item.case.contested or item.case.not_scored or item.error
    return " ".join((text or "").split())


def reason_list(reasons: Iterable[str], targets: Mapping[str, nodes.target]) -> nodes.enumerated_list:
    """Return the list of reasons why cases do not count, each with the target and the number of its marks."""
    return numbered_notes(*(recorded("", targets[text], nodes.Text(text)) for text in reasons))


def _gpus(case: Case) -> str:
    count = short_number(case.gpus.count) if case.gpus.count else "?"
    return f"{count}*{case.gpus.type}" if case.gpus.type else count


def _compared(item: Score) -> str:
    if item.observed is None:
        return _("outcome")
    if item.figure == "peak":
        return _("peak of the GPU")
    return _("PyTorch's counter")


def _computed(item: Score) -> tuple[str, str]:
    """Return the compared figure, otherwise the peak, and its range; empty texts without an estimate."""
    if item.computed is not None and item.low is not None and item.high is not None:
        figure, low, high = item.computed, item.low, item.high
    elif item.estimate:
        figure, low, high = item.estimate.peak, item.estimate.low, item.estimate.high
    else:
        return "", ""
    return gib_number(figure), _("{low} to {high}").format(low=gib_number(low), high=gib_number(high))


def _observed(item: Score) -> Cell:
    """Return the observed figure, otherwise the outcome."""
    if item.observed:
        return Cell.number(gib_number(item.observed))
    return Cell.of(_(_OUTCOMES.get(item.case.outcome or "", "")))


def _error(item: Score) -> str:
    """Write the error to a tenth of a per cent, in brackets if the case does not count."""
    if item.deviation is None:
        return ""
    text = percent(round(item.deviation, 3) + 0.0)  # no minus before zero
    return text if item.case.is_scored else f"({text})"


def _inside(item: Score) -> str:
    """Return whether the figure is inside the range, the verdict, or that the case does not count."""
    if item.case.contested:
        return _("contested")
    if item.case.not_scored:
        return _("not scored")
    if item.error:
        return _("not estimated")
    if item.observed is not None:
        return _(_INSIDE[item.inside])
    verdict = short(item.verdict, item.estimate.fits_up_to_tokens if item.estimate else None)
    return verdict if item.agrees is None else _(_AGREES[item.agrees]).format(verdict=verdict)


def _case(case: Case) -> Cell:
    """Return the id as a link to its source."""
    return Cell([(case.id, case.source.address if case.source else None)], classes=(PATH_CLASS,))


class Sign(NamedTuple):
    """The sign of a group's points.

    Attributes:
        colour: the colour of the points and of their ranges.
        attributes: the attributes of the path, with ``{}`` for the colour.
        shape: the path data after the ``M`` to the middle.
    """

    colour: str
    attributes: str
    shape: str

    def path(self, middles: Iterable[str]) -> str:
        """Draw the sign at each of the coordinates."""
        attributes = self.attributes.format(self.colour)
        return path([f"M{middle}{self.shape}" for middle in middles], attributes)


_LINE = 'stroke="{}" stroke-width="7" stroke-linecap='
SIGNS = {
    TRAINING: Sign(PAINTS[Category.WEIGHTS].colour, f'{_LINE}"round"', "h0"),
    FSDP: Sign(PAINTS[Category.GRADIENTS].colour, f'{_LINE}"square"', "h0"),
    FSDP_TODAY: Sign(PAINTS[Category.GATHERED].colour, 'fill="{}"', "m-5-5h10v10h-10z"),
    MEGATRON: Sign(PAINTS[Category.LOGITS].colour, 'fill="{}"', "m0 6-6-10h12z"),
    EASYR1: Sign(PAINTS[Category.OPTIMIZER].colour, 'fill="{}"', "m0-6 6 10h-12z"),
    OTHER: Sign(PAINTS[Category.ACTIVATIONS].colour, 'fill="{}"', "m0-6 5 6-5 6-5-6z"),
}
_THIN = 'stroke="currentColor"'
_DASHED = f'{_THIN} stroke-dasharray="6 4"'
#: The edges of the axes.
_LEFT, _RIGHT, _TOP, _BOTTOM = 36, WIDTH - 14, 26, 330


@dataclass(frozen=True)
class _Scale:
    """The map from bytes to units of the drawing, the same on both axes."""

    marks: tuple[float, ...]

    def x(self, size: float) -> int:
        return round(_LEFT + (_RIGHT - _LEFT) * self._share(size))

    def y(self, size: float) -> int:
        return round(_BOTTOM - (_BOTTOM - _TOP) * self._share(size))

    def _share(self, size: float) -> float:
        first, last = self.marks[0], self.marks[-1]
        return min(1.0, max(0.0, math.log(size / GIB / first) / math.log(last / first)))


def plotted(scores: Iterable[Score]) -> list[Score]:
    """Return the cases of the plot and its table: scored ones with a computed and an observed value."""
    return [item for item in scores if item.case.is_scored and item.deviation is not None and item.computed]


def accuracy_plot(scores: Sequence[Score], title: str) -> Drawing:
    """Draw a point for each case, with its range as a vertical line; on the diagonal both values are equal.

    Args:
        scores: at least one case from ``plotted``.
        title: the name of the chart.
    """
    sizes = [size for item in scores for size in (item.computed, item.observed, item.low, item.high) if size]
    scale = _Scale(log_marks(min(sizes) / GIB, max(sizes) / GIB))
    groups = {group: [item for item in scores if item.group == group] for group in GROUPS}
    parts = [*_axes(scale)]
    for group, own in groups.items():
        parts.append(path([_upright(item, scale) for item in own], f'stroke="{SIGNS[group].colour}"'))
    for group, own in groups.items():
        parts.append(SIGNS[group].path(_middle(item, scale) for item in own))
    keys = _legend(group for group, own in groups.items() if own)
    _places, legend, height = draw_legend(_BOTTOM + 3 * LINE, keys)
    described = [
        _("{part}: {cases}").format(part=_(GROUPS[group]), cases=_count(own))
        for group, own in groups.items()
        if own
    ]
    inside = sum(item.inside is True for item in scores) / len(scores)
    described.append(_("{share} of the observed values inside the range").format(share=share(inside)))
    return Drawing(title, _("; ").join(described), height, (*parts, legend))


def log_marks(least: float, most: float) -> tuple[float, ...]:
    """Return 1, 2 and 5 times powers of ten, from below the least value to above the largest.

    >>> log_marks(3.2, 71)
    (2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
    """
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    every = [round(factor * 10.0**power, 12) for power in range(first, last + 1) for factor in (1, 2, 5)]
    below = [mark for mark in every if mark <= least][-1:]
    above = [mark for mark in every if mark >= most][:1]
    marks = tuple(mark for mark in every if below[0] <= mark <= above[0])
    return marks if len(marks) > 1 else (marks[0], 2 * marks[0])


def _axes(scale: _Scale) -> Iterator[str]:
    """Draw both axes with marks and titles, and the diagonal."""
    ends = scale.marks[0] * GIB, scale.marks[-1] * GIB
    lines = f"M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}"
    for mark in scale.marks:
        x, y = scale.x(mark * GIB), scale.y(mark * GIB)
        lines += f"M{x} {_BOTTOM}v5M{_LEFT} {y}h-5"
        yield text(x, _BOTTOM + LINE, short_number(mark), anchor="middle")
        yield text(_LEFT - 8, y + 5, short_number(mark), anchor="end")
    yield path(lines, 'fill="none" stroke="currentColor"')
    slope = f"M{scale.x(ends[0])} {scale.y(ends[0])}L{scale.x(ends[1])} {scale.y(ends[1])}"
    yield path(slope, _DASHED)
    yield text(0, FONT, _("Computed (GiB)"))
    yield text(_RIGHT, _BOTTOM + 2 * LINE - 2, _("Observed (GiB)"), anchor="end")


def _middle(item: Score, scale: _Scale) -> str:
    return f"{scale.x(item.observed or 1)} {scale.y(item.computed or 1)}"


def _upright(item: Score, scale: _Scale) -> str:
    computed = item.computed or 1
    low, high = (scale.y(size or computed) for size in (item.low, item.high))
    return f"M{scale.x(item.observed or 1)} {high}V{low}"


def _count(scores: Sequence[Score]) -> str:
    return plural("{count} case", "{count} cases", len(scores)).format(count=len(scores))


def _legend(groups: Iterable[str]) -> list[Key]:
    """Return the entries of groups and lines."""
    return [
        *(Key(_(GROUPS[group]), partial(_point, SIGNS[group])) for group in groups),
        Key(_("Range of the computed value"), lambda x, y: path(f"M{x + BAR / 2:g} {y:g}v{BAR}", _THIN)),
        Key(_("Computed equals observed"), lambda x, y: path(f"M{x:g} {y + BAR:g}l{BAR}-{BAR}", _DASHED)),
    ]


def _point(sign: Sign, x: float, y: float) -> str:
    return sign.path([f"{x + BAR / 2:g} {y + BAR / 2:g}"])
