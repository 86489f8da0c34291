"""Rules about single runs: contradictions, missing facts, and links into verl's repository."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ..catalog.fields import as_text
from ..catalog.links import is_fixed_ref
from ..diagnostics import Code, Severity
from ..estimator.allocations import size_of
from ..estimator.recorded import has_own_rollout_gpus
from ..estimator.request import ROLLOUT
from ..settings.read import read_script
from ..units import GIB, MIB, gib_number
from .rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from ..catalog.models.run import Run
    from ..diagnostics import Diagnostic
    from ..git import Repository
    from .context import CheckContext, RunEntry

_NODES, _EACH = "trainer.nnodes", "trainer.n_gpus_per_node"
#: The keys that count the GPUs of an engine with its own GPUs, as verl and its recipes name them.
_ROLLOUT_NODES = (f"{ROLLOUT}.nnodes", "rollout.nnodes")
_ROLLOUT_EACH = (f"{ROLLOUT}.n_gpus_per_node", "rollout.n_gpus_per_node")
#: The sizes that multiply to the GPUs of one engine.
_ENGINE_SIZES = tuple(
    f"{ROLLOUT}.{name}_parallel_size" for name in ("tensor_model", "data", "pipeline_model")
)


@Rule(Code.gpu_count, "run", Severity.ERROR)
def gpu_count(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require as many GPUs as the nodes have together."""
    gpus, settings = entry.run.gpus, entry.run.settings
    count, nodes = gpus.count, gpus.nodes
    stated, each = _whole(settings, _NODES), _whole(settings, _EACH)
    field, message = "count", ""
    if nodes and count % nodes:
        field, message = "nodes", f"{count} GPUs cannot be shared out evenly among {nodes} nodes"
    elif has_own_rollout_gpus(entry.run):
        message = _separate_gpus(settings, count)
    elif stated and each and stated * each != count:
        message = f"{_NODES} × {_EACH} is {stated} × {each} = {stated * each}, and gpus.count is {count}"
    elif nodes and each and nodes * each != count:
        message = f"gpus.nodes × {_EACH} is {nodes} × {each} = {nodes * each}, and gpus.count is {count}"
    elif nodes and stated and nodes != stated:
        field, message = "nodes", f"gpus.nodes is {nodes}, and {_NODES} is {stated}"
    if message:
        place = entry.source.value_place("gpus", field)
        yield gpu_count.broken_at(place, message, "correct the one that is wrong")


def _separate_gpus(settings: Mapping[str, Any], count: int) -> str:
    """Return the contradiction in a run whose engine has its own GPUs, empty if there is none."""
    trainer = _product(settings, (_NODES,), (_EACH,))
    rollout = _product(settings, _ROLLOUT_NODES, _ROLLOUT_EACH)
    if trainer and rollout and trainer + rollout != count:
        together = f"{trainer} GPUs train and {rollout} roll out, together {trainer + rollout}"
        return f"{together}, and gpus.count is {count}"
    if trainer > count:
        return f"{_NODES} × {_EACH} is {trainer}, and gpus.count, which counts rollout too, is {count}"
    return ""


def _product(settings: Mapping[str, Any], nodes: tuple[str, ...], each: tuple[str, ...]) -> int:
    """Return nodes times GPUs of each, 0 where either is not set."""
    sizes = [next(filter(None, (_whole(settings, key) for key in keys)), 0) for keys in (nodes, each)]
    return math.prod(sizes)


def _whole(settings: Mapping[str, Any], key: str) -> int:
    """Return a setting that is a positive number; 0 where it is not set, or something else."""
    value = settings.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


@Rule(Code.impossible_settings, "run", Severity.ERROR)
def impossible_settings(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Reject settings with which verl does not start."""
    settings = entry.run.settings
    for problem in entry.diagnostics:
        key = _as_written(problem.place.key, settings, context.registries.renamed)
        if problem.is_error and key:
            place = entry.source.key_place("settings", key)
            yield impossible_settings.broken_at(replace(place, key=key), problem.message, problem.remedy)
    sizes = {key: size for key in _ENGINE_SIZES if (size := _whole(settings, key)) > 1}
    product = math.prod(sizes.values())
    gpus = _product(settings, _ROLLOUT_NODES, _ROLLOUT_EACH) or entry.run.gpus.count
    # The estimator reports a single size that does not divide.
    if len(sizes) > 1 and gpus % product:
        names = " × ".join(key.rsplit(".", 1)[-1] for key in sizes)
        message = f"{names} of the engine is {product}, which does not divide its {gpus} GPUs"
        place = entry.source.key_place("settings", next(iter(sizes)))
        yield impossible_settings.broken_at(place, message, "choose divisors")


def _as_written(key: str, settings: Mapping[str, Any], renamed: Mapping[str, str]) -> str | None:
    """Return the setting of a run that a key of the estimator names, or one under an older name."""
    if key in settings:
        return key
    role, name = key.split(".")[:2], key.rsplit(".", 1)[-1]
    older = (other for other in settings if renamed.get(other) == key)
    alike = (other for other in settings if other.split(".")[:2] == role and other.rsplit(".", 1)[-1] == name)
    return next(older, None) or next(alike, None)


@Rule(Code.peak_above_capacity, "run", Severity.ERROR)
def peak_above_capacity(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Reject a peak above the GPU's memory, except where PyTorch's counter includes a sleeping engine."""
    measured = entry.run.measured
    capacity = _capacity(entry.run, context)
    if measured is None or measured.gib is None or capacity is None:
        return
    pool = 0.0
    if measured.counter != "device" and entry.estimate is not None:
        pool = size_of(entry.estimate.counted_besides)
    if measured.gib * GIB > capacity + pool:
        has = f"{entry.run.gpus} has {gib_number(capacity)} GiB each"
        message = f"{measured.gib:g} GiB were measured, and {has}"
        remedy = "correct the figure, its unit (GiB per GPU), its counter or the GPU"
        place = entry.source.value_place("measured", "gib")
        yield peak_above_capacity.broken_at(place, message, remedy)


def _capacity(run: Run, context: CheckContext) -> float | None:
    """Return the most memory that the GPU can have, in bytes."""
    gpu = context.catalog.gpu_of(run)
    if gpu:
        return MIB * float(max([gpu.memory_mib, *(reading.memory_mib for reading in gpu.other_readings)]))
    return run.gpus.memory_gb * GIB if run.gpus.memory_gb else None


@Rule(Code.future_date, "run", Severity.ERROR)
def future_date(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Reject dates in the future."""
    if entry.run.added and entry.run.added > context.today:
        place = entry.source.value_place("added")
        yield future_date.broken_at(place, f"{entry.run.added} is yet to come", "write the day of today")


@Rule(Code.no_evidence, "run")
def no_evidence(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require evidence of a tested run, and at least a script of any other."""
    run = entry.run
    if run.evidence or (run.kind != "tested" and run.script):
        return
    claim = f"it is {run.kind}, and" if run.kind != "tested" else "the run counts as tested, and"
    remedy = "add under evidence: {kind: log, url: https://…}"
    yield no_evidence.broken_at(entry.source.value_place(), f"{claim} nothing shows it", remedy)


@Rule(Code.no_date, "run")
def no_date(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require the date of a tested run."""
    if entry.run.kind == "tested" and not entry.run.added:
        message = "the run counts as tested, and no day is given"
        remedy = f"add added: {context.today}, or the day on which it was"
        yield no_date.broken_at(entry.source.value_place(), message, remedy)


@Rule(Code.no_version, "run")
def no_version(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require the versions of verl and of the engine of a tested run."""
    run = entry.run
    if run.kind != "tested":
        return
    if not (run.versions and run.versions.verl):
        message = "the run counts as tested, and the version of verl is not given"
        remedy = 'add versions: {verl: "…"}, the release or the commit'
        yield no_version.broken_at(entry.source.value_place(), message, remedy)
    if run.infer and not run.infer.version:
        message = f"the run counts as tested, and the version of {run.infer.engine} is not given"
        yield no_version.broken_at(entry.source.value_place("infer"), message, 'add version: "…"')


@Rule(Code.moving_ref, "run", fixable="with-repository")
def moving_ref(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require links to commits or releases, which do not change."""
    for loc, ref, _path in _refs(entry.run):
        commit = context.repository.commit(ref) if context.repository else None
        # A name that the checkout does not have is unknown_ref.
        if not is_fixed_ref(ref) and (commit or not context.repository):
            message = f"{'.'.join(map(str, loc))}: {ref!r} is a branch, and changes"
            remedy = f"write {commit}" if commit else "write the commit that it is at"
            yield moving_ref.broken_at(entry.source.value_place(*loc), message, remedy)


def _refs(run: Run) -> Iterator[tuple[tuple[str | int, ...], str, str | None]]:
    """Yield every position at which a run names a commit of verl, with the commit and the path."""
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
                message = f"{name}: {ref!r} is not in {repository.shown}, which is a shallow clone"
                remedy = "it says nothing about the link; fetch the rest with: git fetch --unshallow"
            else:
                message = f"{name}: {repository.shown} has no commit, tag or branch {ref!r}"
                remedy = "correct it, or fetch it with: git fetch --tags origin"
            yield unknown_ref.broken_at(entry.source.value_place(*loc), message, remedy)


@Rule(Code.unknown_path, "run", Severity.ERROR, needs_repository=True)
def unknown_path(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require files that exist at the commits named with them."""
    repository = _repository(context)
    for loc, ref, path in _refs(entry.run):
        commit = repository.commit(ref)
        if commit and path and not repository.has(commit, path):
            near = repository.nearest(commit, path)
            remedy = f"did you mean {near!r}?" if near else "correct the path, or the commit"
            loc = (*loc[:-1], "path")
            message = f"{'.'.join(map(str, loc))}: {ref[:12]} has no file {path[:200]!r}"
            yield unknown_path.broken_at(entry.source.value_place(*loc), message, remedy)


@Rule(Code.script_differs, "run", needs_repository=True)
def script_differs(entry: RunEntry, context: CheckContext) -> Iterator[Diagnostic]:
    """Require the recorded values in the linked script; values that it leaves open are not compared."""
    repository, script = _repository(context), entry.run.script
    commit = repository.commit(script.ref) if script else None
    if not script or not commit or not script.path.endswith(".sh") or not repository.has(commit, script.path):
        return
    text = repository.text(commit, script.path)
    if text is None:
        message = f"the content of {script.path[:200]!r} cannot be read as text in {repository.shown}"
        remedy = "the settings were not compared; where the clone leaves contents out, fetch them"
        yield script_differs.broken_at(entry.source.value_place("script", "path"), message, remedy)
        return
    in_script = read_script(text, script.path).values
    for key, value in entry.run.settings.items():
        if key in in_script and not _same(in_script[key], value):
            message = f"{key} is {as_text(value)[:80]}, and {as_text(in_script[key])[:80]} in the script"
            remedy = "record what was run, or link the commit that was"
            yield script_differs.broken_at(entry.source.key_place("settings", key), message, remedy)


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are alike; 1 and 1.0 are, 1 and true are not."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _repository(context: CheckContext) -> Repository:
    assert context.repository is not None  # see Rule.needs_repository
    return context.repository
