"""How a command is asked to print its result: the same options for all that have one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..catalog.yaml_data import printable
from .writing import replace_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

#: For people, and for programs.
TEXT_OR_JSON = ("text", "json")


def add_result_options(
    parser: argparse.ArgumentParser, formats: Sequence[str] = TEXT_OR_JSON, default: str = "text"
) -> None:
    """``--format`` and ``--output``."""
    parser.add_argument(
        "--format", choices=formats, default=default, help=f"how the result is printed; default: {default}"
    )
    parser.add_argument(
        "--output",
        dest="result_file",
        metavar="FILE",
        type=Path,
        help="write the result to this file instead, whole or not at all; where the command could not run, "
        "nothing is written",
    )


def write_result(path: Path, text: str) -> None:
    """Write what would have been printed, into a folder that is there.

    Raises:
        OSError: it cannot be written.
    """
    shown = printable(str(path))
    if path.is_dir():
        raise OSError(f"{shown}: is a directory; name a file")
    if not path.parent.is_dir():  # most likely it is misspelt
        raise OSError(f"{shown}: no such directory; make it first")
    replace_file(path, text)
