"""Figures that were printed, beside what their formulas give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..catalog.names import SHAPE_FIGURES, STATES, TOTAL, figure_parts
from ..catalog.validation import problem_at
from ..diagnostics import Code, Severity, did_you_mean
from ..i18n import N_
from ..units import GB, gb, percent, plain
from .analysis import LABELS, analyse, figure_size
from .shapes import AnalysisError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.analysis import Analysis, Part
    from ..catalog.models.analysis import Printed, PrintedFigure
    from ..diagnostics import Diagnostic
    from .analysis import Outcome

#: The analysis was printed with one decimal: half a unit of the last digit is rounding.
ROUNDING = 0.05
_LABELS = {
    **LABELS,
    STATES: N_("Model states"),
    TOTAL: N_("Total"),
    "hidden-size": N_("Hidden size"),
    "ffn-dimension": N_("FFN dimension"),
}


@dataclass(frozen=True)
class Comparison:
    """One printed figure.

    Attributes:
        step: label of the step that it stands behind; empty for one before all steps.
        gpus: the number of GPUs, if the step shares something among them.
        label: what it is.
        is_size: whether it is a size; it is a count otherwise.
        computed: by the formula, in full; bytes if it is a size.
        as_printed: the number that was printed; GB if it is a size.
        causes: codes of the causes that lie in the figure itself.
        carried: codes of those that other figures bring in.
    """

    step: str
    gpus: int | None
    label: str
    is_size: bool
    computed: float
    as_printed: float
    causes: tuple[str, ...]
    carried: tuple[str, ...]

    @property
    def printed(self) -> float:
        """What was printed, in the unit of what is computed."""
        return self.as_printed * GB if self.is_size else self.as_printed

    @property
    def difference(self) -> str:
        """Printed against computed, in per cent; empty where nothing is computed to compare with."""
        return percent(self.printed / self.computed - 1) if self.computed else ""

    @property
    def agrees(self) -> bool:
        """Whether rounding explains the difference."""
        rounding = ROUNDING * GB if self.is_size else 0.5
        return abs(self.printed - self.computed) <= rounding * (1 + 1e-9)

    @property
    def is_explained(self) -> bool:
        """Whether there is nothing to explain, or a cause is recorded."""
        return self.agrees or bool(self.causes or self.carried)


def printed_under(analysis: Analysis, printed: Printed) -> Analysis:
    """The analysis as it is when the file that holds ``printed`` has been read, and those after it have not.

    Somebody who assumes another batch elsewhere does not contradict what was printed.
    """
    states = (part.analysis for part in analysis.parts if printed in part.entries["printed"])
    return next(states, analysis)


def compare(analysis: Analysis, printed: Printed) -> tuple[Comparison, ...]:
    """Each figure that was printed of a model, in the order of the record.

    Raises:
        AnalysisError: the model, a step or a figure is not known.
    """
    outcome = analyse(analysis, printed.name)
    return tuple(_compare(outcome, item) for item in printed.figures)


def _compare(outcome: Outcome, item: PrintedFigure) -> Comparison:
    step, name = figure_parts(item.figure)
    if name not in _LABELS or (step is not None and name in SHAPE_FIGURES):
        raise AnalysisError(f"there is no figure {item.figure!r}; {did_you_mean(item.figure, _LABELS)}")
    taken = next((taken for taken in outcome.steps if taken.name == step), None)
    if name == "hidden-size":
        computed, is_size = outcome.shape.stated_hidden_size, False
    elif name == "ffn-dimension":
        computed, is_size = float(outcome.shape.ffn_dimension), False
    else:
        breakdown = outcome.start if step is None else outcome.after(step)
        computed, is_size = figure_size(breakdown, name), True
    return Comparison(
        taken.label if taken else "",
        taken.gpus if taken else None,
        _LABELS[name],
        is_size,
        computed,
        item.value,
        item.causes,
        item.carried,
    )


def analysis_problems(analysis: Analysis) -> tuple[Diagnostic, ...]:
    """Every problem of the record: those found while it was read, and those that only computing shows."""
    found = (*analysis.diagnostics, *printed_problems(analysis))
    return tuple(sorted(found, key=lambda problem: problem.sort_key))


def printed_problems(analysis: Analysis) -> Iterator[Diagnostic]:
    """Differences without a cause, and causes without a difference."""
    for part in analysis.parts:
        for index, printed in enumerate(part.entries["printed"]):
            try:
                outcome = analyse(part.analysis, printed.name) if printed else None
            except AnalysisError:  # a name that leads nowhere, which is reported as such
                continue
            if outcome is None:
                continue
            for number, item in enumerate(printed.figures):
                try:
                    found = _compare(outcome, item)
                except AnalysisError:
                    continue
                yield from _problem(part, printed.name, ("printed", index, "figures", number), found)


def _problem(part: Part, name: str, loc: tuple[str | int, ...], item: Comparison) -> Iterator[Diagnostic]:
    gpus = f" over {item.gpus} GPU{'' if item.gpus == 1 else 's'}" if item.gpus else ""
    what = f"{item.label} of {name}" + (f" after {item.step}{gpus}" if item.step else "")
    if not item.is_explained:
        unit = " GB" if item.is_size else ""
        computed = gb(item.computed) if item.is_size else plain(round(item.computed))
        message = (
            f"{what}: {plain(item.as_printed)}{unit} printed, {computed} by the formula "
            f"({item.difference or 'nothing to compare with'}), and no cause is recorded"
        )
        hint = "correct the figure, or record the cause under 'causes' or 'carried'"
        code = Code.unexplained_difference
    elif item.agrees and (item.causes or item.carried):
        message = f"{what}: the printed figure agrees with the formula, but a cause is recorded"
        hint, code = "remove 'causes' and 'carried'", Code.stale_cause
    else:
        return
    yield problem_at(part.file, part.document, loc, code, message, hint, severity=Severity.WARNING)
