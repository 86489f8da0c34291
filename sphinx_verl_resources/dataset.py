"""The data of a build: files read once, records loaded on first use, entries overridden by name."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from . import registries
from .diagnostics import Diagnostic, Location, Severity, nearest
from .records import Record, Run
from .registries import Analysis, Architecture, ConfigKey, Gpu, Registry
from .strict_yaml import MAX_BYTES, Document, read_yaml
from .validation import try_model, validated

RUNS, CASES, SCHEMAS = "runs", "cases", "schema"
#: The registry files of a data directory; they extend and override those of earlier directories.
REGISTRIES = ("gpus.yaml", "architectures.yaml", "analysis.yaml", "config_keys.yaml", "accuracy.yaml")
#: A data directory contains at least one of these names.
DATA_NAMES = frozenset({RUNS, CASES, *REGISTRIES})

# -- files


@dataclass(frozen=True)
class DataFile:
    """A file: its path, its name in messages, and its content (one byte over the limit if it is larger)."""

    path: Path
    label: str
    content: bytes

    @cached_property
    def document(self) -> Document:
        """The parsed content."""
        return read_yaml(self.content, self.label)


class Directory(NamedTuple):
    """A data directory and its name in messages."""

    path: Path
    label: str


def bundled_directory() -> Directory:
    """Return the data directory of the package, or of the checkout that the package runs from."""
    package = Path(__file__).resolve().parent
    inside = package / "data"
    return Directory(inside if inside.is_dir() else package.parent / "data", "sphinx_verl_resources/data")


def configured_directory(name: str, base: Path) -> Directory:
    """Return the directory ``name``, relative to ``base``; messages also show it relative to ``base``."""
    path = base / name
    return Directory(path, Path(os.path.relpath(path, base)).as_posix())


def refuse_leading_out(path: Path, directory: Path) -> None:
    """Reject a path in a data directory that leaves it through a symbolic link.

    The directory itself may be a link, because it comes from conf.py, which is trusted.

    Raises:
        OSError: the path leads out of the directory.
    """
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory)):
        raise OSError(0, "the link points outside the data directory and was not followed", str(path))


def refuse_link_in_data(path: Path) -> None:
    """Reject a data file or schema that is a symbolic link out of its data directory.

    Raises:
        OSError: the file is such a link.
    """
    whole = Path(os.path.abspath(path))  # noqa: PTH100  # resolve() follows links
    for folder in whole.parents:
        if (folder / RUNS).is_dir() and whole.relative_to(folder).parts[0] in {*DATA_NAMES, SCHEMAS}:
            refuse_leading_out(whole, folder)


def refuse_irregular(path: Path) -> None:
    """Reject anything but a regular file; opening a pipe could block forever.

    Raises:
        OSError: the path is not one.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(0, "not a regular file", str(path))


def read_data_file(path: Path, label: str) -> DataFile:
    """Read a file, or the first part of one that is too large.

    Raises:
        OSError: it cannot be read or is not a regular file.
    """
    refuse_irregular(path)
    with path.open("rb") as stream:
        return DataFile(path, label, stream.read(MAX_BYTES + 1))


def replace_file(path: Path, text: str) -> None:
    """Write a whole file or nothing, with the mode of an earlier one; a link or a pipe is replaced.

    Raises:
        OSError: it cannot be written.
    """
    # Files whose names begin with a dot are not read as data.
    temporary = path.with_name(f".verl-{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_text(text, "utf-8", "backslashreplace", newline="\n")
        if path.is_file():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


# -- records


class Dataset:
    """The records in data directories, each kind loaded on first use. Problems are noted, never raised.

    If one of the configured directories has a folder ``runs``, its runs replace the bundled ones. Registries
    and cases extend and override the bundled ones. Directories are read once, even if given twice.

    Attributes:
        kinds: the kinds of records.
        files: the files by folder or name, ordered by directory, then by name.
        problems: the problems of each kind that was loaded; ``files`` has those of reading.
    """

    kinds: ClassVar[tuple[str, ...]] = ("gpus", "architectures", "config_keys", "runs", "analysis")

    def __init__(self, configured: Iterable[Directory] = (), missing: Location | None = None) -> None:
        """Read all files.

        Args:
            configured: the user's data directories.
            missing: the place to report a missing directory at.
        """
        bundled = bundled_directory()
        self.files: dict[str, list[DataFile]] = {name: [] for name in (RUNS, CASES, *REGISTRIES)}
        self.problems: dict[str, list[Diagnostic]] = {"files": []}
        own: dict[str, Directory] = {}
        for directory in configured:
            what = f"the data directory {directory.label!r} cannot be used"
            remedy = f"name a folder that contains {RUNS}/ or gpus.yaml, relative to that of conf.py"
            with self._note_errors(missing or Location(""), what, remedy):
                if DATA_NAMES.isdisjoint(path.name for path in directory.path.iterdir()):
                    raise OSError(0, "it contains no data")
                own.setdefault(os.path.realpath(directory.path), directory)
        own_runs = any(os.path.lexists(directory.path / RUNS) for directory in own.values())
        if os.path.realpath(bundled.path) not in own:
            self._read(bundled, bundled.path, without=RUNS if own_runs else "")
        for directory in own.values():
            self._read(directory, directory.path)

    @contextmanager
    def _note_errors(self, place: Location, what: str, remedy: str) -> Iterator[None]:
        """Note why a file or directory cannot be read."""
        try:
            yield
        except (OSError, ValueError) as error:  # a name with a null character is a wrong value
            reason = getattr(error, "strerror", error)
            self.problems["files"].append(Diagnostic(place, "file_unreadable", f"{what}: {reason}", remedy))

    def _read(self, directory: Directory, path: Path, without: str = "") -> None:
        """Read a whole directory, or one folder or file of it; note each file that is left out."""
        name = path.relative_to(directory.path).as_posix()
        label, folder = Path(directory.label, name).as_posix(), name.rpartition("/")[0]
        with self._note_errors(Location(label), "cannot be read", "check it, or delete it"):
            is_data = name in (".", RUNS, CASES, *REGISTRIES) or (folder and path.suffix == ".yaml")
            if is_data and path.is_symlink():
                refuse_leading_out(path, directory.path)
            if name in (".", RUNS, CASES):
                for inner in sorted(path.iterdir()):
                    if inner.name != without and not inner.name.startswith("."):
                        self._read(directory, inner)
            elif is_data:
                self.files[folder or name].append(read_data_file(path, label))
            elif (is_yaml := path.suffix in {".yaml", ".yml"}) or (folder and path.name != "README.md"):
                near = nearest(path.stem, (each.removesuffix(".yaml") for each in REGISTRIES))
                hint = f"did you mean '{near}.yaml'?" if near else f"put run files into the folder {RUNS!r}"
                remedy = "data files are named <id>.yaml" if folder else hint
                message = f"the file {path.name!r} is not read"
                level = Severity.ERROR if is_yaml else Severity.WARNING
                problem = Diagnostic(Location(label), "file_unexpected", message, remedy, level)
                self.problems["files"].append(problem)

    @cached_property
    def digest(self) -> str:
        """A digest of all files, and of what could not be read."""
        files = [(file.label, file.content) for files in self.files.values() for file in files]
        return hashlib.sha256(repr((files, self.problems["files"])).encode()).hexdigest()

    def diagnostics_of(self, *kinds: str) -> tuple[Diagnostic, ...]:
        """Load kinds of records, and return their problems; those of runs include files and registries."""
        needed = {*kinds, "files", "gpus", "architectures"} if "runs" in kinds else {*kinds}
        for name in needed:
            getattr(self, name)
        return tuple(sorted(problem for name in needed for problem in self.problems[name]))

    @cached_property
    def gpus(self) -> Registry[Gpu]:
        """The GPUs, by name and alias."""
        return self.registry(registries.GpuFile)

    @cached_property
    def architectures(self) -> Registry[Architecture]:
        """The model shapes, by the model's Hugging Face name."""
        return self.registry(registries.ArchitectureFile)

    @cached_property
    def config_keys(self) -> Registry[ConfigKey]:
        """The keys of verl's configuration."""
        return self.registry(registries.ConfigKeyFile)

    def registry(self, file_model: type[Record]) -> Registry[Any]:
        """Load a registry from its files, each a list of entries under one key, which is the file's name."""
        (section,) = file_model.model_fields
        registry: Registry[Any] = Registry()
        self.problems[section] = []
        for file in self.files[f"{section}.yaml"]:
            self.problems[section] += registries.merge(file.document, file_model, {section: registry})
        return registry

    @cached_property
    def analysis(self) -> Analysis:
        """The memory analysis."""
        documents = (file.document for file in self.files["analysis.yaml"])
        names = {"gpus": self.gpus, "architectures": self.architectures, "config_keys": self.config_keys}
        analysis, self.problems["analysis"] = registries.load_analysis(documents, **names)
        return analysis

    @cached_property
    def runs(self) -> Mapping[str, Run]:
        """The runs by id, sorted by id."""
        return dict(sorted((run.id, run) for run in self.run_files.values() if run))

    @cached_property
    def run_files(self) -> Mapping[DataFile, Run | None]:
        """The run of each file, without its settings if they are wrong; None if the file has other errors."""
        runs: dict[DataFile, Run | None] = {}
        first: dict[str, DataFile] = {}
        problems = self.problems["runs"] = []
        context = {"gpus": self.gpus, "architectures": self.architectures}
        for file in self.files[RUNS]:
            run, wrong = validated(file.document, Run, context)
            if run is None and isinstance(file.document.data, dict):
                # The row of a run with wrong settings is shown.
                run, _ = try_model({**file.document.data, "settings": {}}, Run, context)
            contradictions = [*_contradictions(run, file, first)] if run else []
            problems += [*wrong, *contradictions]
            if run and not contradictions:
                first[run.id] = file
            runs[file] = None if contradictions else run
        return runs

    @cached_property
    def figures(self) -> dict[str, str]:
        """Figures about all data, for use in prose instead of typed numbers; an empty one is none."""
        runs = self.runs.values()
        return {
            # The newest date on which a run was added.
            "last-updated": max((run.added.isoformat() for run in runs if run.added), default=""),
            "runs": str(len(runs)),
            "runs-that-ran": str(sum(run.word == "ran" for run in runs)),
            "gpus": str(len(list(self.gpus))),
            "models": str(len(list(self.architectures))),
        }

    def gpu_of(self, run: Run) -> Gpu | None:
        """Return the entry of a run's GPU; None if its type or its entry is missing."""
        return self.gpus.get(run.gpus.type) if run.gpus.type else None


def _contradictions(run: Run, file: DataFile, first: Mapping[str, DataFile]) -> Iterator[Diagnostic]:
    """Yield what contradicts the name of a run's file, an earlier run, or the kind of the run."""
    document, stem = file.document, file.path.stem
    if run.id != stem:
        message = f"id: {run.id!r} differs from the file name {stem + '.yaml'!r}"
        remedy = f"rename the file to {run.id}.yaml, or correct the id"
        yield document.diagnostic(("id",), "id_mismatch", message, remedy)
    elif run.id in first:
        message = f"the id {run.id!r} is already recorded at {first[run.id].document.place(('id',))}"
        yield document.diagnostic(("id",), "duplicate_id", message, "rename one of them: its file and its id")
    claims = {("tag",): run.tag, ("gpus", "type"): run.gpus.type, ("infer",): run.infer}
    for loc, value in claims.items() if run.kind == "tested" else ():
        if value is None:
            message = f"{'.'.join(loc)} is null, but the run's kind is 'tested'"
            remedy = "fill it in, or write 'kind: stated' or 'kind: measured'"
            yield document.diagnostic(loc, "untested_claim", message, remedy)
