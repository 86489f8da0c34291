"""From a snapshot of the files to the catalog, with every problem of every file in one pass."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, Diagnostic, Location, Severity, suggest_or
from .catalog import BrokenRun, Catalog
from .files import ARCHITECTURES, GPUS
from .models.base import SLUG, slug
from .models.run import Run
from .names import SIZES
from .registries import load_architectures, load_gpus
from .script_names import contradictions
from .validation import load, problem_at
from .yaml_data import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .catalog import Registry
    from .files import DataFile, Snapshot
    from .models.architecture import Architecture
    from .models.gpu import Gpu
    from .yaml_data import Document


def load_catalog(
    snapshot: Snapshot, watched: Callable[[Sequence[DataFile]], Iterable[DataFile]] = iter
) -> Catalog:
    """Validate and cross-check all files; never raises on what is in them.

    Args:
        snapshot: the files.
        watched: hands the run files on while somebody looks how far it is.
    """
    problems = list(snapshot.problems)
    gpus = load_gpus(snapshot.registries[GPUS], problems)
    models = load_architectures(snapshot.registries[ARCHITECTURES], problems)
    runs: dict[str, Run] = {}
    sources: dict[str, tuple[DataFile, Document]] = {}
    broken: list[BrokenRun] = []
    for file in watched(snapshot.runs):
        run, document, found = load(file, Run)
        places = {problem.place for problem in found}
        unknown = _check_names(file, document, gpus, models)
        found += [problem for problem in unknown if problem.place not in places]
        if run is not None:
            found += _check_claims(file, run, document, gpus)
            if run.id in sources:
                found.append(_duplicate_id(file, run, document, sources[run.id]))
        problems += found
        if run is None or any(problem.severity is Severity.ERROR for problem in found):
            broken.append(BrokenRun(file.shown, _size_of(document)))
        else:
            runs[run.id] = run
            sources[run.id] = file, document
    ids = sorted(runs)
    return Catalog(
        runs={run_id: runs[run_id] for run_id in ids},
        broken=tuple(broken),
        gpus=gpus,
        architectures=models,
        diagnostics=tuple(sorted(problems, key=lambda problem: problem.sort_key)),
    )


def _check_names(
    file: DataFile, document: Document, gpus: Registry[Gpu], models: Registry[Architecture]
) -> Iterator[Diagnostic]:
    """Names that must exist elsewhere, looked up even where the rest of the file is wrong."""
    run_id, stem = _text(document.data, "id"), printable(file.path.name.removesuffix(".yaml"))
    if run_id is not None and run_id != stem:
        message = f"the id {run_id!r} differs from the file name {stem + '.yaml'!r}"
        usable = re.fullmatch(SLUG, stem)
        hint = (
            f"write id: {stem}, or rename the file" if usable else f"rename both, to {slug(stem)} for example"
        )
        yield problem_at(file, document, ("id",), Code.id_mismatch, message, hint)
    gpu = _text(document.data, "gpus", "type")
    if gpu is not None and gpu not in gpus:
        hint = suggest_or(gpu, gpus.names, "add it to gpus.yaml")
        yield problem_at(
            file, document, ("gpus", "type"), Code.unknown_gpu, f"gpus.type: unknown GPU {gpu!r}", hint
        )
    model = _text(document.data, "model")
    if model is not None and model not in models:
        hint = suggest_or(model, models.names, "add it to architectures.yaml")
        yield problem_at(
            file, document, ("model",), Code.unknown_model, f"model: unknown checkpoint {model!r}", hint
        )


def _text(data: Any, *keys: str) -> str | None:
    """The text below ``keys``, None if there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, str) and data else None


def _check_claims(file: DataFile, run: Run, document: Document, gpus: Registry[Gpu]) -> Iterator[Diagnostic]:
    """What a valid run says that cannot be true together."""
    if run.kind == "tested":
        for loc, value in ((("tag",), run.tag), (("gpus", "type"), run.gpus.type), (("infer",), run.infer)):
            if value is None:
                message = f"{'.'.join(loc)} is null, but the run counts as tested"
                hint = "name it, or say with 'kind: stated' or 'kind: measured' what the row rests on"
                yield problem_at(file, document, loc, Code.untested_claim, message, hint)
    for what, in_name, in_row in contradictions(run, lambda one, other: _same_gpu(gpus, one, other)):
        message = f"the {what} is {in_name!r} in the script's name and {in_row!r} in the row"
        hint = "correct the row, or link the script that was really run"
        loc = ("script", "path")
        yield problem_at(file, document, loc, Code.script_name, message, hint, severity=Severity.WARNING)


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
    return problem_at(file, document, ("id",), Code.duplicate_id, message, hint)


def _size_of(document: Document) -> str | None:
    size = _text(document.data, "size")
    return size if size in SIZES else None
