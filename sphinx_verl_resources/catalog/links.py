"""Addresses of scripts, documents and commits in verl's repository."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter
from urllib.parse import quote

SCRIPT_URL = "https://github.com/verl-project/verl/blob/{ref}/{path}"
COMMIT_URL = "https://github.com/verl-project/verl/commit/{ref}"


@dataclass(frozen=True)
class Links:
    """The templates from which every link into the repository is made.

    Attributes:
        script_url: takes ``{ref}`` and ``{path}``.
        commit_url: takes ``{ref}``.
    """

    script_url: str = SCRIPT_URL
    commit_url: str = COMMIT_URL

    def file(self, ref: str, path: str, lines: str | None = None) -> str:
        """A file at a commit, at the lines given."""
        address = self.script_url.format(ref=quote(ref), path=quote(path))
        return f"{address}#L{lines.replace('-', '-L')}" if lines else address

    def commit(self, ref: str) -> str:
        """A commit."""
        return self.commit_url.format(ref=quote(ref))


def is_address(text: str) -> bool:
    """Whether ``text`` is an http(s) address, and not a label or something that a browser would run."""
    return bool(re.match(r"https?://[^/\s]", text)) and not re.search(r"[\s<>\"'`\\]", text)


def template_problem(template: str, names: frozenset[str]) -> str:
    """What is wrong with a template that must use exactly ``names``; empty if nothing is."""
    wanted = " and ".join(f"{{{name}}}" for name in sorted(names, reverse=True))
    try:
        parts = [part for part in Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        return f"is not a template: {error}"
    if {name for _, name, _, _ in parts} != names or any(
        form or conversion for _, _, form, conversion in parts
    ):
        return f"must hold {wanted} and no other placeholder"
    if not is_address(template):
        return "must begin with https:// and hold no spaces or quotes"
    return ""
