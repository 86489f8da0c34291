"""Sphinx extension for the hardware and memory documentation of verl.

Importing this package loads neither pydantic nor data files: slow work waits until a page needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

__version__ = "0.1.0"
__all__ = ["__version__", "setup"]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the extension with Sphinx."""
    from .extension import setup_extension

    return setup_extension(app)
