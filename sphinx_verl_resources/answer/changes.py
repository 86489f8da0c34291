"""Changes: the settings that make a run fit, the cheapest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..catalog.names import Verdict
    from ..estimator.registries import Registries
    from .layouts import Layout

#: What a change costs in time.
Cost = Literal["none", "little", "much"]


@dataclass(frozen=True)
class Change:
    """Settings to change, and what they leave. Sizes are bytes per GPU.

    Attributes:
        overrides: verl's dotted keys.
        peak: with the change.
        high: the upper end of the range.
        verdict: with the change.
        cost: in time.
        caveat: what it costs besides time, in a sentence; empty for nothing.
    """

    overrides: Mapping[str, Any]
    peak: float
    high: float
    verdict: Verdict
    cost: Cost
    caveat: str = ""


def changes_for(layout: Layout, registries: Registries) -> tuple[Change, ...]:
    """Return what makes a run fit, what should be tried first at the beginning; empty where it fits.

    Single settings that suffice come first, else the cheapest combination, else the smallest number of GPUs.
    Where nothing suffices, the combination that leaves least.
    """
    return ()
