"""Add the repository's address to a distribution: project links, and absolute links in the README.

No file of the project contains the address. ``tools/distribution.py`` sets it in the environment of a build.
Without it, the metadata have no addresses and the README is not changed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: The environment variable with the address, such as https://github.com/OWNER/NAME.
VARIABLE = "VERL_RESOURCES_REPOSITORY"
#: A Markdown link to, or picture from, a file of the repository.
_RELATIVE = re.compile(r"(!?)\[([^][]*)\]\((?![a-z]+:|#)([^()\s]+)\)")


def with_absolute_links(text: str, repository: str, ref: str) -> str:
    """Return Markdown with absolute links to the repository's files at ``ref``."""

    def absolute(match: re.Match[str]) -> str:
        picture, label, path = match.groups()
        return f"{picture}[{label}]({repository}/{'raw' if picture else 'blob'}/{ref}/{path})"

    return _RELATIVE.sub(absolute, text)


def project_urls(repository: str, ref: str) -> dict[str, str]:
    """Return the project links that a package index shows."""
    return {
        "Source": repository,
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/{ref}/CHANGELOG.md",
    }


class RepositoryMetadata(MetadataHookInterface):
    """The hook that hatchling calls for the fields ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both fields; a wheel built from an sdist takes them from PKG-INFO."""
        root = Path(self.root)
        if (root / "PKG-INFO").is_file():
            return
        text = (root / "README.md").read_text("utf-8")
        if repository := os.environ.get(VARIABLE):
            ref = f"v{metadata['version']}"
            text = with_absolute_links(text, repository, ref)
            metadata["urls"] = project_urls(repository, ref)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
