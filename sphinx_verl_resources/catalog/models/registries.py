"""The entries of the registries beside the architectures: GPUs, keys of verl, accuracy, exceptions."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from ...codes import Code, Origin
from ...diagnostics import did_you_mean
from .base import IsoDate, NamedRecord, Prose, Record, Some, Text, no_todo, optional, problem


class OtherReading(Record):
    """Another total seen for the same GPU."""

    memory_mib: int = Field(ge=1, le=100_000_000, description="Total in MiB (2^20 bytes).")
    note: Prose | None = optional("Where or when it was seen.")


class Gpu(NamedRecord):
    """One GPU."""

    name_fields = ("name", "aliases")

    name: Text = Field(description="The name that pages show.")
    vendor: Literal["nvidia", "amd", "huawei", "intel"] = Field(description="Maker of the GPU.")
    memory_gb: int = Field(ge=1, le=100_000, description="The figure the product is sold by.")
    memory_mib: int = Field(ge=1, le=100_000_000, description="MiB (2^20 bytes) as the driver reports it.")
    kind: Literal["reading", "derived", "nominal"] = Field(
        description="reading: seen in a driver's output. derived: taken from a GPU with the same memory. "
        "nominal: the product's figure, no reading known."
    )
    cuda_total_gib: float | None = optional("GiB (2^30 bytes) that CUDA offers a process.", gt=0, le=100_000)
    aliases: tuple[Text, ...] = Field((), description="Other spellings; case, spaces, hyphens do not matter.")
    other_readings: tuple[OtherReading, ...] = Field((), description="Other totals seen for the same GPU.")
    note: Prose | None = optional("What a reader should know about these figures.")


class GpuFile(Record):
    """The file ``gpus.yaml``."""

    gpus: tuple[Gpu, ...] = Field(description="The GPUs; a later one replaces one of the same name.")


Phase = Literal[
    "rollout", "weight-sync", "old-log-prob", "ref-log-prob", "update", "optimizer-step", "checkpoint"
]
KeyType = Literal["bool", "int", "float", "str", "list", "dict", "str or list"]
#: A default: whatever YAML can say.
Default = Annotated[Any, WithJsonSchema({})]


class DefaultChange(Record):
    """A default that is in force from one release on."""

    since: Text = Field(description="Release, or the month of the first page rows.")
    default: Default = Field(description="The default from then on.")


class Variant(Record):
    """The same key where another training backend reads it."""

    backend: Text = Field(description="The backend.")
    type: KeyType = Field(description="Type of the value.")
    default: Default = Field(description="Default.")
    phases: tuple[Phase, ...] = Field(description="Phases whose peak the key can change.")
    effect: Prose = Field(description="What the key does to memory.")
    host_memory: bool = Field(False, description="It costs or saves host memory.")
    since: Text | None = optional("First release that has it.")


class ConfigKey(NamedRecord):
    """One key."""

    name: Text = Field(description="The dotted key.")
    group: Literal["scale", "model", "actor", "fsdp", "megatron", "ref", "rollout", "critic"] = Field(
        description="What it belongs to."
    )
    type: KeyType = Field(description="Type of the value.")
    default: Default = Field(description="Default in the composed configuration.")
    in_yaml: bool = Field(
        True, description="false: only a dataclass has it; set it with a plus before the key."
    )
    dataclass_default: Default = optional("Default of the dataclass, where that differs.")
    phases: tuple[Phase, ...] = Field(description="Phases whose peak the key can change; may be none.")
    effect: Prose = Field(description="What the key does to memory.")
    backends: tuple[Text, ...] = Field((), description="Training backends that read it; none named: all.")
    host_memory: bool = Field(False, description="It costs or saves host memory.")
    status: Literal["active", "deprecated", "moved", "no-op", "no-op with trainer.use_v1"] = Field(
        description="deprecated: still accepted. moved: an old name. no-op: accepted, without effect."
    )
    moved_to: Text | None = optional("The name to use instead.")
    moved_from: Text | None = optional("The name that it had before.")
    since: Text | None = optional("First release that has it; absent: older than v0.4.0.")
    note: Prose | None = optional("What else to know.")
    default_changes: tuple[DefaultChange, ...] = Field((), description="Defaults over time, oldest first.")
    rows_ran_with: Mapping[str, Default] = Field(
        default_factory=dict, description="Defaults when the published rows were measured, by commit."
    )
    variants: tuple[Variant, ...] = Field((), description="Other meanings under other backends.")


class ConfigKeyFile(Record):
    """The file ``config_keys.yaml``."""

    config_keys: tuple[ConfigKey, ...] = Field(
        description="The keys; a later one replaces one of the same name."
    )


class AccuracyPart(Record):
    """The cases of a group that are alike: by version of verl, what is trained, and the kind of model."""

    today: bool = Field(description="verl v0.8.0 or later.")
    lora: bool = Field(description="Adapters are trained; false: all parameters.")
    experts: bool = Field(description="The model has experts; false: it is dense.")
    cases: int = Field(ge=1, description="Cases with a measured value that is compared.")
    mean_error: float = Field(ge=0, description="Mean of the absolute relative errors; 0.05 is 5 %.")


class Accuracy(NamedRecord):
    """The errors of one group of cases, and the range that follows from them."""

    name: Text = Field(description="The group of cases.")
    cases: int = Field(ge=1, description="Cases with a measured value that is compared.")
    mean_error: float = Field(ge=0, description="Mean of the absolute relative errors; 0.05 is 5 %.")
    median_error: float = Field(ge=0, description="Their median.")
    worst_error: float = Field(ge=0, description="The largest of them.")
    out_of_fold: float = Field(
        ge=0, description="Mean error with what was fitted to cases fitted to those of other sources only."
    )
    inside: float = Field(
        ge=0, le=1, description="Share of the measured values inside the ranges that other sources give."
    )
    half_width: float = Field(ge=0, description="Median half width of a range over the computed value.")
    widening: float | None = optional(
        "Factor on the distances from computed values to the ends of their ranges.", gt=0
    )
    parts: tuple[AccuracyPart, ...] = Field((), description="The runs of verl in it that are alike.")


class AccuracyFile(Record):
    """The file ``accuracy.yaml``."""

    accuracy: tuple[Accuracy, ...] = Field(
        description="The groups; a later one replaces one of the same name."
    )


#: The codes of problems of data; those of commands that write run files are left out.
_CODES = tuple(code.name for code in Code if code.origin is not Origin.INTAKE)
#: The fewest words of a useful reason.
_WORDS = 4


def _code(name: str) -> str:
    if name not in _CODES:
        raise problem("unknown_value", f"there is no code {name[:80]!r}", did_you_mean(name, _CODES))
    return name


def _reason(text: str) -> str:
    no_todo(text)
    if len(text.split()) < _WORDS or not text.rstrip().endswith((".", "!", "?")):
        hint = "say why the data are right as they are"
        raise problem("wrong_value", "expected a sentence with a full stop", hint)
    return text


class Suppression(Record):
    """One kind of warning, where it is excused, and why."""

    code: Annotated[str, AfterValidator(_code), WithJsonSchema({"type": "string", "enum": list(_CODES)})] = (
        Field(description="The code of the warning, without ``verl.`` before it.")
    )
    files: Some[Text] = Field(description="The files, seen from the data directory: runs/a.yaml.")
    names: Some[Text] | None = optional("The entries of these files that are meant; absent: all of them.")
    reason: Annotated[Prose, AfterValidator(_reason)] = Field(
        description="A sentence: why the data are right."
    )


class ExceptionsFile(Record):
    """The file ``exceptions.yaml``."""

    published_before: IsoDate | None = optional(
        "Runs added before this day may lack evidence and versions: ``check`` counts these gaps and does not "
        "warn of them. Default: the day after the last update of verl's hand-typed page."
    )
    exceptions: tuple[Suppression, ...] = Field(
        (), description="The exceptions; one that excuses nothing is an error."
    )
