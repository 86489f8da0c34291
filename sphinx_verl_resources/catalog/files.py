"""The data files of a build: their paths, their bytes and their names in messages.

This module only reads bytes, so a build with unchanged data loads neither PyYAML nor pydantic.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..diagnostics import Code, Diagnostic, Location, Severity, nearest
from .yaml_data import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from io import FileIO

RUNS = "runs"
CASES = "cases"
SCHEMAS = "schema"
GPUS = "gpus.yaml"
ARCHITECTURES = "architectures.yaml"
ANALYSIS = "analysis.yaml"
CONFIG_KEYS = "config_keys.yaml"
ACCURACY = "accuracy.yaml"
#: The registry files of a data directory; they extend and override those of earlier directories.
REGISTRIES = (GPUS, ARCHITECTURES, ANALYSIS, CONFIG_KEYS, ACCURACY)
#: A data directory contains at least one of these names.
DATA_NAMES = frozenset({RUNS, CASES, *REGISTRIES})


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


@dataclass(frozen=True)
class Snapshot:
    """The data files at one moment.

    Attributes:
        runs: the run files in use, ordered by directory, then by name.
        registries: the files by their name in ``REGISTRIES``; later ones override.
        problems: directories and files that could not be read.
        cases: the files of cases, in the same order; cases of later directories override.
    """

    runs: tuple[DataFile, ...]
    registries: Mapping[str, tuple[DataFile, ...]]
    problems: tuple[Diagnostic, ...] = ()
    cases: tuple[DataFile, ...] = ()

    @cached_property
    def digest(self) -> str:
        """A digest of all files."""
        found = hashlib.sha256()
        registries = (file for name in REGISTRIES for file in self.registries[name])
        for file in (*self.runs, *self.cases, *registries):
            found.update(f"{file.shown}\0{len(file.content)}\0".encode("utf-8", "surrogatepass"))
            found.update(file.content)
        found.update("\0".join(map(str, self.problems)).encode())
        return found.hexdigest()


def bundled_directory() -> Directory:
    """Return the data directory of the package, or of the checkout that the package runs from."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "data"
    path = inside if inside.is_dir() else package.parent / "data"
    return Directory(path, "sphinx_verl_resources/data")


def configured_directory(name: str, base: Path) -> Directory:
    """Return the directory ``name``, relative to ``base``; messages also show it relative to ``base``."""
    path = base / name
    return Directory(path, _relative(path, base))


def take_snapshot(bundled: Directory, configured: Iterable[Directory], missing: Location) -> Snapshot:
    """Read all data files once.

    If one of the ``configured`` directories has a folder ``runs``, its runs replace the bundled ones.
    Registries and cases extend and override the bundled ones. Directories are read once, even if given twice;
    the bundled one, if also configured, has the user's name in messages.

    Args:
        bundled: the bundled data directory.
        configured: the user's data directories.
        missing: the place to report a missing directory at.
    """
    reader = _Reader()
    own: dict[str, Directory] = {}
    for directory in configured:
        problem = _directory_problem(directory)
        if problem:
            reader.problems.append(Diagnostic(missing, Code.file_unreadable, *problem))
        else:
            own.setdefault(os.path.realpath(directory.path), directory)
    has_own_runs = any(os.path.lexists(directory.path / RUNS) for directory in own.values())
    runs: list[DataFile] = []
    cases: list[DataFile] = []
    registries: dict[str, list[DataFile]] = {name: [] for name in REGISTRIES}
    for directory in own.values() if os.path.realpath(bundled.path) in own else (bundled, *own.values()):
        for name, files in registries.items():
            if os.path.lexists(directory.path / name):
                files += reader.read(directory, name)
        cases += reader.read_folder(directory, CASES, "a file of cases is named <name>.yaml")
        if directory is not bundled or not has_own_runs:
            reader.check_names(directory)
            runs += reader.read_folder(directory, RUNS, "a run file is named <id>.yaml")
    by_name = {name: tuple(files) for name, files in registries.items()}
    return Snapshot(tuple(runs), by_name, tuple(reader.problems), tuple(cases))


class _Reader:
    """A reader of the files of a snapshot.

    Attributes:
        problems: directories and files that could not be read.
    """

    def __init__(self) -> None:
        self.problems: list[Diagnostic] = []

    def read(self, directory: Directory, name: str) -> Iterator[DataFile]:
        """Yield a file of a data directory; report it instead if it cannot be read."""
        shown = directory.show(name)
        try:
            file = read_in(directory, name)
        except LeadsOutError as error:
            self._note(shown, Code.file_unreadable, str(error), error.remedy)
            return
        except OSError as error:
            self._unreadable(shown, error)
            return
        yield file

    def read_folder(self, directory: Directory, folder: str, remedy: str) -> Iterator[DataFile]:
        """Yield the YAML files of a folder; ``remedy`` is for files with other names."""
        try:
            refuse_leading_out(directory.path / folder, directory.path)
        except LeadsOutError as error:
            self._note(directory.show(folder), Code.file_unreadable, str(error), error.remedy)
            return
        for name in self._names_in(directory.path / folder, directory.show(folder)):
            if name.endswith(".yaml"):
                yield from self.read(directory, f"{folder}/{name}")
            elif name != "README.md":
                self._unexpected(directory.show(f"{folder}/{name}"), "file", remedy)

    def check_names(self, directory: Directory) -> None:
        """Report files and folders that look like data, but are not read."""
        for name in self._names_in(directory.path, directory.shown):
            path = directory.path / name
            if name in DATA_NAMES:
                continue
            if path.is_dir() and not path.is_symlink():
                near = nearest(name, [RUNS, CASES])
                if near or any(path.glob("*.yaml")):
                    what = "files of cases" if near == CASES else "run files"
                    hint = f"put {what} into the folder {directory.show(near or RUNS)!r}"
                    self._unexpected(directory.show(name), "folder", hint)
            elif name.endswith((".yaml", ".yml")):
                stems = {Path(known).stem: known for known in REGISTRIES}
                near = nearest(path.stem, stems)
                hint = f"did you mean {stems[near]!r}?" if near else f"put run files into the folder {RUNS!r}"
                self._unexpected(directory.show(name), "file", hint)

    def _names_in(self, folder: Path, shown: str) -> list[str]:
        """Return the sorted visible names in a folder; none if it does not exist."""
        if not os.path.lexists(folder):
            return []
        try:
            return sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
        except OSError as error:
            self._unreadable(shown, error)
            return []

    def _unreadable(self, shown: str, error: OSError) -> None:
        message = f"cannot be read: {error.strerror or error}"
        self._note(shown, Code.file_unreadable, message, "check its permissions, or delete it")

    def _unexpected(self, shown: str, what: str, remedy: str) -> None:
        message = f"the {what} {shown.rsplit('/', 1)[-1]!r} is not read"
        self._note(shown, Code.file_unexpected, message, remedy, Severity.WARNING)

    def _note(
        self, shown: str, code: Code, message: str, remedy: str, severity: Severity = Severity.ERROR
    ) -> None:
        self.problems.append(Diagnostic(Location(shown), code, message, remedy, severity))


class LeadsOutError(OSError):
    """A link in a data directory points outside it."""

    remedy = "replace the link with the file itself"

    def __str__(self) -> str:
        return "the link points outside the data directory and was not followed"


def refuse_leading_out(path: Path, directory: Path) -> None:
    """Reject a path in a data directory that leaves it through a symbolic link.

    The directory itself may be a link, because it comes from conf.py, which is trusted.

    Raises:
        LeadsOutError: the path leads out of the directory.
    """
    places = itertools.takewhile(lambda place: place != directory, (path, *path.parents))
    has_link = any(place.is_symlink() for place in places)
    if has_link and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory)):
        raise LeadsOutError


def refuse_link_in_data(path: Path) -> None:
    """Reject a data file or schema that is a symbolic link out of its data directory.

    Raises:
        LeadsOutError: the file is such a link.
    """
    whole = plain_path(path)
    for folder in whole.parents:
        if (folder / RUNS).is_dir() and whole.relative_to(folder).parts[0] in {*DATA_NAMES, SCHEMAS}:
            refuse_leading_out(whole, folder)


def _directory_problem(directory: Directory) -> tuple[str, str] | None:
    """Return the problem of a configured directory and the remedy; None if there is none."""
    hint = "the path is relative to the directory of conf.py"
    try:
        names = {entry.name for entry in os.scandir(directory.path)}
    except FileNotFoundError:
        return f"the data directory {directory.shown!r} does not exist", hint
    except NotADirectoryError:
        return f"the data directory {directory.shown!r} is a file", hint
    except OSError as error:
        return f"the data directory {directory.shown[:200]!r} cannot be read: {error.strerror}", hint
    if not names & DATA_NAMES:
        return (
            f"the data directory {directory.shown!r} contains no data",
            f"put run files into {directory.show(RUNS)} and files of cases into {directory.show(CASES)}, or "
            f"add one of {', '.join(REGISTRIES)}",
        )
    return None


def read_in(directory: Directory, name: str) -> DataFile:
    """Read a file of a data directory.

    Raises:
        LeadsOutError: the file, or its folder, is a link to outside the directory.
        OSError: the file cannot be read or is not a regular file.
    """
    path = directory.path / name
    refuse_leading_out(path, directory.path)
    return read_data_file(path, directory.show(name))


def read_data_file(path: Path, shown: str) -> DataFile:
    """Read a file given by the user.

    Raises:
        OSError: the file cannot be read or is not a regular file.
    """
    with open_regular(path) as stream:
        # Reading with a limit allocates that much memory, which is slow for thousands of files.
        most = MAX_BYTES + 1 if os.fstat(stream.fileno()).st_size > MAX_BYTES else -1
        return DataFile(path, shown, stream.read(most))


def open_regular(path: Path) -> FileIO:
    """Open a regular file; opening a pipe could block forever.

    Raises:
        OSError: the file cannot be read or is not a regular file.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return path.open("rb", buffering=0)


def plain_path(path: Path) -> Path:
    """Return the absolute path without ``..``; links before a ``..`` are resolved, as the system does.

    Links after the last ``..`` are kept, because a linked file belongs to the directory with the link.
    """
    parts = path.absolute().parts
    after = max((index + 1 for index, part in enumerate(parts) if part == ".."), default=1)
    return Path(os.path.realpath(Path(*parts[:after])), *parts[after:])


def _relative(path: Path, base: Path) -> str:
    try:
        return Path(os.path.relpath(plain_path(path), base)).as_posix()
    except ValueError:  # a different drive
        return path.as_posix()
