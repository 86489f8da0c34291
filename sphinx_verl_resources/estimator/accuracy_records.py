"""The records of ``accuracy.yaml``: the estimator's errors by group of cases."""

from pydantic import Field

from ..records import NamedRecord, Record, Text

#: The groups of cases whose errors are recorded separately.
CASE_GROUPS = TRAINING, FSDP, FSDP_TODAY, MEGATRON, EASYR1, OTHER = (
    "training",  # Plain fine-tuning with FSDP, with known token counts.
    "fsdp",  # Dense text models without critic, verl up to v0.7.1 with FSDP.
    "fsdp-today",  # The same with verl v0.8.0 or later.
    "megatron",  # Any training with Megatron.
    "easyr1",  # Logs of EasyR1, whose counter is unknown.
    "other",  # Any other training with FSDP: experts, vision, a critic.
)


class AccuracyPart(Record):
    """The cases of a group with the same generation of verl, LoRA or full training, and kind of model.

    Attributes:
        today: verl v0.8.0 or later.
        lora: Adapters are trained; false: all parameters.
        experts: The model has experts; false: it is dense.
        cases: Number of cases whose measured value is compared.
        mean_error: Mean absolute relative error; 0.05 is 5 %.
    """

    today: bool
    lora: bool
    experts: bool
    cases: int = Field(ge=1)
    mean_error: float = Field(ge=0)


class Accuracy(NamedRecord):
    """The errors of a group of cases, and the width of the range derived from them.

    Attributes:
        name: Name of the group of cases.
        cases: Number of cases whose measured value is compared.
        mean_error: Mean absolute relative error; 0.05 is 5 %.
        median_error: Median absolute relative error.
        worst_error: Largest absolute relative error.
        out_of_fold: Mean error with constants that are fitted only to cases from other sources.
        inside: Share of measured values inside the ranges fitted to other sources.
        half_width: Median half width of a range, relative to the computed value.
        widening: Factor on the distances from computed values to the ends of their ranges.
        parts: Errors of similar verl runs in the group.
    """

    name: Text
    cases: int = Field(ge=1)
    mean_error: float = Field(ge=0)
    median_error: float = Field(ge=0)
    worst_error: float = Field(ge=0)
    out_of_fold: float = Field(ge=0)
    inside: float = Field(ge=0, le=1)
    half_width: float = Field(ge=0)
    widening: float | None = Field(None, gt=0)
    parts: tuple[AccuracyPart, ...] = ()


class AccuracyFile(Record):
    """The file ``accuracy.yaml``.

    Attributes:
        accuracy: Groups of cases; a later one replaces an earlier one of the same name.
    """

    accuracy: tuple[Accuracy, ...]
