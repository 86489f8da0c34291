"""The records of ``analysis.yaml``: the inputs of the memory analysis, and advice.

The formulas are code, in the package ``analysis``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    create_model,
    model_validator,
)

from .diagnostics import Diagnostic, Severity, nearest
from .records import (
    MOST_GPUS,
    Checkpoint,
    GitRef,
    GpuName,
    IsoDate,
    Lines,
    NamedRecord,
    Prose,
    Record,
    RepoPath,
    SettingKey,
    SettingValue,
    Slug,
    Some,
    Text,
    Url,
    either,
    fold,
    name_of,
    one_line,
    pattern,
    problem,
    reject,
)
from .registries import Architecture, ConfigKey, Gpu, Registry
from .strict_yaml import Document
from .validation import entries_in, models_in, repeated_names, try_model, valid_entries, validated, value_at

Component = Literal["parameters", "gradients", "optimizer", "activations", "kv-cache", "overhead"]
#: The components of the memory analysis, in the order of its sums.
COMPONENTS: tuple[str, ...] = get_args(Component)
#: The components that are the state of the model in training.
STATE_COMPONENTS = ("parameters", "gradients", "optimizer")
#: Other figures of the analysis: the sum of the states, and the total.
STATES, TOTAL = "states", "total"
#: The largest values that the analysis accepts; larger ones are typing errors.
LIMITS = {"gpus": MOST_GPUS, "batch-size": 1_000_000, "sequence-length": 10_000_000}
#: Further subjects of remarks, besides components, the total and named entries such as steps.
REQUIREMENTS = "requirements"
ASSUMED_SUBJECTS = (
    "vocabulary-size", "sequence-length", "batch-size", "ffn-ratio", "memory-limit", "gpus",
)  # fmt: skip

Bytes = Annotated[float, Field(ge=0, le=64)]
Count = Annotated[int, Field(ge=1, le=10**15)]
#: The name of an entry of ``specifications``.
Specified = Annotated[Text, name_of("specifications")]
ModelName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200),
    pattern(r"^[^,]*$", "a name without a comma, which separates names"),
    AfterValidator(one_line),
]
ShellLine = Annotated[str, StringConstraints(min_length=1, max_length=400), AfterValidator(one_line)]


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

    precision: Text
    optimizer: Text
    parameter_bytes: Bytes
    gradient_bytes: Bytes
    optimizer_bytes: Bytes
    optimizer_moments: int = Field(ge=0, le=8)
    activation_bytes: Bytes
    kv_cache_bytes: Bytes
    overhead_gb: float = Field(ge=0, le=1000)
    vocabulary_size: Count
    sequence_length: int = Field(ge=1, le=10**7)
    batch_size: int = Field(ge=1, le=10**6)
    ffn_ratio: float = Field(gt=0, le=100)
    gpus: int = Field(ge=1, le=MOST_GPUS)
    memory_limit: float = Field(gt=0, le=1)


_FIELDS: dict[str, Any] = {
    key: (field.rebuild_annotation() | None, Field(None, description=field.description))
    for key, field in Assumptions.model_fields.items()
}
#: The same fields, all of them optional: a later file may set only some.
AssumptionsPart = create_model("AssumptionsPart", __base__=Record, __doc__=Assumptions.__doc__, **_FIELDS)


class VerlState(Record):
    """The commit of verl that remarks and configuration keys were checked against.

    Attributes:
        ref: Commit of verl's repository.
        date: Date of the commit.
    """

    ref: GitRef
    date: IsoDate


_SHAPE = ("parameters", "hidden_size", "layers")


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

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["model"]}, {"required": list(_SHAPE)}]}
    )

    name: ModelName
    model: Checkpoint | None = None
    parameters: Count | None = None
    hidden_size: Count | None = None
    layers: int | None = Field(None, ge=1, le=10_000)
    attention_heads: int | None = Field(None, ge=1, le=10_000)
    gpus: int | None = Field(None, ge=1, le=MOST_GPUS)

    @model_validator(mode="after")
    def _one_source(self) -> "Specification":
        given = [name for name in (*_SHAPE, "attention_heads") if getattr(self, name) is not None]
        if self.model and given:
            raise problem("wrong_value", f"give either 'model' or {', '.join(_SHAPE)}, not both")
        missing = [name for name in _SHAPE if name not in given]
        if not self.model and missing:
            raise problem("missing_key", f"{', '.join(missing)} missing", "add them, or set 'model'")
        return self


def _divisor(value: Any) -> Any:
    if value == "gpus":
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= 1000:
        raise problem("wrong_value", f"expected 'gpus', or a number from 1 to 1000, got {str(value)[:40]!r}")
    return float(value)


Divisor = Annotated[
    Any,
    AfterValidator(_divisor),
    WithJsonSchema({"anyOf": [{"const": "gpus"}, {"type": "number", "minimum": 1, "maximum": 1000}]}),
]


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

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["divide_by"]}, {"required": ["multiply_by"]}]}
    )

    name: Slug
    label: Text
    components: Some[Component]
    divide_by: Divisor | None = None
    multiply_by: float | None = Field(None, gt=0, le=1)
    text: Prose

    _one_effect = either("a step", "divide_by", "multiply_by")


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
    settings: Mapping[SettingKey, SettingValue] = Field(json_schema_extra={"additionalProperties": False})

    @model_validator(mode="after")
    def _keys_or_groups(self) -> "Configuration":
        groups = {key[: end.start()] for key in self.settings for end in re.finditer(r"\.", key)}
        for both in sorted(groups & self.settings.keys()):
            raise problem(
                "wrong_value", f"{both!r} has both a value and keys below it", "keep one of the two"
            )
        return self


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
    keys: tuple[SettingKey, ...] = ()


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
    command: ShellLine
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

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["path"]}, {"required": ["url", "text"]}],
            "dependencies": {"lines": ["path"], "text": ["url"]},
        }
    )

    path: RepoPath | None = None
    lines: Lines | None = None
    url: Url | None = None
    text: Text | None = None

    _one_place = either("a source", "path", "url")
    _whole_place = reject(
        lambda source: (source.url is None) != (source.text is None) or (source.lines and not source.path),
        "missing_key",
        "'url' and 'text' need each other, and 'lines' needs 'path'",
    )


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
    about: Some[Annotated[Text, name_of("subjects")]]
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

    assumptions: AssumptionsPart | None = None  # type: ignore[valid-type, unused-ignore]
    specifications: tuple[Specification, ...] = ()
    steps: tuple[Step, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    configurations: tuple[Configuration, ...] = ()
    priorities: tuple[Priority, ...] = ()
    trade_offs: tuple[TradeOff, ...] = ()
    commands: tuple[Command, ...] = ()
    metrics: tuple[Metric, ...] = ()
    remarks: tuple[Remark, ...] = ()
    verl: VerlState | None = None


@dataclass(frozen=True)
class Analysis:
    """The inputs of the memory analysis; each section is ordered and keyed by name.

    Attributes:
        gpus: the GPUs.
        architectures: the model shapes.
        config_keys: the keys of verl's configuration.
        verl: the commit of verl that remarks were checked against; None if not recorded.
        assumptions: the assumptions; None if one of them is missing.
    """

    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    config_keys: Registry[ConfigKey]
    verl: VerlState | None
    assumptions: Assumptions | None
    specifications: Mapping[str, Specification]
    steps: Mapping[str, Step]
    requirements: Mapping[str, Requirement]
    configurations: Mapping[str, Configuration]
    priorities: Mapping[str, Priority]
    trade_offs: Mapping[str, TradeOff]
    commands: Mapping[str, Command]
    metrics: Mapping[str, Metric]
    remarks: Mapping[str, Remark]


#: The sections that are lists of named entries, and the model of an entry.
SECTIONS: dict[str, Any] = {
    name: next(models_in(info.annotation))
    for name, info in AnalysisFile.model_fields.items()
    if name not in {"verl", "assumptions"}
}


def load_analysis(
    documents: Iterable[Document],
    gpus: Registry[Gpu],
    architectures: Registry[Architecture],
    config_keys: Registry[ConfigKey],
) -> tuple[Analysis, list[Diagnostic]]:
    """Merge the files ``analysis.yaml`` by name; return the analysis and the problems of the files."""
    problems: list[Diagnostic] = []
    sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    assumed: dict[str, Any] = {}
    verl, document = None, None
    for document in documents:
        context = {"gpus": gpus, "architectures": architectures, **_names(sections, document.data)}
        problems += validated(document, AnalysisFile, context)[1]
        for name, model in SECTIONS.items():
            entries = valid_entries(document.data, name, model, context)
            problems += repeated_names(document, name, [(entry.name,) if entry else () for entry in entries])
            problems += _doubtful_keys(document, config_keys, name, entries)
            sections[name].update((fold(entry.name), entry) for entry in entries if entry)
        for key in Assumptions.model_fields:
            value = value_at(value_at(document.data, "assumptions"), key)
            if value is not None and try_model({key: value}, AssumptionsPart)[0]:
                assumed[key] = value
        verl = try_model(value_at(document.data, "verl"), VerlState)[0] or verl
    for key, info in Assumptions.model_fields.items():
        if document and key not in assumed:
            message = f"no file sets 'assumptions.{key}'"
            place = document.place(("assumptions",))
            problems.append(Diagnostic(place, "missing_key", message, info.description or ""))
    assumptions = try_model(assumed, Assumptions)[0]
    named = {name: {entry.name: entry for entry in found.values()} for name, found in sections.items()}
    return Analysis(gpus, architectures, config_keys, verl, assumptions, **named), problems


def _names(sections: Mapping[str, Mapping[str, Any]], data: Any) -> dict[str, list[str]]:
    """Return the names that entries of a file may use, by section, and the subjects of remarks.

    Entries with errors are included, so that using one is not a second error.
    """
    known = {name: [entry.name for entry in entries.values()] for name, entries in sections.items()}
    for name, names in known.items():
        written = (value_at(entry, "name") for entry in entries_in(data, name))
        names += [word for word in written if isinstance(word, str)]
    configured = valid_entries(data, "configurations", Configuration)
    settings = (entry.settings for entry in (*sections["configurations"].values(), *configured) if entry)
    keys = sorted({key for values in settings for key in values})
    remarked = [name for part in ("steps", "trade_offs", "commands", "metrics") for name in known[part]]
    return {**known, "subjects": [*COMPONENTS, TOTAL, REQUIREMENTS, *ASSUMED_SUBJECTS, *remarked, *keys]}


def _doubtful_keys(
    document: Document, keys: Registry[ConfigKey], section: str, entries: tuple[Any, ...]
) -> Iterator[Diagnostic]:
    """Yield a warning for each key of verl's configuration that should not be recommended."""
    field = {"configurations": "settings", "priorities": "keys"}.get(section, "")
    for index, entry in enumerate(entries):
        for position, key in enumerate(getattr(entry, field, ())):
            if found := key_problem(keys, key):
                place = document.key_place((section, index, field, key if field == "settings" else position))
                yield Diagnostic(place, "config_key", *found, Severity.WARNING)


_STATUS = {
    "moved": "was renamed",
    "deprecated": "is deprecated",
    "no-op": "is ignored by verl",
    "no-op with trainer.use_v1": "is ignored by verl if trainer.use_v1 is true, its default",
}


def key_problem(keys: Registry[ConfigKey], name: str) -> tuple[str, str] | None:
    """Return why a key of verl's configuration should not be used, and what to do; None if it is fine."""
    key = keys.get(name)
    if key is None and name not in keys:
        near = nearest(name, keys.names)
        remedy = f"did you mean {near!r}?" if near else "correct it, or add it to config_keys.yaml"
        return f"unknown key {name!r} of verl's configuration", remedy
    if key is None or key.status == "active":  # without an entry: it has errors itself
        return None
    remedy = f"use {key.moved_to!r}" if key.moved_to else (key.note or "remove it")
    return f"the key {name!r} {_STATUS[key.status]}", remedy
