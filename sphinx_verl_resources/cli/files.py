"""Read and write files for commands; writes are atomic."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..dataset import read_data_file, refuse_irregular, refuse_leading_out, refuse_link_in_data
from ..diagnostics import printable
from ..strict_yaml import MAX_BYTES
from .command import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..dataset import DataFile


def read_file(name: str) -> DataFile:
    """Read a file that the user names.

    Raises:
        UsageError: it cannot be read.
    """
    with _reading(name) as path:
        return read_data_file(path, name)


def read_text(name: str) -> str:
    """Read the text of a file that the user names.

    Raises:
        UsageError: it cannot be read as text.
    """
    file = read_file(name)
    if len(file.content) > MAX_BYTES:
        raise UsageError(f"{printable(name)}: larger than {MAX_BYTES >> 20} MiB; not read")
    try:
        return file.content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{printable(name)}: not UTF-8 text, at byte {error.start}") from None


def open_file(name: str) -> BinaryIO:
    """Open a file of any size that the user names.

    Raises:
        UsageError: it cannot be read.
    """
    with _reading(name) as path:
        refuse_irregular(path)
        return path.open("rb")


def write_result(path: Path, text: str) -> None:
    """Write a result to a file in an existing folder.

    Raises:
        UsageError: it cannot be written.
    """
    shown = printable(str(path))
    if path.exists() and not path.is_file():
        kind = "is a directory" if path.is_dir() else "not a regular file"
        raise UsageError(f"{shown}: {kind}; give a file")
    if not path.parent.is_dir():  # most likely it is misspelt
        raise UsageError(f"{shown}: no such directory; create it first")
    with _writing(path):
        refuse_link_in_data(path)
    _replace(path, text)


def write_results(folder: Path, texts: Mapping[str, str]) -> None:
    """Write results to files in a folder, which is created if necessary.

    Raises:
        UsageError: one cannot be written.
    """
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with _writing(folder / name):
            refuse_leading_out(folder / name, folder)
        write_result(folder / name, text)


def create_file(path: Path, directory: Path, text: str) -> None:
    """Create a data file.

    Raises:
        FileExistsError: it already exists.
        UsageError: it cannot be written, or is outside the data directory.
    """
    with _writing(path):
        refuse_leading_out(path, directory)
    if os.path.lexists(path):
        raise FileExistsError(f"{printable(str(path))}: already exists")
    with _temporary_file(path, text) as written, _writing(path):
        written.replace(path)


def replace_file(path: Path, directory: Path, text: str) -> None:
    """Write a data file, replacing an existing one.

    Raises:
        UsageError: it cannot be written, or is outside the data directory.
    """
    with _writing(path):
        refuse_leading_out(path, directory)
    _replace(path, text)


def _replace(path: Path, text: str) -> None:
    """Write a file, replacing an existing one; a link is kept and its target replaced."""
    target = Path(os.path.realpath(path))
    with _temporary_file(target, text) as written, _writing(path):
        with suppress(FileNotFoundError):
            written.chmod(target.stat().st_mode & 0o777)
        written.replace(target)


@contextmanager
def _temporary_file(path: Path, text: str) -> Iterator[Path]:
    """Write a text to a temporary file in the same folder, which is deleted afterwards."""
    # Files whose names begin with a dot are not read as data.
    written = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with written.open("xb") as stream:
                stream.write(text.encode("utf-8", "backslashreplace"))
                stream.flush()
                os.fsync(stream.fileno())
        yield written
    finally:
        with suppress(OSError):
            written.unlink()


@contextmanager
def _reading(name: str) -> Iterator[Path]:
    """Yield the path of a file that the user names, and turn the system's errors into usage errors."""
    try:
        refuse_link_in_data(Path(name))
        yield Path(name)
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        raise UsageError(f"{printable(name)}: {_reason(error)}") from None


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn the system's errors, such as a full disk, into usage errors."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{printable(str(path))}: cannot be written: {_reason(error)}") from None


def _reason(error: OSError | ValueError) -> str:
    """Return the reason in lower case."""
    text = getattr(error, "strerror", None)
    return text.lower() if text else str(error)
