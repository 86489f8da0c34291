"""The data of a build: files read once, records loaded on first use, entries overridden by name."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from .diagnostics import Diagnostic, Location, did_you_mean, warning
from .records import SIZES, Record, Run
from .registries import (
    Architecture,
    ArchitectureFile,
    ConfigKey,
    ConfigKeyFile,
    Gpu,
    GpuFile,
    Registry,
    load_analysis,
    merge,
)
from .strict_yaml import MAX_BYTES, read_yaml
from .validation import try_model, validated, value_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .registries import Analysis
    from .strict_yaml import Document

RUNS, CASES, SCHEMAS = "runs", "cases", "schema"
GPUS, ARCHITECTURES, ANALYSIS = "gpus.yaml", "architectures.yaml", "analysis.yaml"
CONFIG_KEYS, ACCURACY = "config_keys.yaml", "accuracy.yaml"
#: The registry files of a data directory; they extend and override those of earlier directories.
REGISTRIES = (GPUS, ARCHITECTURES, ANALYSIS, CONFIG_KEYS, ACCURACY)
#: A data directory contains at least one of these names.
DATA_NAMES = frozenset({RUNS, CASES, *REGISTRIES})

# -- files


@dataclass(frozen=True)
class DataFile:
    """A file: its path, its name for the user, and its bytes (at most one more than allowed)."""

    path: Path
    shown: str
    content: bytes


@dataclass(frozen=True)
class Directory:
    """A data directory and its name for the user."""

    path: Path
    shown: str

    def show(self, name: str) -> str:
        """Return the name of a file in this directory for the user."""
        return name if self.shown == "." else f"{self.shown}/{name}"


def bundled_directory() -> Directory:
    """Return the data directory of the package, or of the checkout that the package runs from."""
    package = Path(__file__).resolve().parent
    inside = package / "data"
    return Directory(inside if inside.is_dir() else package.parent / "data", "sphinx_verl_resources/data")


def configured_directory(name: str, base: Path) -> Directory:
    """Return the directory ``name``, relative to ``base``; messages also show it relative to ``base``."""
    path = base / name
    return Directory(path, Path(os.path.relpath(plain_path(path), base)).as_posix())


def plain_path(path: Path) -> Path:
    """Return the absolute path without ``..``; links before a ``..`` are resolved, as the system does.

    Links after the last ``..`` are kept, because a linked file belongs to the directory with the link.
    """
    parts = path.absolute().parts
    after = max((index + 1 for index, part in enumerate(parts) if part == ".."), default=1)
    return Path(os.path.realpath(Path(*parts[:after])), *parts[after:])


def refuse_leading_out(path: Path, directory: Path) -> None:
    """Reject a path in a data directory that leaves it through a symbolic link.

    The directory itself may be a link, because it comes from conf.py, which is trusted.

    Raises:
        OSError: the path leads out of the directory.
    """
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory)):
        reason = "the link points outside the data directory and was not followed"
        raise OSError(0, reason, str(path))


def refuse_link_in_data(path: Path) -> None:
    """Reject a data file or schema that is a symbolic link out of its data directory.

    Raises:
        OSError: the file is such a link.
    """
    whole = plain_path(path)
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


def read_data_file(path: Path, shown: str) -> DataFile:
    """Read a file, or the first part of one that is too large.

    Raises:
        OSError: it cannot be read or is not a regular file.
    """
    refuse_irregular(path)
    with path.open("rb") as stream:
        return DataFile(path, shown, stream.read(MAX_BYTES + 1))


def _directory_problem(directory: Directory) -> tuple[str, str] | None:
    """Return the problem of a configured directory and the remedy; None if there is none."""
    try:
        names = {entry.name for entry in os.scandir(directory.path)}
    except OSError as error:
        message = f"the data directory {directory.shown[:200]!r} cannot be read: {error.strerror}"
        return message, "the path is relative to the directory of conf.py"
    if names & DATA_NAMES:
        return None
    remedy = f"put run files into {directory.show(RUNS)}, or add one of {', '.join(REGISTRIES)}"
    return f"the data directory {directory.shown!r} contains no data", remedy


# -- records


@dataclass(frozen=True)
class BrokenRun:
    """A run file with errors: its name for the user, and its size class or None."""

    shown: str
    size: str | None


class Dataset:
    """The records in data directories, each kind loaded on first use. Problems are noted, never raised.

    If one of the configured directories has a folder ``runs``, its runs replace the bundled ones. Registries
    and cases extend and override the bundled ones. Directories are read once, even if given twice.

    Attributes:
        parts: the kinds of records.
        files: the files by folder or name, ordered by directory, then by name.
        problems: the problems of each part that was loaded; ``files`` has those of reading.
    """

    parts: ClassVar[tuple[str, ...]] = ("gpus", "architectures", "config_keys", "runs", "analysis")

    def __init__(
        self,
        configured: Iterable[Directory] = (),
        *,
        bundled: Directory | None = None,
        missing: Location | None = None,
    ) -> None:
        """Read all files.

        Args:
            configured: the user's data directories.
            bundled: the data directory that they build on; default: the package's.
            missing: the place to report a missing directory at.
        """
        bundled = bundled or bundled_directory()
        self.files: dict[str, list[DataFile]] = {name: [] for name in (RUNS, CASES, *REGISTRIES)}
        self.problems: dict[str, list[Diagnostic]] = {"files": []}
        own: dict[str, Directory] = {}
        for directory in configured:
            if problem := _directory_problem(directory):
                place = missing or Location("")
                self.problems["files"].append(Diagnostic(place, "file_unreadable", *problem))
            else:
                own.setdefault(os.path.realpath(directory.path), directory)
        own_runs = any(os.path.lexists(directory.path / RUNS) for directory in own.values())
        if os.path.realpath(bundled.path) not in own:
            self._read(bundled, without=RUNS if own_runs else "")
        for directory in own.values():
            self._read(directory)

    def _read(self, directory: Directory, name: str = "", without: str = "") -> None:
        """Read a file or folder of a directory, or all of it, and note what is not read."""
        path, shown, folder = directory.path / name, directory.show(name), name.rpartition("/")[0]
        try:
            if name in ("", RUNS, CASES):
                refuse_leading_out(path, directory.path)
                for inner in sorted(entry.name for entry in os.scandir(path)):
                    if inner != without and not inner.startswith("."):
                        self._read(directory, f"{name}/{inner}" if name else inner)
            elif name in REGISTRIES or (folder and path.suffix == ".yaml"):
                refuse_leading_out(path, directory.path)
                self.files[folder or name].append(read_data_file(path, shown))
            elif path.suffix in {".yaml", ".yml"} or (folder and path.name != "README.md"):
                remedy = "data files are named <id>.yaml"
                if not folder:
                    remedy = did_you_mean(name, REGISTRIES, f"put run files into the folder {RUNS!r}")
                message = f"the file {path.name!r} is not read"
                self.problems["files"].append(warning(Location(shown), "file_unexpected", message, remedy))
        except OSError as error:
            message, remedy = f"cannot be read: {error.strerror}", "check it, or delete it"
            self.problems["files"].append(Diagnostic(Location(shown), "file_unreadable", message, remedy))

    @cached_property
    def digest(self) -> str:
        """A digest of all files, and of what could not be read."""
        found = hashlib.sha256()
        for file in (file for files in self.files.values() for file in files):
            found.update(f"{file.shown}\0{len(file.content)}\0".encode("utf-8", "surrogatepass"))
            found.update(file.content)
        found.update("\0".join(map(str, self.problems["files"])).encode())
        return found.hexdigest()

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The problems of everything that was loaded, ordered by file and line."""
        return tuple(sorted(problem for found in self.problems.values() for problem in found))

    def diagnostics_of(self, part: str) -> tuple[Diagnostic, ...]:
        """Load a part, and return its problems; those of runs include the files and the registries in use."""
        needed = ("files", "gpus", "architectures", part) if part == "runs" else (part,)
        for name in needed:
            getattr(self, name)
        return tuple(sorted(problem for name in needed for problem in self.problems[name]))

    def all_diagnostics(self) -> tuple[Diagnostic, ...]:
        """Load everything, and return all problems, ordered by file and line."""
        for part in self.parts:
            getattr(self, part)
        return self.diagnostics

    @cached_property
    def gpus(self) -> Registry[Gpu]:
        """The GPUs, by name and alias."""
        return self.registry(GPUS, GpuFile)

    @cached_property
    def architectures(self) -> Registry[Architecture]:
        """The model shapes, by the model's Hugging Face name."""
        return self.registry(ARCHITECTURES, ArchitectureFile)

    @cached_property
    def config_keys(self) -> Registry[ConfigKey]:
        """The keys of verl's configuration."""
        return self.registry(CONFIG_KEYS, ConfigKeyFile)

    def registry(self, name: str, file_model: type[Record]) -> Registry[Any]:
        """Load a registry from all files called ``name``, each a list of entries under one key."""
        (section,) = file_model.model_fields
        registry: Registry[Any] = Registry()
        self.problems[section] = []
        for file in self.files[name]:
            document = read_yaml(file.content, file.shown)
            self.problems[section] += merge(document, file_model, {section: registry})
        return registry

    @cached_property
    def analysis(self) -> Analysis:
        """The memory analysis."""
        documents = (read_yaml(file.content, file.shown) for file in self.files[ANALYSIS])
        used = {"gpus": self.gpus, "architectures": self.architectures, "config_keys": self.config_keys}
        found = load_analysis(documents, **used)
        analysis, self.problems["analysis"] = found
        return analysis

    @cached_property
    def runs(self) -> Mapping[str, Run]:
        """The runs by id, sorted by id."""
        return self._loaded_runs[0]

    @cached_property
    def broken(self) -> tuple[BrokenRun, ...]:
        """The run files with errors."""
        return self._loaded_runs[1]

    @cached_property
    def _loaded_runs(self) -> tuple[dict[str, Run], tuple[BrokenRun, ...]]:
        runs: dict[str, Run] = {}
        broken: list[BrokenRun] = []
        places: dict[str, Location] = {}
        problems = self.problems["runs"] = []
        context = {"gpus": self.gpus, "architectures": self.architectures}
        for file in self.files[RUNS]:
            document = read_yaml(file.content, file.shown)
            run, found = validated(document, Run, context)
            if run is None and isinstance(document.data, dict):
                # A run with wrong settings is shown without them.
                run, _ = try_model({**document.data, "settings": {}}, Run, context)
            contradictions = [*_contradictions(run, document, file.path.stem, places)] if run else []
            problems += [*found, *contradictions]
            if run and not contradictions:
                runs[run.id], places[run.id] = run, document.place(("id",))
            else:
                size = value_at(document.data, "size")
                broken.append(BrokenRun(file.shown, size if size in SIZES else None))
        return dict(sorted(runs.items())), tuple(broken)

    @property
    def last_updated(self) -> str:
        """The newest date on which a run was added, such as ``2025-06-12``; empty if none is dated."""
        return max((run.added.isoformat() for run in self.runs.values() if run.added), default="")

    def gpu_of(self, run: Run) -> Gpu | None:
        """Return the entry of a run's GPU; None if its type or its entry is missing."""
        return self.gpus.get(run.gpus.type) if run.gpus.type else None

    def gpu_name(self, run: Run) -> str | None:
        """Return the registry's name of a run's GPU; None if the source does not give it."""
        gpu = self.gpu_of(run)
        return gpu.name if gpu else run.gpus.type


def _contradictions(
    run: Run, document: Document, stem: str, places: Mapping[str, Location]
) -> Iterator[Diagnostic]:
    """Yield what contradicts the name of a run's file, another run, or the kind of the run."""
    if run.id != stem:
        message = f"id: {run.id!r} differs from the file name {stem + '.yaml'!r}"
        remedy = f"rename the file to {run.id}.yaml, or correct the id"
        yield document.diagnostic(("id",), "id_mismatch", message, remedy)
    elif run.id in places:
        message = f"the id {run.id!r} is already recorded at {places[run.id]}"
        remedy = "rename one of the runs: its file and its id"
        yield document.diagnostic(("id",), "duplicate_id", message, remedy)
    named = {("tag",): run.tag, ("gpus", "type"): run.gpus.type, ("infer",): run.infer}
    for loc, value in named.items() if run.kind == "tested" else ():
        if value is None:
            message = f"{'.'.join(loc)} is null, but the run's kind is 'tested'"
            remedy = "fill it in, or write 'kind: stated' or 'kind: measured'"
            yield document.diagnostic(loc, "untested_claim", message, remedy)
