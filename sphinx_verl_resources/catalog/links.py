"""Addresses of scripts, documents and commits in verl's repository."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter
from urllib.parse import quote, unquote

SCRIPT_URL = "https://github.com/verl-project/verl/blob/{ref}/{path}"
COMMIT_URL = "https://github.com/verl-project/verl/commit/{ref}"


@dataclass(frozen=True)
class Links:
    """The templates of all links to verl's repository.

    Attributes:
        script_url: a template with ``{ref}`` and ``{path}``.
        commit_url: a template with ``{ref}``.
    """

    script_url: str = SCRIPT_URL
    commit_url: str = COMMIT_URL

    def file(self, ref: str, path: str, lines: str | None = None) -> str:
        """Return the address of a file at a commit, with optional lines."""
        address = self.script_url.format(ref=quote(ref), path=quote(path))
        return f"{address}#L{lines.replace('-', '-L')}" if lines else address

    def commit(self, ref: str) -> str:
        """Return the address of a commit."""
        return self.commit_url.format(ref=quote(ref))


#: The form of commits, tags and branches, without git's syntax for relative ones such as ``HEAD@{1}``.
REF = r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}(/[0-9A-Za-z][0-9A-Za-z._-]{0,99}){0,9}$"
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_RELEASE = re.compile(r"v?\d+\.\d[\w.-]*")
#: Addresses in verl's repository, with its current and its former owner.
_REPOSITORY = re.compile(
    r"https?://(?:www\.)?github\.com/(?:verl-project|volcengine)/verl/"
    r"(?:(?:blob|tree|raw|blame)/(?P<ref>[0-9A-Za-z][\w.-]*)/(?P<path>[^?#]+)|commit/(?P<commit>[0-9a-f]{7,40}))/?"
    r"(?:\?[^#]*)?(?:#L(?P<first>\d{1,6})(?:C\d+)?(?:-L?(?P<last>\d{1,6})(?:C\d+)?)?)?\Z"
)


@dataclass(frozen=True)
class RepositoryPlace:
    """The target of an address in verl's repository: a file at a commit, tag or branch, or a commit."""

    ref: str
    path: str | None = None
    lines: str | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The parts that are set, by their names in data files."""
        parts = {"ref": self.ref, "path": self.path, "lines": self.lines}
        return {name: value for name, value in parts.items() if value}


def repository_place(address: str) -> RepositoryPlace | None:
    """Return the place of an address in verl's repository; None for any other address.

    A branch name that contains a slash is ambiguous; only its first part becomes the ref.

    >>> repository_place("https://github.com/volcengine/verl/blob/main/docs/a.md#L3-L5")
    RepositoryPlace(ref='main', path='docs/a.md', lines='3-5')
    """
    match = _REPOSITORY.match(address.strip())
    if match is None:
        return None
    if match["commit"]:
        return RepositoryPlace(match["commit"])
    lines = match["first"] and "-".join(filter(None, (match["first"], match["last"])))
    return RepositoryPlace(match["ref"], unquote(match["path"]).rstrip("/"), lines or None)


def is_fixed_ref(ref: str) -> bool:
    """Return whether a ref is a commit or a release, which do not change.

    >>> [name for name in ("8446e41", "v0.4.0", "0.3.0.post1", "main") if is_fixed_ref(name)]
    ['8446e41', 'v0.4.0', '0.3.0.post1']
    """
    return is_commit(ref) or bool(re.fullmatch(REF, ref) and _RELEASE.fullmatch(ref))


def is_commit(ref: str) -> bool:
    """Return whether a ref is a full or abbreviated commit."""
    return bool(_COMMIT.fullmatch(ref))


def is_address(text: str) -> bool:
    """Return whether ``text`` is an http(s) address, as opposed to a label or a script."""
    return bool(re.match(r"https?://[^/\s]", text)) and not re.search(r"[\s<>\"'`\\]", text)


def template_problem(template: str, names: frozenset[str]) -> str:
    """Return the problem of a template that must use exactly ``names``; empty if there is none."""
    wanted = " and ".join(f"{{{name}}}" for name in sorted(names, reverse=True))
    try:
        parts = [part for part in Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        return f"is not a valid template: {error}"
    if {name for _, name, _, _ in parts} != names or any(
        form or conversion for _, _, form, conversion in parts
    ):
        return f"must contain {wanted} and no other placeholder"
    if not is_address(template):
        return "must begin with https:// and contain no spaces or quotes"
    return ""
