"""Rules for the text of a file, and for a run: contradictions, missing facts, links to verl's repository."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from ..catalog.fields import as_text, field_at
from ..catalog.links import is_fixed_ref
from ..catalog.run_names import current_id
from ..catalog.run_text import SCHEMA_LINE, SCHEMA_LINE_READ
from ..catalog.yaml_data import leaves
from ..diagnostics import Code, Location, Severity, nearest
from ..estimator.allocations import size_of
from ..settings.read import read_script
from ..units import GIB, MIB, gib_number
from .context import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..catalog.models.run import Run
    from ..diagnostics import Diagnostic
    from ..git import Repository
    from .context import CheckContext, RunEntry, SourceFile

#: Kinds of files in a subfolder of the data directory.
_BELOW = frozenset({"run", "cases"})


def schema_target(kind: str) -> str:
    """Return the path of the schema for a kind of file, relative to such a file."""
    return f"{'../' if kind in _BELOW else ''}schema/{kind}.json"


def has_schema(file: SourceFile) -> bool:
    """Return whether the data directory of a file has its schema."""
    return (file.file.path.parent / schema_target(file.kind)).is_file()


@Rule(Code.schema_line, "file")
def schema_line(file: SourceFile) -> Iterator[Diagnostic]:
    """Require a first line that points editors to the schema, if the directory has it."""
    remedy = f"begin the file with {SCHEMA_LINE.format(schema_target(file.kind))}"
    match = SCHEMA_LINE_READ.match(file.document.text.split("\n", 1)[0])
    if not match:
        if has_schema(file):
            place = Location(file.shown, 1, 1)
            yield schema_line.broken_at(place, "the first line does not point to the schema", remedy)
    elif match[1].rsplit("/", 1)[-1] != f"{file.kind}.json":
        message = f"the first line points to a different schema, {match[1][:80]!r}"
        yield schema_line.broken_at(Location(file.shown, 1, match.start(1) + 1), message, remedy)


@Rule(Code.unquoted_version, "file")
def unquoted_version(file: SourceFile) -> Iterator[Diagnostic]:
    """Require quotes around versions and lines."""
    if file.kind != "run":
        return
    for loc, value in leaves(file.document.data):
        field = field_at(loc)
        if field and field.quoted and isinstance(value, str) and file.document.is_plain(loc):
            message = f"{'.'.join(map(str, loc))}: {value[:80]} is not in quotes"
            yield unquoted_version.broken_at(file.value_place(*loc), message, f'write "{value[:80]}"')


#: Reported by the loader of run files.
ID_MISMATCH = Rule(Code.id_mismatch, "file", Severity.ERROR)


#: Reported when runs are loaded, also in builds.
CONFIG_KEY = Rule(Code.config_key, "run")
GPU_COUNT = Rule(Code.gpu_count, "run", Severity.ERROR)
IMPOSSIBLE_SETTINGS = Rule(Code.impossible_settings, "run", Severity.ERROR)
WRONG_SIZE = Rule(Code.wrong_size, "run", Severity.ERROR)


def id_today(run: Run, context: CheckContext) -> str:
    """Return the id of a run with its current model and GPUs."""
    gpu, models = context.catalog.gpu_of(run), context.architectures.names
    return current_id(run, gpu, context.gpus.names, models)


@Rule(Code.stale_id, "run")
def stale_id(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require an id with the run's model and GPUs, if it contains any."""
    run = entry.run
    today = id_today(run, context)
    if today != run.id:
        model = run.model.rsplit("/", 1)[-1]
        message = f"the id {run.id!r} does not match the run, which is {model} on {run.gpus}"
        remedy = f"write {today!r}, and rename the file to {today}.yaml"
        yield stale_id.broken_at(entry.source.value_place("id"), message, remedy)


@Rule(Code.peak_above_capacity, "run", Severity.ERROR)
def peak_above_capacity(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Reject a peak above the GPU's memory, unless PyTorch's counter includes a sleeping engine."""
    measured = entry.run.measured
    capacity = _capacity(entry.run, context)
    if measured is None or measured.gib is None or capacity is None:
        return
    pool = 0.0
    if measured.counter != "device" and entry.estimate is not None:
        pool = size_of(entry.estimate.counted_besides)
    if measured.gib * GIB > capacity + pool:
        has = f"{entry.run.gpus} has {gib_number(capacity)} GiB per GPU"
        message = f"the measured peak is {measured.gib:g} GiB, but {has}"
        remedy = "correct the figure, its unit (GiB per GPU), its counter or the GPU"
        place = entry.source.value_place("measured", "gib")
        yield peak_above_capacity.broken_at(place, message, remedy)


def _capacity(run: Run, context: CheckContext) -> float | None:
    """Return the highest known memory of the GPU, in bytes."""
    gpu = context.catalog.gpu_of(run)
    if gpu:
        return MIB * float(max([gpu.memory_mib, *(reading.memory_mib for reading in gpu.other_readings)]))
    return run.gpus.memory_gb * GIB if run.gpus.memory_gb else None


@Rule(Code.future_date, "run", Severity.ERROR)
def future_date(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Reject dates in the future."""
    if entry.run.added and entry.run.added > context.today:
        place = entry.source.value_place("added")
        yield future_date.broken_at(place, f"{entry.run.added} is in the future", "write today's date")


#: The day after the last update of verl's hand-typed page, whose rows lack evidence and versions.
_FIRST_DAY = date(2025, 6, 26)


def _is_old(run: Run) -> bool:
    """Return whether a run is from verl's hand-typed page or its time."""
    return run.added is not None and run.added < _FIRST_DAY


@Rule(Code.no_evidence, "run")
def no_evidence(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require evidence for a tested run since 2025-06-26, and at least a script for any other."""
    run = entry.run
    if run.evidence or (run.script and (_is_old(run) or run.kind != "tested")):
        return
    missing = "evidence" if run.kind == "tested" else "evidence or script"
    message = f"the run's kind is {run.kind!r}, but it has no {missing}"
    remedy = "add under evidence: {kind: log, url: https://…}"
    yield no_evidence.broken_at(entry.source.value_place(), message, remedy)


@Rule(Code.no_date, "run")
def no_date(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require the date of a tested run."""
    if entry.run.kind == "tested" and not entry.run.added:
        message = "the run's kind is 'tested', but it has no date"
        remedy = f"add added: {context.today}, or the actual date"
        yield no_date.broken_at(entry.source.value_place(), message, remedy)


@Rule(Code.no_version, "run")
def no_version(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require the versions of verl and of the engine of a tested run since 2025-06-26."""
    run = entry.run
    if run.kind != "tested" or _is_old(run):
        return
    if not (run.versions and run.versions.verl):
        message = "the run's kind is 'tested', but the version of verl is missing"
        remedy = 'add versions: {verl: "…"} with the release or commit'
        yield no_version.broken_at(entry.source.value_place(), message, remedy)
    if run.infer and not run.infer.version:
        message = f"the run's kind is 'tested', but the version of {run.infer.engine} is missing"
        yield no_version.broken_at(entry.source.value_place("infer"), message, 'add version: "…"')


@Rule(Code.moving_ref, "run")
def moving_ref(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require links to commits or releases, which do not change."""
    for loc, ref, _path in _refs(entry.run):
        commit = context.repository.commit(ref) if context.repository else None
        # The rule unknown_ref reports names that are not in the checkout.
        if not is_fixed_ref(ref) and (commit or not context.repository):
            message = f"{'.'.join(map(str, loc))}: {ref!r} is a branch, which can change"
            remedy = f"write {commit}" if commit else "write its commit"
            yield moving_ref.broken_at(entry.source.value_place(*loc), message, remedy)


def _refs(run: Run) -> Iterator[tuple[tuple[str | int, ...], str, str | None]]:
    """Yield each reference of a run to a commit of verl: its position, the commit and the path."""
    if run.script:
        yield ("script", "ref"), run.script.ref, run.script.path
    for index, item in enumerate(run.evidence):
        if item.ref:
            yield ("evidence", index, "ref"), item.ref, item.path


@Rule(Code.unknown_ref, "run", Severity.ERROR, needs_repository=True)
def unknown_ref(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require commits that exist."""
    repository = _repository(context)
    for loc, ref, _path in _refs(entry.run):
        if repository.commit(ref) is None:
            name = ".".join(map(str, loc))
            if repository.is_shallow:
                message = f"{name}: {ref!r} was not checked: {repository.shown} is a shallow clone without it"
                remedy = "fetch all commits with: git fetch --unshallow"
            else:
                message = f"{name}: {repository.shown} has no commit, tag or branch {ref!r}"
                remedy = "correct it, or fetch it with: git fetch --tags origin"
            yield unknown_ref.broken_at(entry.source.value_place(*loc), message, remedy)


@Rule(Code.unknown_path, "run", Severity.ERROR, needs_repository=True)
def unknown_path(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require linked files that exist at their commits."""
    repository = _repository(context)
    for loc, ref, path in _refs(entry.run):
        commit = repository.commit(ref)
        if commit and path and not repository.has(commit, path):
            near = nearest(path, repository.paths(commit))
            remedy = f"did you mean {near!r}?" if near else "correct the path, or the commit"
            loc = (*loc[:-1], "path")
            message = f"{'.'.join(map(str, loc))}: {ref[:12]} has no file {path[:200]!r}"
            yield unknown_path.broken_at(entry.source.value_place(*loc), message, remedy)


@Rule(Code.script_differs, "run", needs_repository=True)
def script_differs(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require the recorded values in the linked script; settings that the script leaves open are skipped."""
    repository, script = _repository(context), entry.run.script
    commit = repository.commit(script.ref) if script else None
    if not script or not commit or not script.path.endswith(".sh") or not repository.has(commit, script.path):
        return
    text = repository.text(commit, script.path)
    if text is None:
        message = f"the settings were not compared: {repository.shown} has no text of {script.path[:200]!r}"
        remedy = "if the clone is partial, fetch the file"
        yield script_differs.broken_at(entry.source.value_place("script", "path"), message, remedy)
        return
    gpu = context.catalog.gpu_of(entry.run)
    device = {"DEVICE": "npu"} if gpu and gpu.vendor == "huawei" else {}  # the name in verl's scripts
    in_script = read_script(text, script.path, device).values
    for key, value in entry.run.settings.items():
        if key in in_script and not _same(in_script[key], value):
            message = f"{key} is {as_text(value)[:80]} here, but {as_text(in_script[key])[:80]} in the script"
            remedy = "record the value that was run, or link the commit that was run"
            yield script_differs.broken_at(entry.source.key_place("settings", key), message, remedy)


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal: 1 and 1.0 are, 1 and true are not."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _repository(context: CheckContext) -> Repository:
    assert context.repository is not None  # see Rule.needs_repository
    return context.repository
