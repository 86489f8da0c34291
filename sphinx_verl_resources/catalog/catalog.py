"""The catalog: every run and registry entry of a build, checked and frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ..diagnostics import Code, Diagnostic, Severity
from .files import ARCHITECTURES, GPUS
from .models.run import Run
from .names import SIZES
from .registries import load_architectures, load_gpus
from .run_names import contradictions
from .validation import load
from .yaml_data import printable, read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .files import DataFile, Snapshot
    from .models.architecture import Architecture
    from .models.registries import Gpu
    from .registries import Registry
    from .yaml_data import Document


@dataclass(frozen=True)
class BrokenRun:
    """A run file with errors: what a page can say instead of the row.

    Attributes:
        shown: the file's path for people.
        size: the size class, where at least that much could be read.
    """

    shown: str
    size: str | None


@dataclass(frozen=True)
class Catalog:
    """Everything that pages and commands ask for.

    Attributes:
        runs: by id, sorted by id.
        broken: run files that could not be used.
        gpus: by name and alias.
        architectures: by checkpoint name.
        diagnostics: every problem, in the order of files and lines.
        found: what has been found out about all runs, see ``selection.once``.
    """

    runs: Mapping[str, Run]
    broken: tuple[BrokenRun, ...]
    gpus: Registry[Gpu]
    architectures: Registry[Architecture]
    diagnostics: tuple[Diagnostic, ...] = field(default=())
    found: dict[object, object] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def last_updated(self) -> str:
        """The newest day on which a run was added, as ``2025-06-12``; empty if none is dated."""
        days = [run.added for run in self.runs.values() if run.added]
        return max(days).isoformat() if days else ""


def load_catalog(
    snapshot: Snapshot, watched: Callable[[Sequence[DataFile]], Iterable[DataFile]] = iter
) -> Catalog:
    """Validate and cross-check all files; never raises on what is in them.

    Args:
        snapshot: the files.
        watched: hands the run files on and reports progress.
    """
    problems = list(snapshot.problems)
    gpus = load_gpus(snapshot.registries[GPUS], problems)
    models = load_architectures(snapshot.registries[ARCHITECTURES], problems)
    runs: dict[str, Run] = {}
    files: dict[str, DataFile] = {}
    broken: list[BrokenRun] = []
    for file in watched(snapshot.runs):
        stem = printable(file.path.name.removesuffix(".yaml"))
        run, document, found = load(file, Run, {"stem": stem, "gpus": gpus, "architectures": models})
        if run is not None:
            found += _check_claims(run, document, gpus)
            if run.id in files:
                found.append(_duplicate_id(document, files[run.id]))
        problems += found
        if run is None or any(problem.is_error for problem in found):
            broken.append(BrokenRun(file.shown, _size_of(document)))
        else:
            runs[run.id] = run
            files[run.id] = file
    return Catalog(
        runs=dict(sorted(runs.items())),
        broken=tuple(broken),
        gpus=gpus,
        architectures=models,
        diagnostics=tuple(sorted(problems)),
    )


def _check_claims(run: Run, document: Document, gpus: Registry[Gpu]) -> Iterator[Diagnostic]:
    """Yield what a valid run says that cannot be true together."""
    if run.kind == "tested":
        for loc, value in ((("tag",), run.tag), (("gpus", "type"), run.gpus.type), (("infer",), run.infer)):
            if value is None:
                message = f"{'.'.join(loc)} is null, but the run counts as tested"
                remedy = "name it, or say with 'kind: stated' or 'kind: measured' what the row rests on"
                yield document.diagnostic(loc, Code.untested_claim, message, remedy)
    for what, in_name, in_row in contradictions(run, gpus):
        message = f"the {what} is {in_name!r} in the script's name and {in_row!r} in the row"
        remedy = "correct the row, or link the script that was really run"
        yield document.diagnostic(("script", "path"), Code.script_name, message, remedy, Severity.WARNING)


def _duplicate_id(document: Document, file: DataFile) -> Diagnostic:
    first = read_yaml(file.content, file.shown)
    message = f"the id {first.data['id']!r} is already recorded at {first.place(('id',))}"
    remedy = "rename one of the two, in its file name and in its id"
    return document.diagnostic(("id",), Code.duplicate_id, message, remedy)


def _size_of(document: Document) -> str | None:
    """Return the size class of a file with errors, None where it has none."""
    size = document.data.get("size") if isinstance(document.data, dict) else None
    return size if size in SIZES else None
