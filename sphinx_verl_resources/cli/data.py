"""Find and load the data that a command works on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..catalog.files import (
    DATA_NAMES,
    RUNS,
    bundled_directory,
    configured_directory,
    take_snapshot,
)
from ..diagnostics import Location, printable
from ..estimator.context import EstimatorContext
from .command import UsageError, progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ..catalog.files import Directory
    from ..diagnostics import Diagnostic
    from ..git import Repository
    from ..lint.context import CheckContext


def add_path_argument(
    parser: argparse.ArgumentParser,
    what: str = "data directory, the one that holds runs/",
    default: str = "where it holds data",
) -> None:
    """Add the data directories that a command works on.

    Args:
        parser: of the command.
        what: a path may be.
        default: when ./data is taken where no path is named.
    """
    others = "else the data directory that one is in, else the dataset that comes with the package"
    words = f"{what}; default: ./data {default}, {others}"
    parser.add_argument("paths", nargs="*", metavar="PATH", help=words)


def default_paths() -> list[str]:
    """Return the data directory to work on where none is named; empty for the bundled dataset."""
    return ["data"] if Path("data").is_dir() else enclosing_data_directory(Path.cwd())


def enclosing_data_directory(path: Path) -> list[str]:
    """Return the relative path of the data directory that an absolute path is or is in; empty for none."""
    for folder in (path, *path.parents):
        if (folder / RUNS).is_dir():
            return [os.path.relpath(folder)]
    return []


def load_check_context(names: Sequence[str], repository: Repository | None = None) -> CheckContext:
    """Load data directories, or the bundled dataset, for the rules of ``check``.

    Args:
        names: the directories.
        repository: a checkout of verl.

    Raises:
        UsageError: a path is no data directory.
    """
    from ..lint.context import CheckContext

    return CheckContext(data_directories(names), repository=repository, progress=progress)


def registry_problems(data: EstimatorContext) -> list[Diagnostic]:
    """Return what is wrong with the registries alone, without runs and the analysis."""
    errors = (problem for problem in data.snapshot.problems if problem.is_error)
    return sorted([*errors, *data.registries.diagnostics])


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--data``, for a command whose arguments are something else."""
    parser.add_argument(
        "--data",
        action="append",
        metavar="PATH",
        help="data directory, may be given several times; default: ./data where it holds data, else the one "
        "that one is in, on top of the dataset that comes with the package",
    )


def given_data(given: Sequence[str] | None) -> EstimatorContext:
    """Read what ``--data`` names, or else the usual directory; a folder ``data`` without data does not count.

    Raises:
        UsageError: a path is no data directory.
    """
    return read_data(given or [name for name in default_paths() if holds_data(name)])


def read_data(names: Sequence[str]) -> EstimatorContext:
    """Read the files of data directories on top of the bundled dataset; records load when they are asked for.

    Raises:
        UsageError: a path is no data directory.
    """
    snapshot = take_snapshot(bundled_directory(), data_directories(names), Location(""))
    return EstimatorContext(snapshot, progress)


def data_directories(names: Sequence[str]) -> list[Directory]:
    """Return the data directories of these names.

    Raises:
        UsageError: a path is none.
    """
    for name in names:
        if not Path(name).is_dir():
            missing = "is no directory" if Path(name).exists() else "no such directory"
        elif not holds_data(name):
            missing = "holds no data"
        else:
            continue
        raise UsageError(f"{printable(name)}: {missing}; name a data directory, the one that holds runs/")
    return [configured_directory(name, Path.cwd()) for name in names]


def holds_data(name: str) -> bool:
    """Return whether a directory has any part of a data directory."""
    return any((Path(name) / part).exists() for part in DATA_NAMES)
