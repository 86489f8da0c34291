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

from ..records import MOST_GPUS, Record, SettingValue, Text, Url, problem
from .request import dotted_leaves

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
    """The source of the observation.

    Attributes:
        repo: Repository, as owner/name.
        path: File in the repository.
        commit: Commit, tag or branch.
        issue: Issue or pull request, instead of a file.
        url: Address of a source outside GitHub's repositories.
        where: Place in the file or issue; without a repository, the source in words.
    """

    repo: Text | None = None
    path: Text | None = None
    commit: Text | None = None
    issue: int | None = Field(None, ge=1, le=10_000_000)
    url: Url | None = None
    where: Words | None = None

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
    """The GPUs of the run, as far as known.

    Attributes:
        count: Number of GPUs, over all nodes.
        type: Name or alias in gpus.yaml, or the source's own words.
        nodes: Number of nodes.
        memory_gb: Nominal memory per GPU, in GB.
        memory_note: Source of the memory figure, if not the type.
        note: Remark on the GPUs.
    """

    count: int | None = Field(None, ge=1, le=MOST_GPUS)
    type: Text | None = Field(None, examples=["H100", "H800", "A100", "H20"])
    nodes: int | None = Field(None, ge=1, le=MOST_GPUS)
    memory_gb: float | None = Field(None, gt=0, le=10_000)
    memory_note: Words | None = None
    note: Words | None = None


class Lora(Record):
    """Low-rank adapters on a frozen base.

    Attributes:
        rank: Rank of the adapters.
        targets: Modules with adapters, or all-linear.
    """

    rank: int = Field(ge=1, le=1_000_000)
    targets: Annotated[
        tuple[Text, ...],
        BeforeValidator(_some),
        WithJsonSchema({"anyOf": [{"type": "string"}, _TEXTS]}),
    ] = ()


class Sharding(Record):
    """The number of GPUs that share the states.

    Attributes:
        fsdp: GPUs that share one copy of the states.
    """

    fsdp: int | None = Field(None, ge=1, le=MOST_GPUS)


class Training(Record):
    """A plain training run, without reinforcement learning.

    Attributes:
        method: full or lora.
        lora: Adapters.
        parameter_dtype: Data type of the parameters, such as bfloat16.
        autocast: The compute runs under autocast.
        compute_dtype: Data type of the compute.
        optimizer: Optimizer and variant, such as adamw-foreach.
        sharding: Sharding of the states over the GPUs.
        micro_batch_per_gpu: Sequences per micro-batch on one GPU.
        sequence_length: Tokens per sequence.
        packed: Every sequence is filled to sequence_length.
        recompute: full: the backward pass recomputes each layer. none: no recomputation.
        loss: torch: upcast copies of the logits. fused: cross-entropy in one kernel. liger: fused with the
            output layer, without logits in memory. chunked: cross-entropy over parts of the sequence.
        kernels: Kernels that replace PyTorch's, or PyTorch's compiler.
    """

    method: Text | None = None
    lora: Lora | None = None
    parameter_dtype: Text | None = None
    autocast: bool | None = None
    compute_dtype: Text | None = None
    optimizer: Text | None = None
    sharding: Sharding | None = None
    micro_batch_per_gpu: int | None = Field(None, ge=1, le=100_000_000)
    sequence_length: int | None = Field(None, ge=1, le=100_000_000)
    packed: bool | None = None
    recompute: Text | None = None
    loss: Text | None = None
    kernels: Text | None = None


class ObservedTokens(Record):
    """The tokens that the run processed in the logged step.

    Attributes:
        prompt_length_mean: Mean length of a prompt.
        prompt_length_min: Shortest prompt.
        prompt_length_max: Longest prompt.
        response_length_mean: Mean length of a response.
        response_length_min: Shortest response.
        response_length_max: Longest response.
        global_seqlen_mean: Mean tokens of a data-parallel rank.
        global_seqlen_min: Tokens of the rank with the fewest.
        global_seqlen_max: Tokens of the rank with the most.
        total_num_tokens: Tokens of all ranks.
    """

    prompt_length_mean: float | None = Field(None, gt=0, le=1e12)
    prompt_length_min: float | None = Field(None, ge=0, le=1e12)
    prompt_length_max: float | None = Field(None, gt=0, le=1e12)
    response_length_mean: float | None = Field(None, gt=0, le=1e12)
    response_length_min: float | None = Field(None, ge=0, le=1e12)
    response_length_max: float | None = Field(None, gt=0, le=1e12)
    global_seqlen_mean: float | None = Field(None, gt=0, le=1e12)
    global_seqlen_min: float | None = Field(None, ge=0, le=1e12)
    global_seqlen_max: float | None = Field(None, gt=0, le=1e12)
    total_num_tokens: float | None = Field(None, gt=0, le=1e12)


class CaseMeasured(Record):
    """The measured figures; per GPU unless the name says otherwise.

    Attributes:
        gib: Peak GPU memory in GiB (2^30 bytes).
        counter: Counter of the peak, in the words of the source.
        counter_kind: ``torch-allocated``: peak of torch's allocated bytes in the training process.
            ``torch-allocated-with-pool``: the same, with the pool of a sleeping engine in that process.
            ``torch-reserved``: torch's reserved bytes. ``torch-static``: bytes allocated before the first
            training step. ``device``: bytes in use on the GPU. ``unstated``: unknown. Default: derived from
            the text of counter.
        reserved_gib: Peak of torch's reserved bytes in GiB.
        steady_gib: Allocated bytes between two steps, in GiB.
        nvidia_smi_mib: Memory in use on the GPU, in MiB (2^20 bytes).
        host_ram_gib: Host memory in use per node, in GiB.
    """

    gib: float | None = Field(None, gt=0, le=1e5)
    counter: Words | None = None
    counter_kind: CounterKind = "unstated"
    reserved_gib: float | None = Field(None, gt=0, le=1e5)
    steady_gib: float | None = Field(None, gt=0, le=1e5)
    nvidia_smi_mib: float | None = Field(None, gt=0, le=1e8)
    host_ram_gib: float | None = Field(None, gt=0, le=1e6)

    @model_validator(mode="before")
    @classmethod
    def _kind_of_counter(cls, value: Any) -> Any:
        counter = value.get("counter") if isinstance(value, dict) else None
        if isinstance(counter, str) and "counter_kind" not in value:
            return {**value, "counter_kind": counter_kind(counter)}
        return value


class Case(Record):
    """An observation, or a run to estimate.

    Attributes:
        id: Unique name.
        source: Source: keys and values, or one line.
        framework: verl, a fork of verl, or the trainer of a plain run.
        version: Release, commit or version of the engine, as far as known.
        task: Algorithm and variant, for example grpo-lora.
        model: Hugging Face name of the model, as in architectures.yaml.
        train: Training backend, if the source gives it.
        infer: Rollout engine, if the source gives it.
        gpus: GPUs of the run.
        config: Values of verl's dotted configuration keys, as far as the source gives them; nested keys are
            allowed too. Unset keys have verl's defaults.
        training: Settings of a plain training run, instead of config.
        observed_tokens: Tokens that the run processed in the logged step.
        outcome: measured: the run has a figure. fits: it ran, without a figure. oom: it ran out of GPU
            memory. Unset: the run is only to be estimated.
        phase: Phase of the peak or of the error, if the source gives it.
        oom_message: Numbers of the out-of-memory error.
        measured: Measured figures.
        confidence: Certainty of the settings, not of the figure: high, medium or low.
        note: Remark on the comparison with estimates.
        contested: Source that contradicts the observation; a contested case is not scored.
        not_scored: Reason why an uncontested case is not scored.
    """

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["config"]}, {"required": ["training"]}]}
    )

    id: Text
    source: Annotated[Source | None, BeforeValidator(_source)] = Field(None, json_schema_extra=_or_text)
    framework: Text | None = None
    version: Text | None = None
    task: Text | None = None
    model: Text = Field(examples=["Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-8B"])
    train: Text | None = None
    infer: Text | None = None
    gpus: CaseGpus = Field(default_factory=CaseGpus, examples=[{"count": 8, "type": "H100", "memory_gb": 80}])
    config: Annotated[
        Mapping[Annotated[str, StringConstraints(min_length=1, max_length=300)], SettingValue] | None,
        BeforeValidator(_flat),
        WithJsonSchema({"type": "object"}),
    ] = None
    training: Training | None = None
    observed_tokens: ObservedTokens | None = None
    outcome: Outcome | None = None
    phase: Words | None = None
    oom_message: Words | None = None
    measured: CaseMeasured | None = None
    confidence: Text | None = None
    note: Words | None = None
    contested: Words | None = None
    not_scored: Words | None = None

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
