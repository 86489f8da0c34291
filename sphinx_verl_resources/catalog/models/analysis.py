"""The memory analysis: assumptions, model shapes, optimisation steps, advice, and what was printed of it.

What is recorded here are the inputs. The formulas are code, in ``analysis``.
"""

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
    create_model,
    model_validator,
)

from ..names import COMPONENTS, MOST_GPUS, SHAPE_FIGURES, STATES, TOTAL, Component, figure_parts
from .base import (
    SLUG,
    Checkpoint,
    GitRef,
    GpuName,
    IsoDate,
    NamedRecord,
    Prose,
    Record,
    RepoPath,
    Some,
    Text,
    Url,
    check_name,
    name_of,
    one_line,
    optional,
    pattern,
    problem,
)
from .run import Lines, SettingKey, SettingValue

_FIGURE = pattern(
    r"^[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)?$", "a figure such as total or fsdp.total"
)
_NO_COMMA = pattern(r"^[^,]*$", "a name without a comma, which separates names")

Slug = Annotated[str, StringConstraints(pattern=SLUG, max_length=60)]
Bytes = Annotated[float, Field(ge=0, le=64)]
Count = Annotated[int, Field(ge=1, le=10**15)]
#: The name of an entry of ``specifications``.
Specified = Annotated[Text, name_of("specifications")]
CauseName = Annotated[Text, name_of("causes")]
ModelName = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=_NO_COMMA), AfterValidator(one_line)
]
ShellLine = Annotated[str, StringConstraints(min_length=1, max_length=400), AfterValidator(one_line)]
Number = Annotated[float, Field(gt=0, le=10**12)]


class Assumptions(Record):
    """The assumptions behind every figure of the analysis."""

    precision: Text = Field(description="Number format of the bytes below, for people.")
    optimizer: Text = Field(description="Optimizer, for people.")
    parameter_bytes: Bytes = Field(description="Bytes of one parameter; BF16 has 2.")
    gradient_bytes: Bytes = Field(description="Bytes of one gradient.")
    optimizer_bytes: Bytes = Field(description="Bytes of one moment of the optimizer.")
    optimizer_moments: int = Field(ge=0, le=8, description="Moments per parameter; AdamW keeps 2.")
    activation_bytes: Bytes = Field(description="Bytes of one activation.")
    kv_cache_bytes: Bytes = Field(description="Bytes of one element of a cached key or value.")
    overhead_gb: float = Field(ge=0, le=1000, description="CUDA context and libraries, in GB per GPU.")
    vocabulary_size: Count = Field(description="Entries of the vocabulary. No formula uses it.")
    sequence_length: int = Field(ge=1, le=10**7, description="Tokens per sequence.")
    batch_size: int = Field(ge=1, le=10**6, description="Sequences at a time.")
    ffn_ratio: float = Field(gt=0, le=100, description="Feed-forward width over hidden size.")
    gpus: int = Field(ge=1, le=MOST_GPUS, description="GPUs, where a model names no other number.")
    memory_limit: float = Field(gt=0, le=1, description="Share of a GPU's memory to stay below.")


def _all_optional(model: type[Record], name: str) -> type[Record]:
    """Return a model with the same fields, all of them optional."""
    fields: dict[str, Any] = {
        key: (field.rebuild_annotation() | None, optional(field.description or ""))
        for key, field in model.model_fields.items()
    }
    return create_model(name, __base__=Record, __doc__=model.__doc__, **fields)


AssumptionsPart = _all_optional(Assumptions, "AssumptionsPart")


class VerlState(Record):
    """The state of verl that remarks and configuration keys were compared with."""

    ref: GitRef = Field(description="Commit of verl's repository.")
    date: IsoDate = Field(description="Its day.")


_SHAPE = ("parameters", "hidden_size", "layers")


class Specification(NamedRecord):
    """A model to analyse: by its own figures, or by an entry of architectures.yaml."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["model"]}, {"required": list(_SHAPE)}]}
    )

    name: ModelName = Field(description="What pages call it: a size class, for example.")
    model: Checkpoint | None = optional("Checkpoint whose shape it takes from architectures.yaml.")
    parameters: Count | None = optional("Number of parameters.")
    hidden_size: Count | None = optional("Width of the residual stream.")
    layers: int | None = optional("Layers.", ge=1, le=10_000)
    attention_heads: int | None = optional("Attention heads.", ge=1, le=10_000)
    gpus: int | None = optional("GPUs to share the model; default: assumed.", ge=1, le=MOST_GPUS)

    @model_validator(mode="after")
    def _one_source(self) -> "Specification":
        given = [name for name in (*_SHAPE, "attention_heads") if getattr(self, name) is not None]
        if self.model and given:
            raise problem("wrong_value", f"either 'model', or {', '.join(_SHAPE)}; not both")
        missing = [name for name in _SHAPE if name not in given]
        if not self.model and missing:
            raise problem("missing_key", f"{', '.join(missing)} missing", "or name a checkpoint with 'model'")
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
    """An optimisation: what it makes smaller, and by how much."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["divide_by"]}, {"required": ["multiply_by"]}]}
    )

    name: Slug = Field(description="What ``:steps:`` calls it.")
    label: Text = Field(description="What pages call it.")
    components: Some[Component] = Field(description="The components it makes smaller.")
    divide_by: Divisor | None = optional("Divisor; gpus: the number of GPUs.")
    multiply_by: float | None = optional("The share that remains.", gt=0, le=1)
    text: Prose = Field(description="What it does, in a sentence.")

    @model_validator(mode="after")
    def _one_effect(self) -> "Step":
        if (self.divide_by is None) == (self.multiply_by is None):
            raise problem("wrong_value", "a step needs either 'divide_by' or 'multiply_by', and not both")
        return self


class Cause(NamedRecord):
    """Why a printed figure is not what its formula gives."""

    name: Annotated[str, StringConstraints(pattern=pattern(r"^[A-Z][A-Z0-9]{0,5}$", "a code such as K2"))] = (
        Field(description="Short code.")
    )
    text: Prose = Field(description="What went wrong.")


def _figure(figure: str, info: ValidationInfo) -> str:
    """Reject a figure that the analysis does not compute."""
    step, name = figure_parts(figure)
    if info.context and step is not None:
        check_name(step, info.context["steps"])
    check_name(name, [*COMPONENTS, TOTAL, *(SHAPE_FIGURES if step is None else (STATES,))])
    return figure


Figure = Annotated[str, StringConstraints(pattern=_FIGURE, max_length=80), AfterValidator(_figure)]


class PrintedFigure(Record):
    """A figure as it was printed."""

    figure: Figure = Field(
        description="Which: a component, total, hidden-size or ffn-dimension; after the name of a step and "
        "a dot: a component, states or total after that step."
    )
    value: Number = Field(description="As printed; in GB if it is a size.")
    summary: bool = Field(False, description="The summary table repeats it.")
    causes: tuple[CauseName, ...] = Field((), description="Codes of the causes in this figure itself.")
    carried: tuple[CauseName, ...] = Field((), description="Codes of the causes from other figures.")


class Printed(NamedRecord):
    """The printed figures of one model."""

    name: Specified = Field(description="The specification that it is about.")
    figures: tuple[PrintedFigure, ...] = Field(description="The figures.")


class Claim(Record):
    """An entry of the requirement lists."""

    level: Literal["minimum", "recommended", "optimal"] = Field(description="Which list.")
    text: Text = Field(description="The entry as printed.")
    count: int = Field(ge=1, le=MOST_GPUS, description="Number of GPUs.")
    gpus: Some[GpuName] = Field(description="The GPUs that it names, as in gpus.yaml.")
    unknown: tuple[Text, ...] = Field((), description="GPUs that it names and nobody ever made.")


class Requirement(NamedRecord):
    """The requirement lists of one model."""

    name: Specified = Field(description="The specification that they are about.")
    claims: tuple[Claim, ...] = Field(description="The entries.")


class Configuration(NamedRecord):
    """Recommended settings for one model."""

    name: Specified = Field(description="The specification that they are for.")
    settings: Mapping[SettingKey, SettingValue] = Field(
        description="verl's dotted keys.", json_schema_extra={"additionalProperties": False}
    )

    @model_validator(mode="after")
    def _keys_or_groups(self) -> "Configuration":
        groups = {key[: end.start()] for key in self.settings for end in re.finditer(r"\.", key)}
        both = sorted(groups & self.settings.keys())
        if both:
            raise problem("wrong_value", f"{both[0]!r} has a value and keys below it", "keep one of the two")
        return self


class Priority(NamedRecord):
    """The priority of a step."""

    name: Annotated[Slug, name_of("steps")] = Field(description="Name of the step.")
    advice: Text = Field(description="How strongly it is advised.")
    reason: Prose = Field(description="Why.")
    keys: tuple[SettingKey, ...] = Field((), description="The keys of verl's configuration behind it.")


class TradeOff(NamedRecord):
    """The cost of saving memory."""

    name: Slug = Field(description="Short name.")
    change: Text = Field(description="What is changed.")
    gain: Text = Field(description="What becomes smaller.")
    cost: Text = Field(description="What it costs.")


class Command(NamedRecord):
    """A command that shows how much memory is used."""

    name: Slug = Field(description="Short name.")
    command: ShellLine = Field(description="For a shell.")
    purpose: Text = Field(description="The text above it.")


class Metric(NamedRecord):
    """Something to keep an eye on."""

    name: Slug = Field(description="Short name.")
    label: Text = Field(description="What pages call it.")
    text: Prose = Field(description="What to look for.")
    limited: bool = Field(False, description="It should stay below ``assumptions.memory_limit``.")


class Source(Record):
    """A place in verl's repository at the commit of ``verl.ref``, or an address elsewhere."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["path"]}, {"required": ["url", "text"]}],
            "dependencies": {"lines": ["path"], "text": ["url"]},
        }
    )

    path: RepoPath | None = optional("File in verl's repository.")
    lines: Lines | None = optional('Line, or first and last line, in quotes: "40-45".')
    url: Url | None = optional("Address of anything else.")
    text: Text | None = optional("What the link to it shows.")

    @model_validator(mode="after")
    def _one_place(self) -> "Source":
        if (self.path is None) == (self.url is None):
            raise problem("wrong_value", "a source needs either 'path' or 'url', and not both")
        if (self.url is None) != (self.text is None) or (self.lines and not self.path):
            raise problem("missing_key", "'text' goes with 'url', and 'lines' with 'path'")
        return self


class Remark(NamedRecord):
    """A remark on where verl works differently from the analysis."""

    name: Slug = Field(description="Short name.")
    about: Some[Annotated[Text, name_of("subjects")]] = Field(
        description="What it contradicts: components, total, assumptions, requirements, names of steps, "
        "trade-offs, commands or metrics, keys of the configuration."
    )
    text: Prose = Field(description="What verl does instead.")
    sources: Some[Source] = Field(description="Where that can be checked.")


class AnalysisFile(Record):
    """The file ``analysis.yaml``; of several, each adds to those before it and overrides them by name."""

    assumptions: AssumptionsPart | None = optional(  # type: ignore[valid-type]
        "What every figure assumes; one left out keeps its earlier value."
    )
    specifications: tuple[Specification, ...] = Field((), description="The models.")
    steps: tuple[Step, ...] = Field((), description="The optimisations, in the order of their use.")
    causes: tuple[Cause, ...] = Field((), description="Why printed figures differ.")
    printed: tuple[Printed, ...] = Field((), description="The figures that were printed.")
    requirements: tuple[Requirement, ...] = Field((), description="The printed requirement lists.")
    configurations: tuple[Configuration, ...] = Field((), description="Recommended settings.")
    priorities: tuple[Priority, ...] = Field((), description="Which step first.")
    trade_offs: tuple[TradeOff, ...] = Field((), description="What saving memory costs.")
    commands: tuple[Command, ...] = Field((), description="Commands that show memory.")
    metrics: tuple[Metric, ...] = Field((), description="What to watch.")
    remarks: tuple[Remark, ...] = Field((), description="Where verl works differently.")
    verl: VerlState | None = optional("The state of verl that remarks compare with.")
