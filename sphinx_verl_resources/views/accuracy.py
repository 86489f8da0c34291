"""Computed and observed memory: every case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from ..i18n import N_, _
from ..nodes import PATH_CLASS, Cell, numbered_notes, recorded, table_group
from ..nodes import marks as marks_of
from ..units import gib_number, share, short_number, signed
from .verdicts import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..memory.cases import Case
    from ..memory.recorded import Score

#: The outcomes of cases without a compared figure.
_OUTCOMES = {"fits": N_("ran"), "oom": N_("out of memory"), "measured": N_("ran")}
#: The agreement of a verdict with the outcome.
_AGREES = {True: N_("{verdict}: agrees"), False: N_("{verdict}: contradicts")}
_INSIDE = {True: N_("yes"), False: N_("no"), None: ""}


def case_rows(scores: Iterable[Score], marks: Mapping[str, tuple[str, str]]) -> nodes.tgroup:
    """Make one row per case.

    Args:
        scores: the cases.
        marks: by the reason why a case does not count, the mark and the id of that reason.
    """

    def judged(item: Score) -> Cell:
        return Cell([(_inside(item), None)], marks_of(marks[note]) if (note := reason(item)) else [])

    columns: dict[str, Callable[[Score], Cell | str]] = {
        _("Case and source"): lambda item: _case(item.case),
        _("Model"): lambda item: item.case.model.rpartition("/")[2],
        _("GPUs"): lambda item: _gpus(item.case),
        _("Compared"): _compared,
        _("Computed (GiB)"): lambda item: Cell.number(_computed(item)[0]),
        _("Range (GiB)"): lambda item: _computed(item)[1],
        _("Observed (GiB)"): _observed,
        _("Error"): lambda item: Cell.number(_error(item)),
        _("Inside, or verdict"): judged,
    }
    return table_group(columns, [[make(item) for make in columns.values()] for item in scores])


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
    if not item.observed:
        return _("outcome")
    return _("PyTorch's counter") if item.of_torch else _("peak of the GPU")


def _computed(item: Score) -> tuple[str, str]:
    """Return the compared figure, otherwise the peak, and its range; empty texts without an estimate."""
    if item.observed:
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
    text = signed(round(item.deviation, 3) + 0.0, share)  # no minus before zero
    return text if item.case.is_scored else f"({text})"


def _inside(item: Score) -> str:
    """Return whether the figure is inside the range, the verdict, or that the case does not count."""
    if item.case.contested:
        return _("contested")
    if item.case.not_scored:
        return _("not scored")
    if item.error:
        return _("not estimated")
    if item.observed:
        return _(_INSIDE[item.inside])
    verdict = short(item.verdict, item.estimate.fits_up_to_tokens if item.estimate else None)
    return verdict if item.agrees is None else _(_AGREES[item.agrees]).format(verdict=verdict)


def _case(case: Case) -> Cell:
    """Return the id as a link to its source."""
    return Cell([(case.id, case.source.address if case.source else None)], classes=(PATH_CLASS,))
