"""A case: a public observation of a run's memory that the estimator is tested on; and the files of cases.

The same records describe runs to estimate, without an observation.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from operator import getitem
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, RootModel, WithJsonSchema

from ..dataset import DataFile
from ..diagnostics import Diagnostic, Severity
from ..records import MOST_GPUS, Record, SettingValue, Text, Url
from ..strict_yaml import Document
from ..validation import explained, try_model, value_at
from .request import dotted_leaves

# -- records

#: Sentences from a source or about it. Unlike ``Prose``, they may contain something like an e-mail address:
#: places such as ``owner/repository@v1.2:path`` look like one.
Words = Annotated[str, Field(min_length=1, max_length=4000)]
CounterKind = Literal[
    "torch-allocated", "torch-allocated-with-pool", "torch-reserved", "torch-static", "device", "unstated"
]  # fmt: skip
#: The kind of a counter by a pattern at the beginning of its description; the first that matches applies.
_COUNTERS: dict[CounterKind, str] = {
    "torch-reserved": "(?!.*alloc).*reserved",
    "torch-static": "(?!.*(max|peak))(?=.*(torch|alloc)).*(after|before|init|load|static)",
    "torch-allocated": ".*(torch|alloc)",
}


def _flat(settings: Any) -> Any:
    """Flatten nested keys to dotted ones; the schema rejects anything but a mapping."""
    return dict(dotted_leaves(settings)) if isinstance(settings, dict) else settings


def _source(value: Any) -> Any:
    """Return a source of one line as keys and values."""
    return {"url" if re.match("https?://", value) else "where": value} if isinstance(value, str) else value


def _or_text(schema: Any) -> None:
    schema["anyOf"].insert(0, {"type": "string"})


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
        file = self.path and f"blob/{self.commit or 'HEAD'}/{self.path}"
        place = f"issues/{self.issue}" if self.issue else file
        has_place = place and re.fullmatch(r"[\w.-]+/[\w.-]+", self.repo or "")
        return self.url or (f"https://github.com/{self.repo}/{place}" if has_place else None)


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


#: Token counts of a logged step: of a prompt, of a response, of a data-parallel rank, and of all ranks.
TokenCount = Literal[
    "prompt_length_mean", "prompt_length_min", "prompt_length_max",
    "response_length_mean", "response_length_min", "response_length_max",
    "global_seqlen_mean", "global_seqlen_min", "global_seqlen_max", "total_num_tokens",
]  # fmt: skip


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
    counter_kind: CounterKind | None = None
    reserved_gib: float | None = Field(None, gt=0, le=1e5)
    steady_gib: float | None = Field(None, gt=0, le=1e5)
    nvidia_smi_mib: float | None = Field(None, gt=0, le=1e8)
    host_ram_gib: float | None = Field(None, gt=0, le=1e6)

    @property
    def kind(self) -> CounterKind:
        """The kind of the counter: as given, otherwise by its description.

        >>> CaseMeasured(counter="torch-max-allocated").kind, CaseMeasured(counter="Peak VRAM").kind
        ('torch-allocated', 'unstated')
        """
        likely = (kind for kind, start in _COUNTERS.items() if re.match(f"(?is:{start})", self.counter or ""))
        return self.counter_kind or next(likely, None) or "unstated"


class Case(Record, json_schema_extra={"anyOf": [{"required": ["config"]}, {"required": ["training"]}]}):
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
        training: Settings of a plain training run, instead of config; ``tools/training_records.py`` lists
            them.
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
        Mapping[Words, SettingValue] | None, BeforeValidator(_flat), WithJsonSchema({"type": "object"})
    ] = None
    training: Mapping[str, Any] | None = None
    observed_tokens: Mapping[TokenCount, Annotated[float, Field(ge=0, le=1e12)]] | None = None
    outcome: Literal["measured", "fits", "oom"] | None = None
    phase: Words | None = None
    oom_message: Words | None = None
    measured: CaseMeasured | None = None
    confidence: Text | None = None
    note: Words | None = None
    contested: Words | None = None
    not_scored: Words | None = None

    @property
    def is_scored(self) -> bool:
        """True if an estimate is compared with the observation."""
        return self.outcome is not None and self.contested is None and self.not_scored is None


class CaseFile(RootModel[tuple[Case, ...]], defer_build=True):
    """A file with a list of cases."""


# -- files


class Entry(NamedTuple):
    """A case in a file.

    Attributes:
        id: the id as written; without one, for example ``case 3`` for the third in a file.
        document: the part of the file, with the places of its values: ``document.place(("gpus", "type"))``.
        case: the case; None if it has errors.
        error: its first error, which is also in the problems of ``Cases``; empty if there is none.
    """

    id: str
    document: Document
    case: Case | None
    error: str


class Cases(NamedTuple):
    """Cases and their problems.

    Attributes:
        entries: valid and broken cases, ordered by file and line.
        problems: all problems, ordered by file and line.
    """

    entries: tuple[Entry, ...] = ()
    problems: tuple[Diagnostic, ...] = ()

    @property
    def by_id(self) -> dict[str, Case]:
        """The valid cases by id."""
        return {entry.id: entry.case for entry in self.entries if entry.case}


def load_cases(files: Iterable[DataFile], *, recorded: bool = False) -> Cases:
    """Load the cases. Problems in the files are reported, never raised.

    A case replaces one with the same id from an earlier directory. Ids are unique within a directory.

    Args:
        files: the files.
        recorded: whether the files are in a data directory, where every case needs its source's address.
    """
    problems: list[Diagnostic] = []
    entries: dict[str | tuple[str, int], Entry] = {}
    for document in (file.document for file in files):
        problems += document.problems
        values = document.data if isinstance(document.data, tuple) else ()
        if values is not document.data and not document.problems:
            hint = "begin each case with '- id:'"
            problems.append(document.diagnostic((), "wrong_type", "expected a list of cases", hint))
        for index, value in enumerate(values):
            item = replace(document, data=value, inside=(index,))
            case, wrong = _read_case(item)
            wrong += _faults(case, item, recorded, entries.get(case.id)) if case else ()
            error = next((each.text for each in wrong if each.is_error), "")
            name = str(value_at(value, "id") or f"case {index + 1}")
            key = (document.label, index) if error else name
            entries.pop(key, None)  # the replacement goes to the position of its file
            entries[key] = Entry(name, item, None if error else case, error)
            problems += wrong
    return Cases(tuple(entries.values()), tuple(sorted(problems)))


def _read_case(item: Document) -> tuple[Case | None, list[Diagnostic]]:
    """Validate one case, and return its problems; unknown keys are warnings, and the case lacks them."""
    (case, errors), values = try_model(item.data, Case), deepcopy(item.data)
    for *inside, key in (error["loc"] for error in errors if error["type"] == "extra_forbidden"):
        del reduce(getitem, inside, values)[key]
    problems, levels = explained(item, Case, errors), {"unknown_key": Severity.WARNING}
    problems = [replace(each, severity=levels.get(each.code, each.severity)) for each in problems]
    return case or try_model(values, Case)[0], problems


def _faults(case: Case, item: Document, recorded: bool, earlier: Entry | None) -> Iterator[Diagnostic]:
    """Yield the problems of a case whose values are valid; ``earlier`` is a case with the same id."""
    if case.config is None and case.training is None:
        message, hint = "the case has no settings", "add 'config' with verl's keys, or 'training'"
        yield item.diagnostic((), "missing_key", message, hint)
    if recorded and not (case.source and case.source.address):
        message = "the address of the case's source is missing"
        hint = "add source: {repo: owner/name, path: …}, {repo: owner/name, issue: 12} or {url: https://…}"
        yield item.diagnostic(("source",), "missing_key", message, hint)
    if earlier and earlier.document.label.rpartition("/")[0] == item.label.rpartition("/")[0]:
        message = f"the id {case.id!r} is already used at {earlier.document.place(('id',))}"
        yield item.diagnostic(("id",), "duplicate_name", message, "rename one of the two")
