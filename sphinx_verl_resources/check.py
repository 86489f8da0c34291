"""Rules for recorded data beyond what a build requires: ``verl-resources check``.

A rule is a decorated function. It takes the data to check, and yields a place, a sentence and a remedy for
each violation. Its docstring says what it requires, with a bad and a good example, for the documentation.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from .dataset import RUNS
from .diagnostics import Code, Diagnostic, Location, Severity, listed
from .records import NamedRecord, Run, is_fixed_ref, size_class
from .registries import Gpu
from .strict_yaml import read_yaml
from .units import GB, MIB, gb
from .validation import valid_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .dataset import DataFile, Directory
    from .git import Repository
    from .strict_yaml import Document, Loc

    #: A place, a sentence and a remedy; or a problem of another code or severity.
    Finding = tuple[Location, str, str] | Diagnostic

Entry = TypeVar("Entry", bound=NamedRecord)


class Check:
    """The data directories to check, with the data that they build on.

    Attributes:
        data: all data, a ``Dataset``.
        directories: the directories to check.
        repository: a checkout of verl, or None.
    """

    def __init__(
        self, data: Any, directories: Sequence[Directory], repository: Repository | None = None
    ) -> None:
        self.data, self.directories, self.repository = data, directories, repository

    def files(self, name: str) -> list[tuple[DataFile, Document]]:
        """Return the files of a folder, or those of a registry, in the directories to check."""
        folders = [directory.path for directory in self.directories]
        return [
            (file, read_yaml(file.content, file.shown))
            for file in self.data.files[name]
            if any(map(file.path.is_relative_to, folders))
        ]

    @cached_property
    def runs(self) -> list[tuple[Run, Document]]:
        """The valid runs, with their files."""
        broken, runs = {file.shown for file in self.data.broken}, self.data.runs
        return [
            (runs[file.path.stem], document)
            for file, document in self.files(RUNS)
            if file.shown not in broken and file.path.stem in runs
        ]

    def entries(self, section: str, model: type[Entry]) -> Iterator[tuple[Entry, Document, Loc]]:
        """Yield the valid entries of a registry, with their files and positions."""
        for _file, document in self.files(f"{section}.yaml"):
            for index, entry in enumerate(valid_entries(document.data, section, model)):
                if entry is not None:
                    yield entry, document, (section, index)

    @cached_property
    def links(self) -> list[tuple[Document, Loc, str, str | None]]:
        """The links to verl's repository: file, position, commit, and path or None."""
        found: list[tuple[Document, Loc, str, str | None]] = []
        for run, document in self.runs:
            if run.script:
                found.append((document, ("script",), run.script.ref, run.script.path))
            for index, item in enumerate(run.evidence):
                if item.ref:
                    found.append((document, ("evidence", index), item.ref, item.path))
        return found

    @cached_property
    def commits(self) -> dict[str, str]:
        """The full names of the linked commits that are in the checkout, by the names in the links."""
        return self.repository.commits(ref for _, _, ref, _ in self.links) if self.repository else {}

    def problems(self) -> tuple[Diagnostic, ...]:
        """Return the problems that a build reports and those of the rules, ordered by file and line."""
        found = list(self.data.all_diagnostics())
        for code, rule in RULES.items():
            for item in rule.find(self):
                if not isinstance(item, Diagnostic):
                    item = Diagnostic(item[0], code, item[1], item[2], rule.severity)
                found.append(item)
        return listed(sorted(found))


class Rule(NamedTuple):
    """A rule: the severity of a violation, and the function that yields the violations."""

    severity: Severity
    find: Callable[[Check], Iterable[Finding]]


#: All rules by code, in the order of the documentation; rooms add theirs.
RULES: dict[Code, Rule] = {}
Find = TypeVar("Find", bound="Callable[[Check], Iterable[Finding]]")


def rule(severity: Severity) -> Callable[[Find], Find]:
    """Return a decorator that makes a function the rule of the code with its name."""

    def register(find: Find) -> Find:
        RULES[cast("Code", find.__name__)] = Rule(severity, find)
        return find

    return register


# -- a run


@rule(Severity.ERROR)
def wrong_size(check: Check) -> Iterator[Finding]:
    """Require the size class that is nearest to the model's number of parameters.

    Bad::

        size: 14B
        model: Qwen/Qwen2.5-7B-Instruct

    Good::

        size: 7B
        model: Qwen/Qwen2.5-7B-Instruct
    """
    for run, document in check.runs:
        model = check.data.architectures.get(run.model)
        if model and (size := size_class(model.parameters)) != run.size:
            has = f"{run.model} has {model.parameters / 1e9:.1f} billion parameters"
            yield document.place(("size",)), f"{has}, but the run's size class is {run.size}", f"write {size}"


@rule(Severity.ERROR)
def future_date(check: Check) -> Iterator[Finding]:
    """Reject dates in the future.

    Bad::

        added: 2062-06-12

    Good::

        added: 2026-06-12
    """
    today = (datetime.now(timezone.utc) + timedelta(hours=14)).date()  # in the earliest time zone
    for run, document in check.runs:
        if run.added and run.added > today:
            yield document.place(("added",)), f"{run.added} is in the future", "write today's date"


#: The day after the last update of verl's hand-typed page, whose rows lack evidence and versions.
_FIRST_DAY = date(2025, 6, 26)


def _is_old(run: Run) -> bool:
    """Return whether a run is from verl's hand-typed page or its time."""
    return run.added is not None and run.added < _FIRST_DAY


@rule(Severity.WARNING)
def no_evidence(check: Check) -> Iterator[Finding]:
    """Require evidence for a tested run since 2025-06-26, and at least a script for any other.

    Bad::

        kind: tested
        added: 2026-06-12

    Good::

        kind: tested
        added: 2026-06-12
        evidence:
          - {kind: log, url: "https://example.org/logs/1"}
    """
    for run, document in check.runs:
        if not run.evidence and not (run.script and (_is_old(run) or run.kind != "tested")):
            missing = "evidence" if run.kind == "tested" else "evidence or script"
            message = f"the run's kind is {run.kind!r}, but it has no {missing}"
            yield document.place(), message, "add under evidence: {kind: log, url: https://…}"


@rule(Severity.WARNING)
def no_date(check: Check) -> Iterator[Finding]:
    """Require the date of a tested run.

    Bad::

        kind: tested

    Good::

        kind: tested
        added: 2026-06-12
    """
    for run, document in check.runs:
        if run.kind == "tested" and not run.added:
            message = "the run's kind is 'tested', but it has no date"
            yield document.place(), message, "add its date, as in added: 2026-06-12"


@rule(Severity.WARNING)
def no_version(check: Check) -> Iterator[Finding]:
    """Require the versions of verl and of the engine of a tested run since 2025-06-26.

    Bad::

        infer: {engine: vllm}

    Good::

        infer: {engine: vllm, version: "0.8.3"}
        versions: {verl: "0.4.0"}
    """
    missing = "the run's kind is 'tested', but the version of {} is missing"
    for run, document in check.runs:
        if run.kind == "tested" and not _is_old(run):
            if not (run.versions and run.versions.verl):
                remedy = 'add versions: {verl: "…"} with the release or commit'
                yield document.place(), missing.format("verl"), remedy
            if run.infer and not run.infer.version:
                yield document.place(("infer",)), missing.format(run.infer.engine), 'add version: "…"'


@rule(Severity.WARNING)
def duplicate_run(check: Check) -> Iterator[Finding]:
    """Reject a run that is recorded twice.

    Two runs are the same if model, GPUs, task, backend, engine, versions, script and settings are.

    Bad::

        id: qwen2-5-7b-grpo-2xh100-again    # and a run qwen2-5-7b-grpo-2xh100 without settings
        settings: {}

    Good::

        id: qwen2-5-7b-grpo-2xh100-lora
        settings: {actor_rollout_ref.model.lora_rank: 32}
    """
    first: dict[Any, Run] = {}
    for run, document in check.runs:
        gpus, path = (run.gpus.count, check.data.gpu_name(run)), run.script and run.script.path
        settings = repr(sorted(run.settings.items()))
        traits = (run.model, gpus, run.task, run.train, run.infer, run.versions, path, settings)
        other = first.setdefault(traits, run)
        if other is not run:
            message = f"the run is the same as {other.id!r}: model, GPUs, task, backend, engine and settings"
            yield document.place(("id",)), message, "keep one of the two, or record the difference"


# -- links to verl's repository


@rule(Severity.WARNING)
def moving_ref(check: Check) -> Iterator[Finding]:
    """Require links to commits or releases, which do not change.

    Bad::

        script: {ref: main, path: examples/run_qwen2_5_7b_fsdp.sh}

    Good::

        script: {ref: v0.4.0, path: examples/run_qwen2_5_7b_fsdp.sh}
    """
    for document, loc, ref, _path in check.links:
        # The rule unknown_ref reports names that are not in the checkout.
        if not is_fixed_ref(ref) and (ref in check.commits or not check.repository):
            message = f"{_name(loc)}.ref: {ref!r} is a branch, which can change"
            yield document.place((*loc, "ref")), message, f"write {check.commits.get(ref, 'its commit')}"


@rule(Severity.ERROR)
def unknown_ref(check: Check) -> Iterator[Finding]:
    """Require commits that exist in the checkout that ``--repo`` names.

    Bad::

        script: {ref: v0.4.00, path: examples/run_qwen2_5_7b_fsdp.sh}

    Good::

        script: {ref: v0.4.0, path: examples/run_qwen2_5_7b_fsdp.sh}
    """
    for document, loc, ref, _path in check.links:
        if check.repository and ref not in check.commits:
            message = f"{_name(loc)}.ref: {check.repository.shown} has no commit, tag or branch {ref!r}"
            remedy = (
                "correct it, or fetch it with: git fetch --tags origin (add --unshallow to a shallow clone)"
            )
            yield document.place((*loc, "ref")), message, remedy


@rule(Severity.ERROR)
def unknown_path(check: Check) -> Iterator[Finding]:
    """Require linked files that exist at their commits in the checkout that ``--repo`` names.

    Bad::

        script: {ref: v0.4.0, path: examples/run_qwen2_5_7b.sh}

    Good::

        script: {ref: v0.4.0, path: examples/run_qwen2_5_7b_fsdp.sh}
    """
    linked = [link for link in check.links if link[2] in check.commits and link[3]]
    names = [f"{check.commits[ref]}:{path}" for _, _, ref, path in linked]
    files = check.repository.objects(names) if check.repository else {}
    for name, (document, loc, ref, path) in zip(names, linked, strict=True):
        if name not in files:
            message = f"{_name(loc)}.path: {ref[:12]} has no file {str(path)[:200]!r}"
            remedy = "correct the path, or the commit; a partial clone lacks files"
            yield document.place((*loc, "path")), message, remedy


def _name(loc: Loc) -> str:
    return ".".join(map(str, loc))


# -- registries

#: Limits of the driver's memory figure relative to the nominal one: an 80 GB GPU can have 80 × 2^30 bytes,
#: or less if it reserves some for error correction.
_LEAST, _MOST = 0.92, 1.08


@rule(Severity.WARNING)
def gpu_memory(check: Check) -> Iterator[Finding]:
    """Require consistent memory figures of each GPU.

    ``memory_mib`` counts 2^20 bytes, as nvidia-smi prints them.

    Bad::

        memory_gb: 80
        memory_mib: 40960

    Good::

        memory_gb: 80
        memory_mib: 81559
    """
    for gpu, document, loc in check.entries("gpus", Gpu):
        if not _LEAST <= gpu.memory_mib * MIB / (gpu.memory_gb * GB) <= _MOST:
            figures = f"memory_mib is {gb(gpu.memory_mib * MIB)}, but memory_gb is {gpu.memory_gb} GB"
            remedy = "memory_mib counts 2^20 bytes, as nvidia-smi prints them"
            yield document.place((*loc, "memory_mib")), f"{gpu.name}: {figures}", remedy
