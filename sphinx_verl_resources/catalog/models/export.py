"""The file for programs: the recorded runs with their estimates, and the GPUs that they name."""

from typing import Literal

from pydantic import ConfigDict, Field

from ..names import Kind, Verdict, Word
from .base import Record
from .registries import Accuracy, Gpu
from .run import Run


class Computed(Record):
    """The estimate of a run, as pages show it. Memory is per GPU, on the GPU with the highest peak.

    A run that ran took at most what its GPU has.
    """

    verdict: Verdict = Field(
        description="fits: the upper end of the range is within the GPU's memory. borderline: the GPU's "
        "memory is inside the range. depends-on-lengths: fits with short sequences, not with sequences at "
        "their limits. does-not-fit: even the lower end is more than the GPU's memory. unknown: the GPU's "
        "memory, or a setting that decides memory, was not read."
    )
    fits_up_to_tokens: float | None = Field(
        description="Mean length of a sequence, prompt and response, in tokens, up to which the run fits; "
        "null where the lengths do not decide."
    )
    peak_gib: float = Field(
        ge=0,
        description="Computed peak in GiB (2^30 bytes); where lengths are unknown, with sequences at their "
        "limits.",
    )
    low_gib: float = Field(ge=0, description="Lower end of its range in GiB.")
    high_gib: float = Field(ge=0, description="Upper end of its range in GiB.")
    capacity_gib: float | None = Field(description="What the GPU offers to programs, in GiB.")
    binding_phase: str | None = Field(
        description="The phase that sets the peak; null where no phase can be told."
    )
    measured_runs_of_this_kind: int = Field(
        ge=0,
        description="Measured runs of the same training backend, time of verl, full or LoRA, dense or with "
        "experts, that the estimator was compared with.",
    )


class ExportedRun(Record):
    """A recorded run."""

    id: str = Field(description="Unique name.")
    row_id: str = Field(description="Id of its row on a page, to be linked after '#'.")
    status: Kind = Field(description="How the run is known: the field kind of its record.")
    word: Word = Field(
        description="The same in one word. ran: tested, or with a published log or metrics. reported: its "
        "sources report it. claimed: they recommend it."
    )
    record: Run = Field(description="The run as its file records it; what the file leaves out is left out.")
    gpu: str | None = Field(description="Name in the list of GPUs; null where the source names none.")
    computed: Computed | None = Field(description="null where pages show no estimate.")
    not_computed: str | None = Field(description="Why they show none; null where they do.")


class Export(Record):
    """The file ``verl-resources.json`` next to the pages."""

    model_config = ConfigDict(populate_by_name=True)

    format: Literal[1] = Field(
        alias="schema", description="Rises when a field goes or means something else, not when one is added."
    )
    extension_version: str = Field(description="Version of the extension that wrote the file.")
    verl_version: str = Field(description="Release of verl whose defaults hold where a run sets nothing.")
    last_updated: str = Field(description="Newest day on which a run was added; empty if none is dated.")
    size_classes: tuple[str, ...] = Field(description="All size classes, in ascending order.")
    runs: tuple[ExportedRun, ...] = Field(description="Sorted by id.")
    gpus: tuple[Gpu, ...] = Field(description="The GPUs that runs name, sorted by name.")
    accuracy: tuple[Accuracy, ...] = Field(
        description="Errors of the estimator by group of cases, sorted by name."
    )
