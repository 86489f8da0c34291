"""The data that a command works on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..catalog.analysis import load_analysis
from ..catalog.files import DATA_NAMES, RUNS, bundled_directory, configured_directory, take_snapshot
from ..catalog.load import load_catalog
from ..diagnostics import Location

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ..catalog.analysis import Analysis
    from ..catalog.catalog import Catalog
    from ..catalog.files import Snapshot
    from ..estimator.facts import Facts


def add_path_argument(
    parser: argparse.ArgumentParser, what: str = "data directory, the one that holds runs/"
) -> None:
    """The data that a command works on, as every command takes them."""
    default = (
        "default: ./data where it exists, else the data directory that one is in, else the dataset that "
        "comes with the package"
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help=f"{what}; {default}")


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
    return load_catalog(_snapshot(names))


def load_all(names: Sequence[str]) -> tuple[Catalog, Analysis]:
    """The catalog, and the memory analysis with it.

    Raises:
        OSError: a path is no data directory.
    """
    snapshot = _snapshot(names)
    catalog = load_catalog(snapshot)
    return catalog, load_analysis(snapshot, catalog)


def load_facts(names: Sequence[str]) -> Facts:
    """What estimates are computed from.

    Raises:
        OSError: a path is no data directory.
    """
    from ..estimator.facts import load_facts as load

    snapshot = _snapshot(names)
    catalog = load_catalog(snapshot)
    return load(snapshot, catalog, load_analysis(snapshot, catalog))[0]


def _snapshot(names: Sequence[str]) -> Snapshot:
    for name in names:
        if not Path(name).is_dir():
            raise NotADirectoryError(
                f"{name}: no such directory; name a data directory, the one that holds runs/"
            )
        if not any((Path(name) / part).exists() for part in DATA_NAMES):
            raise NotADirectoryError(
                f"{name}: holds no data; name a data directory, the one that holds runs/"
            )
    directories = [configured_directory(name, Path.cwd()) for name in names]
    return take_snapshot(bundled_directory(), directories, Location("command line"))
