"""Rules for recorded data beyond what a build requires: ``verl-resources check``.

A rule is a decorated function. It takes the data to check, and yields a place, a sentence and a remedy for
each violation. Its docstring says what it requires, with a bad and a good example, for the documentation.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from .dataset import RUNS, DataFile, Directory
from .diagnostics import Code, Diagnostic, Location, Severity
from .records import Run, is_commit, is_fixed_ref, size_class
from .strict_yaml import Document, Loc

#: A place, a sentence and a remedy; or a problem of another code or severity.
Finding = tuple[Location, str, str] | Diagnostic

# -- a checkout of verl, in which nothing is checked out, executed, changed or fetched

#: The timeout of a git command in seconds; each normally takes milliseconds.
TIMEOUT = 30
#: Keeps git from using the network and prompting.
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}


class Repository(NamedTuple):
    """A git checkout.

    Attributes:
        path: any folder of the checkout.
        label: its name for the user.
    """

    path: Path
    label: str

    def ask(self, *arguments: str, names: Iterable[str] = ()) -> bytes | None:
        """Run a git command that only reads, and return its output; None if it fails.

        Args:
            arguments: the command and its arguments.
            names: the lines of its standard input.

        Raises:
            OSError: git is not installed or does not answer.
        """
        # Git hooks set variables that point to the hook's repository.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            process = subprocess.run(
                ["git", "-C", str(self.path), *arguments],
                env={**environment, **_ENVIRONMENT},
                input="".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape"),
                capture_output=True,
                timeout=TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            raise OSError(f"git is not installed, or git did not answer in {TIMEOUT} seconds") from None
        return None if process.returncode else process.stdout

    def objects(self, names: Iterable[str]) -> dict[str, str]:
        """Return the full names of the commits and files that exist, all looked up in one process."""
        distinct = [*dict.fromkeys(names)]
        output = self.ask("cat-file", "--batch-check=%(objectname) %(objecttype)", names=distinct) or b""
        lines = output.decode("utf-8", "replace").splitlines()
        matches = (re.fullmatch("([0-9a-f]{40,64}) (?:commit|blob)", line) for line in lines)
        return {name: match[1] for name, match in zip(distinct, matches) if match}  # noqa: B905  # none if git fails

    def commits(self, refs: Iterable[str]) -> dict[str, str]:
        """Return the full names of the commits, tags and branches that exist."""
        refs_by_name: dict[str, str] = {}
        for ref in refs:
            if is_commit(ref):
                refs_by_name[f"{ref}^{{commit}}"] = ref
            # Git would take a name such as v0.4.0-5-g8446e41 for the commit at its end.
            elif not re.search("-g[0-9a-f]+$", ref):
                # The last one wins. A clone's own branches may be ahead of its origin's.
                for kind in ("heads", "remotes/origin", "tags"):
                    refs_by_name[f"refs/{kind}/{ref}^{{commit}}"] = ref
        pairs = ((refs_by_name[name], commit) for name, commit in self.objects(refs_by_name).items())
        # The name of a branch may look like an abbreviated commit.
        return {ref: commit for ref, commit in pairs if commit.startswith(ref) or not is_commit(ref)}


def open_repository(name: str, label: str) -> Repository:
    """Open the checkout at a path.

    Raises:
        OSError: there is no checkout, or git does not answer.
    """
    repository = Repository(Path(name), label)
    if not name or repository.ask("rev-parse", "--git-dir") is None:
        reason = "not a git checkout that you own; give the path of a checkout of verl"
        raise OSError(f"{label or '--repo'}: {reason}")
    return repository


# -- checks


class Link(NamedTuple):
    """A link to verl's repository from a position in a data file; without a path, it is to a commit."""

    document: Document
    loc: Loc
    ref: str
    path: str | None


@dataclass(eq=False)
class Check:
    """The data directories to check, with the data that they build on.

    Attributes:
        data: all data, a ``Dataset``.
        directories: the directories to check.
        repository: a checkout of verl, or None.
    """

    data: Any
    directories: Sequence[Directory]
    repository: Repository | None = None

    def files(self, name: str) -> list[DataFile]:
        """Return the files of a folder, or those of a registry, in the directories to check."""
        folders = [directory.path for directory in self.directories]
        return [file for file in self.data.files[name] if any(map(file.path.is_relative_to, folders))]

    @cached_property
    def runs(self) -> list[tuple[Run, Document]]:
        """The runs without errors, with their files."""
        wrong = {problem.place.path for problem in self.data.diagnostics_of("runs") if problem.is_error}
        runs = ((self.data.run_files[file], file) for file in self.files(RUNS) if file.label not in wrong)
        return [(run, file.document) for run, file in runs if run]

    @cached_property
    def links(self) -> list[Link]:
        """The links to verl's repository."""
        links: list[Link] = []
        for run, document in self.runs:
            if run.script:
                links.append(Link(document, ("script",), run.script.ref, run.script.path))
            for index, item in enumerate(run.evidence):
                if item.ref:
                    links.append(Link(document, ("evidence", index), item.ref, item.path))
        return links

    @cached_property
    def commits(self) -> dict[str, str]:
        """The full names of the linked commits that are in the checkout, by the names in the links."""
        return self.repository.commits(link.ref for link in self.links) if self.repository else {}

    def problems(self) -> tuple[Diagnostic, ...]:
        """Return the problems that a build reports and those of the rules, ordered by file and line."""
        problems = [*self.data.diagnostics_of(*self.data.kinds)]
        for code, rule in RULES.items():
            for item in rule.find(self):
                if not isinstance(item, Diagnostic):
                    item = Diagnostic(item[0], code, item[1], item[2], rule.severity)
                problems.append(item)
        return tuple(sorted(problems))


class Rule(NamedTuple):
    """A rule: the severity of a violation, and the function that yields the violations."""

    severity: Severity
    find: Callable[[Check], Iterable[Finding]]


#: All rules by code, in the order of the documentation; higher layers add theirs.
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
#: The key that adds evidence.
_LOG = "evidence: [{kind: log, url: https://…}]"


@rule(Severity.WARNING)
def incomplete_run(check: Check) -> Iterator[Finding]:
    """Require date, versions and evidence of a tested run, and evidence or a script of any other.

    A run from before 2025-06-26 may lack versions and, with a script, evidence.

    Bad::

        kind: tested
        infer: {engine: vllm}

    Good::

        kind: tested
        infer: {engine: vllm, version: "0.8.3"}
        added: 2026-06-12
        versions: {verl: "0.4.0"}
        evidence:
          - {kind: log, url: "https://example.org/logs/1"}
    """
    for run, document in check.runs:
        is_new = run.kind == "tested" and not (run.added and run.added < _FIRST_DAY)
        no_engine = is_new and run.infer and not run.infer.version
        lacks = (
            ("date", "added: 2026-06-12", run.kind == "tested" and not run.added),
            ("version of verl", 'versions: {verl: "…"}', is_new and not (run.versions and run.versions.verl)),
            ("version of the engine", 'version: "…" under infer', no_engine),
            ("evidence", _LOG, not run.evidence and (is_new or not run.script)),
        )
        if missing := {name: example for name, example, is_missing in lacks if is_missing}:
            message = f"the run's kind is {run.kind!r}, but it has no {', no '.join(missing)}"
            yield document.place(), message, f"write {', '.join(missing.values())}"


@rule(Severity.WARNING)
def duplicate_run(check: Check) -> Iterator[Finding]:
    """Reject a run that is recorded twice.

    Two runs are the same if model, GPUs, task, backend, engine, trainer, versions, script and settings are.

    Bad::

        id: qwen2-5-7b-grpo-2xh100-again    # and a run qwen2-5-7b-grpo-2xh100 without settings
        settings: {}

    Good::

        id: qwen2-5-7b-grpo-2xh100-lora
        settings: {actor_rollout_ref.model.lora_rank: 32}
    """
    first: dict[Any, Run] = {}
    for run, document in check.runs:
        gpus = (run.gpus.count, run.gpus.nodes, check.data.gpu_of(run) or run.gpus.type)
        path = run.script and run.script.path
        settings = repr(sorted(run.settings.items()))
        traits = (run.model, gpus, run.task, run.train, run.infer, run.trainer, run.versions, path, settings)
        other = first.setdefault(traits, run)
        if other is not run:
            message = f"the run is the same as {other.id!r}, with equal GPUs, script, versions and settings"
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
            message = f"{_name(loc)}.ref: {check.repository.label} has no commit, tag or branch {ref!r}"
            remedy = "correct it, or run git fetch --tags origin (a shallow clone: add --unshallow)"
            yield document.place((*loc, "ref")), message, remedy


@rule(Severity.ERROR)
def unknown_path(check: Check) -> Iterator[Finding]:
    """Require linked files that exist at their commits in the checkout that ``--repo`` names.

    Bad::

        script: {ref: v0.4.0, path: examples/run_qwen2_5_7b.sh}

    Good::

        script: {ref: v0.4.0, path: examples/run_qwen2_5_7b_fsdp.sh}
    """
    files_at_refs = [link for link in check.links if link.ref in check.commits and link.path]
    names = [f"{check.commits[link.ref]}:{link.path}" for link in files_at_refs]
    files = check.repository.objects(names) if check.repository else {}
    for name, (document, loc, ref, path) in zip(names, files_at_refs, strict=True):
        if name not in files:
            message = f"{_name(loc)}.path: {ref[:12]} has no file {path!r}"
            remedy = "correct the path, or the commit; a partial clone lacks files"
            yield document.place((*loc, "path")), message, remedy


def _name(loc: Loc) -> str:
    return ".".join(map(str, loc))
