"""The data that a command works on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..catalog.analysis import load_analysis
from ..catalog.catalog import load_catalog
from ..catalog.files import (
    ACCURACY,
    ARCHITECTURES,
    CONFIG_KEYS,
    DATA_NAMES,
    GPUS,
    RUNS,
    bundled_directory,
    configured_directory,
    read_data_file,
    take_snapshot,
)
from ..catalog.registries import load_accuracy, load_architectures, load_config_keys, load_gpus
from ..catalog.yaml_data import printable
from ..diagnostics import Location, Severity
from ..estimator.context import EstimatorContext
from ..estimator.registries import Registries
from ..lint.context import load_context
from .terminal import progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from ..catalog.analysis import Analysis
    from ..catalog.catalog import Catalog
    from ..catalog.files import DataFile, Directory, Snapshot
    from ..diagnostics import Diagnostic
    from ..lint.context import CheckContext
    from ..lint.repository import Repository

Item = TypeVar("Item")


def add_path_argument(
    parser: argparse.ArgumentParser,
    what: str = "data directory, the one that holds runs/",
    default: str = "where it holds data",
) -> None:
    """The data that a command works on, as every command takes them.

    Args:
        parser: of the command.
        what: a path may be.
        default: when ./data is taken where no path is named.
    """
    others = "else the data directory that one is in, else the dataset that comes with the package"
    words = f"{what}; default: ./data {default}, {others}"
    parser.add_argument("paths", nargs="*", metavar="PATH", help=words)


def default_paths() -> list[str]:
    """The data directory to work on where none is named; empty for the bundled dataset."""
    return ["data"] if Path("data").is_dir() else enclosing_data_directory(Path.cwd())


def enclosing_data_directory(path: Path) -> list[str]:
    """The data directory that a path is, or lies in, relative to the current one; empty if there is none."""
    for folder in (path, *path.parents):
        if (folder / RUNS).is_dir():
            return [os.path.relpath(folder)]
    return []


def load_paths(names: Sequence[str]) -> Catalog:
    """The catalog of data directories on top of the bundled registries; of the bundled dataset without any.

    Raises:
        OSError: a path is no data directory.
    """
    return load_catalog(read_snapshot(names), watched_files)


def load_all(names: Sequence[str]) -> tuple[Catalog, Analysis]:
    """The catalog, and the memory analysis with it.

    Raises:
        OSError: a path is no data directory.
    """
    snapshot = read_snapshot(names)
    catalog = load_catalog(snapshot, watched_files)
    return catalog, load_analysis(snapshot, catalog)


def load_check_context(names: Sequence[str], repository: Repository | None = None) -> CheckContext:
    """Data directories, or the bundled dataset, with all that the rules of ``check`` look at.

    Args:
        names: the directories.
        repository: a checkout of verl.

    Raises:
        OSError: a path is no data directory.
    """
    return load_context(data_directories(names), repository=repository, progress=watched)


def load_registries(names: Sequence[str]) -> Registries:
    """What estimates are computed from.

    Raises:
        OSError: a path is no data directory.
    """
    return facts_of(read_snapshot(names))[0]


def load_records(snapshot: Snapshot) -> tuple[EstimatorContext, list[Diagnostic]]:
    """Load the runs and what estimates of them are computed from, and what is wrong with either."""
    context = EstimatorContext(snapshot, watched_files)
    problems = [*context.catalog.diagnostics, *context.accuracy_problems]
    return context, sorted(problems, key=lambda problem: problem.sort_key)


def watched(items: Sequence[Item], what: str, /) -> Iterator[Item]:
    """The items one by one, with a sign of life where that takes long."""
    return progress(items, len(items), what)


def watched_files(files: Sequence[DataFile]) -> Iterator[DataFile]:
    """The files one by one, with a sign of life where that takes long."""
    return watched(files, "run files")


def facts_of(snapshot: Snapshot) -> tuple[Registries, list[Diagnostic]]:
    """What estimates are computed from, and what is wrong with it. Runs and the analysis are not read."""
    problems = [problem for problem in snapshot.problems if problem.severity is Severity.ERROR]
    registries = snapshot.registries
    facts = Registries(
        load_gpus(registries[GPUS], problems),
        load_architectures(registries[ARCHITECTURES], problems),
        load_config_keys(registries[CONFIG_KEYS], problems),
        load_accuracy(registries[ACCURACY], problems),
    )
    return facts, sorted(problems, key=lambda problem: problem.sort_key)


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """The registries and cases that a command works with, where its arguments are something else."""
    parser.add_argument(
        "--data",
        action="append",
        metavar="PATH",
        help="data directory, may be given several times; default: ./data where it holds data, else the one "
        "that one is in, on top of the dataset that comes with the package",
    )


def data_snapshot(given: Sequence[str] | None) -> Snapshot:
    """What ``--data`` names, or else the usual directory; a folder ``data`` of another kind does not count.

    Raises:
        OSError: a path is no data directory.
    """
    return read_snapshot(given or [name for name in default_paths() if holds_data(name)])


def read_file(name: str) -> DataFile:
    """A file that the user names.

    Raises:
        OSError: it cannot be read; the message begins with its name.
    """
    shown = printable(name)
    try:
        return read_data_file(Path(name), shown)
    except OSError as error:
        raise OSError(f"{shown}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:  # a name that no file can have
        raise OSError(f"{shown}: {error}") from None


def read_snapshot(names: Sequence[str]) -> Snapshot:
    """The files of data directories.

    Raises:
        OSError: a path is no data directory.
    """
    return take_snapshot(bundled_directory(), data_directories(names), Location("command line"))


def data_directories(names: Sequence[str]) -> list[Directory]:
    """The data directories of these names.

    Raises:
        OSError: a path is none.
    """
    for name in names:
        if not Path(name).is_dir():
            missing = "is no directory" if Path(name).exists() else "no such directory"
            raise NotADirectoryError(
                f"{printable(name)}: {missing}; name a data directory, the one that holds runs/"
            )
        if not holds_data(name):
            raise NotADirectoryError(
                f"{printable(name)}: holds no data; name a data directory, the one that holds runs/"
            )
    return [configured_directory(name, Path.cwd()) for name in names]


def holds_data(name: str) -> bool:
    """Whether a directory has any of what makes it a data directory."""
    return any((Path(name) / part).exists() for part in DATA_NAMES)
