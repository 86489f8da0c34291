"""Where a launch script lies in a git checkout, and whether others find it there as it is."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

#: Seconds that git may take.
_PATIENCE = 20
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


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
    top = _git(folder, "rev-parse", "--show-toplevel")
    if not top:
        raise NotCommittedError("it lies in no git checkout")
    remote = _git(folder, "config", "--get", "remote.origin.url") or ""
    if remote and remote.rstrip("/").removesuffix(".git").rsplit("/", 1)[-1].rsplit(":", 1)[-1] != "verl":
        raise NotCommittedError("the checkout that it lies in is not one of verl")
    ref = _git(folder, "rev-parse", "--verify", "HEAD") or ""
    if not _COMMIT.fullmatch(ref):
        raise NotCommittedError("nothing is committed in the checkout that it lies in")
    if not _git(folder, "ls-tree", "--name-only", "HEAD", "--", f"./{name}"):
        raise NotCommittedError("it is not committed in the checkout that it lies in")
    if _git(folder, "diff", "--no-ext-diff", "--no-textconv", "--name-only", "HEAD", "--", f"./{name}") != "":
        raise NotCommittedError("it differs from what is committed")
    path = (folder.resolve() / name).relative_to(Path(top).resolve()).as_posix()
    return Committed(ref, path)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints; None where it fails. No setting of the checkout makes it start another program."""
    command = ["git", "--no-optional-locks", "--literal-pathspecs", "-c", "core.fsmonitor=false", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None
