"""Fill in what a distribution says of its repository: addresses, and links of the README that work anywhere.

No file of the project holds the address. It comes from the environment while a distribution is built, see
``tools/distribution.py``; without it, the metadata have no addresses and the README stays as it is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: The variable that holds the address, such as https://github.com/OWNER/NAME.
VARIABLE = "VERL_RESOURCES_REPOSITORY"
#: A link or a picture of Markdown that leads to a file of the repository.
_RELATIVE = re.compile(r"(!?)\[([^][]*)\]\((?![a-z]+:|#)([^()\s]+)\)")


def with_absolute_links(text: str, repository: str, ref: str) -> str:
    """Return Markdown whose links and pictures lead to the files of the repository at ``ref``."""

    def absolute(found: re.Match[str]) -> str:
        picture, label, path = found.groups()
        return f"{picture}[{label}]({repository}/{'raw' if picture else 'blob'}/{ref}/{path})"

    return _RELATIVE.sub(absolute, text)


def project_urls(repository: str, ref: str) -> dict[str, str]:
    """Return the links that an index shows beside the README."""
    return {
        "Source": repository,
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/{ref}/CHANGELOG.md",
    }


class RepositoryMetadata(MetadataHookInterface):
    """The hook that hatchling calls for the fields ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both fields; a wheel that is built from an sdist has them from its PKG-INFO."""
        root = Path(self.root)
        if (root / "PKG-INFO").is_file():
            return
        text = (root / "README.md").read_text("utf-8")
        if repository := os.environ.get(VARIABLE):
            ref = f"v{metadata['version']}"
            text = with_absolute_links(text, repository, ref)
            metadata["urls"] = project_urls(repository, ref)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
