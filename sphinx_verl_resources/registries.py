"""Files of named entries, merged by name: GPUs, models, keys of verl's configuration, and the analysis."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from .diagnostics import Diagnostic
from .records import (
    MOST_GPUS,
    Checkpoint,
    GitRef,
    GpuName,
    IsoDate,
    Lines,
    Name,
    Named,
    NamedRecord,
    Prose,
    Record,
    RepoPath,
    SettingKey,
    Slug,
    Some,
    Text,
    Url,
    Values,
    by_name,
    fold,
    name_of,
    problem,
)
from .strict_yaml import Document
from .validation import entries_in, models_in, try_model, valid_entries, validated, value_at

#: Covariant, so that a registry of the estimator's architectures is one of architectures.
Entry = TypeVar("Entry", bound=NamedRecord, covariant=True)


class Registry(Generic[Entry]):
    """Entries by any of their names, compared after ``fold``; a name resolves to the last entry that has it.

    An entry replaces an earlier one of the same name and inherits its other names, so that older data stay
    valid.

    Attributes:
        all_names: the names of all entries, also with errors, so that using one is not a second error.
    """

    def __init__(self) -> None:
        self._entries: dict[str, Any] = {}
        self._owners: dict[str, str] = {}  # by each name of an entry, its own name
        self.all_names: set[str] = set()

    def add(self, entry: NamedRecord) -> None:
        """Add an entry, or put it in the place of the one with its name."""
        own = fold(entry.name)
        self._entries[own] = entry
        self._owners |= dict.fromkeys(map(fold, entry.lookup_names), own)

    def __contains__(self, name: str) -> bool:
        """Return whether any entry, with or without errors, has the name."""
        return fold(name) in self._owners or fold(name) in self.all_names

    def __iter__(self) -> Iterator[Entry]:
        return (self._entries[own] for own in dict.fromkeys(self._owners.values()))

    def get(self, name: str) -> Entry | None:
        """Return the entry with this name, or None."""
        own = self._owners.get(fold(name))
        return None if own is None else self._entries[own]

    @property
    def names(self) -> list[str]:
        """All names and aliases as written, for hints."""
        return [name for entry in self for name in entry.lookup_names]


def sections_of(file_model: type[Record]) -> dict[str, type[NamedRecord]]:
    """Return the keys of a file whose values are lists of named entries, and the model of an entry."""
    models = {key: next(models_in(field.annotation)) for key, field in file_model.model_fields.items()}
    return {key: model for key, model in models.items() if issubclass(model, NamedRecord)}


def names_in(data: Any, section: str, model: type[NamedRecord]) -> list[str]:
    """Return the names of all entries under a key of unchecked data, with and without errors."""
    values = [value_at(entry, field) for entry in entries_in(data, section) for field in model.name_fields]
    words = (word for value in values for word in (value if isinstance(value, tuple) else (value,)))
    return [word for word in words if isinstance(word, str)]


def merge(
    document: Document, file_model: type[Record], registries: Mapping[str, Registry[Any]], context: Any = None
) -> list[Diagnostic]:
    """Add the valid entries under each key of a file to its registry, and return the problems."""
    _record, problems = validated(document, file_model, context)
    for section, model in sections_of(file_model).items():
        registry, first = registries[section], dict[str, tuple[int, str]]()
        registry.all_names |= {*map(fold, names_in(document.data, section, model))}
        for index, entry in enumerate(valid_entries(document.data, section, model, context)):
            if entry is None:
                continue
            for name in dict.fromkeys((entry.name, *entry.lookup_names)):
                other, of_other = first.setdefault(fold(name), (index, entry.name))
                if other != index:
                    message = f"{name!r} is also a name of entry {other + 1} of {section!r}, {of_other!r}"
                    remedy = "keep it in one of the two"
                    problems.append(document.diagnostic((section, index), "duplicate_name", message, remedy))
            registry.add(entry)
    return problems


class OtherReading(Record):
    """Another memory total seen for the same GPU.

    Attributes:
        memory_mib: Memory total in MiB (2^20 bytes).
        note: Source or date of the reading.
    """

    memory_mib: int = Field(ge=1, le=100_000_000)
    note: Prose | None = None


class Gpu(NamedRecord):
    """One GPU.

    Attributes:
        name: Name on pages.
        vendor: Maker of the GPU.
        memory_gb: Nominal memory of the product, in GB.
        memory_mib: Memory in MiB (2^20 bytes), as the driver reports it.
        kind: reading: from a driver's output. derived: from a GPU with the same memory. nominal: the
            product's figure, without a reading.
        cuda_total_gib: Memory that CUDA offers a process, in GiB (2^30 bytes).
        aliases: Other spellings; case, spaces, hyphens and NVIDIA, AMD or Huawei before them are ignored.
        other_readings: Other memory totals seen for the same GPU.
        bfloat16: false: the GPU has no bfloat16, so verl does not start.
        fast_link: false: PCIe, or a bridge between two, connects the GPUs of a node.
        note: Remark on the figures.
    """

    name_fields = ("name", "aliases")

    name: Name
    vendor: Literal["nvidia", "amd", "huawei", "intel"]
    memory_gb: int = Field(ge=1, le=100_000)
    memory_mib: int = Field(ge=1, le=100_000_000)
    kind: Literal["reading", "derived", "nominal"]
    cuda_total_gib: float | None = Field(None, gt=0, le=100_000)
    aliases: tuple[Name, ...] = ()
    other_readings: tuple[OtherReading, ...] = ()
    bfloat16: bool = True
    fast_link: bool = True
    note: Prose | None = None


class GpuFile(Record):
    """The file ``gpus.yaml``.

    Attributes:
        gpus: GPUs; a later one replaces an earlier one of the same name.
    """

    gpus: tuple[Gpu, ...]


class DefaultChange(Record):
    """A default since a release.

    Attributes:
        since: Release, or month of the first rows on verl's page.
        default: Default from then on.
    """

    since: Text
    default: Any


class ConfigKey(NamedRecord):
    """A key of verl's configuration.

    Attributes:
        name: Dotted name of the key.
        group: Part of the configuration that the key belongs to.
        type: Type of the value.
        default: Default in the composed configuration.
        in_yaml: false: only a dataclass has the key; set it with a plus before the key.
        phases: Phases whose peak the key can change; may be none.
        effect: Effect of the key on memory.
        backends: Training backends that read the key; empty: all.
        host_memory: The key costs or saves host memory.
        status: deprecated: still accepted. moved: an old name. no-op: accepted, without effect.
        moved_to: Name to use instead.
        moved_from: Former name.
        since: First release with the key; unset: older than v0.4.0.
        note: Remark on the key.
        default_changes: Defaults over time, oldest first.
    """

    name: Name
    group: Literal["scale", "model", "actor", "fsdp", "megatron", "ref", "rollout", "critic"]
    type: Literal["bool", "int", "float", "str", "list", "dict", "str or list"]
    default: Any
    in_yaml: bool = True
    phases: tuple[Text, ...]
    effect: Prose
    backends: tuple[Text, ...] = ()
    host_memory: bool = False
    status: Literal["active", "deprecated", "moved", "no-op", "no-op with trainer.use_v1"]
    moved_to: Text | None = None
    moved_from: Text | None = None
    since: Text | None = None
    note: Prose | None = None
    default_changes: tuple[DefaultChange, ...] = ()


class ConfigKeyFile(Record):
    """The file ``config_keys.yaml``.

    Attributes:
        config_keys: Keys; a later one replaces an earlier one of the same name.
    """

    config_keys: tuple[ConfigKey, ...]


# -- models; field names follow Hugging Face transformers, and sizes count elements, not bytes

#: A size, and a number of parameters.
Dimension = Annotated[int, Field(ge=1, le=10**9)]
Parameters = Annotated[int, Field(ge=1, le=10**15)]


class Architecture(NamedRecord):
    """A model shape, and the models that share it: the fields that pages and the analysis use.

    The estimator adds the others, and rejects unknown ones.

    Attributes:
        name: Short name.
        hf_id: Hugging Face name of the model with this config.json.
        aliases: Other models of the same shape.
        aliases_unverified: Models that probably have the same shape.
        hidden_size: Width of the residual stream.
        num_hidden_layers: Number of layers.
        intermediate_size: Width of the dense MLP; null: no dense MLP.
        num_attention_heads: Query heads.
        num_key_value_heads: Key and value heads.
        vocab_size: Rows of the embedding.
        parameters: Exact count without multi-token prediction.
        parameters_active: Parameters that a text token passes through.
    """

    model_config = ConfigDict(extra="ignore")
    name_fields = ("hf_id", "aliases", "aliases_unverified")

    name: Name
    hf_id: Name
    aliases: tuple[Name, ...] = ()
    aliases_unverified: tuple[Name, ...] = ()
    hidden_size: Dimension
    num_hidden_layers: int = Field(ge=1, le=10_000)
    intermediate_size: Dimension | None
    num_attention_heads: Dimension
    num_key_value_heads: Dimension
    vocab_size: Dimension
    parameters: int = Field(ge=1, le=10**15)
    parameters_active: int | None = Field(None, ge=1)


class ArchitectureFile(Record):
    """The file ``architectures.yaml``.

    Attributes:
        architectures: Model shapes; a later one replaces an earlier one of the same name.
    """

    architectures: tuple[Architecture, ...]


# -- the memory analysis; its formulas are in the module ``analysis``

ComponentName = Literal["parameters", "gradients", "optimizer", "activations", "kv-cache", "overhead"]
#: The components of the memory analysis, in the order of its sums.
COMPONENT_NAMES: tuple[str, ...] = get_args(ComponentName)
#: The largest values that the analysis accepts; larger ones are typing errors.
LIMITS = {"gpus": MOST_GPUS, "batch-size": 1_000_000, "sequence-length": 10_000_000}
TOTAL, REQUIREMENTS = "total", "requirements"
#: The subjects of remarks that are no names.
SUBJECTS = (
    *COMPONENT_NAMES, TOTAL, REQUIREMENTS,
    "vocabulary-size", "sequence-length", "batch-size", "ffn-ratio", "memory-limit", "gpus",
)  # fmt: skip

Bytes = Annotated[float, Field(ge=0, le=64)]
#: The name of an entry of ``specifications``.
Specified = Annotated[Text, name_of("specifications")]


def _is_current(name: str, info: Any) -> str:
    """Reject a key that verl's configuration has moved, or no longer uses."""
    key: ConfigKey | None = info.context and info.context["config_keys"].get(name)
    if key and key.status != "active":
        remedy = f"use {key.moved_to!r}" if key.moved_to else (key.note or "remove it")
        raise problem("config_key", f"the status of the key {name!r} is {key.status!r}", remedy)
    return name


#: A key of verl's configuration that can be recommended.
CurrentKey = Annotated[
    SettingKey, name_of("config_keys", what="key", code="config_key"), AfterValidator(_is_current)
]
#: A subject of a remark.
Subject = Annotated[
    Text, name_of("subjects", "steps", "trade_offs", "commands", "metrics", "config_keys", what="subject")
]


class Assumptions(Record):
    """The assumptions behind every figure of the analysis.

    Attributes:
        precision: Number format, for display.
        optimizer: Optimizer, for display.
        parameter_bytes: Bytes per parameter; 2 for BF16.
        gradient_bytes: Bytes per gradient.
        optimizer_bytes: Bytes per optimizer moment.
        optimizer_moments: Optimizer moments per parameter; 2 for AdamW.
        activation_bytes: Bytes per activation.
        kv_cache_bytes: Bytes per element of the KV cache.
        overhead_gb: CUDA context and libraries, in GB per GPU.
        vocabulary_size: Vocabulary size. No formula uses it.
        sequence_length: Tokens per sequence.
        batch_size: Sequences per batch.
        ffn_ratio: Ratio of feed-forward width to hidden size.
        gpus: Number of GPUs of models that set none.
        memory_limit: Highest advisable share of a GPU's memory.
    """

    # A later file may set only some of them.
    model_config = ConfigDict(json_schema_extra=lambda schema: schema.update(required=[]))

    precision: Text
    optimizer: Text
    parameter_bytes: Bytes
    gradient_bytes: Bytes
    optimizer_bytes: Bytes
    optimizer_moments: int = Field(ge=0, le=8)
    activation_bytes: Bytes
    kv_cache_bytes: Bytes
    overhead_gb: float = Field(ge=0, le=1000)
    vocabulary_size: Parameters
    sequence_length: int = Field(ge=1, le=10**7)
    batch_size: int = Field(ge=1, le=10**6)
    ffn_ratio: float = Field(gt=0, le=100)
    gpus: int = Field(ge=1, le=MOST_GPUS)
    memory_limit: float = Field(gt=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _keep_earlier(cls, value: Any, info: Any) -> Any:
        earlier = dict((info.context or {}).get("assumptions") or ())
        if not isinstance(value, dict):
            return value
        return earlier | {key: item for key, item in value.items() if item is not None}


class VerlState(Record):
    """The commit of verl that remarks and configuration keys were checked against.

    Attributes:
        ref: Commit of verl's repository.
        date: Date of the commit.
    """

    ref: GitRef
    date: IsoDate


class Specification(NamedRecord):
    """A model to analyse, given by its figures or by an entry of architectures.yaml.

    Attributes:
        name: Name on pages, for example a size class.
        model: Hugging Face name of a model in architectures.yaml.
        parameters: Number of parameters.
        hidden_size: Width of the residual stream.
        layers: Number of layers.
        attention_heads: Number of attention heads.
        gpus: Number of GPUs; default: assumptions.gpus.
    """

    name: Name
    model: Checkpoint | None = None
    parameters: Parameters | None = None
    hidden_size: Parameters | None = None
    layers: int | None = Field(None, ge=1, le=10_000)
    attention_heads: int | None = Field(None, ge=1, le=10_000)
    gpus: int | None = Field(None, ge=1, le=MOST_GPUS)

    exactly_one = ("model", "parameters")
    needs = (("parameters", "hidden_size"), ("hidden_size", "layers"), ("layers", "parameters"))


def _divisor(value: Any) -> Any:
    if value != "gpus" and not (type(value) in (int, float) and 1 <= value <= 1000):
        raise problem("wrong_value", f"expected 'gpus', or a number from 1 to 1000, got {str(value)!r}")
    return value


class Step(NamedRecord):
    """An optimisation: the components it reduces, and by how much.

    Attributes:
        name: Name for ``:steps:``.
        label: Name on pages.
        components: Components that it reduces.
        divide_by: Divisor; gpus: the number of GPUs.
        multiply_by: Share that remains.
        text: Description, one sentence.
    """

    name: Slug
    label: Text
    components: Some[ComponentName]
    divide_by: Annotated[Any, AfterValidator(_divisor)] | None = None
    multiply_by: float | None = Field(None, gt=0, le=1)
    text: Prose

    exactly_one = ("divide_by", "multiply_by")


class Claim(Record):
    """An entry of the requirement lists.

    Attributes:
        level: List of the entry.
        text: Entry as printed.
        count: Number of GPUs.
        gpus: GPUs of the entry, by their names in gpus.yaml.
        unknown: GPUs of the entry that do not exist.
    """

    level: Literal["minimum", "recommended", "optimal"]
    text: Text
    count: int = Field(ge=1, le=MOST_GPUS)
    gpus: Some[GpuName]
    unknown: tuple[Text, ...] = ()


class Requirement(NamedRecord):
    """The requirement lists of one model.

    Attributes:
        name: Name of the specification.
        claims: Entries of the lists.
    """

    name: Specified
    claims: tuple[Claim, ...]


class Configuration(NamedRecord):
    """Recommended settings for one model.

    Attributes:
        name: Name of the specification.
        settings: Values by verl's dotted keys.
    """

    name: Specified
    settings: Values[CurrentKey]


class Priority(NamedRecord):
    """The priority of a step.

    Attributes:
        name: Name of the step.
        advice: Strength of the advice, for display.
        reason: Reason for the advice.
        keys: Keys of verl's configuration that control the step.
    """

    name: Annotated[Slug, name_of("steps")]
    advice: Text
    reason: Prose
    keys: tuple[CurrentKey, ...] = ()


class TradeOff(NamedRecord):
    """The cost of saving memory.

    Attributes:
        name: Short name.
        change: Change of the settings.
        gain: Memory that the change saves.
        cost: Cost of the change.
    """

    name: Slug
    change: Text
    gain: Text
    cost: Text


class Command(NamedRecord):
    """A command that shows memory use.

    Attributes:
        name: Short name.
        command: Shell command.
        purpose: Text above the command.
    """

    name: Slug
    command: Text
    purpose: Text


class Metric(NamedRecord):
    """A metric to watch.

    Attributes:
        name: Short name.
        label: Name on pages.
        text: Advice on reading the metric.
        limited: It should stay below ``assumptions.memory_limit``.
    """

    name: Slug
    label: Text
    text: Prose
    limited: bool = False


class Source(Record):
    """A file in verl's repository at the commit ``verl.ref``, or any other address.

    Attributes:
        path: File in verl's repository.
        lines: Line, or first and last line, in quotes: "40-45".
        url: Address of any other source.
        text: Link text of the address.
    """

    path: RepoPath | None = None
    lines: Lines | None = None
    url: Url | None = None
    text: Text | None = None

    exactly_one = ("path", "url")
    needs = (("lines", "path"), ("text", "url"), ("url", "text"))


class Remark(NamedRecord):
    """A difference between verl and the analysis.

    Attributes:
        name: Short name.
        about: Subjects of the remark: components, total, assumptions, requirements, names of steps,
            trade-offs, commands or metrics, keys of the configuration.
        text: Actual behaviour of verl.
        sources: Evidence for the remark.
    """

    name: Slug
    about: Some[Subject]
    text: Prose
    sources: Some[Source]


class AnalysisFile(Record):
    """The file ``analysis.yaml``. A later file extends earlier ones and overrides their entries by name.

    Attributes:
        assumptions: Assumptions behind every figure; an unset one keeps its earlier value.
        specifications: Models to analyse.
        steps: Optimisations, in order of use.
        requirements: Printed requirement lists.
        configurations: Recommended settings.
        priorities: Priorities of the steps.
        trade_offs: Costs of saving memory.
        commands: Commands that show memory use.
        metrics: Metrics to watch.
        remarks: Differences between verl and the analysis.
        verl: Commit of verl that the remarks were checked against.
    """

    assumptions: Assumptions | None = None
    specifications: Named[Specification]
    steps: Named[Step]
    requirements: Named[Requirement]
    configurations: Named[Configuration]
    priorities: Named[Priority]
    trade_offs: Named[TradeOff]
    commands: Named[Command]
    metrics: Named[Metric]
    remarks: Named[Remark]
    verl: VerlState | None = None


class Analysis(AnalysisFile):
    """All files ``analysis.yaml``, merged, and the registries that they use.

    Attributes:
        gpus: the GPUs.
        architectures: the model shapes.
    """

    assumptions: Assumptions  # as verl, only missing if the package's file has errors
    verl: VerlState
    gpus: Registry[Gpu]
    architectures: Registry[Architecture]


def load_analysis(
    documents: Iterable[Document], **registries: Registry[Any]
) -> tuple[Analysis, list[Diagnostic]]:
    """Merge the files ``analysis.yaml`` by name; return the analysis and the problems of the files.

    Args:
        documents: the files.
        registries: the registries whose names the files use: ``gpus``, ``architectures``, ``config_keys``.
    """
    problems: list[Diagnostic] = []
    models = sections_of(AnalysisFile)
    sections: dict[str, Registry[Any]] = {name: Registry() for name in models}
    merged: dict[str, Any] = {"assumptions": None, "verl": None}
    for document in documents:
        context: dict[str, Any] = {**registries, **merged, "subjects": SUBJECTS}
        for name, model in models.items():
            context[name] = [*sections[name].names, *names_in(document.data, name, model)]
        problems += merge(document, AnalysisFile, sections, context)
        for name in merged:
            (kind,) = models_in(AnalysisFile.model_fields[name].annotation)
            merged[name] = try_model(value_at(document.data, name), kind, context)[0] or merged[name]
    merged |= registries | {name: by_name(entries) for name, entries in sections.items()}
    return Analysis.model_construct(**merged), problems
