"""The data of a build: files read once, records loaded on first use, entries overridden by name."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from .diagnostics import Diagnostic, Location, nearest, warning
from .records import SIZES, SLUG, Record, Run, fold, slug
from .registries import (
    Architecture,
    ArchitectureFile,
    ConfigKey,
    ConfigKeyFile,
    Entry,
    Gpu,
    GpuFile,
    Registry,
)
from .strict_yaml import MAX_BYTES, read_yaml
from .validation import entries_in, repeated_names, try_model, valid_entries, validated, value_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .analysis_records import Analysis
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
    try:
        return Directory(path, Path(os.path.relpath(plain_path(path), base)).as_posix())
    except ValueError:  # a different drive
        return Directory(path, path.as_posix())


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
        raise OSError(errno.EPERM, reason, str(path))


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
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_data_file(path: Path, shown: str) -> DataFile:
    """Read a file, or the first part of one that is too large.

    Raises:
        OSError: it cannot be read or is not a regular file.
    """
    refuse_irregular(path)
    with path.open("rb") as stream:
        return DataFile(path, shown, stream.read(MAX_BYTES + 1))


def _read_files(
    directories: Sequence[Directory], bundled: Directory, *, own_runs: bool, problems: list[Diagnostic]
) -> dict[str, list[DataFile]]:
    """Return the files of all directories by folder or name, and note what cannot be read or is not read."""
    files: dict[str, list[DataFile]] = {name: [] for name in (RUNS, CASES, *REGISTRIES)}

    def read(directory: Directory, name: str, action: Callable[[Path, str], Any]) -> Any:
        """Return the result of a function of a path and its name for the user; note an error."""
        path, shown = directory.path / name, directory.show(name) if name else directory.shown
        try:
            refuse_leading_out(path, directory.path)
            return action(path, shown)
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            problems.append(Diagnostic(Location(shown), "file_unreadable", message, "check it, or delete it"))

    def ignored(directory: Directory, name: str, what: str, remedy: str) -> None:
        message = f"the {what} {name.rpartition('/')[2]!r} is not read"
        problems.append(warning(Location(directory.show(name)), "file_unexpected", message, remedy))

    for directory in directories:
        folders = (CASES,) if directory is bundled and own_runs else (CASES, RUNS)
        for name in read(directory, "", _names_in) or ():
            if name in REGISTRIES:
                files[name] += filter(None, [read(directory, name, read_data_file)])
            elif name in folders:
                for inner in read(directory, name, _names_in) or ():
                    if inner.endswith(".yaml"):
                        files[name] += filter(None, [read(directory, f"{name}/{inner}", read_data_file)])
                    elif inner != "README.md":
                        ignored(directory, f"{name}/{inner}", "file", "data files are named <id>.yaml")
            elif name not in {RUNS, SCHEMAS} and (near := _looks_like_data(directory.path / name)):
                ignored(directory, name, "folder" if (directory.path / name).is_dir() else "file", near)
    return files


def _names_in(folder: Path, _shown: str) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))


def _looks_like_data(path: Path) -> str:
    """Return the remedy for a file or folder that looks like data but is not read; empty for any other."""
    if path.is_symlink():
        return ""
    if path.is_dir():
        near = nearest(path.name, [RUNS, CASES])
        return f"put data files into the folder {near or RUNS!r}" if near or any(path.glob("*.yaml")) else ""
    if path.suffix not in {".yaml", ".yml"}:
        return ""
    near = nearest(f"{path.stem}.yaml", REGISTRIES)
    return f"did you mean {near!r}?" if near else f"put run files into the folder {RUNS!r}"


def _directory_problem(directory: Directory) -> tuple[str, str] | None:
    """Return the problem of a configured directory and the remedy; None if there is none."""
    hint = "the path is relative to the directory of conf.py"
    try:
        names = {entry.name for entry in os.scandir(directory.path)}
    except FileNotFoundError:
        return f"the data directory {directory.shown!r} does not exist", hint
    except OSError as error:
        return f"the data directory {directory.shown[:200]!r} cannot be read: {error.strerror}", hint
    if not names & DATA_NAMES:
        message = f"the data directory {directory.shown!r} contains no data"
        return message, f"put run files into {directory.show(RUNS)}, or add one of {', '.join(REGISTRIES)}"
    return None


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
        self.problems: dict[str, list[Diagnostic]] = {"files": []}
        own: dict[str, Directory] = {}
        for directory in configured:
            problem = _directory_problem(directory)
            if problem:
                place = missing or Location("")
                self.problems["files"].append(Diagnostic(place, "file_unreadable", *problem))
            else:
                own.setdefault(os.path.realpath(directory.path), directory)
        every = [*own.values()] if os.path.realpath(bundled.path) in own else [bundled, *own.values()]
        own_runs = any(os.path.lexists(directory.path / RUNS) for directory in own.values())
        self.files = _read_files(every, bundled, own_runs=own_runs, problems=self.problems["files"])

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
        needed = ("gpus", "architectures", part) if part == "runs" else (part,)
        for name in needed:
            getattr(self, name)
        with_files = ("files", *needed) if part == "runs" else needed
        return tuple(sorted(problem for name in with_files for problem in self.problems[name]))

    def all_diagnostics(self) -> tuple[Diagnostic, ...]:
        """Load everything, and return all problems, ordered by file and line."""
        for part in self.parts:
            getattr(self, part)
        return self.diagnostics

    @cached_property
    def gpus(self) -> Registry[Gpu]:
        """The GPUs, by name and alias."""
        return self.registry(GPUS, GpuFile, Gpu)

    @cached_property
    def architectures(self) -> Registry[Architecture]:
        """The model shapes, by the model's Hugging Face name."""
        return self.registry(ARCHITECTURES, ArchitectureFile, Architecture)

    @cached_property
    def config_keys(self) -> Registry[ConfigKey]:
        """The keys of verl's configuration."""
        return self.registry(CONFIG_KEYS, ConfigKeyFile, ConfigKey)

    def registry(self, name: str, file_model: type[Record], model: type[Entry]) -> Registry[Entry]:
        """Load a registry from all files called ``name``.

        Args:
            name: the name of the files.
            file_model: the model of a file, a list of entries under one key.
            model: the model of an entry.
        """
        (section,) = file_model.model_fields
        registry: Registry[Entry] = Registry()
        problems = self.problems[section] = []
        for file in self.files[name]:
            document = read_yaml(file.content, file.shown)
            record, found = validated(document, file_model)
            entries = getattr(record, section) if record else valid_entries(document.data, section, model)
            names = [(entry.name, *entry.lookup_names) if entry else () for entry in entries]
            problems += [*found, *repeated_names(document, section, names)]
            for entry in filter(None, entries):
                registry.add(entry)
            for raw in entries_in(document.data, section) if record is None else ():
                for value in map(raw.get, model.name_fields) if isinstance(raw, dict) else ():
                    written = value if isinstance(value, tuple) else (value,)
                    registry.broken |= {fold(word) for word in written if isinstance(word, str)}
        return registry

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
        for file in self.files[RUNS]:
            document = read_yaml(file.content, file.shown)
            run, found = self._read_run(document)
            claims = [*_file_name(document, file.path.name.removesuffix(".yaml")), *_claims(run, document)]
            if run and not claims and run.id in places:
                message = f"the id {run.id!r} is already recorded at {places[run.id]}"
                remedy = "rename one of the runs: its file and its id"
                claims.append(document.diagnostic(("id",), "duplicate_id", message, remedy))
            problems += [*found, *claims]
            if run is None or claims:
                size = value_at(document.data, "size")
                broken.append(BrokenRun(file.shown, size if size in SIZES else None))
            else:
                runs[run.id], places[run.id] = run, document.place(("id",))
        return dict(sorted(runs.items())), tuple(broken)

    def _read_run(self, document: Document) -> tuple[Run | None, list[Diagnostic]]:
        """Return a run and its problems; settings with errors are left out of the record."""
        context = {"gpus": self.gpus, "architectures": self.architectures}
        run, found = validated(document, Run, context)
        settings = value_at(document.data, "settings")
        if run is None and isinstance(settings, dict) and not document.problems:
            _, errors = try_model(document.data, Run, context)
            wrong = {error["loc"][1] for error in errors if error["loc"][0:1] == ("settings",)}
            good = {key: value for key, value in settings.items() if key not in wrong}
            run, _ = try_model({**document.data, "settings": good}, Run, context)
        return run, found

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

    @cached_property
    def analysis(self) -> Analysis:
        """The memory analysis."""
        from .analysis_records import load_analysis

        documents = [read_yaml(file.content, file.shown) for file in self.files[ANALYSIS]]
        registries = (self.gpus, self.architectures, self.config_keys)
        analysis, self.problems["analysis"] = load_analysis(documents, *registries)
        return analysis


def _file_name(document: Document, stem: str) -> Iterator[Diagnostic]:
    """Yield the contradiction between an id and the name of its file."""
    written = value_at(document.data, "id")
    if isinstance(written, str) and re.fullmatch(SLUG, written) and written != stem:
        message = f"id: {written!r} differs from the file name {stem + '.yaml'!r}"
        near = slug(stem)
        remedy = f"rename both, for example to {near}" if near else f"rename the file to {written}.yaml"
        if near == stem:
            remedy = f"write id: {stem}, or rename the file"
        yield document.diagnostic(("id",), "id_mismatch", message, remedy)


def _claims(run: Run | None, document: Document) -> Iterator[Diagnostic]:
    """Yield what a tested run must name and does not."""
    if run and run.kind == "tested":
        for loc, value in ((("tag",), run.tag), (("gpus", "type"), run.gpus.type), (("infer",), run.infer)):
            if value is None:
                message = f"{'.'.join(loc)} is null, but the run's kind is 'tested'"
                remedy = "fill it in, or write 'kind: stated' or 'kind: measured'"
                yield document.diagnostic(loc, "untested_claim", message, remedy)
