"""The memory analysis: assumptions, model shapes, optimisation steps, requirement lists and advice.

These are the inputs. The formulas are in the package ``analysis``.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    create_model,
    model_validator,
)

from ..names import MOST_GPUS, Component
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
    name_of,
    one_line,
    optional,
    pattern,
    problem,
)
from .run import Lines, SettingKey, SettingValue

_NO_COMMA = pattern(r"^[^,]*$", "a name without a comma, which separates names")

Slug = Annotated[str, StringConstraints(pattern=SLUG, max_length=60)]
Bytes = Annotated[float, Field(ge=0, le=64)]
Count = Annotated[int, Field(ge=1, le=10**15)]
#: The name of an entry of ``specifications``.
Specified = Annotated[Text, name_of("specifications")]
ModelName = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=_NO_COMMA), AfterValidator(one_line)
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


def _all_optional(model: type[Record], name: str) -> type[Record]:
    """Return a model with the same fields, all of them optional."""
    fields: dict[str, Any] = {
        key: (field.rebuild_annotation() | None, optional(field.description or ""))
        for key, field in model.model_fields.items()
    }
    return create_model(name, __base__=Record, __doc__=model.__doc__, **fields)


AssumptionsPart = _all_optional(Assumptions, "AssumptionsPart")


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

    assumptions: AssumptionsPart | None = optional(  # type: ignore[valid-type]
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
