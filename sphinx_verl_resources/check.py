"""Rules for recorded data beyond what a build requires: ``verl-resources check``.

A rule is a decorated function. It takes the data to check, and yields a place, a sentence and a remedy for
each violation.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from .dataset import CASES, REGISTRIES, RUNS
from .diagnostics import Code, Diagnostic, Location, Severity, listed, nearest
from .links import is_fixed_ref
from .records import NamedRecord, Run, size_class
from .registries import Architecture, Gpu
from .strict_yaml import plain_value, read_yaml
from .units import GB, GIB, MIB, gb
from .validation import entries_in, valid_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .dataset import DataFile, Dataset, Directory
    from .git import Repository
    from .strict_yaml import Document, Loc

    #: A place, a message and a remedy; or a problem of another code or severity.
    Finding = tuple[Location, str, str] | Diagnostic

Data = TypeVar("Data", bound="Dataset", covariant=True)
Record = TypeVar("Record", bound=NamedRecord)


class Check(Generic[Data]):
    """The data directories to check, with the data that they build on.

    Attributes:
        data: all data.
        directories: the directories to check.
        today: the latest date that is not in the future; default: the latest current date worldwide.
        repository: a checkout of verl, or None.
    """

    def __init__(
        self,
        data: Data,
        directories: Sequence[Directory],
        *,
        today: date | None = None,
        repository: Repository | None = None,
    ) -> None:
        self.data = data
        self.directories = tuple(directories)
        # The earliest time zone is 14 hours ahead of UTC.
        self.today = today or (datetime.now(timezone.utc) + timedelta(hours=14)).date()
        self.repository = repository

    @cached_property
    def files(self) -> tuple[tuple[str, DataFile, Document], ...]:
        """The kind (the name of its schema), file and document of each file of the directories."""
        kinds = {RUNS: "run", CASES: "cases"} | {name: name.removesuffix(".yaml") for name in REGISTRIES}
        return tuple(
            (kinds[name], file, read_yaml(file.content, file.shown))
            for name, files in self.data.files.items()
            for file in files
            if any(file.path.is_relative_to(directory.path) for directory in self.directories)
        )

    @cached_property
    def runs(self) -> tuple[tuple[Run, Document], ...]:
        """The valid runs of the directories, with their files."""
        broken, runs = {file.shown for file in self.data.broken}, self.data.runs
        return tuple(
            (runs[file.path.stem], document)
            for kind, file, document in self.files
            if kind == "run" and file.shown not in broken and file.path.stem in runs
        )

    @cached_property
    def links(self) -> tuple[tuple[Document, Loc, str, str | None], ...]:
        """Each link of a run to verl: its file, the position of the commit, the commit, the path."""
        found: list[tuple[Document, Loc, str, str | None]] = []
        for run, document in self.runs:
            if run.script:
                found.append((document, ("script", "ref"), run.script.ref, run.script.path))
            for index, item in enumerate(run.evidence):
                if item.ref:
                    found.append((document, ("evidence", index, "ref"), item.ref, item.path))
        if self.repository:
            self.repository.look_up(ref for _, _, ref, _ in found)
        return tuple(found)

    def entries(self, kind: str, model: type[Record]) -> Iterator[tuple[Record, Callable[[str], Location]]]:
        """Yield the valid entries of a registry, each with a function that returns the place of a field."""
        for own, _file, document in self.files:
            for index, record in enumerate(valid_entries(document.data, kind, model) if own == kind else ()):
                if record is not None:
                    yield record, partial(_place_in, document, (kind, index), record.name)

    def problems(self) -> tuple[Diagnostic, ...]:
        """Return the problems that a build reports and those of the rules, ordered by file and line."""
        found = [*self.data.all_diagnostics()]
        for rule in RULES.values():
            for item in rule.find(self) if self.repository or not rule.needs_repository else ():
                if not isinstance(item, Diagnostic):
                    item = Diagnostic(item[0], rule.code, *item[1:], rule.severity)
                found.append(item)
        return listed(sorted(found))


def _place_in(document: Document, loc: Loc, name: str, field: str) -> Location:
    return replace(document.place((*loc, field) if field else loc), key=name)


class Rule(NamedTuple):
    """A rule: its code and severity, whether it needs a checkout of verl, and what yields the violations."""

    code: Code
    severity: Severity
    needs_repository: bool
    find: Callable[[Check[Any]], Iterable[Finding]]


#: All rules by the name of their code, in the order of the documentation; rooms add theirs.
RULES: dict[str, Rule] = {}
Find = TypeVar("Find", bound="Callable[[Check[Any]], Iterable[Finding]]")


def rule(severity: Severity = Severity.WARNING, *, needs_repository: bool = False) -> Callable[[Find], Find]:
    """Return a decorator that registers a function as the rule of the code with its name."""

    def register(find: Find) -> Find:
        RULES[find.__name__] = Rule(cast("Code", find.__name__), severity, needs_repository, find)
        return find

    return register


# -- files

_SCHEMA_LINE = "# yaml-language-server: $schema="


@rule()
def schema_line(check: Check[Any]) -> Iterator[Finding]:
    """Require a first line that points editors to the schema, if the directory has it."""
    for kind, file, document in check.files:
        target = f"{'../' if kind in {'run', 'cases'} else ''}schema/{kind}.json"
        first, begin = document.text.split("\n", 1)[0], Location(file.shown, 1, 1)
        remedy = f"begin the file with {_SCHEMA_LINE}{target}"
        words = first.removeprefix(_SCHEMA_LINE).split()
        if document.data is not None and not (first.startswith(_SCHEMA_LINE) and words):
            if (file.path.parent / target).is_file():
                yield begin, "the first line does not point to the schema", remedy
        elif document.data is not None and words[0].rsplit("/", 1)[-1] != f"{kind}.json":
            place = replace(begin, column=len(_SCHEMA_LINE) + 1)
            yield place, f"the first line points to a different schema, {words[0][:80]!r}", remedy


@rule()
def unquoted_version(check: Check[Any]) -> Iterator[Finding]:
    """Require quotes around versions and lines; other programs may read them as numbers."""
    for kind, _file, document in check.files:
        evidence = range(len(entries_in(document.data, "evidence")))
        lines = [("evidence", index, "lines") for index in evidence]
        for loc in (*_VERSIONS, *lines) if kind == "run" else ():
            text = document.source(loc)[:80]
            if document.is_plain(loc) and isinstance(plain_value(text), str):
                message = f"{'.'.join(map(str, loc))}: {text} is not in quotes"
                yield document.place(loc), message, f'write "{text}"'


_VERSIONS: tuple[Loc, ...] = (("infer", "version"), ("versions", "verl"), ("versions", "torch"))


# -- a run


@rule(Severity.ERROR)
def wrong_size(check: Check[Any]) -> Iterator[Finding]:
    """Require the size class that is nearest to the model's number of parameters."""
    for run, document in check.runs:
        model = check.data.architectures.get(run.model)
        if model and (size := size_class(model.parameters)) != run.size:
            has = f"{run.model} has {model.parameters / 1e9:.1f} billion parameters"
            yield document.place(("size",)), f"{has}, but the run's size class is {run.size}", f"write {size}"


@rule(Severity.ERROR)
def future_date(check: Check[Any]) -> Iterator[Finding]:
    """Reject dates in the future."""
    for run, document in check.runs:
        if run.added and run.added > check.today:
            yield document.place(("added",)), f"{run.added} is in the future", "write today's date"


#: The day after the last update of verl's hand-typed page, whose rows lack evidence and versions.
_FIRST_DAY = date(2025, 6, 26)


def _is_old(run: Run) -> bool:
    """Return whether a run is from verl's hand-typed page or its time."""
    return run.added is not None and run.added < _FIRST_DAY


@rule()
def no_evidence(check: Check[Any]) -> Iterator[Finding]:
    """Require evidence for a tested run since 2025-06-26, and at least a script for any other."""
    for run, document in check.runs:
        if not run.evidence and not (run.script and (_is_old(run) or run.kind != "tested")):
            missing = "evidence" if run.kind == "tested" else "evidence or script"
            message = f"the run's kind is {run.kind!r}, but it has no {missing}"
            yield document.place(), message, "add under evidence: {kind: log, url: https://…}"


@rule()
def no_date(check: Check[Any]) -> Iterator[Finding]:
    """Require the date of a tested run."""
    for run, document in check.runs:
        if run.kind == "tested" and not run.added:
            remedy = f"add added: {check.today}, or the actual date"
            yield document.place(), "the run's kind is 'tested', but it has no date", remedy


@rule()
def no_version(check: Check[Any]) -> Iterator[Finding]:
    """Require the versions of verl and of the engine of a tested run since 2025-06-26."""
    missing = "the run's kind is 'tested', but the version of {} is missing"
    for run, document in check.runs:
        if run.kind == "tested" and not _is_old(run):
            if not (run.versions and run.versions.verl):
                remedy = 'add versions: {verl: "…"} with the release or commit'
                yield document.place(), missing.format("verl"), remedy
            if run.infer and not run.infer.version:
                yield document.place(("infer",)), missing.format(run.infer.engine), 'add version: "…"'


# -- links to verl's repository


@rule()
def moving_ref(check: Check[Any]) -> Iterator[Finding]:
    """Require links to commits or releases, which do not change."""
    for document, loc, ref, _path in check.links:
        commit = check.repository.commit(ref) if check.repository else None
        # The rule unknown_ref reports names that are not in the checkout.
        if not is_fixed_ref(ref) and (commit or not check.repository):
            message = f"{'.'.join(map(str, loc))}: {ref!r} is a branch, which can change"
            yield document.place(loc), message, f"write {commit}" if commit else "write its commit"


@rule(Severity.ERROR, needs_repository=True)
def unknown_ref(check: Check[Any]) -> Iterator[Finding]:
    """Require commits that exist."""
    repository: Repository = check.repository  # type: ignore[assignment]
    for document, loc, ref, _path in check.links:
        if repository.commit(ref) is None:
            name = ".".join(map(str, loc))
            message = f"{name}: {repository.shown} has no commit, tag or branch {ref!r}"
            remedy = "correct it, or fetch it with: git fetch --tags origin"
            if repository.is_shallow:
                message = f"{name}: {ref!r} was not checked: {repository.shown} is a shallow clone without it"
                remedy = "fetch all commits with: git fetch --unshallow"
            yield document.place(loc), message, remedy


@rule(Severity.ERROR, needs_repository=True)
def unknown_path(check: Check[Any]) -> Iterator[Finding]:
    """Require linked files that exist at their commits."""
    repository: Repository = check.repository  # type: ignore[assignment]
    for document, loc, ref, path in check.links:
        commit = repository.commit(ref)
        if commit and path and path not in repository.paths(commit):
            near = nearest(path, repository.paths(commit))
            remedy = f"did you mean {near!r}?" if near else "correct the path, or the commit"
            place = (*loc[:-1], "path")
            message = f"{'.'.join(map(str, place))}: {ref[:12]} has no file {path[:200]!r}"
            yield document.place(place), message, remedy


# -- registries

#: Limits of the driver's memory figure relative to the nominal one: an 80 GB GPU can have 80 × 2^30 bytes,
#: or less if it reserves some for error correction.
_LEAST, _MOST = 0.92, 1.08


@rule()
def gpu_memory(check: Check[Any]) -> Iterator[Finding]:
    """Require consistent memory figures of each GPU."""
    for gpu, place_of in check.entries("gpus", Gpu):
        reported = gpu.memory_mib * MIB
        if not _LEAST <= reported / (gpu.memory_gb * GB) <= _MOST:
            message = f"memory_mib is {gb(reported)}, but memory_gb is {gpu.memory_gb} GB"
            yield place_of("memory_mib"), message, "memory_mib counts 2^20 bytes, as nvidia-smi prints them"
        if gpu.cuda_total_gib and gpu.cuda_total_gib * GIB > reported:
            most = f"more than the driver's {reported / GIB:.2f} GiB"
            message = f"CUDA offers {gpu.cuda_total_gib:g} GiB, {most}"
            yield place_of("cuda_total_gib"), message, "correct one of the two"


@rule()
def incomplete_entry(check: Check[Any]) -> Iterator[Finding]:
    """Require sources for the figures of each entry."""
    for gpu, place_of in check.entries("gpus", Gpu):
        if gpu.kind != "reading" and not gpu.note:
            message = f"memory_mib is {gpu.kind}, but its source is missing"
            yield place_of("kind"), message, "add a 'note' with the GPU or the document that it comes from"
    for model, place_of in check.entries("architectures", Architecture):
        if not model.config_source:
            remedy = "add config_source: [{repo: …, path: config.json}]"
            yield place_of(""), "the source of the shape is missing", remedy
        if model.verified and not model.published:
            message = "the model is verified, but has no published count"
            yield place_of("verified"), message, "add 'published', or write verified: false"


# -- runs compared with each other


@rule()
def duplicate_run(check: Check[Any]) -> Iterator[Finding]:
    """Reject a run that is recorded twice."""
    alike: dict[Any, list[tuple[Run, tuple[Any, ...]]]] = {}
    for run, document in check.runs:
        settings = tuple(sorted((key, repr(value)) for key, value in run.settings.items()))
        gpus = run.gpus.count, check.data.gpu_name(run), run.gpus.nodes, run.gpus.memory_gb
        # Runs differ only if both record one of these with different values.
        versions = (run.versions.verl, run.versions.torch) if run.versions else (None, None)
        traits = (run.script and run.script.path, *versions)
        earlier = alike.setdefault((run.model, gpus, run.task, run.train, run.infer, settings), [])
        for other, others in earlier:
            if all(one == two or not one or not two for one, two in zip(traits, others, strict=True)):
                same = "model, GPUs, task, backend, engine and settings"
                message = f"the run is the same as {other.id!r}: {same}"
                yield document.place(("id",)), message, "keep one of the two, or record the difference"
                break
        earlier.append((run, traits))


@rule()
def recommended_below_min(check: Check[Any]) -> Iterator[Finding]:
    """Reject a RECOMMENDED run with less hardware than every MIN run of its model and task."""
    least: dict[tuple[str, str], list[Run]] = {}
    for run, _document in check.runs:
        if run.tag == "MIN":
            least.setdefault((run.model, run.task), []).append(run)
    for run, document in check.runs:
        others = least.get((run.model, run.task), [])
        if run.tag == "RECOMMENDED" and others and all(_takes_less(run, other, check) for other in others):
            less = f"is less hardware than {others[0].gpus} of the MIN run {others[0].id!r}"
            remedy = "correct the tag of one of the two"
            yield document.place(("tag",)), f"RECOMMENDED {run.gpus} {less}", remedy


def _takes_less(one: Run, other: Run, check: Check[Any]) -> bool:
    """Return whether a run has less total GPU memory or, if that is unknown, fewer GPUs of the same type."""
    memory, other_memory = _memory(one, check), _memory(other, check)
    if memory is not None and other_memory is not None:
        return memory < other_memory
    return (
        one.gpus.type is not None and one.gpus.type == other.gpus.type and one.gpus.count < other.gpus.count
    )


def _memory(run: Run, check: Check[Any]) -> float | None:
    """Return the nominal memory of all GPUs in GB; drivers report different figures for GPUs of 80 GB."""
    gpu = check.data.gpu_of(run)
    each = gpu.memory_gb if gpu else run.gpus.memory_gb
    return run.gpus.count * each if each else None
