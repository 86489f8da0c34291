"""The file for programs: the recorded runs with their estimates, and the GPUs that they use."""

from typing import Literal

from pydantic import ConfigDict, Field

from ..names import Kind, Verdict, Word
from .base import Record
from .registries import Accuracy, Gpu
from .run import Run


class Computed(Record):
    """The estimate of a run, as pages show it. Memory is that of the GPU with the highest peak.

    For a run that ran, the peak is capped at its GPU's capacity.
    """

    verdict: Verdict = Field(
        description="``fits``: the high end of the range is within the GPU's capacity. ``borderline``: the "
        "capacity is inside the range. ``depends-on-lengths``: fits with short sequences, but not with "
        "sequences at their limits. ``does-not-fit``: even the low end exceeds the capacity. ``unknown``: "
        "the capacity, or a setting that determines memory, is unknown."
    )
    fits_up_to_tokens: float | None = Field(
        description="Longest mean sequence (prompt and response), in tokens, with which the run fits; null "
        "if the verdict does not depend on lengths."
    )
    peak_gib: float = Field(
        ge=0,
        description="Estimated peak in GiB (2^30 bytes); if lengths are unknown, with sequences at their "
        "limits.",
    )
    low_gib: float = Field(ge=0, description="Low end of the peak's range in GiB.")
    high_gib: float = Field(ge=0, description="High end of the peak's range in GiB.")
    capacity_gib: float | None = Field(description="Memory that the GPU offers to programs, in GiB.")
    binding_phase: str | None = Field(description="Phase with the peak; null if unknown.")
    measured_runs_of_this_kind: int = Field(
        ge=0,
        description="Number of measured cases that the estimator was compared with and that match the run in "
        "training backend, generation of verl, full or LoRA, and dense or with experts.",
    )


class ExportedRun(Record):
    """A recorded run."""

    id: str = Field(description="Unique name.")
    row_id: str = Field(description="Id of the run's row on a page, for links after '#'.")
    status: Kind = Field(description="Evidence for the run: the field kind of its record.")
    word: Word = Field(
        description="Evidence in one word. ran: tested, or with a published log or metrics. reported: "
        "sources report results of such a run. claimed: sources claim or recommend it."
    )
    record: Run = Field(description="The run as recorded in its file, without unset fields.")
    gpu: str | None = Field(description="Name in the list of GPUs; null if the source gives none.")
    computed: Computed | None = Field(description="Estimate; null if pages show none.")
    not_computed: str | None = Field(description="Reason why pages show no estimate; null if they show one.")


class Export(Record):
    """The file ``verl-resources.json`` next to the pages."""

    model_config = ConfigDict(populate_by_name=True)

    format: Literal[1] = Field(
        alias="schema", description="Version of the format. Changes when a field is removed or redefined."
    )
    extension_version: str = Field(description="Version of the extension that wrote the file.")
    verl_version: str = Field(description="Release of verl whose defaults apply to unset settings.")
    last_updated: str = Field(description="Newest date on which a run was added; empty if none is dated.")
    size_classes: tuple[str, ...] = Field(description="All size classes, in ascending order.")
    runs: tuple[ExportedRun, ...] = Field(description="Recorded runs, sorted by id.")
    gpus: tuple[Gpu, ...] = Field(description="GPUs of the runs, sorted by name.")
    accuracy: tuple[Accuracy, ...] = Field(
        description="Errors of the estimator by group of cases, sorted by name."
    )
