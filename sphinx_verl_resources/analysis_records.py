"""The records of ``analysis.yaml``: the inputs of the memory analysis, and advice.

The formulas are code, in the package ``analysis``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from .diagnostics import Diagnostic, did_you_mean, warning
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
    Settings,
    Slug,
    Some,
    Text,
    Url,
    name_of,
    one_line,
    pattern,
    problem,
)
from .registries import Architecture, ConfigKey, Gpu, Registry, merge, sections_of, written_names
from .strict_yaml import Document
from .validation import entries_in, try_model, valid_entries, value_at

Component = Literal["parameters", "gradients", "optimizer", "activations", "kv-cache", "overhead"]
#: The components of the memory analysis, in the order of its sums.
COMPONENTS: tuple[str, ...] = get_args(Component)
#: The components that are the state of the model in training.
STATE_COMPONENTS = ("parameters", "gradients", "optimizer")
#: The sum of all components.
TOTAL = "total"
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
    str, pattern(r"^[^,]+$", "a name without a comma, which separates names", 200), AfterValidator(one_line)
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
    vocabulary_size: Count
    sequence_length: int = Field(ge=1, le=10**7)
    batch_size: int = Field(ge=1, le=10**6)
    ffn_ratio: float = Field(gt=0, le=100)
    gpus: int = Field(ge=1, le=MOST_GPUS)
    memory_limit: float = Field(gt=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _keep_earlier(cls, value: Any, info: Any) -> Any:
        earlier = dict((info.context or {}).get("assumptions") or ())
        given = value.items() if isinstance(value, dict) else ()
        return earlier | {key: item for key, item in given if item is not None} if given else value


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

    name: ModelName
    model: Checkpoint | None = None
    parameters: Count | None = None
    hidden_size: Count | None = None
    layers: int | None = Field(None, ge=1, le=10_000)
    attention_heads: int | None = Field(None, ge=1, le=10_000)
    gpus: int | None = Field(None, ge=1, le=MOST_GPUS)

    exactly_one = ("model", "parameters")
    needs = (("parameters", "hidden_size"), ("hidden_size", "layers"), ("layers", "parameters"))


def _divisor(value: Any) -> Any:
    if value != "gpus" and not (type(value) in (int, float) and 1 <= value <= 1000):
        raise problem("wrong_value", f"expected 'gpus', or a number from 1 to 1000, got {str(value)[:40]!r}")
    return value


Divisor = Annotated[Any, AfterValidator(_divisor)]


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
    components: Some[Component]
    divide_by: Divisor | None = None
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
    settings: Settings

    @model_validator(mode="after")
    def _keys_or_groups(self) -> "Configuration":
        groups = {key[: dot.start()] for key in self.settings for dot in re.finditer(r"\.", key)}
        for both in sorted(groups & self.settings.keys()):
            raise problem("wrong_value", f"{both!r} has both a value and keys below it", "keep one of them")
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

    assumptions: Assumptions | None = None
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
        verl: the commit of verl that remarks were checked against.
        assumptions: the assumptions.
    """

    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    config_keys: Registry[ConfigKey]
    verl: VerlState
    assumptions: Assumptions
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
SECTIONS = sections_of(AnalysisFile)


def load_analysis(
    documents: Iterable[Document],
    gpus: Registry[Gpu],
    architectures: Registry[Architecture],
    config_keys: Registry[ConfigKey],
) -> tuple[Analysis, list[Diagnostic]]:
    """Merge the files ``analysis.yaml`` by name; return the analysis and the problems of the files."""
    problems: list[Diagnostic] = []
    sections: dict[str, Registry[Any]] = {name: Registry() for name in SECTIONS}
    assumptions: Any = None  # the first file is the package's, which has both
    verl: Any = None
    for document in documents:
        context = {"gpus": gpus, "architectures": architectures, "assumptions": assumptions}
        context |= _names(sections, document.data)
        problems += merge(document, AnalysisFile, sections, context)
        problems += _doubtful_keys(document, config_keys)
        assumed = value_at(document.data, "assumptions")
        assumptions = try_model(assumed, Assumptions, context)[0] or assumptions
        verl = try_model(value_at(document.data, "verl"), VerlState)[0] or verl
    named = {name: {entry.name: entry for entry in entries} for name, entries in sections.items()}
    return Analysis(gpus, architectures, config_keys, verl, assumptions, **named), problems


def _names(sections: Mapping[str, Registry[Any]], data: Any) -> dict[str, list[str]]:
    """Return the names that entries of a file may use, by section, and the subjects of remarks."""
    known = {
        name: [*sections[name].names, *written_names(data, name, model)] for name, model in SECTIONS.items()
    }
    settings = [entry.settings for entry in sections["configurations"]]
    settings += [value_at(entry, "settings") for entry in entries_in(data, "configurations")]
    keys = [key for values in settings if isinstance(values, Mapping) for key in values]
    remarked = [name for part in ("steps", "trade_offs", "commands", "metrics") for name in known[part]]
    return {**known, "subjects": [*COMPONENTS, TOTAL, REQUIREMENTS, *ASSUMED_SUBJECTS, *remarked, *keys]}


def _doubtful_keys(document: Document, keys: Registry[ConfigKey]) -> Iterator[Diagnostic]:
    """Yield a warning for each key of verl's configuration that should not be recommended."""
    for section, field in (("configurations", "settings"), ("priorities", "keys")):
        for index, entry in enumerate(valid_entries(document.data, section, SECTIONS[section])):
            for position, key in enumerate(getattr(entry, field, ())):
                if found := key_problem(keys, key):
                    last = key if field == "settings" else position
                    yield warning(document.key_place((section, index, field, last)), "config_key", *found)


def key_problem(keys: Registry[ConfigKey], name: str) -> tuple[str, str] | None:
    """Return why a key of verl's configuration should not be used, and what to do; None if it is fine."""
    key = keys.get(name)
    if name not in keys:
        remedy = did_you_mean(name, keys.names, "correct it, or add it to config_keys.yaml")
        return f"unknown key {name!r} of verl's configuration", remedy
    if key is None or key.status == "active":  # without an entry: it has errors itself
        return None
    remedy = f"use {key.moved_to!r}" if key.moved_to else (key.note or "remove it")
    return f"the status of the key {name!r} of verl's configuration is {key.status!r}", remedy
