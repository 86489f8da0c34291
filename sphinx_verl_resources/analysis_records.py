"""The records of ``analysis.yaml``: the inputs of the memory analysis, and advice.

The formulas are code, in the package ``analysis``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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

from .diagnostics import Code, Diagnostic, Severity, nearest
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
    fold,
    models_in,
    name_of,
    one_line,
    optional,
    pattern,
    problem,
)
from .registries import Architecture, ConfigKey, Gpu, Registry
from .strict_yaml import Document, Loc
from .validation import entries_in, repeated_names, try_model, valid_entries, validated, value_at

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
    StringConstraints(
        min_length=1,
        max_length=200,
        pattern=pattern(r"^[^,]*$", "a name without a comma, which separates names"),
    ),
    AfterValidator(one_line),
]
ShellLine = Annotated[str, StringConstraints(min_length=1, max_length=400), AfterValidator(one_line)]


class Assumptions(Record):
    """The assumptions behind every figure of the analysis."""

    precision: Text = Field(description="Number format, for display.")
    optimizer: Text = Field(description="Optimizer, for display.")
    parameter_bytes: Bytes = Field(description="Bytes per parameter; 2 for BF16.")
    gradient_bytes: Bytes = Field(description="Bytes per gradient.")
    optimizer_bytes: Bytes = Field(description="Bytes per optimizer moment.")
    optimizer_moments: int = Field(ge=0, le=8, description="Optimizer moments per parameter; 2 for AdamW.")
    activation_bytes: Bytes = Field(description="Bytes per activation.")
    kv_cache_bytes: Bytes = Field(description="Bytes per element of the KV cache.")
    overhead_gb: float = Field(ge=0, le=1000, description="CUDA context and libraries, in GB per GPU.")
    vocabulary_size: Count = Field(description="Vocabulary size. No formula uses it.")
    sequence_length: int = Field(ge=1, le=10**7, description="Tokens per sequence.")
    batch_size: int = Field(ge=1, le=10**6, description="Sequences per batch.")
    ffn_ratio: float = Field(gt=0, le=100, description="Ratio of feed-forward width to hidden size.")
    gpus: int = Field(ge=1, le=MOST_GPUS, description="Number of GPUs of models that set none.")
    memory_limit: float = Field(gt=0, le=1, description="Highest advisable share of a GPU's memory.")


_FIELDS: dict[str, Any] = {
    key: (field.rebuild_annotation() | None, optional(field.description or ""))
    for key, field in Assumptions.model_fields.items()
}
#: The same fields, all of them optional: a later file may set only some.
AssumptionsPart = create_model("AssumptionsPart", __base__=Record, __doc__=Assumptions.__doc__, **_FIELDS)


class VerlState(Record):
    """The commit of verl that remarks and configuration keys were checked against."""

    ref: GitRef = Field(description="Commit of verl's repository.")
    date: IsoDate = Field(description="Date of the commit.")


_SHAPE = ("parameters", "hidden_size", "layers")


class Specification(NamedRecord):
    """A model to analyse, given by its figures or by an entry of architectures.yaml."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["model"]}, {"required": list(_SHAPE)}]}
    )

    name: ModelName = Field(description="Name on pages, for example a size class.")
    model: Checkpoint | None = optional("Hugging Face name of a model in architectures.yaml.")
    parameters: Count | None = optional("Number of parameters.")
    hidden_size: Count | None = optional("Width of the residual stream.")
    layers: int | None = optional("Number of layers.", ge=1, le=10_000)
    attention_heads: int | None = optional("Number of attention heads.", ge=1, le=10_000)
    gpus: int | None = optional("Number of GPUs; default: assumptions.gpus.", ge=1, le=MOST_GPUS)

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
    """An optimisation: the components it reduces, and by how much."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["divide_by"]}, {"required": ["multiply_by"]}]}
    )

    name: Slug = Field(description="Name for ``:steps:``.")
    label: Text = Field(description="Name on pages.")
    components: Some[Component] = Field(description="Components that it reduces.")
    divide_by: Divisor | None = optional("Divisor; gpus: the number of GPUs.")
    multiply_by: float | None = optional("Share that remains.", gt=0, le=1)
    text: Prose = Field(description="Description, one sentence.")

    @model_validator(mode="after")
    def _one_effect(self) -> "Step":
        if (self.divide_by is None) == (self.multiply_by is None):
            raise problem("wrong_value", "a step needs either 'divide_by' or 'multiply_by', not both")
        return self


class Claim(Record):
    """An entry of the requirement lists."""

    level: Literal["minimum", "recommended", "optimal"] = Field(description="List of the entry.")
    text: Text = Field(description="Entry as printed.")
    count: int = Field(ge=1, le=MOST_GPUS, description="Number of GPUs.")
    gpus: Some[GpuName] = Field(description="GPUs of the entry, by their names in gpus.yaml.")
    unknown: tuple[Text, ...] = Field((), description="GPUs of the entry that do not exist.")


class Requirement(NamedRecord):
    """The requirement lists of one model."""

    name: Specified = Field(description="Name of the specification.")
    claims: tuple[Claim, ...] = Field(description="Entries of the lists.")


class Configuration(NamedRecord):
    """Recommended settings for one model."""

    name: Specified = Field(description="Name of the specification.")
    settings: Mapping[SettingKey, SettingValue] = Field(
        description="Values by verl's dotted keys.", json_schema_extra={"additionalProperties": False}
    )

    @model_validator(mode="after")
    def _keys_or_groups(self) -> "Configuration":
        groups = {key[: end.start()] for key in self.settings for end in re.finditer(r"\.", key)}
        both = sorted(groups & self.settings.keys())
        if both:
            raise problem(
                "wrong_value", f"{both[0]!r} has both a value and keys below it", "keep one of the two"
            )
        return self


class Priority(NamedRecord):
    """The priority of a step."""

    name: Annotated[Slug, name_of("steps")] = Field(description="Name of the step.")
    advice: Text = Field(description="Strength of the advice, for display.")
    reason: Prose = Field(description="Reason for the advice.")
    keys: tuple[SettingKey, ...] = Field(
        (), description="Keys of verl's configuration that control the step."
    )


class TradeOff(NamedRecord):
    """The cost of saving memory."""

    name: Slug = Field(description="Short name.")
    change: Text = Field(description="Change of the settings.")
    gain: Text = Field(description="Memory that the change saves.")
    cost: Text = Field(description="Cost of the change.")


class Command(NamedRecord):
    """A command that shows memory use."""

    name: Slug = Field(description="Short name.")
    command: ShellLine = Field(description="Shell command.")
    purpose: Text = Field(description="Text above the command.")


class Metric(NamedRecord):
    """A metric to watch."""

    name: Slug = Field(description="Short name.")
    label: Text = Field(description="Name on pages.")
    text: Prose = Field(description="Advice on reading the metric.")
    limited: bool = Field(False, description="It should stay below ``assumptions.memory_limit``.")


class Source(Record):
    """A file in verl's repository at the commit ``verl.ref``, or any other address."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["path"]}, {"required": ["url", "text"]}],
            "dependencies": {"lines": ["path"], "text": ["url"]},
        }
    )

    path: RepoPath | None = optional("File in verl's repository.")
    lines: Lines | None = optional('Line, or first and last line, in quotes: "40-45".')
    url: Url | None = optional("Address of any other source.")
    text: Text | None = optional("Link text of the address.")

    @model_validator(mode="after")
    def _one_place(self) -> "Source":
        if (self.path is None) == (self.url is None):
            raise problem("wrong_value", "a source needs either 'path' or 'url', not both")
        if (self.url is None) != (self.text is None) or (self.lines and not self.path):
            raise problem("missing_key", "'url' and 'text' need each other, and 'lines' needs 'path'")
        return self


class Remark(NamedRecord):
    """A difference between verl and the analysis."""

    name: Slug = Field(description="Short name.")
    about: Some[Annotated[Text, name_of("subjects")]] = Field(
        description="Subjects of the remark: components, total, assumptions, requirements, names of steps, "
        "trade-offs, commands or metrics, keys of the configuration."
    )
    text: Prose = Field(description="Actual behaviour of verl.")
    sources: Some[Source] = Field(description="Evidence for the remark.")


class AnalysisFile(Record):
    """The file ``analysis.yaml``. A later file extends earlier ones and overrides their entries by name."""

    assumptions: AssumptionsPart | None = optional(  # type: ignore[valid-type, unused-ignore]
        "Assumptions behind every figure; an unset one keeps its earlier value."
    )
    specifications: tuple[Specification, ...] = Field((), description="Models to analyse.")
    steps: tuple[Step, ...] = Field((), description="Optimisations, in order of use.")
    requirements: tuple[Requirement, ...] = Field((), description="Printed requirement lists.")
    configurations: tuple[Configuration, ...] = Field((), description="Recommended settings.")
    priorities: tuple[Priority, ...] = Field((), description="Priorities of the steps.")
    trade_offs: tuple[TradeOff, ...] = Field((), description="Costs of saving memory.")
    commands: tuple[Command, ...] = Field((), description="Commands that show memory use.")
    metrics: tuple[Metric, ...] = Field((), description="Metrics to watch.")
    remarks: tuple[Remark, ...] = Field((), description="Differences between verl and the analysis.")
    verl: VerlState | None = optional("Commit of verl that the remarks were checked against.")


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
    verl: VerlState | None = None
    assumptions: Assumptions | None = None
    specifications: Mapping[str, Specification] = field(default_factory=dict)
    steps: Mapping[str, Step] = field(default_factory=dict)
    requirements: Mapping[str, Requirement] = field(default_factory=dict)
    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    priorities: Mapping[str, Priority] = field(default_factory=dict)
    trade_offs: Mapping[str, TradeOff] = field(default_factory=dict)
    commands: Mapping[str, Command] = field(default_factory=dict)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    remarks: Mapping[str, Remark] = field(default_factory=dict)


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
            names = [(entry.name,) if entry else () for entry in entries]
            problems += repeated_names(document, name, names)
            problems += _doubtful_keys(document, config_keys, name, entries)
            by_name = {
                fold(entry.name): entry for entry in (*sections[name].values(), *filter(None, entries))
            }
            sections[name] = {entry.name: entry for entry in by_name.values()}
        values = value_at(document.data, "assumptions")
        assumed |= {
            key: value
            for key, value in (values.items() if isinstance(values, dict) else ())
            if value is not None and try_model({key: value}, AssumptionsPart)[0]
        }
        verl = try_model(value_at(document.data, "verl"), VerlState)[0] or verl
    for key, info in Assumptions.model_fields.items():
        if document and key not in assumed:
            message = f"no file sets 'assumptions.{key}'"
            place = ("assumptions",)
            problems.append(document.diagnostic(place, Code.missing_key, message, info.description or ""))
    assumptions = try_model(assumed, Assumptions)[0]
    return Analysis(gpus, architectures, config_keys, verl, assumptions, **sections), problems


def _names(sections: Mapping[str, Mapping[str, Any]], data: Any) -> dict[str, list[str]]:
    """Return the names that entries of a file may use, by section, and the subjects of remarks.

    Entries with errors are included, so that using one is not a second error.
    """
    known = {
        name: [
            *entries,
            *(raw["name"] for raw in entries_in(data, name) if isinstance(value_at(raw, "name"), str)),
        ]
        for name, entries in sections.items()
    }
    configured = valid_entries(data, "configurations", Configuration)
    settings = (entry.settings for entry in (*sections["configurations"].values(), *configured) if entry)
    keys = sorted({key for values in settings for key in values})
    remarked = [name for part in ("steps", "trade_offs", "commands", "metrics") for name in known[part]]
    return {**known, "subjects": [*COMPONENTS, TOTAL, REQUIREMENTS, *ASSUMED_SUBJECTS, *remarked, *keys]}


def _doubtful_keys(
    document: Document, keys: Registry[ConfigKey], section: str, entries: tuple[Any, ...]
) -> Iterator[Diagnostic]:
    """Yield a warning for each key of verl's configuration that should not be recommended."""
    field_name = {"configurations": "settings", "priorities": "keys"}.get(section, "")
    for index, entry in enumerate(entries if field_name else ()):
        for position, key in enumerate(getattr(entry, field_name, ())):
            if found := key_problem(keys, key):
                loc: Loc = (section, index, field_name, key if field_name == "settings" else position)
                yield Diagnostic(document.key_place(loc), Code.config_key, *found, Severity.WARNING)


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
