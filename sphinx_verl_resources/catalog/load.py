"""From a snapshot of the files to the catalog, with every problem of every file in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..diagnostics import Code, Diagnostic, Location, Severity, did_you_mean
from .catalog import BrokenRun, Catalog, Registry
from .models.architecture import ArchitectureFile
from .models.gpu import GpuFile
from .models.run import Run
from .names import SIZES
from .script_names import contradictions
from .validation import load, report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .files import DataFile, Snapshot
    from .models.architecture import Architecture
    from .models.gpu import Gpu
    from .yaml_data import Document


def load_catalog(snapshot: Snapshot) -> Catalog:
    """Validate and cross-check all files; never raises on what is in them."""
    problems = list(snapshot.problems)
    gpus = _gpus(snapshot.gpus, problems)
    models = _architectures(snapshot.architectures, problems)
    runs: dict[str, Run] = {}
    sources: dict[str, tuple[DataFile, Document]] = {}
    broken: list[BrokenRun] = []
    for file in snapshot.runs:
        run, document, found = load(file, Run)
        if run is not None:
            found = list(_check_run(file, run, document, gpus, models))
            if run.id in sources:
                found.append(_duplicate_id(file, run, document, sources[run.id]))
        problems.extend(found)
        if run is None or any(problem.severity is Severity.ERROR for problem in found):
            broken.append(BrokenRun(file.shown, _size_of(document), file.digest))
        else:
            runs[run.id] = run
            sources[run.id] = file, document
    ids = sorted(runs)
    return Catalog(
        runs={run_id: runs[run_id] for run_id in ids},
        run_digests={run_id: sources[run_id][0].digest for run_id in ids},
        broken=tuple(broken),
        gpus=gpus,
        architectures=models,
        registry_digest=snapshot.registry_digest,
        diagnostics=tuple(sorted(problems, key=lambda problem: problem.sort_key)),
    )


def _gpus(files: Iterable[DataFile], problems: list[Diagnostic]) -> Registry[Gpu]:
    """All cards; an entry replaces one of the same name in an earlier file."""
    entries: dict[str, Gpu] = {}
    for file in files:
        record, document, found = load(file, GpuFile)
        problems.extend(found)
        if record is not None:
            problems.extend(_repeated_names(file, document, "gpus", record.gpus))
            entries.update({gpu.name: gpu for gpu in record.gpus})
    return Registry((((gpu.name, *gpu.aliases), gpu) for gpu in entries.values()), folded=True)


def _architectures(files: Iterable[DataFile], problems: list[Diagnostic]) -> Registry[Architecture]:
    """All model shapes; an entry replaces one of the same name in an earlier file."""
    entries: dict[str, Architecture] = {}
    for file in files:
        record, document, found = load(file, ArchitectureFile)
        problems.extend(found)
        if record is not None:
            problems.extend(_repeated_names(file, document, "architectures", record.architectures))
            entries.update({entry.name: entry for entry in record.architectures})
    return Registry(((entry.checkpoints, entry) for entry in entries.values()), folded=False)


def _repeated_names(
    file: DataFile, document: Document, key: str, entries: Iterable[Gpu | Architecture]
) -> Iterator[Diagnostic]:
    owners: dict[str, int] = {}
    for index, entry in enumerate(entries):
        for name in dict.fromkeys((entry.name, *entry.aliases)):
            owner = owners.setdefault(name, index)
            if owner != index:
                message = f"{name!r} is also a name of entry {owner + 1} of {key!r}"
                yield report(file, document, (key, index), Code.duplicate_name, message)


def _check_run(
    file: DataFile, run: Run, document: Document, gpus: Registry[Gpu], models: Registry[Architecture]
) -> Iterator[Diagnostic]:
    """What one run gets wrong that its schema cannot know."""
    stem = file.path.name.removesuffix(".yaml")
    if run.id != stem:
        message = f"the id {run.id!r} differs from the file name {stem + '.yaml'!r}"
        yield report(
            file, document, ("id",), Code.id_mismatch, message, f"write id: {stem}, or rename the file"
        )
    if run.gpus.type is not None and run.gpus.type not in gpus:
        hint = did_you_mean(run.gpus.type, gpus.names) or "add it to gpus.yaml"
        message = f"gpus.type: unknown GPU {run.gpus.type!r}"
        yield report(file, document, ("gpus", "type"), Code.unknown_gpu, message, hint)
    if run.model not in models:
        hint = did_you_mean(run.model, models.names) or "add it to architectures.yaml"
        yield report(
            file, document, ("model",), Code.unknown_model, f"model: unknown checkpoint {run.model!r}", hint
        )
    if run.kind == "tested":
        for loc, value in ((("tag",), run.tag), (("gpus", "type"), run.gpus.type), (("infer",), run.infer)):
            if value is None:
                message = f"{'.'.join(loc)} is null, but the run counts as tested"
                hint = "name it, or say with 'kind: stated' or 'kind: measured' what the row rests on"
                yield report(file, document, loc, Code.untested_claim, message, hint)
    for what, in_name, in_row in contradictions(run, lambda one, other: _same_gpu(gpus, one, other)):
        message = f"the {what} is {in_name!r} in the script's name and {in_row!r} in the row"
        loc = ("script", "path")
        yield report(file, document, loc, Code.script_name, message, severity=Severity.WARNING)


def _same_gpu(gpus: Registry[Gpu], one: str, other: str) -> bool:
    first, second = gpus.get(one), gpus.get(other)
    return one.casefold() == other.casefold() or (first is not None and first is second)


def _duplicate_id(
    file: DataFile, run: Run, document: Document, first: tuple[DataFile, Document]
) -> Diagnostic:
    first_file, first_document = first
    place = Location(first_file.shown, *first_document.value_place(("id",)))
    message = f"the id {run.id!r} is already recorded at {place}"
    hint = "rename one of the two, in its file name and in its id"
    return report(file, document, ("id",), Code.duplicate_id, message, hint)


def _size_of(document: Document) -> str | None:
    data = document.data
    size = data.get("size") if isinstance(data, dict) else None
    return size if size in SIZES else None
