"""Files that a command reads and writes; a file is written whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..catalog.files import read_data_file
from ..catalog.yaml_data import MAX_BYTES, printable
from .command import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.files import DataFile


def read_file(name: str) -> DataFile:
    """Read a file that the user names.

    Raises:
        UsageError: it cannot be read.
    """
    shown = printable(name)
    try:
        return read_data_file(Path(name), shown)
    except (OSError, ValueError) as error:  # a ValueError: no file can have this name
        raise UsageError(f"{shown}: {_reason(error)}") from None


def read_text(name: str) -> str:
    """Read the text of a file that the user names.

    Raises:
        UsageError: it cannot be read as text.
    """
    file = read_file(name)
    if len(file.content) > MAX_BYTES:
        raise UsageError(f"{file.shown}: larger than {MAX_BYTES >> 20} MiB, and not read")
    try:
        return file.content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{file.shown}: not UTF-8 text, at byte {error.start}") from None


def open_file(name: str) -> BinaryIO:
    """Open a file that the user names and that may have any size.

    Raises:
        UsageError: it cannot be read.
    """
    path = Path(name)
    try:
        if not path.is_file():  # opening a pipe would wait for ever
            raise OSError("not a regular file" if path.exists() else "no such file")
        return path.open("rb")
    except (OSError, ValueError) as error:
        raise UsageError(f"{printable(name)}: {_reason(error)}") from None


def write_result(path: Path, text: str) -> None:
    """Write a result to a file in a folder that exists.

    Raises:
        UsageError: it cannot be written.
    """
    shown = printable(str(path))
    if path.is_dir():
        raise UsageError(f"{shown}: is a directory; name a file")
    if not path.parent.is_dir():  # most likely it is misspelt
        raise UsageError(f"{shown}: no such directory; make it first")
    replace_file(path, text)


def create_file(path: Path, text: str) -> None:
    """Write a file that must not exist yet; of two processes that do so at once, one succeeds.

    Raises:
        FileExistsError: it exists.
        UsageError: it cannot be written.
    """
    with _temporary_file(path, text) as written:
        try:
            os.link(written, path)
        except FileExistsError:
            raise FileExistsError(f"{path}: exists already") from None
        except OSError:  # a file system without links
            if os.path.lexists(path):
                raise FileExistsError(f"{path}: exists already") from None
            with _writing(path):
                written.replace(path)


def replace_file(path: Path, text: str) -> None:
    """Write a file in place of the one that may exist; a link keeps leading to the new file.

    Raises:
        UsageError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    with _temporary_file(target, text) as written:
        with suppress(FileNotFoundError):
            written.chmod(target.stat().st_mode & 0o777)
        with _writing(path):
            written.replace(target)


@contextmanager
def _temporary_file(path: Path, text: str) -> Iterator[Path]:
    """Write the text to a file of another name in the same folder, which is gone afterwards."""
    # A name that begins with a dot is not read as data.
    written = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with written.open("x", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
        yield written
    finally:
        with suppress(OSError):
            written.unlink()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn a refusal of the system, a full disk too, into a usage error."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {_reason(error)}") from None


def _reason(error: OSError | ValueError) -> str:
    """Return why the system refused, in lower case."""
    text = getattr(error, "strerror", None)
    return text.lower() if text else str(error)
