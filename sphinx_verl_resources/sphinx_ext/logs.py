"""Diagnostics as messages of a Sphinx build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sphinx.util import logging

from ..diagnostics import Code, Diagnostic, Severity, one_line

if TYPE_CHECKING:
    from sphinx.config import Config

logger = logging.getLogger(__name__)


def log_diagnostic(diagnostic: Diagnostic, config: Config) -> None:
    """Print ``path:line:col: LEVEL: message [verl.code]``."""
    _log(diagnostic.severity, diagnostic.text, str(diagnostic.place), diagnostic.code, config)


def log_at(place: str, code: Code, message: str, config: Config, severity: Severity = Severity.ERROR) -> None:
    """Print a problem at a place in a document, written as ``get_location`` returns it."""
    _log(severity, one_line(message), place, code, config)


def _log(severity: Severity, text: str, place: str, code: Code, config: Config) -> None:
    # Sphinx 8 prints type and subtype unless that is switched off; if it does not, add them here.
    suffix = "" if config.show_warning_types else f" [{code.id}]"
    write = logger.error if severity is Severity.ERROR else logger.warning
    write("%s", text + suffix, location=place, type="verl", subtype=code.name)
