"""The analysis of a model line by line: parts up to the total, then steps down to one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..catalog.names import TOTAL
from ..i18n import N_

if TYPE_CHECKING:
    from .analysis import Outcome, StepTaken

#: The last line.
PER_GPU = "per-gpu"


@dataclass(frozen=True)
class Bar:
    """A line of the waterfall. Sizes are bytes.

    Attributes:
        label: for people; of a step the one recorded.
        subject: the component or step; ``total`` for everything, ``per-gpu`` for what is left of it.
        change: what the line adds, or takes away.
        running: what there is behind it.
        share: of the total, what a component is or what is saved in all.
        step: the step, if it is one.
    """

    label: str
    subject: str
    change: float
    running: float
    share: float = 0.0
    step: StepTaken | None = None

    @property
    def is_sum(self) -> bool:
        """Whether the line says how much there is, and not how much is added or taken away."""
        return self.subject in {TOTAL, PER_GPU}

    @property
    def shown(self) -> float:
        """The size that the line is about."""
        return self.running if self.is_sum else self.change


def waterfall(outcome: Outcome) -> list[Bar]:
    """The lines, from the first component to what one GPU holds."""
    bars: list[Bar] = []
    running, total = 0.0, outcome.start.total
    for component in outcome.start.components:
        running += component.size
        share = component.size / total if total else 0.0
        bars.append(Bar(component.label, component.key, component.size, running, share))
    bars.append(Bar(N_("Total"), TOTAL, 0, total))
    bars.extend(
        Bar(step.label, step.name, -step.saved, step.after.total, step=step) for step in outcome.steps
    )
    if outcome.steps:
        end = outcome.end.total
        bars.append(Bar(N_("Per GPU"), PER_GPU, end - total, end, outcome.saved_share))
    return bars
