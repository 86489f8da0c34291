"""Rules about single runs: what cannot be so, and what is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..catalog.links import is_fixed_ref
from ..diagnostics import Severity
from ..estimator.case import has_own_rollout_gpus
from ..estimator.engine import vllm_pool_in_torch_peak
from ..estimator.roles import ROLLOUT
from ..units import GIB, MIB, gib_number
from .rule import Finding, at_key, at_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from ..catalog.models.run import Run
    from .tree import CheckContext, RunEntry

_NODES, _EACH = "trainer.nnodes", "trainer.n_gpus_per_node"
#: Where the GPUs of an engine that has its own are counted, by the names of verl and of its recipes.
_ROLLOUT_NODES = (f"{ROLLOUT}.nnodes", "rollout.nnodes")
_ROLLOUT_EACH = (f"{ROLLOUT}.n_gpus_per_node", "rollout.n_gpus_per_node")
#: The sizes that multiply to the GPUs of one engine.
_ENGINE_SIZES = tuple(
    f"{ROLLOUT}.{name}_parallel_size" for name in ("tensor_model", "data", "pipeline_model")
)


def gpu_count(entry: RunEntry, tree: CheckContext) -> Iterator[Finding]:
    """The GPUs are the nodes times the GPUs of each."""
    run, source = entry.run, entry.source
    hint = "correct the one that is wrong"
    count, nodes = run.gpus.count, run.gpus.nodes
    stated, each = _whole(run.settings, _NODES), _whole(run.settings, _EACH)
    if nodes and count % nodes:
        message = f"{count} GPUs cannot be shared out evenly among {nodes} nodes"
        yield at_value(source, ("gpus", "nodes"), message, hint)
    elif has_own_rollout_gpus(run):
        yield from _separate_gpus(entry, hint)
    elif stated and each and stated * each != count:
        message = f"{_NODES} × {_EACH} is {stated} × {each} = {stated * each}, and gpus.count is {count}"
        yield at_value(source, ("gpus", "count"), message, hint)
    elif nodes and each and nodes * each != count:
        message = f"gpus.nodes × {_EACH} is {nodes} × {each} = {nodes * each}, and gpus.count is {count}"
        yield at_value(source, ("gpus", "count"), message, hint)
    elif nodes and stated and nodes != stated:
        message = f"gpus.nodes is {nodes}, and {_NODES} is {stated}"
        yield at_value(source, ("gpus", "nodes"), message, hint)


def _separate_gpus(entry: RunEntry, hint: str) -> Iterator[Finding]:
    """Where the engine has GPUs of its own, the trainer's are only a part."""
    settings, count = entry.run.settings, entry.run.gpus.count
    trainer = _product(settings, (_NODES,), (_EACH,))
    rollout = _product(settings, _ROLLOUT_NODES, _ROLLOUT_EACH)
    if trainer and rollout and trainer + rollout != count:
        together = f"{trainer} GPUs train and {rollout} roll out, together {trainer + rollout}"
        message = f"{together}, and gpus.count is {count}"
        yield at_value(entry.source, ("gpus", "count"), message, hint)
    elif trainer and trainer > count:
        message = f"{_NODES} × {_EACH} is {trainer}, and gpus.count, which counts rollout too, is {count}"
        yield at_value(entry.source, ("gpus", "count"), message, hint)


def _product(settings: Mapping[str, Any], nodes: tuple[str, ...], each: tuple[str, ...]) -> int:
    """Nodes times GPUs of each, 0 where either is not set."""
    sizes = [next(filter(None, (_whole(settings, key) for key in keys)), 0) for keys in (nodes, each)]
    return sizes[0] * sizes[1]


def _whole(settings: Mapping[str, Any], key: str) -> int:
    """A setting that is a positive number; 0 where it is not set, or something else."""
    value = settings.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def impossible_settings(entry: RunEntry, tree: CheckContext) -> Iterator[Finding]:
    """The settings are such that verl starts."""
    run, source = entry.run, entry.source
    for problem in entry.diagnostics:
        key = _as_written(problem.place.key, run.settings, tree.facts.renamed)
        if problem.severity is Severity.ERROR and key:
            yield at_key(source, ("settings", key), f"{key}: {problem.message}", problem.remedy)
    sizes = {key: size for key in _ENGINE_SIZES if (size := _whole(run.settings, key)) > 1}
    product = 1
    for size in sizes.values():
        product *= size
    gpus = _product(run.settings, _ROLLOUT_NODES, _ROLLOUT_EACH) or run.gpus.count
    # A single size that does not divide is an issue above.
    if len(sizes) > 1 and gpus % product:
        names = " × ".join(key.rsplit(".", 1)[-1] for key in sizes)
        message = f"{names} of the engine is {product}, which does not divide its {gpus} GPUs"
        yield at_key(source, ("settings", next(iter(sizes))), message, "choose divisors")


def _as_written(key: str, settings: Mapping[str, Any], renamed: Mapping[str, str]) -> str | None:
    """The setting of a run that a key of the estimator stands for: itself, or an older name of it."""
    if key in settings:
        return key
    role, name = key.split(".")[:2], key.rsplit(".", 1)[-1]
    older = (other for other in settings if renamed.get(other) == key)
    alike = (other for other in settings if other.split(".")[:2] == role and other.rsplit(".", 1)[-1] == name)
    return next(older, None) or next(alike, None)


def peak_above_capacity(entry: RunEntry, tree: CheckContext) -> Iterator[Finding]:
    """A card cannot hold more than it has; PyTorch's counter can, where it counts a sleeping engine too."""
    measured = entry.run.measured
    capacity = _capacity(entry.run, tree)
    if measured is None or measured.gib is None or capacity is None:
        return
    pool = 0.0
    if measured.counter != "device" and entry.estimate is not None:
        pool = vllm_pool_in_torch_peak(entry.estimate.settings)
    if measured.gib * GIB > capacity + pool:
        card = f"{entry.run.gpus} has {gib_number(capacity)} GiB each"
        message = f"{measured.gib:g} GiB were measured, and {card}"
        hint = "correct the figure, its unit (GiB per GPU), its counter or the card"
        yield at_value(entry.source, ("measured", "gib"), message, hint)


def _capacity(run: Run, tree: CheckContext) -> float | None:
    """The most that the card can have, in bytes."""
    gpu = tree.catalog.gpus.get(run.gpus.type) if run.gpus.type else None
    if gpu:
        return MIB * float(max([gpu.memory_mib, *(reading.memory_mib for reading in gpu.other_readings)]))
    return run.gpus.memory_gb * GIB if run.gpus.memory_gb else None


def future_date(entry: RunEntry, tree: CheckContext) -> Iterator[Finding]:
    """Nothing was recorded tomorrow."""
    if entry.run.added and entry.run.added > tree.today:
        yield at_value(
            entry.source, ("added",), f"{entry.run.added} is yet to come", "write the day of today"
        )


def no_evidence(entry: RunEntry, tree: CheckContext) -> Iterator[Finding]:
    """A tested run has evidence; what others rest on may be the script."""
    run = entry.run
    if run.evidence or (run.kind != "tested" and run.script):
        return
    hint = "add under evidence: {kind: log, url: https://…}"
    claim = f"it is {run.kind}, and" if run.kind != "tested" else "the run counts as tested, and"
    yield at_value(entry.source, (), f"{claim} nothing shows it", hint)


def no_date(entry: RunEntry, tree: CheckContext) -> Iterator[Finding]:
    """A tested run has a date."""
    if entry.run.kind == "tested" and not entry.run.added:
        message = "the run counts as tested, and no day is given"
        yield at_value(entry.source, (), message, f"add added: {tree.today}, or the day on which it was")


def no_version(entry: RunEntry, tree: CheckContext) -> Iterator[Finding]:
    """A tested run names verl and the engine."""
    run = entry.run
    if run.kind != "tested":
        return
    if not (run.versions and run.versions.verl):
        message = "the run counts as tested, and the version of verl is not given"
        yield at_value(entry.source, (), message, 'add versions: {verl: "…"}, the release or the commit')
    if run.infer and not run.infer.version:
        message = f"the run counts as tested, and the version of {run.infer.engine} is not given"
        yield at_value(entry.source, ("infer",), message, 'add version: "…"')


def moving_ref(entry: RunEntry, tree: CheckContext) -> Iterator[Finding]:
    """Links lead to commits or releases, which stay."""
    for loc, ref, _path in refs_of(entry.run):
        if not is_fixed_ref(ref):
            commit = tree.repository.commit(ref) if tree.repository else None
            if tree.repository and not commit:
                continue  # the checkout has nothing of this name, which is said as such
            hint = f"write {commit}" if commit else "write the commit that it is at"
            message = f"{'.'.join(map(str, loc))}: {ref!r} is a branch, and changes"
            yield at_value(entry.source, loc, message, hint)


def refs_of(run: Run) -> Iterator[tuple[tuple[str | int, ...], str, str | None]]:
    """Every place in verl's repository that a run names: where it does, the commit, the path."""
    if run.script:
        yield ("script", "ref"), run.script.ref, run.script.path
    for index, item in enumerate(run.evidence):
        if item.ref:
            yield ("evidence", index, "ref"), item.ref, item.path
