"""A recorded run, and the types of fields that all records share.

Records are strict and frozen pydantic models; the JSON Schemas under ``data/schema`` come from them. Modules
with records do not import ``annotations`` from ``__future__``: pydantic would compile each annotation twice.
"""

import inspect
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

# -- vocabularies

#: The size classes, ascending.
Size = Literal["0.5B", "1.5B", "3B", "7B", "14B", "32B", "70B", "122B", "235B", "405B", "671B"]
SIZES: tuple[str, ...] = get_args(Size)
#: The sections of the hardware page that are shown even if they have no runs.
PAGE_SIZES = ("0.5B", "1.5B", "3B", "7B", "14B", "32B", "70B", "405B", "671B")
Tag = Literal["MIN", "RECOMMENDED"]
TAGS: tuple[str, ...] = get_args(Tag)
#: From the strongest claim to the weakest.
Kind = Literal["tested", "measured", "stated", "script-default"]
KINDS: tuple[str, ...] = get_args(Kind)
#: The evidence for a run, from the strongest to the weakest. Computed results are "estimated".
Word = Literal["ran", "reported", "claimed"]
WORDS: tuple[Word, ...] = get_args(Word)
#: The last token of verl's script names, see verl's hook ``check-example-naming``.
Train = Literal[
    "fsdp", "fsdp2", "fsdp_turbo", "megatron", "megatron_lite", "mindspeed", "automodel", "veomni",
    "torchtitan",
]  # fmt: skip
TRAIN_BACKENDS: tuple[str, ...] = get_args(Train)
Engine = Literal["vllm", "sglang", "trtllm", "hf"]
ENGINES: tuple[str, ...] = get_args(Engine)
#: The values of ``trainer.v1.trainer_mode``.
Trainer = Literal["sync", "colocate_async", "separate_async"]
TRAINERS: tuple[str, ...] = get_args(Trainer)
#: The algorithms of verl's trainer and recipes; an advantage estimator or a policy loss names most of them.
ALGORITHMS = (
    "CISPO", "Clip-Cov", "DAPO", "DPPO", "DrGRPO", "DRO", "FlowRL", "GDPO", "GKD", "GMPO", "GPG", "GRPO",
    "GSPO", "KL-Cov", "OPD", "OPO", "OTB", "PPO", "PRIME", "REINFORCE++", "ReMax", "RLOO", "SAPO", "SPIN",
    "SPPO",
)  # fmt: skip
#: The columns of the hardware page, in order.
PageColumn = Literal["tag", "model", "task", "gpus", "max_batch", "train", "infer", "script", "contributor"]
PAGE_COLUMNS: tuple[str, ...] = get_args(PageColumn)
#: The settings of the LoRA rank: with FSDP, and with Megatron.
ADAPTER_RANKS = ("actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank")
#: The largest number of GPUs; no cluster is larger.
MOST_GPUS = 100_000


def size_class(parameters: float) -> str:
    """Return the size class nearest to a number of parameters, by ratio.

    >>> size_class(8.2e9), size_class(72.7e9)
    ('7B', '70B')
    """
    return min(SIZES, key=lambda name: abs(math.log(float(name[:-1]) * 1e9 / parameters)))


def family(task: str) -> str:
    """Return the algorithm of a task without its variant.

    >>> family("GRPO-LoRA"), family("DAPO (fully async)"), family("Dr-GRPO")
    ('GRPO', 'DAPO', 'Dr-GRPO')
    """
    return re.split(r"[\s([]|-lora\b", task, maxsplit=1, flags=re.IGNORECASE)[0] or task


def fold(name: str) -> str:
    """Return a name for comparison.

    Case, spaces, hyphens, underscores and a GPU's maker make no difference, and ``80G`` is ``80GB``.

    >>> fold("NVIDIA A100-80G") == fold("a100 80GB")
    True
    """
    return re.sub(r"(?<=\d)gi?b?$", "gb", re.sub(r"^(nvidia|amd|huawei)[ _-]|[ _-]", "", name.casefold()))


def row_id(run_id: str) -> str:
    """Return the id of a run's row."""
    return f"run-{run_id}"


# -- links

SCRIPT_URL = "https://github.com/verl-project/verl/blob/{ref}/{path}"
#: The form of commits, tags and branches, without git's syntax for relative ones such as ``HEAD@{1}``.
REF = r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}(/[0-9A-Za-z][0-9A-Za-z._-]{0,99}){0,9}$"
#: The form of addresses, without user names and passwords.
ADDRESS = r"^[Hh][Tt][Tt][Pp][Ss]?://[0-9A-Za-z.-]+(:[0-9]{1,5})?([/?#][^\s<>\"'`\\{}|^]*)?$"
#: An address with a secret, and one of a machine or network that others cannot reach.
_SECRET = re.compile(r"(?i)[?&#;][\w.-]*(api_?key|access_?key|token|secret|password|signature)[\w.-]*=")
_LOCAL = re.compile(r"(?i)https?://(localhost|127\.\d|0\.0\.0\.0|10\.\d|192\.168\.\d)")


@dataclass(frozen=True)
class Links:
    """The links to verl's repository.

    Attributes:
        script_url: a template with ``{ref}`` and ``{path}``.
    """

    script_url: str = SCRIPT_URL

    def file(self, ref: str, path: str, lines: str | None = None) -> str:
        """Return the address of a file at a commit, with optional lines."""
        address = self.script_url.format(ref=quote(ref), path=quote(path))
        return f"{address}#L{lines.replace('-', '-L')}" if lines else address

    def commit(self, ref: str) -> str:
        """Return the address of a commit."""
        return f"https://github.com/verl-project/verl/commit/{quote(ref)}"


def is_commit(ref: str) -> bool:
    """Return whether a ref is a full or abbreviated commit."""
    return bool(re.fullmatch(r"[0-9a-f]{7,40}", ref))


def is_fixed_ref(ref: str) -> bool:
    """Return whether a ref is a commit or a release, which do not change.

    >>> [name for name in ("8446e41", "v0.4.0", "0.3.0.post1", "main") if is_fixed_ref(name)]
    ['8446e41', 'v0.4.0', '0.3.0.post1']
    """
    return is_commit(ref) or bool(re.fullmatch(r"v?\d+\.\d[\w.-]*", ref))


def is_address(text: str) -> bool:
    """Return whether ``text`` is an http(s) address, as opposed to a label or a script."""
    return bool(re.fullmatch(ADDRESS, text))


# -- types


class Record(BaseModel):
    """A frozen record that rejects unknown keys and converts no types.

    The descriptions of the fields, in JSON Schemas and in messages, are those in the docstring of the class.

    ``exactly_one`` lists fields of which one must be given; ``needs`` has pairs of a field and one that it
    needs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)
    exactly_one: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[tuple[str, str], ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **_kwargs: Any) -> None:
        """Describe the fields."""
        cls.__doc__, _, attributes = inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:\n")
        for name, text in re.findall(r"^    (\w+): (.+(?:\n {5,}.+)*)", attributes, re.MULTILINE):
            cls.model_fields[name].description = " ".join(text.split())

    @model_validator(mode="after")
    def _is_complete(self) -> "Record":
        if self.exactly_one and sum(getattr(self, name) is not None for name in self.exactly_one) != 1:
            raise problem("wrong_value", f"expected either {' or '.join(map(repr, self.exactly_one))}")
        for name, other in self.needs:
            if getattr(self, name) is not None and getattr(self, other) is None:
                raise problem("missing_key", f"{name!r} needs {other!r}", "add it")
        return self

    def __str__(self) -> str:
        """Return the first given value as text.

        >>> str(Versions(verl=None, torch="2.6.0")), str(Contributor(name="A", url="https://example.org"))
        ('2.6.0', 'A')
        """
        return next((str(value) for _, value in self if value is not None), "")


class NamedRecord(Record):
    """An entry of a registry.

    ``name_fields`` lists the fields that contain its names, each a string or a list of strings.
    """

    name_fields: ClassVar[tuple[str, ...]] = ("name",)

    name: str

    @property
    def lookup_names(self) -> tuple[str, ...]:
        """All names of this entry."""
        values = (getattr(self, field) for field in self.name_fields)
        return tuple(name for value in values for name in ((value,) if isinstance(value, str) else value))


def problem(code: str, message: str, remedy: str = "", **context: Any) -> PydanticCustomError:
    """Return a validation error whose type is the name of a diagnostic code."""
    # With the message in a placeholder, braces in a user's text stay as they are.
    return PydanticCustomError(code, "{message}", {"message": message, "hint": remedy, **context})


#: A readable description of each pattern; JSON Schemas have the pattern itself.
FORMS: dict[str, str] = {}


def pattern(expression: str, meaning: str, most: int | None = None) -> Any:
    """Return the limits of a text, a pattern and a length, and register the description of the pattern."""
    FORMS[expression] = meaning
    return Field(pattern=expression, max_length=most)


def name_of(*kinds: str, what: str = "name", code: str = "unknown_value") -> AfterValidator:
    """Return a validator for names in the validation context; without a context it accepts any name.

    Args:
        kinds: the keys of the known names in the context.
        what: the kind of the names, for the message.
        code: the code of an unknown name; with a code of its own, the name can be added to a file.
    """

    def check(name: str, info: Any) -> str:
        contexts = [info.context[kind] for kind in kinds] if info.context else []
        if contexts and not any(name in names for names in contexts):
            remedy = "" if code == "unknown_value" else f"add it to {kinds[0]}.yaml"
            # The hint, which takes long, is made for the problems that are listed.
            raise problem(code, f"unknown {what} {name!r}", remedy, word=name, known=contexts)
        return name

    return AfterValidator(check)


def no_email(text: str) -> str:
    """Reject a text with an e-mail address."""
    if re.search(r"[\w.+-]@[\w-]{1,63}\.\w", text):
        raise problem("email_address", "e-mail addresses are not allowed", "give a name and a public profile")
    return text


def single_line(text: str) -> str:
    """Reject a text of several lines, with an e-mail address, or still to fill in."""
    if re.search(r"[\t\r\n]|\A\s|\s\Z", text):
        raise problem("wrong_value", "expected one line without tabs and without spaces around it")
    return no_email(_filled_in(text))


def _filled_in(text: Any) -> Any:
    if isinstance(text, str) and re.match(r"TODO\b", text):
        raise problem("todo", "the value is still TODO", "fill it in, or remove the key")
    return text


def _algorithm(task: str) -> str:
    if (name := family(task)) not in ALGORITHMS:
        remedy = "write a variant behind verl's name, as in GRPO (my variant)"
        raise problem("unknown_value", f"unknown algorithm {name!r}", remedy, word=name, known=[ALGORITHMS])
    return task


def _public(address: str) -> str:
    if _SECRET.search(address):
        raise problem("wrong_value", "the address contains a secret", "revoke it, and give a public address")
    if _LOCAL.match(address):
        raise problem("wrong_value", "others cannot reach this address", "give a public address")
    return address


def _iso_date(value: Any) -> Any:
    is_date = isinstance(value, str) and re.fullmatch(r"\d{4}-\d{2}-\d{2}", value)
    return date.fromisoformat(value) if is_date else value


#: A check for texts that are still to fill in, before their other checks.
FilledIn = BeforeValidator(_filled_in)
Item = TypeVar("Item")
#: A list of at least one item.
Some = Annotated[tuple[Item, ...], Field(min_length=1)]


def by_name(entries: Iterable[Any]) -> dict[str, Any]:
    """Return entries as a mapping."""
    return {entry.name: entry for entry in entries}


class _ByName:
    """The annotation of a mapping by name that is a list of entries in a file."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        entries = handler.generate_schema(tuple[get_args(source)[1], ...])  # type: ignore[misc]
        return core_schema.no_info_after_validator_function(by_name, entries)


#: Named entries.
Named = Annotated[Mapping[str, Item], _ByName(), Field(default_factory=dict)]
#: The form of ids.
SLUG = r"^[a-z0-9]+(-[a-z0-9]+)*$"
Slug = Annotated[str, pattern(SLUG, "lower-case letters and digits with single hyphens between them", 80)]
#: A short, single-line text.
Text = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(single_line)]
_NAME = r"^[0-9A-Za-z_./+()&:-]+( [0-9A-Za-z_./+()&:-]+)*$"
#: A name that people look up, copy and paste into commands.
Name = Annotated[str, pattern(_NAME, "letters, digits and . / + ( ) & : _ -", 200), FilledIn]
#: The name of an entry of gpus.yaml, and of an entry of architectures.yaml.
GpuName = Annotated[Text, name_of("gpus", what="GPU", code="unknown_gpu")]
Checkpoint = Annotated[Text, name_of("architectures", what="model", code="unknown_model")]
#: Sentences, on one or more lines. Always shown as text, never parsed as markup.
Prose = Annotated[str, Field(min_length=1, max_length=4000), AfterValidator(no_email)]
#: An http(s) address.
Url = Annotated[
    str, pattern(ADDRESS, "an https:// address without a user name", 2000), FilledIn, AfterValidator(_public)
]
#: An algorithm of verl's, and a variant of it.
Task = Annotated[Text, FilledIn, AfterValidator(_algorithm)]
_SEGMENT = r"\.{0,2}[^./\\\s][^/\\\t\r\n]*"
_PATH = f"^{_SEGMENT}(/{_SEGMENT})*$"
#: A path in verl's repository, with forward slashes.
RepoPath = Annotated[str, pattern(_PATH, "a path relative to the root of verl's repository", 400), FilledIn]
#: A commit, tag or branch of verl's repository.
GitRef = Annotated[str, pattern(REF, "a commit, tag or branch: letters, digits, '.', '_', '/' and '-'")]
#: A calendar day.
IsoDate = Annotated[date, BeforeValidator(_iso_date)]
#: A calendar day, or a month if the day is unknown.
Day = Annotated[str, pattern(r"^20\d\d-(0[1-9]|1[0-2])(-[0-3]\d)?$", "a day such as 2026-08-22, or a month")]
Version = Annotated[str, pattern(r"^[0-9A-Za-z][0-9A-Za-z.+_-]{0,39}$", "a version such as 0.8.3"), FilledIn]
Lines = Annotated[str, pattern(r"^[1-9][0-9]{0,5}(-[1-9][0-9]{0,5})?$", "a line or a range such as 40-45")]
_KEY = r"^[A-Za-z_][0-9A-Za-z_]*(\.[A-Za-z_][0-9A-Za-z_]*)*$"
SettingKey = Annotated[str, pattern(_KEY, "verl's dotted key, without '+' or '++' before it", 200)]


def _setting(value: Any) -> Any:
    items = value if isinstance(value, tuple) else (value,)
    if not all(item is None or isinstance(item, (str, int, float, bool)) for item in items):
        hint = "write keys with dots, as in data.train_batch_size: 64" if isinstance(value, dict) else ""
        raise problem("wrong_type", "expected text, a number, true, false, null or a list of these", hint)
    if len(items) > 100 or any(len(str(item)) > 500 for item in items):
        raise problem("wrong_value", "expected at most 500 characters, or at most 100 items")
    for item in items:
        single_line(str(item))
    return value


SettingValue = Annotated[Any, AfterValidator(_setting)]
#: Values by keys of some form; editors report all other keys.
Values = Annotated[Mapping[Item, SettingValue], Field(json_schema_extra={"additionalProperties": False})]
#: Values of verl's dotted configuration keys.
Settings = Values[SettingKey]

# -- a run


class Gpus(Record):
    """The number and type of the GPUs.

    Attributes:
        count: Number of GPUs, over all nodes.
        type: Name or alias in gpus.yaml; null if the source does not give the type.
        nodes: Number of nodes.
        memory_gb: Stated memory per GPU in GB, if the source gives no type.
    """

    count: int = Field(ge=1, le=MOST_GPUS)
    type: GpuName | None = Field(examples=["H100", "H800", "A100", "H20"])
    nodes: int | None = Field(None, ge=1, le=MOST_GPUS)
    memory_gb: float | None = Field(None, gt=0, le=10_000)

    def __str__(self) -> str:
        """Return count and type, for example ``8*H20``; an unknown type is shown as GPU."""
        memory = f" {self.memory_gb:g} GB" if self.memory_gb and not self.type else ""
        return f"{self.count}*{self.type or 'GPU'}{memory}"


class Infer(Record):
    """The rollout engine.

    Attributes:
        engine: Rollout engine.
        version: Version of the engine, in quotes: "0.8.3".
    """

    engine: Engine
    version: Version | None = None

    def __str__(self) -> str:
        return f"{self.engine}{self.version or ''}"


class Versions(Record):
    """Software versions; the rollout engine's version is in ``infer``.

    Attributes:
        verl: Release or commit of verl, in quotes: "0.8.0", "49b08e950".
        torch: Release of PyTorch, in quotes: "2.6.0".
    """

    verl: Version | None = None
    torch: Version | None = None


class Script(Record):
    """The launch script at a fixed commit.

    Attributes:
        ref: Commit of verl's repository that the link points to.
        path: Path of the script in that commit.
        text: Link text; default: the file name.
    """

    ref: GitRef
    path: RepoPath
    text: Text | None = None

    def __str__(self) -> str:
        return self.text or self.path.rsplit("/", 1)[-1]


class Contributor(Record):
    """The person who reported the run.

    Attributes:
        name: Name or handle, not an e-mail address.
        url: Public profile.
    """

    name: Text
    url: Url | None = None


Seconds = Annotated[float, Field(gt=0, le=10_000_000)]


class Measured(Record):
    """Figures that the run reported; per GPU or per node as described.

    Attributes:
        gib: Peak GPU memory in GiB (2^30 bytes), per GPU.
        counter: Counter of the peak.
        host_ram_gib: Host memory in GiB per node.
        tokens_per_second_per_gpu: Tokens of prompts and responses, divided by the time of the counted steps
            and by all GPUs of the job, also those of rollout, reward models and teachers.
        step_seconds: Mean time per step, in seconds.
        step_seconds_range: Shortest and longest step, in seconds.
        steps: Number of steps that these means are over. Of a log, those after two of warm-up, without
            validation and checkpoints inside; ten are the least for a speed. 1 if only one step was reported.
            In an asynchronous trainer, a step is one synchronisation of the weights.
        mfu: Model FLOPs utilisation, from 0 to 1.
        response_tokens: Mean response length, in tokens.
    """

    gib: float | None = Field(None, gt=0, le=100_000)
    counter: Literal["torch-max-allocated", "torch-max-reserved", "device", "not-stated"] = "not-stated"
    host_ram_gib: float | None = Field(None, gt=0, le=1_000_000)
    tokens_per_second_per_gpu: float | None = Field(None, gt=0, le=1_000_000)
    step_seconds: Seconds | None = None
    step_seconds_range: tuple[Seconds, Seconds] | None = None
    steps: int | None = Field(None, ge=1, le=10_000_000)
    mfu: float | None = Field(None, gt=0, le=1)
    response_tokens: float | None = Field(None, gt=0, le=100_000_000)


class Evidence(Record):
    """Evidence for the claim: an address, or a place in verl's repository.

    Attributes:
        kind: Kind of evidence.
        url: Address, for evidence outside verl's repository.
        ref: Commit of verl's repository.
        path: File in that commit; unset: the commit itself.
        lines: Line, or first and last line, of that file, in quotes: "40-45".
        date: Day or month of the evidence: when the run ended, otherwise when the text was last changed.
    """

    kind: Literal["log", "metrics", "screenshot", "document", "script", "commit", "issue"]
    url: Url | None = None
    ref: GitRef | None = None
    path: RepoPath | None = None
    lines: Lines | None = None
    date: Day | None = None

    exactly_one = ("url", "ref")
    needs = (("path", "ref"), ("lines", "path"))


class Note(Record):
    """A remark, linked from a mark in the row.

    Attributes:
        text: One or more plain sentences.
        code: Short name of the remark, for example max-batch-contested.
        about: Field whose cell shows the mark.
    """

    text: Prose
    code: Slug
    about: PageColumn = "tag"


class Run(Record):
    """One run per file; the file is named ``<id>.yaml``.

    Attributes:
        id: Unique name; equals the file name without .yaml.
        size: Size class: the section of the page with the run.
        tag: MIN: settings that save memory, or the least hardware. RECOMMENDED: faster than the runs in
            recommended_over. null if it is neither.
        model: Hugging Face name of the model that the script loads, as in architectures.yaml.
        task: Algorithm and variant.
        gpus: Number of GPUs over all nodes, and their type.
        train: Training backend.
        infer: Rollout engine; null if the source does not give it.
        trainer: Mode of verl's trainer, of which the asynchronous ones do not wait for rollout; one-step-off
            and fully async policies are separate_async.
        label: Text in the Model column; default: the model's short name.
        max_batch: Largest batch that fits, in prompts per step.
        script: Launch script.
        contributor: Person who reported the run.
        kind: tested: the contributor ran it. measured: verl's sources report results of such a run. stated:
            they claim or recommend it. script-default: only a script's defaults.
        added: Date on which the run was added to the data.
        versions: Software versions, except the rollout engine's.
        settings: Values of verl's dotted configuration keys, as run.
        measured: Figures that the run reported.
        recommended_over: For RECOMMENDED, the recorded runs of the same model, GPUs, trainer, lengths and
            batch that were slower.
        evidence: Evidence for the claim.
        notes: Remarks, each linked from a mark in the row.
    """

    id: Slug
    size: Size = Field(examples=["0.5B", "7B", "70B"])
    tag: Tag | None
    model: Checkpoint = Field(examples=["Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-8B"])
    task: Task = Field(examples=["GRPO", "GRPO-LoRA", "PPO", "DAPO"])
    gpus: Gpus = Field(examples=[{"count": 4, "type": "H800"}])
    train: Train = Field(examples=["fsdp", "megatron"])
    infer: Infer | None = Field(examples=[{"engine": "vllm", "version": "0.8.3"}])
    trainer: Trainer = "sync"
    label: Text | None = None
    max_batch: int | None = Field(None, ge=1, le=10_000_000)
    script: Script | None = None
    contributor: Contributor | None = None
    kind: Kind = "tested"
    added: IsoDate | None = None
    versions: Versions | None = None
    settings: Settings = Field(default_factory=dict)
    measured: Measured | None = None
    recommended_over: tuple[Slug, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def short_name(self) -> str:
        """The name in the Model column: the label, or the checkpoint without its owner."""
        return self.label or self.model.rsplit("/", 1)[-1]

    @property
    def is_folded(self) -> bool:
        """True if pages fold its row: it is not known to have run, and no recorded run is slower."""
        return self.word != "ran" and not self.recommended_over

    @property
    def checked(self) -> str | None:
        """The day or month of its newest evidence; without dated evidence, that of a tested run's row."""
        dates = [item.date for item in self.evidence if item.date]
        by_row = self.added.isoformat() if self.added and self.kind == "tested" else None
        return max(dates, key=lambda day: f"{day}-31"[:10], default=by_row)

    @property
    def trains_adapters(self) -> bool:
        """True if the run trains LoRA adapters instead of all parameters."""
        return "lora" in self.task.lower() or any(self.settings.get(key) for key in ADAPTER_RANKS)

    @property
    def word(self) -> Word:
        """The evidence for the run in one word.

        The word is ``ran`` if the contributor ran it, or if its log or metrics are published.
        """
        if self.kind == "measured":
            is_published = any(item.kind in ("log", "metrics") for item in self.evidence)
            return "ran" if is_published else "reported"
        return "ran" if self.kind == "tested" else "claimed"
