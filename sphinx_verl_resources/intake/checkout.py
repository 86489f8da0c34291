"""Where a launch script lies in a git checkout, and whether others find it there as it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..git import GitError, ask_git

if TYPE_CHECKING:
    from pathlib import Path

_COMMIT = re.compile(rb"[0-9a-f]{40,64}")


@dataclass(frozen=True)
class Committed:
    """A file of a commit: the commit, and the path from the top of the repository."""

    ref: str
    path: str


class NotCommittedError(Exception):
    """The file is in no commit as it is; the text says why."""


def committed(file: Path) -> Committed:
    """The commit that a checkout is at, and the path of a file in it.

    Args:
        file: a launch script.

    Raises:
        NotCommittedError: it lies in no checkout of verl, or differs from what is committed there.
    """
    folder, name = file.parent, file.name
    prefix = _answer(folder, "rev-parse", "--show-prefix")
    if prefix is None:
        raise NotCommittedError("it lies in no git checkout")
    remote = (_answer(folder, "config", "--get", "remote.origin.url") or b"").decode("utf-8", "replace")
    if remote and remote.rstrip("/").removesuffix(".git").rsplit("/", 1)[-1].rsplit(":", 1)[-1] != "verl":
        raise NotCommittedError("the checkout that it lies in is not one of verl")
    ref = _answer(folder, "rev-parse", "--verify", "HEAD") or b""
    if not _COMMIT.fullmatch(ref):
        raise NotCommittedError("nothing is committed in the checkout that it lies in")
    path = f"{prefix.decode('utf-8', 'surrogateescape')}{name}"
    code, content = _ask(folder, "cat-file", "blob", f"HEAD:{path}")
    if code:
        raise NotCommittedError("it is not committed in the checkout that it lies in")
    if _lines(content) != _lines(file.read_bytes()):
        raise NotCommittedError("it differs from what is committed")
    return Committed(ref.decode(), path)


def _lines(content: bytes) -> bytes:
    """The content whatever ends its lines, which git may have changed when it was checked out."""
    return content.replace(b"\r\n", b"\n")


def _answer(folder: Path, *arguments: str) -> bytes | None:
    """What git prints; None where it fails."""
    code, output = _ask(folder, *arguments)
    return None if code else output.strip()


def _ask(folder: Path, *arguments: str) -> tuple[int, bytes]:
    try:
        return ask_git(folder, *arguments)
    except GitError as error:
        raise NotCommittedError(str(error)) from None
