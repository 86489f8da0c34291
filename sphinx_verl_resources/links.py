"""Addresses of scripts, documents and commits in verl's repository."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter
from urllib.parse import quote

SCRIPT_URL = "https://github.com/verl-project/verl/blob/{ref}/{path}"
COMMIT_URL = "https://github.com/verl-project/verl/commit/{ref}"

#: The form of commits, tags and branches, without git's syntax for relative ones such as ``HEAD@{1}``.
REF = r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}(/[0-9A-Za-z][0-9A-Za-z._-]{0,99}){0,9}$"


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


def is_commit(ref: str) -> bool:
    """Return whether a ref is a full or abbreviated commit."""
    return bool(re.fullmatch(r"[0-9a-f]{7,40}", ref))


def is_fixed_ref(ref: str) -> bool:
    """Return whether a ref is a commit or a release, which do not change.

    >>> [name for name in ("8446e41", "v0.4.0", "0.3.0.post1", "main") if is_fixed_ref(name)]
    ['8446e41', 'v0.4.0', '0.3.0.post1']
    """
    return is_commit(ref) or bool(re.fullmatch(REF, ref) and re.fullmatch(r"v?\d+\.\d[\w.-]*", ref))


def is_address(text: str) -> bool:
    """Return whether ``text`` is an http(s) address, as opposed to a label or a script."""
    return bool(re.match(r"https?://[^/\s]", text)) and not re.search(r"[\s<>\"'`\\]", text)


def template_problem(template: str, names: frozenset[str]) -> str:
    """Return the problem of a template that must use exactly ``names``; empty if there is none."""
    try:
        parts = [part for part in Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        return f"is not a valid template: {error}"
    if {name for _, name, _, _ in parts} != names or any(form or how for _, _, form, how in parts):
        wanted = " and ".join(f"{{{name}}}" for name in sorted(names, reverse=True))
        return f"must contain {wanted} and no other placeholder"
    return "" if is_address(template) else "must begin with https:// and contain no spaces or quotes"
