"""Files that a command writes: whole or not at all, whatever happens to the process in between."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def create_file(path: Path, text: str) -> None:
    """Write a file that must not be there yet; of two processes that do so at once, one does.

    Raises:
        FileExistsError: there is one.
        OSError: it cannot be written.
    """
    with _written_beside(path, text) as written:
        try:
            os.link(written, path)
        except FileExistsError:
            raise FileExistsError(f"{path}: exists already") from None
        except OSError:  # a file system without links
            if os.path.lexists(path):
                raise FileExistsError(f"{path}: exists already") from None
            written.replace(path)


def replace_file(path: Path, text: str) -> None:
    """Write a file, in place of the one that may be there; a link leads on to what is written.

    Raises:
        OSError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    with _written_beside(target, text) as written:
        with suppress(FileNotFoundError):
            written.chmod(target.stat().st_mode & 0o777)
        written.replace(target)


@contextmanager
def _written_beside(path: Path, text: str) -> Iterator[Path]:
    """The text in a file of another name in the same folder, on disk; it is gone afterwards."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A name that begins with a dot is not read as data.
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise _not_written(path, error) from None
    try:
        try:
            with open(descriptor, "w", encoding="utf-8", newline="\n") as stream:  # noqa: PTH123
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:  # a disk that is full
            raise _not_written(path, error) from None
        Path(name).chmod(0o666 & ~_umask())
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _not_written(path: Path, error: OSError) -> OSError:
    return OSError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
