"""Figures about the data as a whole, for prose that types no number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..i18n import N_

if TYPE_CHECKING:
    from collections.abc import Callable

    from .catalog import Catalog

#: Stands for a day where no run says when it was added.
NEVER = N_("never")

FIGURES: dict[str, Callable[[Catalog], str]] = {
    "last-updated": lambda catalog: catalog.last_updated or NEVER,
    "runs": lambda catalog: str(len(catalog.runs)),
    "tested-runs": lambda catalog: str(sum(run.kind == "tested" for run in catalog.runs.values())),
    "gpus": lambda catalog: str(len(list(catalog.gpus))),
    "models": lambda catalog: str(len(list(catalog.architectures))),
}
