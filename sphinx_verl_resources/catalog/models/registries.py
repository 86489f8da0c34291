"""The entries of the other registries: GPUs, keys of verl's configuration, accuracy."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from .base import NamedRecord, Prose, Record, Text, optional


class OtherReading(Record):
    """Another memory total seen for the same GPU."""

    memory_mib: int = Field(ge=1, le=100_000_000, description="Memory total in MiB (2^20 bytes).")
    note: Prose | None = optional("Source or date of the reading.")


class Gpu(NamedRecord):
    """One GPU."""

    name_fields = ("name", "aliases")

    name: Text = Field(description="Name on pages.")
    vendor: Literal["nvidia", "amd", "huawei", "intel"] = Field(description="Maker of the GPU.")
    memory_gb: int = Field(ge=1, le=100_000, description="Nominal memory of the product, in GB.")
    memory_mib: int = Field(
        ge=1, le=100_000_000, description="Memory in MiB (2^20 bytes), as the driver reports it."
    )
    kind: Literal["reading", "derived", "nominal"] = Field(
        description="reading: from a driver's output. derived: from a GPU with the same memory. nominal: the "
        "product's figure, without a reading."
    )
    cuda_total_gib: float | None = optional(
        "Memory that CUDA offers a process, in GiB (2^30 bytes).", gt=0, le=100_000
    )
    aliases: tuple[Text, ...] = Field(
        (), description="Other spellings; case, spaces and hyphens are ignored."
    )
    other_readings: tuple[OtherReading, ...] = Field(
        (), description="Other memory totals seen for the same GPU."
    )
    note: Prose | None = optional("Remark on the figures.")


class GpuFile(Record):
    """The file ``gpus.yaml``."""

    gpus: tuple[Gpu, ...] = Field(description="GPUs; a later one replaces an earlier one of the same name.")


Phase = Literal[
    "rollout", "weight-sync", "old-log-prob", "ref-log-prob", "update", "optimizer-step", "checkpoint"
]
KeyType = Literal["bool", "int", "float", "str", "list", "dict", "str or list"]
#: A default: any YAML value.
Default = Annotated[Any, WithJsonSchema({})]


class DefaultChange(Record):
    """A default since a release."""

    since: Text = Field(description="Release, or month of the first rows on verl's page.")
    default: Default = Field(description="Default from then on.")


class ConfigKey(NamedRecord):
    """A key of verl's configuration."""

    name: Text = Field(description="Dotted name of the key.")
    group: Literal["scale", "model", "actor", "fsdp", "megatron", "ref", "rollout", "critic"] = Field(
        description="Part of the configuration that the key belongs to."
    )
    type: KeyType = Field(description="Type of the value.")
    default: Default = Field(description="Default in the composed configuration.")
    in_yaml: bool = Field(
        True, description="false: only a dataclass has the key; set it with a plus before the key."
    )
    phases: tuple[Phase, ...] = Field(description="Phases whose peak the key can change; may be none.")
    effect: Prose = Field(description="Effect of the key on memory.")
    backends: tuple[Text, ...] = Field((), description="Training backends that read the key; empty: all.")
    host_memory: bool = Field(False, description="The key costs or saves host memory.")
    status: Literal["active", "deprecated", "moved", "no-op", "no-op with trainer.use_v1"] = Field(
        description="deprecated: still accepted. moved: an old name. no-op: accepted, without effect."
    )
    moved_to: Text | None = optional("Name to use instead.")
    moved_from: Text | None = optional("Former name.")
    since: Text | None = optional("First release with the key; unset: older than v0.4.0.")
    note: Prose | None = optional("Remark on the key.")
    default_changes: tuple[DefaultChange, ...] = Field((), description="Defaults over time, oldest first.")


class ConfigKeyFile(Record):
    """The file ``config_keys.yaml``."""

    config_keys: tuple[ConfigKey, ...] = Field(
        description="Keys; a later one replaces an earlier one of the same name."
    )


class AccuracyPart(Record):
    """The cases of a group with the same generation of verl, LoRA or full training, and kind of model."""

    today: bool = Field(description="verl v0.8.0 or later.")
    lora: bool = Field(description="Adapters are trained; false: all parameters.")
    experts: bool = Field(description="The model has experts; false: it is dense.")
    cases: int = Field(ge=1, description="Number of cases whose measured value is compared.")
    mean_error: float = Field(ge=0, description="Mean absolute relative error; 0.05 is 5 %.")


class Accuracy(NamedRecord):
    """The errors of a group of cases, and the width of the range derived from them."""

    name: Text = Field(description="Name of the group of cases.")
    cases: int = Field(ge=1, description="Number of cases whose measured value is compared.")
    mean_error: float = Field(ge=0, description="Mean absolute relative error; 0.05 is 5 %.")
    median_error: float = Field(ge=0, description="Median absolute relative error.")
    worst_error: float = Field(ge=0, description="Largest absolute relative error.")
    out_of_fold: float = Field(
        ge=0, description="Mean error with constants that are fitted only to cases from other sources."
    )
    inside: float = Field(
        ge=0, le=1, description="Share of measured values inside the ranges fitted to other sources."
    )
    half_width: float = Field(
        ge=0, description="Median half width of a range, relative to the computed value."
    )
    widening: float | None = optional(
        "Factor on the distances from computed values to the ends of their ranges.", gt=0
    )
    parts: tuple[AccuracyPart, ...] = Field((), description="Errors of similar verl runs in the group.")


class AccuracyFile(Record):
    """The file ``accuracy.yaml``."""

    accuracy: tuple[Accuracy, ...] = Field(
        description="Groups of cases; a later one replaces an earlier one of the same name."
    )
