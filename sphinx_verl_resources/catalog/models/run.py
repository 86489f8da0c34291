"""One recorded training run: a row of the hardware page."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from ..names import ADAPTER_RANKS, MOST_GPUS, SIZES, Engine, Kind, PageColumn, Tag, Train, Word, sizes_hint
from .base import (
    SLUG,
    Checkpoint,
    GitRef,
    GpuName,
    IsoDate,
    Prose,
    Record,
    RepoPath,
    Text,
    Url,
    one_line,
    optional,
    pattern,
    problem,
    slug,
)

_DOTTED = pattern(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", "verl's dotted key, without '+' or '++' before it")
_VERSION = pattern(r"^[0-9A-Za-z][0-9A-Za-z.+_-]{0,39}$", "a version such as 0.8.3")
_LINES = pattern(r"^[1-9][0-9]{0,5}(-[1-9][0-9]{0,5})?$", "a line or first and last line, such as 40-45")

#: Characters of an id.
MAX_ID_LENGTH = 80
RunId = Annotated[str, StringConstraints(pattern=SLUG, max_length=MAX_ID_LENGTH)]
NoteCode = Annotated[str, StringConstraints(pattern=SLUG, max_length=60)]
Version = Annotated[str, StringConstraints(pattern=_VERSION)]
Lines = Annotated[str, StringConstraints(pattern=_LINES)]
SettingKey = Annotated[str, StringConstraints(pattern=_DOTTED, max_length=200)]


def _setting(value: Any) -> Any:
    items = value if isinstance(value, tuple) else (value,)
    if not all(item is None or isinstance(item, (str, int, float, bool)) for item in items):
        hint = "write keys with dots, as in data.train_batch_size: 64" if isinstance(value, dict) else ""
        raise problem("wrong_type", "expected text, a number, true, false, null or a list of these", hint)
    if len(items) > 100 or any(isinstance(item, str) and len(item) > 500 for item in items):
        raise problem("wrong_value", "expected at most 500 characters, or at most 100 items")
    for item in items:
        if isinstance(item, str) and item:
            one_line(item)
    return value


_SCALAR_SCHEMA: list[dict[str, Any]] = [{"type": kind} for kind in ("string", "number", "boolean", "null")]
SettingValue = Annotated[
    Any,
    AfterValidator(_setting),
    WithJsonSchema({"anyOf": [*_SCALAR_SCHEMA, {"type": "array", "items": {"anyOf": _SCALAR_SCHEMA}}]}),
]


def _size(value: str) -> str:
    if value not in SIZES:
        raise problem("unknown_size", f"unknown size class {value!r}", sizes_hint(value))
    return value


def _equals_stem(run_id: str, info: ValidationInfo) -> str:
    stem = info.context["stem"] if info.context else run_id
    if run_id != stem:
        near = slug(stem)
        remedy = f"rename both, for example to {near}" if near else f"rename the file to {run_id}.yaml"
        if re.fullmatch(SLUG, stem):
            remedy = f"write id: {stem}, or rename the file"
        raise problem("id_mismatch", f"{run_id!r} differs from the file name {stem + '.yaml'!r}", remedy)
    return run_id


class Gpus(Record):
    """The number and type of the GPUs."""

    count: int = Field(ge=1, le=MOST_GPUS, description="Number of GPUs, over all nodes.")
    type: GpuName | None = Field(
        description="Name or alias in gpus.yaml; null if the source does not give the type.",
        examples=["H100", "H800", "A100", "H20"],
    )
    nodes: int | None = optional("Number of nodes.", ge=1, le=MOST_GPUS)
    memory_gb: float | None = optional(
        "Stated memory per GPU in GB, if the source gives no type.", gt=0, le=10_000
    )

    def __str__(self) -> str:
        """Return count and type, for example ``8*H20``; an unknown type is shown as GPU."""
        if self.type:
            return f"{self.count}*{self.type}"
        memory = f" {self.memory_gb:g} GB" if self.memory_gb else ""
        return f"{self.count}*GPU{memory}"


class Infer(Record):
    """The rollout engine."""

    engine: Engine = Field(description="Rollout engine.")
    version: Version | None = optional('Version of the engine, in quotes: "0.8.3".')

    def __str__(self) -> str:
        return f"{self.engine}{self.version or ''}"


class Versions(Record):
    """Software versions, at least one; the rollout engine's version is in ``infer``."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    verl: Version | None = optional('Release or commit of verl, in quotes: "0.8.0", "49b08e950".')
    torch: Version | None = optional('Release of PyTorch, in quotes: "2.6.0".')

    @model_validator(mode="after")
    def _says_something(self) -> "Versions":
        if self.verl is None and self.torch is None:
            raise problem("missing_key", "'versions' needs at least one of 'verl' and 'torch'")
        return self


class Script(Record):
    """The launch script at a fixed commit."""

    ref: GitRef = Field(description="Commit of verl's repository that the link points to.")
    path: RepoPath = Field(description="Path of the script in that commit.")
    text: Text | None = optional("Link text; default: the file name.")

    def __str__(self) -> str:
        return self.text or self.path.rsplit("/", 1)[-1]


class Contributor(Record):
    """The person who reported the run."""

    name: Text = Field(description="Name or handle, not an e-mail address.")
    url: Url | None = optional("Public profile.")

    def __str__(self) -> str:
        return self.name


def _some_figure(schema: dict[str, Any]) -> None:
    """Require at least one figure in the JSON Schema."""
    schema["anyOf"] = [{"required": [name]} for name in schema["properties"] if name != "counter"]


class Measured(Record):
    """Figures that the run reported, at least one; per GPU or per node as described."""

    model_config = ConfigDict(json_schema_extra=_some_figure)

    gib: float | None = optional("Peak GPU memory in GiB (2^30 bytes), per GPU.", gt=0, le=100_000)
    counter: Literal["torch-max-allocated", "torch-max-reserved", "device", "not-stated"] = Field(
        "not-stated", description="Counter of the peak."
    )
    host_ram_gib: float | None = optional("Host memory in GiB per node.", gt=0, le=1_000_000)
    step_seconds: float | None = optional("Mean time per training step, in seconds.", gt=0, le=10_000_000)
    mfu: float | None = optional("Model FLOPs utilisation, from 0 to 1.", gt=0, le=1)
    response_tokens: float | None = optional("Mean response length, in tokens.", gt=0, le=100_000_000)

    @model_validator(mode="after")
    def _has_a_figure(self) -> "Measured":
        if all(value is None for name, value in self if name != "counter"):
            raise problem("missing_key", "'measured' needs at least one figure, for example 'gib'")
        return self


class Evidence(Record):
    """Evidence for the claim: an address, or a place in verl's repository."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["url"]}, {"required": ["ref"]}],
            "dependencies": {"path": ["ref"], "lines": ["path"]},
        }
    )

    kind: Literal["log", "metrics", "screenshot", "document", "script", "commit", "issue"] = Field(
        description="Kind of evidence."
    )
    url: Url | None = optional("Address, for evidence outside verl's repository.")
    ref: GitRef | None = optional("Commit of verl's repository.")
    path: RepoPath | None = optional("File in that commit; unset: the commit itself.")
    lines: Lines | None = optional('Line, or first and last line, of that file, in quotes: "40-45".')

    @model_validator(mode="after")
    def _one_place(self) -> "Evidence":
        if (self.url is None) == (self.ref is None):
            raise problem("wrong_value", "evidence needs either 'url' or 'ref', not both")
        if (self.path and not self.ref) or (self.lines and not self.path):
            raise problem("missing_key", "'path' needs 'ref', and 'lines' needs 'path'")
        return self

    def __str__(self) -> str:
        return self.kind


class Note(Record):
    """A remark, linked from a mark in the row."""

    code: NoteCode = Field(description="Short name of the remark, for example max-batch-contested.")
    about: PageColumn = Field("tag", description="Field whose cell shows the mark.")
    text: Prose = Field(description="One or more plain sentences.")

    def __str__(self) -> str:
        return self.text


def _tested_runs_name_everything(schema: dict[str, Any]) -> None:
    """Add the check that ``catalog._check_claims`` does on tested runs to the JSON Schema."""
    text = {"type": "string"}
    named = {"tag": text, "gpus": {"properties": {"type": text}}, "infer": {"type": "object"}}
    weaker = {"required": ["kind"], "properties": {"kind": {"not": {"const": "tested"}}}}
    schema.update({"if": {"not": weaker}, "then": {"properties": named}})


class Run(Record):
    """One run per file; the file is named ``<id>.yaml``."""

    model_config = ConfigDict(json_schema_extra=_tested_runs_name_everything)

    id: Annotated[RunId, AfterValidator(_equals_stem)] = Field(
        description="Unique name; equals the file name without .yaml."
    )
    size: Annotated[str, AfterValidator(_size), WithJsonSchema({"type": "string", "enum": list(SIZES)})] = (
        Field(
            description="Size class: the section of the page with the run.",
            examples=["0.5B", "7B", "70B"],
        )
    )
    tag: Tag | None = Field(
        description="MIN: settings that save memory, or the least hardware. RECOMMENDED: settings for "
        "throughput. null if the source claims neither."
    )
    model: Checkpoint = Field(
        description="Hugging Face name of the model that the script loads, as in architectures.yaml.",
        examples=["Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-8B"],
    )
    task: Text = Field(
        description="Algorithm and variant.",
        examples=["GRPO", "GRPO-LoRA", "PPO", "DAPO"],
    )
    gpus: Gpus = Field(
        description="Number of GPUs over all nodes, and their type.", examples=[{"count": 4, "type": "H800"}]
    )
    train: Train = Field(description="Training backend.")
    infer: Infer | None = Field(
        description="Rollout engine; null if the source does not give it.",
        examples=[{"engine": "vllm", "version": "0.8.3"}],
    )
    label: Text | None = optional("Text in the Model column; default: the model's short name.")
    max_batch: int | None = optional("Largest batch that fits, in prompts per step.", ge=1, le=10_000_000)
    script: Script | None = optional("Launch script.")
    contributor: Contributor | None = optional(
        "Person who reported the run.", examples=[{"name": "Jane Doe", "url": "https://github.com/janedoe"}]
    )
    kind: Kind = Field(
        "tested",
        description="tested: the contributor ran it. measured: verl's sources report results of such a run. "
        "stated: they claim or recommend it. script-default: only a script's defaults.",
    )
    added: IsoDate | None = optional("Date on which the run was added to the data.")
    versions: Versions | None = optional(
        "Software versions, except the rollout engine's.",
        examples=[{"verl": "0.8.0", "torch": "2.8.0"}],
    )
    settings: Mapping[SettingKey, SettingValue] = Field(
        default_factory=dict,
        description="Values of verl's dotted configuration keys, as run.",
        examples=[{"data.train_batch_size": 1024, "actor_rollout_ref.rollout.n": 5}],
        json_schema_extra={"additionalProperties": False},
    )
    measured: Measured | None = optional("Figures that the run reported.")
    evidence: tuple[Evidence, ...] = Field((), description="Evidence for the claim.")
    notes: tuple[Note, ...] = Field((), description="Remarks, each linked from a mark in the row.")

    @property
    def short_name(self) -> str:
        """The name in the Model column: the label, or the checkpoint without its owner."""
        return self.label or self.model.rsplit("/", 1)[-1]

    @property
    def trains_adapters(self) -> bool:
        """True if the run trains LoRA adapters instead of all parameters."""
        return "lora" in self.task.lower() or any(self.settings.get(key) for key in ADAPTER_RANKS)

    @property
    def word(self) -> Word:
        """The evidence for the run in one word.

        The word is ``ran`` if the contributor ran it, or if its log or metrics are published.
        """
        if self.kind == "tested":
            return "ran"
        if self.kind == "measured":
            published = any(item.kind in ("log", "metrics") for item in self.evidence)
            return "ran" if published else "reported"
        return "claimed"

    @property
    def was_seen_to_run(self) -> bool:
        """True if it was run or its results were reported; False if sources only claim it."""
        return self.word != "claimed"
