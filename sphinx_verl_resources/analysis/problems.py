"""The problems of each part of the data; for the analysis, computing finds further ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..catalog.dataset import DataPart, Dataset
    from ..diagnostics import Diagnostic


def problems_of(data: Dataset, part: DataPart) -> Sequence[Diagnostic]:
    """Return every problem of one part of the data, including those that only computing finds."""
    if part == "analysis":
        # Imported here, so that pages and commands without the analysis do not load it.
        from .original import analysis_problems

        return analysis_problems(data.analysis)
    loaded: Sequence[Diagnostic] = getattr(data, part).diagnostics
    return loaded
