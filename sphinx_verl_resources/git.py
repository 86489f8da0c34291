"""Questions to git about a checkout, none of which changes it, fetches, or starts another program."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: Seconds for one question; each takes some milliseconds.
TIMEOUT = 30
#: Nothing is asked of a network, nor of the person at the terminal; nothing is written.
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
    """Git cannot be asked; the text says why."""


def ask_git(folder: Path, *arguments: str) -> tuple[int, bytes]:
    """The exit code and the output of a command of git that only reads.

    Args:
        folder: any folder of the checkout.
        arguments: the command and its words; names that come from elsewhere stand behind ``--``.

    Raises:
        GitError: git is not installed, or gives no answer.
    """
    # A setting of the checkout could name a program that watches its files.
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *arguments]
    # What a hook of git has set names the repository that the hook is in.
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
