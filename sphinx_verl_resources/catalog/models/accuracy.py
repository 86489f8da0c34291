"""How well the estimator does on the recorded cases."""

from __future__ import annotations

from pydantic import Field

from .base import NamedRecord, Record, Text


class Accuracy(NamedRecord):
    """The errors of one group of cases, and the range that follows from them."""

    name_fields = ("name",)

    name: Text = Field(description="The group of cases.")
    cases: int = Field(ge=1, description="Cases with a measured value that is compared.")
    mean_error: float = Field(ge=0, description="Mean of the absolute relative errors; 0.05 is 5 %.")
    median_error: float = Field(ge=0, description="Their median.")
    worst_error: float = Field(ge=0, description="The largest of them.")
    inside: float = Field(ge=0, le=1, description="Share of the measured values inside their range.")
    half_width: float = Field(
        ge=0, description="Median of half the width of a range over the computed value."
    )
    low: float | None = Field(
        None, gt=0, le=1, description="What a computed value is multiplied by for the lower end of its range."
    )
    high: float | None = Field(None, ge=1, description="The same for the upper end.")


class AccuracyFile(Record):
    """The file ``accuracy.yaml``."""

    accuracy: tuple[Accuracy, ...] = Field(
        description="The groups; an entry replaces one of the same name read before."
    )
