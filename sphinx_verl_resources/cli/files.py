"""Files that the user names: logs, launch scripts, cases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..commands import UsageError
from ..dataset import read_data_file, refuse_irregular, refuse_link_in_data
from ..diagnostics import printable

if TYPE_CHECKING:
    from ..dataset import DataFile


def open_file(name: str) -> BinaryIO:
    """Open a file of any size.

    Raises:
        OSError: it cannot be read or is not a regular file.
    """
    refuse_link_in_data(Path(name))
    refuse_irregular(Path(name))
    return Path(name).open("rb")


def read_file(name: str) -> DataFile:
    """Read a file, or the first part of one that is too large.

    Raises:
        OSError: it cannot be read or is not a regular file.
    """
    refuse_link_in_data(Path(name))
    return read_data_file(Path(name), name)


def read_text(name: str) -> str:
    """Read the text of a file.

    Raises:
        OSError: it cannot be read or is not a regular file.
        UsageError: it is not text.
    """
    try:
        return read_file(name).content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{printable(name)}: not UTF-8 text, at byte {error.start}") from None
