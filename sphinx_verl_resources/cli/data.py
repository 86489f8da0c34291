"""The data that a command works on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..catalog.files import KNOWN_NAMES, bundled_directory, configured_directory, take_snapshot
from ..catalog.load import load_catalog
from ..diagnostics import Location

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ..catalog.catalog import Catalog


def add_path_argument(
    parser: argparse.ArgumentParser, what: str = "data directory, the one that holds runs/"
) -> None:
    """The data that a command works on, as every command takes them."""
    default = "default: ./data where it exists, else the dataset that comes with the package"
    parser.add_argument("paths", nargs="*", metavar="PATH", help=f"{what}; {default}")


def load_paths(paths: Sequence[str]) -> Catalog:
    """The catalog of ``paths`` on top of the bundled registries.

    Raises:
        OSError: a path is no data directory.
    """
    names = list(paths) or (["data"] if Path("data").is_dir() else [])
    for name in names:
        if not Path(name).is_dir():
            raise NotADirectoryError(
                f"{name}: no such directory; name a data directory, the one that holds runs/"
            )
        if not any((Path(name) / part).exists() for part in KNOWN_NAMES):
            raise NotADirectoryError(
                f"{name}: holds no data; name a data directory, the one that holds runs/"
            )
    directories = [configured_directory(name, Path.cwd()) for name in names]
    return load_catalog(take_snapshot(bundled_directory(), directories, Location("command line")))
