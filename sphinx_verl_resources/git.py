"""Commits and files of verl's repository, read with git from a checkout.

Nothing is checked out, executed, changed or fetched.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .records import is_commit

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The timeout of a git command in seconds; each normally takes milliseconds.
TIMEOUT = 30
#: Keeps git from using the network and prompting.
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}


class GitError(OSError):
    """A checkout that git cannot read, or a file that is not in one; the text gives the reason."""


@dataclass(frozen=True)
class Repository:
    """A git checkout.

    Attributes:
        path: any folder of the checkout.
        shown: its name for the user.
    """

    path: Path
    shown: str

    def ask(self, *arguments: str, names: Iterable[str] = ()) -> bytes | None:
        """Run a git command that only reads, and return its output; None if it fails.

        Args:
            arguments: the command and its arguments.
            names: the lines of its standard input.

        Raises:
            GitError: git is not installed or does not answer.
        """
        # Git hooks set variables that point to the hook's repository.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            done = subprocess.run(
                ["git", "-C", str(self.path), *arguments],
                env={**kept, **_ENVIRONMENT},
                input="".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape"),
                capture_output=True,
                timeout=TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            raise GitError(f"git is not installed, or git did not answer in {TIMEOUT} seconds") from None
        return None if done.returncode else done.stdout

    def objects(self, names: Iterable[str]) -> dict[str, str]:
        """Return the full names of the commits and files that exist, all looked up in one process."""
        asked = [*dict.fromkeys(names)]
        output = self.ask("cat-file", "--batch-check=%(objectname) %(objecttype)", names=asked) or b""
        lines = output.decode("utf-8", "replace").splitlines()
        found = (re.fullmatch("([0-9a-f]{40,64}) (?:commit|blob)", line) for line in lines)
        return {name: match[1] for name, match in zip(asked, found) if match}  # noqa: B905  # none if git fails

    def commits(self, refs: Iterable[str]) -> dict[str, str]:
        """Return the full names of the commits, tags and branches that exist."""
        # Git would take a name such as v0.4.0-5-g8446e41 for the commit at its end.
        names = [ref for ref in refs if not re.search("-g[0-9a-f]+$", ref)]
        asked = {f"{kind}{ref}^{{commit}}": ref for ref in names for kind in _kinds(ref)}
        found: dict[str, str] = {}
        for name, commit in self.objects(asked).items():
            # The name of a branch may look like an abbreviated commit.
            if commit.startswith(asked[name]) or not is_commit(asked[name]):
                found.setdefault(asked[name], commit)
        return found

    def text(self, commit: str, path: str) -> str | None:
        """Return the text of a file in a commit; None if there is no such file."""
        content = self.ask("cat-file", "blob", f"{commit}:{path}")
        return None if content is None else content.decode("utf-8", "replace")


def _kinds(ref: str) -> tuple[str, ...]:
    """Return where to look a name up: a clone's own branches may be ahead of its origin's."""
    return ("",) if is_commit(ref) else ("refs/tags/", "refs/remotes/origin/", "refs/heads/")


def open_repository(name: str, shown: str) -> Repository:
    """Open the checkout at a path.

    Raises:
        GitError: there is no checkout, or git does not answer.
    """
    repository = Repository(Path(name), shown)
    if not name or repository.ask("rev-parse", "--git-dir") is None:
        raise GitError(
            f"{shown or '--repo'}: not a git checkout that you own; give the path of a checkout of verl"
        )
    return repository


def committed(file: Path) -> tuple[str, str]:
    """Return the commit of a file's verl checkout, and the file's path in it.

    Raises:
        GitError: the file is not in a checkout of verl, or differs from its committed version.
    """
    repository = Repository(file.parent, str(file.parent))
    output = repository.ask("rev-parse", "--show-prefix", "HEAD") or b""
    prefix, _, ref = output.decode("utf-8", "surrogateescape").rstrip("\n").rpartition("\n")
    remote = (
        (repository.ask("config", "--get", "remote.origin.url") or b"").decode("utf-8", "replace").strip()
    )
    elsewhere = remote and not re.search(r"(?:^|[/:])verl(?:\.git)?/*$", remote)
    if elsewhere or not repository.objects(["HEAD:verl/__init__.py"]):
        raise GitError("it is not in a git checkout of verl")
    path = f"{prefix}{file.name}"
    content = repository.ask("cat-file", "blob", f"HEAD:{path}")
    # Git may have converted line endings at checkout.
    if content is None or content.replace(b"\r\n", b"\n") != file.read_bytes().replace(b"\r\n", b"\n"):
        raise GitError("it differs from the version that is committed in its checkout")
    return ref, path
