"""Computed and observed memory: the errors by group, and every case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..estimator.backtest import GROUPS
from ..estimator.peaks import LOGGED
from ..i18n import N_, _
from ..units import gib_number, percent, plain, share
from .sentences import in_a_row, legend, numbered_notes, recorded
from .table import PATH_CLASS, Cell, table_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..catalog.models.case import Case
    from ..estimator.backtest import Score, Summary

TABLE_CLASS = "verl-accuracy"
#: The outcomes of cases without a compared figure.
_OUTCOMES = {"fits": N_("ran"), "oom": N_("out of memory"), "measured": N_("ran")}
#: Verdicts, and their agreement with the outcome.
VERDICTS = {
    "fits": N_("fits"),
    "tight": N_("tight"),
    "does not fit": N_("does not fit"),
    "unknown": N_("unknown"),
}
_AGREES = {True: N_("{verdict}: agrees"), False: N_("{verdict}: contradicts")}
_INSIDE = {True: N_("yes"), False: N_("no"), None: ""}
#: Characters of a source that has neither an address nor a repository.
_LONGEST_SOURCE = 40


def summary_rows(summaries: Iterable[Summary]) -> nodes.tgroup:
    """Make one row per group."""
    rows = []
    for item in summaries:
        numbers = [plain(item.cases), *map(share, (item.mean, item.median, item.worst, item.inside))]
        numbers.append(f"±{share(item.half_width)}")
        rows.append([Cell.of(_(GROUPS[item.group])), *map(Cell.number, numbers)])
    headings = [
        _("Compared with"),
        _("Cases (n)"),
        _("Mean error"),
        _("Median error"),
        _("Worst error"),
        _("Inside the range"),
        _("Half width of the range"),
    ]
    return table_group(headings, rows)


def verdict_sentence(shares: Mapping[str, tuple[int, int]]) -> nodes.paragraph:
    """Say how many verdicts agree with the outcomes.

    Args:
        shares: by outcome, how many verdicts do not contradict it, of how many.
    """
    agreed, ran = shares["fits"]
    foreseen, failed = shares["oom"]
    parts = [_("Errors are absolute, relative to what was observed.")]
    if ran:
        text = _("Of {cases} cases that ran, {number} are said not to fit.")
        parts.append(text.format(cases=ran, number=ran - agreed))
    if failed:
        text = _("Of {cases} cases that ran out of memory, {number} are said not to fit or to be tight.")
        parts.append(text.format(cases=failed, number=foreseen))
    return legend(in_a_row(*parts))


def case_rows(scores: Iterable[Score], marks: Mapping[str, tuple[str, str]]) -> nodes.tgroup:
    """Make one row per case.

    Args:
        scores: the cases.
        marks: by the reason for which a case does not count, the mark and the id of that reason.
    """
    rows = []
    for item in scores:
        case = item.case
        note = reason(item)
        computed, low, high = _computed(item)
        rows.append([
            Cell(_case(case), classes=(PATH_CLASS,)),
            Cell.of(case.model.rpartition("/")[2]),
            Cell.of(_gpus(case)),
            Cell.of(_compared(item)),
            Cell.number(gib_number(computed) if computed else ""),
            Cell.of(_range(low, high) if computed else ""),
            Cell.number(gib_number(item.observed)) if item.observed else Cell.of(_outcome(item)),
            Cell.number(_error(item)),
            Cell([(_inside(item), None)], marks=[marks[note]] if note else ()),
        ])  # fmt: skip
    headings = [
        _("Case and source"),
        _("Model"),
        _("GPUs"),
        _("Compared"),
        _("Computed (GiB)"),
        _("Range (GiB)"),
        _("Observed (GiB)"),
        _("Error"),
        _("Inside, or verdict"),
    ]
    return table_group(headings, rows)


def reason(item: Score) -> str:
    """Return why a case does not count; empty if it does."""
    text = item.case.contested or item.case.not_scored or item.error
    return " ".join((text or "").split())


def reason_list(reasons: Iterable[str], targets: Mapping[str, nodes.target]) -> nodes.enumerated_list:
    """List why cases do not count, each with the target of its marks and their number."""
    return numbered_notes(*(recorded("", targets[text], nodes.Text(text)) for text in reasons))


def _gpus(case: Case) -> str:
    count = plain(case.gpus.count) if case.gpus.count else "?"
    return f"{count}*{case.gpus.type}" if case.gpus.type else count


def _compared(item: Score) -> str:
    if item.observed is None:
        return _("outcome")
    if item.figure == "peak":
        return _("peak of the GPU")
    return _("verl's metric") if item.group == LOGGED else _("PyTorch's counter")


def _range(low: float, high: float) -> str:
    return _("{low} to {high}").format(low=gib_number(low), high=gib_number(high))


def _computed(item: Score) -> tuple[float, float, float]:
    """Return the compared figure and its range; the peak if there is no figure, zeros without an estimate."""
    if item.computed is not None and item.low is not None and item.high is not None:
        return item.computed, item.low, item.high
    estimate = item.estimate
    return (estimate.peak, estimate.low, estimate.high) if estimate else (0.0, 0.0, 0.0)


def _outcome(item: Score) -> str:
    return _(_OUTCOMES.get(item.case.outcome or "", ""))


def _error(item: Score) -> str:
    """Write the error to a tenth of a per cent, in brackets if the case does not count."""
    if item.deviation is None:
        return ""
    text = percent(round(item.deviation, 3) + 0.0)  # no minus before zero
    return text if item.case.is_scored else f"({text})"


def _inside(item: Score) -> str:
    """Say whether the figure is inside the range, or the verdict, or that the case does not count."""
    if item.case.contested:
        return _("contested")
    if item.case.not_scored:
        return _("not scored")
    if item.error:
        return _("not estimated")
    if item.observed is not None:
        return _(_INSIDE[item.inside])
    verdict = _(VERDICTS[item.verdict])
    return verdict if item.agrees is None else _(_AGREES[item.agrees]).format(verdict=verdict)


def _case(case: Case) -> list[tuple[str, str | None]]:
    """Return the id as a link to its source; a source without an address is named after it."""
    source = case.source
    if source is None or source.url:
        return [(case.id, source.url if source else None)]
    text = source.text
    short = text if len(text) <= _LONGEST_SOURCE else f"{text[: _LONGEST_SOURCE - 1].rstrip()}…"
    return [(case.id, None), (short, None)]
