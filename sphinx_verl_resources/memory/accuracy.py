"""The records of ``accuracy.yaml``: the errors that the estimator made on recorded cases."""

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
    """The errors of a group of cases, and the range derived from them.

    Attributes:
        name: Name of the group of cases.
        compared: What was run, and which figures were compared.
        cases: Number of cases whose measured value is compared.
        setups: Number of different models, GPUs and backends among them.
        sources: Number of independent sources.
        mean_error: Mean absolute relative error; 0.05 is 5 %.
        worst_error: Largest absolute relative error.
        needed_more: Number of cases that needed more than computed.
        error: Relative error for the range: at least 90 % of sources stay within it.
        pooled: The error is that of all groups together, because this one has too few sources.
        inside: Share of measured values inside ranges from other sources.
        parts: Errors of similar verl runs in the group.
    """

    name: Text
    compared: Text
    cases: int = Field(ge=1)
    setups: int = Field(ge=1)
    sources: int = Field(ge=1)
    mean_error: float = Field(ge=0)
    worst_error: float = Field(ge=0)
    needed_more: int = Field(ge=0)
    error: float = Field(gt=0)
    pooled: bool
    inside: float = Field(ge=0, le=1)
    parts: tuple[AccuracyPart, ...] = ()


class AccuracyFile(Record):
    """The file ``accuracy.yaml``.

    Attributes:
        accuracy: Groups of cases; a later one replaces an earlier one of the same name.
    """

    accuracy: tuple[Accuracy, ...]
