"""A case: a public observation of a training run's memory that the estimator is tested on.

The same records describe runs to estimate, without an observation.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from ..records import MOST_GPUS, Record, SettingValue, Text, Url, optional, problem
from ..strict_yaml import dotted_leaves

#: Sentences from a source or about it. Unlike ``Prose``, they may contain something like an e-mail address:
#: places such as ``owner/repository@v1.2:path`` look like one.
Words = Annotated[str, StringConstraints(min_length=1, max_length=4000)]

Outcome = Literal["measured", "fits", "oom"]

CounterKind = Literal[
    "torch-allocated",
    "torch-allocated-with-pool",
    "torch-reserved",
    "torch-static",
    "device",
    "unstated",
]


def counter_kind(counter: str) -> CounterKind:
    """Classify a counter by its description; ``unstated`` if that is unclear.

    >>> counter_kind("torch-max-allocated"), counter_kind("nvidia-smi"), counter_kind("Peak VRAM")
    ('torch-allocated', 'device', 'unstated')
    """
    text = counter.casefold()

    def says(*words: str) -> bool:
        return any(word in text for word in words)

    if says("reserved") and not says("alloc"):
        return "torch-reserved"
    if says("torch", "alloc"):
        if says("after", "before", "init", "load", "static") and not says("max", "peak"):
            return "torch-static"
        with_pool = says("pool") and not says("without", "exclud", "subtract")
        return "torch-allocated-with-pool" if with_pool else "torch-allocated"
    return "device" if says("smi", "nvml", "dcgm", "device", "dashboard") else "unstated"


def _flat(settings: Any) -> Any:
    """Flatten nested keys to dotted ones; the schema rejects anything but a mapping."""
    if not isinstance(settings, Mapping):
        return settings
    flat: dict[str, Any] = {}
    for key, value in dotted_leaves(settings):
        if key in flat:
            raise problem(
                "duplicate_key",
                f"duplicate key {key[:200]!r}, dotted and nested",
                "keep one of the two",
            )
        flat[key] = value
    return flat


def _source(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return {"url" if re.match("https?://", value) else "where": value}


def _or_text(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"type": "string"}, *schema["anyOf"]]


def _some(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


_TEXTS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}


class Source(Record):
    """The source of the observation."""

    repo: Text | None = optional("Repository, as owner/name.")
    path: Text | None = optional("File in the repository.")
    commit: Text | None = optional("Commit, tag or branch.")
    issue: int | None = optional("Issue or pull request, instead of a file.", ge=1, le=10_000_000)
    url: Url | None = optional("Address of a source outside GitHub's repositories.")
    where: Words | None = optional("Place in the file or issue; without a repository, the source in words.")

    @property
    def address(self) -> str | None:
        """The given address, otherwise the address of the issue or file; None if the source has none.

        Without a commit, it is the address of the file on the default branch.
        """
        if self.url or not re.fullmatch(r"[\w.-]+/[\w.-]+", self.repo or ""):
            return self.url
        if self.issue:
            return f"https://github.com/{self.repo}/issues/{self.issue}"
        return (
            f"https://github.com/{self.repo}/blob/{self.commit or 'HEAD'}/{self.path}" if self.path else None
        )


class CaseGpus(Record):
    """The GPUs of the run, as far as known."""

    count: int | None = optional("Number of GPUs, over all nodes.", ge=1, le=MOST_GPUS)
    type: Text | None = optional(
        "Name or alias in gpus.yaml, or the source's own words.",
        examples=["H100", "H800", "A100", "H20"],
    )
    nodes: int | None = optional("Number of nodes.", ge=1, le=MOST_GPUS)
    memory_gb: float | None = optional("Nominal memory per GPU, in GB.", gt=0, le=10_000)
    memory_note: Words | None = optional("Source of the memory figure, if not the type.")
    note: Words | None = optional("Remark on the GPUs.")


class Lora(Record):
    """Low-rank adapters on a frozen base."""

    rank: int = Field(ge=1, le=1_000_000, description="Rank of the adapters.")
    targets: Annotated[
        tuple[Text, ...],
        BeforeValidator(_some),
        WithJsonSchema({"anyOf": [{"type": "string"}, _TEXTS]}),
    ] = Field((), description="Modules with adapters, or all-linear.")


class Sharding(Record):
    """The number of GPUs that share the states."""

    fsdp: int | None = optional("GPUs that share one copy of the states.", ge=1, le=MOST_GPUS)


class Training(Record):
    """A plain training run, without reinforcement learning."""

    method: Text | None = optional("full or lora.")
    lora: Lora | None = optional("Adapters.")
    parameter_dtype: Text | None = optional("Data type of the parameters, such as bfloat16.")
    autocast: bool | None = optional("The compute runs under autocast.")
    compute_dtype: Text | None = optional("Data type of the compute.")
    optimizer: Text | None = optional("Optimizer and variant, such as adamw-foreach.")
    sharding: Sharding | None = optional("Sharding of the states over the GPUs.")
    micro_batch_per_gpu: int | None = optional("Sequences per micro-batch on one GPU.", ge=1, le=100_000_000)
    sequence_length: int | None = optional("Tokens per sequence.", ge=1, le=100_000_000)
    packed: bool | None = optional("Every sequence is filled to sequence_length.")
    recompute: Text | None = optional(
        "full: the backward pass recomputes each layer. none: no recomputation."
    )
    loss: Text | None = optional(
        "torch: upcast copies of the logits. fused: cross-entropy in one kernel. liger: fused with the "
        "output layer, without logits in memory. chunked: cross-entropy over parts of the sequence."
    )
    kernels: Text | None = optional("Kernels that replace PyTorch's, or PyTorch's compiler.")


class ObservedTokens(Record):
    """The tokens that the run processed in the logged step."""

    prompt_length_mean: float | None = optional("Mean length of a prompt.", gt=0, le=1e12)
    prompt_length_min: float | None = optional("Shortest prompt.", ge=0, le=1e12)
    prompt_length_max: float | None = optional("Longest prompt.", gt=0, le=1e12)
    response_length_mean: float | None = optional("Mean length of a response.", gt=0, le=1e12)
    response_length_min: float | None = optional("Shortest response.", ge=0, le=1e12)
    response_length_max: float | None = optional("Longest response.", gt=0, le=1e12)
    global_seqlen_mean: float | None = optional("Mean tokens of a data-parallel rank.", gt=0, le=1e12)
    global_seqlen_min: float | None = optional("Tokens of the rank with the fewest.", ge=0, le=1e12)
    global_seqlen_max: float | None = optional("Tokens of the rank with the most.", gt=0, le=1e12)
    total_num_tokens: float | None = optional("Tokens of all ranks.", gt=0, le=1e12)


class CaseMeasured(Record):
    """The measured figures; per GPU unless the name says otherwise."""

    gib: float | None = optional("Peak GPU memory in GiB (2^30 bytes).", gt=0, le=1e5)
    counter: Words | None = optional("Counter of the peak, in the words of the source.")
    counter_kind: CounterKind = Field(
        "unstated",
        description="``torch-allocated``: peak of torch's allocated bytes in the training process. "
        "``torch-allocated-with-pool``: the same, with the pool of a sleeping engine in that process. "
        "``torch-reserved``: torch's reserved bytes. ``torch-static``: bytes allocated before the first "
        "training step. ``device``: bytes in use on the GPU. ``unstated``: unknown. Default: derived from "
        "the text of counter.",
    )
    reserved_gib: float | None = optional("Peak of torch's reserved bytes in GiB.", gt=0, le=1e5)
    steady_gib: float | None = optional("Allocated bytes between two steps, in GiB.", gt=0, le=1e5)
    nvidia_smi_mib: float | None = optional("Memory in use on the GPU, in MiB (2^20 bytes).", gt=0, le=1e8)
    host_ram_gib: float | None = optional("Host memory in use per node, in GiB.", gt=0, le=1e6)

    @model_validator(mode="before")
    @classmethod
    def _kind_of_counter(cls, value: Any) -> Any:
        counter = value.get("counter") if isinstance(value, dict) else None
        if isinstance(counter, str) and "counter_kind" not in value:
            return {**value, "counter_kind": counter_kind(counter)}
        return value


class Case(Record):
    """An observation, or a run to estimate."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["config"]}, {"required": ["training"]}]}
    )

    id: Text = Field(description="Unique name.")
    source: Annotated[Source | None, BeforeValidator(_source)] = optional(
        "Source: keys and values, or one line.", json_schema_extra=_or_text
    )
    framework: Text | None = optional("verl, a fork of verl, or the trainer of a plain run.")
    version: Text | None = optional("Release, commit or version of the engine, as far as known.")
    task: Text | None = optional("Algorithm and variant, for example grpo-lora.")
    model: Text = Field(
        description="Hugging Face name of the model, as in architectures.yaml.",
        examples=["Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-8B"],
    )
    train: Text | None = optional("Training backend, if the source gives it.")
    infer: Text | None = optional("Rollout engine, if the source gives it.")
    gpus: CaseGpus = Field(
        default_factory=CaseGpus,
        description="GPUs of the run.",
        examples=[{"count": 8, "type": "H100", "memory_gb": 80}],
    )
    config: Annotated[
        Mapping[Annotated[str, StringConstraints(min_length=1, max_length=300)], SettingValue] | None,
        BeforeValidator(_flat),
        WithJsonSchema({"type": "object"}),
    ] = optional(
        "Values of verl's dotted configuration keys, as far as the source gives them; nested keys are "
        "allowed too. Unset keys have verl's defaults."
    )
    training: Training | None = optional("Settings of a plain training run, instead of config.")
    observed_tokens: ObservedTokens | None = optional("Tokens that the run processed in the logged step.")
    outcome: Outcome | None = optional(
        "measured: the run has a figure. fits: it ran, without a figure. oom: it ran out of GPU memory. "
        "Unset: the run is only to be estimated."
    )
    phase: Words | None = optional("Phase of the peak or of the error, if the source gives it.")
    oom_message: Words | None = optional("Numbers of the out-of-memory error.")
    measured: CaseMeasured | None = optional("Measured figures.")
    confidence: Text | None = optional("Certainty of the settings, not of the figure: high, medium or low.")
    note: Words | None = optional("Remark on the comparison with estimates.")
    contested: Words | None = optional(
        "Source that contradicts the observation; a contested case is not scored."
    )
    not_scored: Words | None = optional("Reason why an uncontested case is not scored.")

    @model_validator(mode="after")
    def _has_settings(self) -> "Case":
        if self.config is None and self.training is None:
            raise problem(
                "missing_key",
                "the case has no settings that determine memory",
                "add 'config' with keys of verl's configuration, or 'training' for a plain training run",
            )
        return self

    @property
    def is_scored(self) -> bool:
        """True if an estimate is compared with the observation."""
        return self.outcome is not None and self.contested is None and self.not_scored is None


class CaseFile(RootModel[tuple[Case, ...]]):
    """A file with a list of cases."""

    model_config = ConfigDict(frozen=True, strict=True, defer_build=True)
