"""The keys of verl's configuration that decide memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from .base import NamedRecord, Prose, Record, Text

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
    since: Text | None = Field(None, description="First release that has it.")


class ConfigKey(NamedRecord):
    """One key."""

    name_fields = ("name",)

    name: Text = Field(description="The dotted key.")
    group: Literal["scale", "model", "actor", "fsdp", "megatron", "ref", "rollout", "critic"] = Field(
        description="What it belongs to."
    )
    type: KeyType = Field(description="Type of the value.")
    default: Default = Field(description="Default in the composed configuration.")
    in_yaml: bool = Field(
        True, description="false: only a dataclass has the field; to be set with a plus before it."
    )
    dataclass_default: Default = Field(
        None, description="Default of the dataclass, where it differs from the composed configuration."
    )
    phases: tuple[Phase, ...] = Field(
        description="Phases whose peak on the GPU the key can change; none: it changes no peak."
    )
    effect: Prose = Field(description="What the key does to memory.")
    backends: tuple[Text, ...] = Field((), description="Training backends that read it; none named: all.")
    host_memory: bool = Field(False, description="It costs or saves host memory.")
    status: Literal["active", "deprecated", "moved", "no-op", "no-op with trainer.use_v1"] = Field(
        description="deprecated: still accepted. moved: an old name. no-op: accepted, without effect."
    )
    moved_to: Text | None = Field(None, description="The name to use instead.")
    moved_from: Text | None = Field(None, description="The name that it had before.")
    since: Text | None = Field(None, description="First release that has it; absent: older than v0.4.0.")
    note: Prose | None = Field(None, description="What else to know.")
    default_changes: tuple[DefaultChange, ...] = Field((), description="Defaults over time, oldest first.")
    rows_ran_with: Mapping[str, Default] = Field(
        default_factory=dict, description="Defaults when the published rows were measured, by commit."
    )
    variants: tuple[Variant, ...] = Field((), description="Other meanings under other backends.")


class ConfigKeyFile(Record):
    """The file ``config_keys.yaml``."""

    config_keys: tuple[ConfigKey, ...] = Field(
        description="The keys; an entry replaces one of the same name read before."
    )
