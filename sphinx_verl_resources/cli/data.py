"""Find and load the data for a command."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..check import Check
from ..dataset import DATA_NAMES, RUNS, bundled_directory, configured_directory
from ..diagnostics import printable
from ..estimator.context import EstimatorContext
from .command import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ..dataset import Directory
    from ..diagnostics import Diagnostic
    from ..git import Repository


#: The modules with further rules of ``check``.
RULES = ("..estimator.rules", "..settings.rules")


def add_path_argument(
    parser: argparse.ArgumentParser,
    what: str = "data directory, which contains runs/",
    default: str = "if it contains data",
) -> None:
    """Add the argument for data directories.

    Args:
        parser: the command's parser.
        what: description of a path.
        default: when ./data is the default.
    """
    others = "or the enclosing data directory, or the bundled dataset"
    words = f"{what}; default: ./data {default}, {others}"
    parser.add_argument("paths", nargs="*", metavar="PATH", help=words)


def default_paths() -> list[str]:
    """Return the default data directory; empty for the bundled dataset."""
    return ["data"] if Path("data").is_dir() else enclosing_data_directory(Path.cwd())


def enclosing_data_directory(path: Path) -> list[str]:
    """Return the relative path of the data directory at or above an absolute path, or an empty list."""
    for folder in (path, *path.parents):
        if (folder / RUNS).is_dir():
            return [os.path.relpath(folder)]
    return []


def load_check(names: Sequence[str], repository: Repository | None = None) -> Check[EstimatorContext]:
    """Load data directories, or the bundled dataset, and all rules.

    Args:
        names: the paths of the directories.
        repository: a checkout of verl.

    Raises:
        UsageError: a path is not a data directory.
    """
    for name in RULES:
        import_module(name, __package__)
    directories = data_directories(names)
    return Check(EstimatorContext(directories), directories or [bundled_directory()], repository=repository)


def registry_problems(data: EstimatorContext) -> list[Diagnostic]:
    """Return the problems of the registries, and the errors in loading the data."""
    parts = ("gpus", "architectures", "config_keys", "accuracy")
    errors = (problem for problem in data.problems["files"] if problem.is_error)
    return sorted([*errors, *(problem for part in parts for problem in data.diagnostics_of(part))])


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--data``."""
    parser.add_argument(
        "--data",
        action="append",
        metavar="PATH",
        help="data directory, read after the bundled dataset; repeatable; default: ./data if it contains "
        "data, or the enclosing data directory",
    )


def given_data(given: Sequence[str] | None) -> EstimatorContext:
    """Read the directories of ``--data``, or the default one if it contains data.

    Raises:
        UsageError: a path is not a data directory.
    """
    return read_data(given or [name for name in default_paths() if holds_data(name)])


def read_data(names: Sequence[str]) -> EstimatorContext:
    """Read the files of data directories after the bundled dataset; records are loaded on first use.

    Raises:
        UsageError: a path is not a data directory.
    """
    return EstimatorContext(data_directories(names))


def data_directories(names: Sequence[str]) -> list[Directory]:
    """Return the data directories of these paths.

    Raises:
        UsageError: a path is not a data directory.
    """
    for name in names:
        if not Path(name).is_dir():
            missing = "not a directory" if Path(name).exists() else "no such directory"
        elif not holds_data(name):
            missing = "contains no data"
        else:
            continue
        raise UsageError(f"{printable(name)}: {missing}; give a data directory, which contains runs/")
    return [configured_directory(name, Path.cwd()) for name in names]


def holds_data(name: str) -> bool:
    """Return whether a directory contains any part of a data directory."""
    return any((Path(name) / part).exists() for part in DATA_NAMES)
