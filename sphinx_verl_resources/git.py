"""Questions to git about a checkout. None changes it, fetches, or starts another program."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: Seconds for one question; each takes some milliseconds.
TIMEOUT = 30
#: Git asks nothing of a network or of the person at the terminal, and writes nothing.
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "LC_ALL": "C",
}


class GitError(OSError):
    """A question that git cannot answer; the text says why."""


def ask_git(folder: Path, *arguments: str) -> tuple[int, bytes]:
    """Return the exit code and the output of a git command that only reads.

    Args:
        folder: any folder of the checkout.
        arguments: the command and its words; names from elsewhere go behind ``--``.

    Raises:
        GitError: git is not installed, or gives no answer.
    """
    # A setting of the checkout could name a program that watches its files.
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *arguments]
    # A hook of git sets variables that name the hook's own repository.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG_")
    }
    try:
        done = subprocess.run(
            command,
            env={**kept, **_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT,
            check=False,
        )
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git gave no answer in {TIMEOUT} seconds") from None
    return done.returncode, done.stdout


def committed(file: Path) -> tuple[str, str]:
    """Return the commit of the verl checkout that a file lies in, and the path of the file there.

    Raises:
        GitError: the file is in no checkout of verl, or differs from what is committed there.
    """
    folder, name = file.parent, file.name
    code, prefix = ask_git(folder, "rev-parse", "--show-prefix")
    if code:
        raise GitError("it lies in no git checkout")
    _, output = ask_git(folder, "config", "--get", "remote.origin.url")
    remote = output.decode("utf-8", "replace").strip()
    if remote and remote.rstrip("/").removesuffix(".git").rsplit("/", 1)[-1].rsplit(":", 1)[-1] != "verl":
        raise GitError("the checkout that it lies in is not one of verl")
    code, ref = ask_git(folder, "rev-parse", "--verify", "HEAD")
    if code:
        raise GitError("nothing is committed in the checkout that it lies in")
    path = f"{prefix.decode('utf-8', 'surrogateescape').strip()}{name}"
    code, content = ask_git(folder, "cat-file", "blob", f"HEAD:{path}")
    if code:
        raise GitError("it is not committed in the checkout that it lies in")
    # Git may have changed the line ends when it checked the file out.
    if content.replace(b"\r\n", b"\n") != file.read_bytes().replace(b"\r\n", b"\n"):
        raise GitError("it differs from what is committed")
    return ref.decode().strip(), path
