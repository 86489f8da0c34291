"""Commits and files of verl's repository, read with git from a checkout.

Nothing is checked out, executed, changed or fetched, and the repository's own configuration is not used.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from .links import is_commit, is_fixed_ref

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The timeout of a git command in seconds; each normally takes milliseconds.
TIMEOUT = 30
#: Keeps git from using the network, prompting and writing.
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "LC_ALL": "C",
}


class GitError(Exception):
    """A checkout that git cannot read, or a request that git cannot answer; the text gives the reason."""


def ask_git(folder: Path, *arguments: str, names: bytes = b"") -> tuple[int, bytes]:
    """Run a git command that only reads, and return its exit code and output.

    Args:
        folder: any folder of the checkout.
        arguments: the command and its arguments; untrusted names go after ``--``.
        names: names for the standard input of the command.

    Raises:
        GitError: git is not installed or does not answer.
    """
    # The checkout's configuration could set a file-watching program, which git would run.
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *arguments]
    # Git hooks set variables that point to the hook's repository.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG_")
    }
    try:
        done = subprocess.run(
            command,
            env={**kept, **_ENVIRONMENT},
            input=names,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT,
            check=False,
        )
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    except OSError as error:
        raise GitError(f"git cannot be started: {(error.strerror or str(error)).lower()}") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git did not answer within {TIMEOUT} seconds") from None
    return done.returncode, done.stdout


def committed(file: Path) -> tuple[str, str]:
    """Return the commit of a file's verl checkout, and the file's path in it.

    Raises:
        GitError: the file is not in a checkout of verl, or differs from its committed version.
    """
    folder, name = file.parent, file.name
    code, prefix = ask_git(folder, "rev-parse", "--show-prefix")
    if code:
        raise GitError("it is not in a git checkout")
    code, ref = ask_git(folder, "rev-parse", "--verify", "HEAD")
    if code:
        raise GitError("its checkout has no commit")
    _, output = ask_git(folder, "config", "--get", "remote.origin.url")
    remote = output.decode("utf-8", "replace").strip()
    elsewhere = remote and not re.search(r"(?:^|[/:])verl(?:\.git)?/*$", remote)
    if elsewhere or ask_git(folder, "rev-parse", "--verify", "HEAD:verl/__init__.py")[0]:
        raise GitError("its checkout is not a checkout of verl")
    path = f"{prefix.decode('utf-8', 'surrogateescape').strip()}{name}"
    code, content = ask_git(folder, "cat-file", "blob", f"HEAD:{path}")
    if code:
        raise GitError("it is not committed in its checkout")
    # Git may have converted line endings at checkout.
    if content.replace(b"\r\n", b"\n") != file.read_bytes().replace(b"\r\n", b"\n"):
        raise GitError("it differs from the committed version")
    return ref.decode().strip(), path


#: The maximum size of a file to read, in bytes; launch scripts are much smaller.
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Repository:
    """A checkout; ``shown`` is its path as given by the user."""

    path: Path
    shown: str
    #: The full names of commits by their names, empty if there is none; the paths of files by commit.
    _commits: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    _paths: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)

    def look_up(self, refs: Iterable[str]) -> None:
        """Look commits up, all in one process; ``commit`` then needs none."""
        names = [ref for ref in dict.fromkeys(refs) if is_commit(ref) and ref not in self._commits]
        if names:
            text = "".join(f"{name}^{{commit}}\n" for name in names).encode()
            lines = self._ask("cat-file", "--batch-check=%(objectname)", names=text)[1].decode().splitlines()
            for name, line in zip(names, lines, strict=True):
                self._commits[name] = line if re.fullmatch("[0-9a-f]{40,64}", line) else ""

    def commit(self, ref: str) -> str | None:
        """Resolve a commit, tag or branch to the full name of its commit; None if there is none."""
        self.look_up([ref])
        if is_commit(ref):
            # The name of a branch may look like an abbreviated commit.
            return self._commits[ref] if self._commits[ref].startswith(ref) else None
        # A clone has few of its origin's branches, and its own may be ahead of them.
        kinds = ("tags", "heads") if is_fixed_ref(ref) else ("remotes/origin", "tags", "heads")
        return next(filter(None, (self._refs.get(f"refs/{kind}/{ref}") for kind in kinds)), None)

    @cached_property
    def _refs(self) -> dict[str, str]:
        """The commits of all tags and branches, by their full names."""
        # The second field, the target of an annotated tag, is empty for all others.
        form = "--format=%(refname) %(*objectname) %(objectname)"
        lines = self._ask("for-each-ref", form)[1].decode("utf-8", "surrogateescape").splitlines()
        return {name: commit for name, commit, *_ in map(str.split, lines)}

    def paths(self, commit: str) -> tuple[str, ...]:
        """Return the paths of all files in a commit; a clone without their contents has them, too."""
        if commit not in self._paths:
            _, output = self._ask("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
            names = output.decode("utf-8", "surrogateescape").split("\0")
            self._paths[commit] = tuple(filter(None, names))
        return self._paths[commit]

    @cached_property
    def is_shallow(self) -> bool:
        """True for a shallow clone."""
        return self._ask("rev-parse", "--is-shallow-repository")[1].strip() == b"true"

    def text(self, commit: str, path: str) -> str | None:
        """Return the text of a file in a commit; None if the clone lacks it or it is not text."""
        code, output = self._ask("cat-file", "blob", f"{commit}:{path}")
        try:
            return None if code or len(output) > _MAX_BYTES else output.decode()
        except UnicodeDecodeError:
            return None

    def _ask(self, *arguments: str, names: bytes = b"") -> tuple[int, bytes]:
        try:
            return ask_git(self.path, *arguments, names=names)
        except GitError as error:
            raise GitError(f"{self.shown}: {error}; --repo needs git") from None


def open_repository(name: str, shown: str) -> Repository:
    """Open the checkout at a path.

    Raises:
        GitError: there is no checkout, or git does not answer.
    """
    path = Path(name)
    if not name:
        raise GitError("--repo is empty; give the path of a git checkout of verl")
    if not path.is_dir():
        raise GitError(f"{shown}: no such directory; give the path of a git checkout of verl")
    repository = Repository(path, shown)
    if repository._ask("rev-parse", "--git-dir")[0]:
        raise GitError(
            f"{shown}: not a git checkout, or owned by another user; give the path of a git checkout of verl"
        )
    return repository
