"""The figures of the original document, compared with the results of its formulas."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..catalog.names import SHAPE_FIGURES, STATES, TOTAL, figure_parts
from ..diagnostics import Code, NoAnswerError, Severity, counted, did_you_mean
from ..i18n import N_
from ..units import GB, gb, percent, short_number
from .analysis import LABELS, analyse, figure_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.analysis import Analysis, Part
    from ..catalog.models.analysis import Printed, PrintedFigure
    from ..diagnostics import Diagnostic
    from .analysis import Outcome

#: The original figures have one decimal: differences up to half a unit of the last digit are rounding.
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
    """One original figure and the computed one.

    Attributes:
        step: the label of the step before it; empty for a figure before all steps.
        gpus: the number of GPUs, if the step divides something among them.
        label: its name for people.
        is_size: whether it is a size, not a count.
        computed: the result of the formula, not rounded; bytes if it is a size.
        original: the number in the document; GB if it is a size.
        causes: codes of the causes in the figure itself.
        carried: codes of the causes in other figures that it depends on.
    """

    step: str
    gpus: int | None
    label: str
    is_size: bool
    computed: float
    original: float
    causes: tuple[str, ...]
    carried: tuple[str, ...]

    @property
    def _in_computed_unit(self) -> float:
        return self.original * GB if self.is_size else self.original

    @property
    def difference(self) -> str:
        """The original figure's difference from the computed one in per cent; empty if the latter is zero."""
        return percent(self._in_computed_unit / self.computed - 1) if self.computed else ""

    @property
    def agrees(self) -> bool:
        """True if rounding explains the difference."""
        rounding = ROUNDING * GB if self.is_size else 0.5
        return abs(self._in_computed_unit - self.computed) <= rounding * (1 + 1e-9)

    @property
    def is_explained(self) -> bool:
        """True if the figures agree, or a cause is recorded."""
        return self.agrees or bool(self.causes or self.carried)


def analysis_behind(analysis: Analysis, original: Printed) -> Analysis:
    """Return the analysis up to and including the file with the original figures.

    A later file with other assumptions, such as another batch size, must not change the comparison.
    """
    states = (part.analysis for part in analysis.parts if original in part.printed)
    return next(states, analysis)


def compare(analysis: Analysis, original: Printed) -> tuple[Comparison, ...]:
    """Compare each original figure of a model, in recorded order.

    Raises:
        NoAnswerError: the model, a step or a figure is unknown.
    """
    outcome = analyse(analysis, original.name)
    return tuple(_compare(outcome, item) for item in original.figures)


def _compare(outcome: Outcome, item: PrintedFigure) -> Comparison:
    step, name = figure_parts(item.figure)
    if name not in _LABELS or (step is not None and name in SHAPE_FIGURES):
        hint = did_you_mean(item.figure, _LABELS)
        raise NoAnswerError.because(f"there is no figure {item.figure!r}", hint)
    taken = outcome.step(step) if step is not None else None
    if name == "hidden-size":
        computed, is_size = outcome.shape.stated_hidden_size, False
    elif name == "ffn-dimension":
        computed, is_size = float(outcome.shape.ffn_dimension), False
    else:
        computed, is_size = figure_size(taken.after if taken else outcome.start, name), True
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
    """Return every problem of the analysis: those from reading, and those from computing."""
    problems = (*analysis.diagnostics, *_original_problems(analysis))
    return tuple(sorted(problems))


def _original_problems(analysis: Analysis) -> Iterator[Diagnostic]:
    """Yield differences without a cause, and causes without a difference."""
    for part in analysis.parts:
        for index, original in enumerate(part.printed):
            if original is None:
                continue
            for number, item in enumerate(original.figures):
                # The check of the file reports unknown names.
                with suppress(NoAnswerError):
                    comparison = _compare(analyse(part.analysis, original.name), item)
                    loc = ("printed", index, "figures", number)
                    yield from _problem(part, original.name, loc, comparison)


def _problem(part: Part, name: str, loc: tuple[str | int, ...], item: Comparison) -> Iterator[Diagnostic]:
    gpus = f" over {counted(item.gpus, 'GPU')}" if item.gpus else ""
    figure = f"{item.label} of {name}" + (f" after {item.step}{gpus}" if item.step else "")
    if not item.is_explained:
        unit = " GB" if item.is_size else ""
        computed = gb(item.computed) if item.is_size else short_number(round(item.computed))
        message = (
            f"{figure}: {short_number(item.original)}{unit} printed, {computed} by the formula "
            f"({item.difference or 'nothing to compare with'}), and no cause is recorded"
        )
        hint = "correct the figure, or record the cause under 'causes' or 'carried'"
        code = Code.unexplained_difference
    elif item.agrees and (item.causes or item.carried):
        message = f"{figure}: the printed figure agrees with the formula, but a cause is recorded"
        hint, code = "remove 'causes' and 'carried'", Code.stale_cause
    else:
        return
    yield part.document.diagnostic(loc, code, message, hint, severity=Severity.WARNING)
