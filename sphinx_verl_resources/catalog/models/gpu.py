"""The GPU registry: memory per device."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import NamedRecord, Prose, Record, Text


class OtherReading(Record):
    """A further total that was seen for the same card."""

    memory_mib: int = Field(ge=1, le=100_000_000, description="Total in MiB (2^20 bytes).")
    note: Prose | None = Field(None, description="Where or when it was seen.")


class Gpu(NamedRecord):
    """One card."""

    name_fields = ("name", "aliases")

    name: Text = Field(description="The name that pages show.")
    vendor: Literal["nvidia", "amd", "huawei", "intel"] = Field(description="Maker of the card.")
    memory_gb: int = Field(ge=1, le=100_000, description="The figure the product is sold by.")
    memory_mib: int = Field(
        ge=1, le=100_000_000, description="Total in MiB (2^20 bytes) as the driver reports it."
    )
    kind: Literal["reading", "derived", "nominal"] = Field(
        description="reading: seen in a driver's output. derived: taken from a card with the same memory. "
        "nominal: the product's figure, no reading known."
    )
    cuda_total_gib: float | None = Field(
        None, gt=0, le=100_000, description="Total that CUDA offers to a process, in GiB (2^30 bytes)."
    )
    aliases: tuple[Text, ...] = Field(
        (), description="Other spellings; case, spaces and hyphens do not matter."
    )
    other_readings: tuple[OtherReading, ...] = Field((), description="Other totals seen for the same card.")
    note: Prose | None = Field(None, description="What a reader should know about these figures.")


class GpuFile(Record):
    """The file ``gpus.yaml``."""

    gpus: tuple[Gpu, ...] = Field(
        description="The cards; an entry replaces one of the same name read before."
    )
