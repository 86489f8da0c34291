"""The recorded card that a printed or typed name means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..catalog.models.registries import Gpu
    from ..catalog.registries import Registry

_MAKERS = ("NVIDIA", "AMD", "Instinct", "Tesla")


def recorded_card(printed: str, gpus: Registry[Gpu]) -> str | None:
    """The short name of the card that a text begins with; None where none is recorded.

    A card that is sold with several sizes of memory is only known by a name that says which.

    >>> from ..cli.data import load_paths
    >>> recorded_card("H100 80GB HBM3 On", load_paths([]).gpus)
    'H100'
    """
    words = [word for word in re.split(r"\s+", printed.strip()) if word not in _MAKERS]
    for end in range(len(words), 0, -1):
        for maker in ("", *_MAKERS):
            found = gpus.get(" ".join([maker, *words[:end]]).strip())
            if found:
                return None if end == 1 and _has_sizes(words[0], gpus) else short_name(found)
    return None


def short_name(gpu: Gpu) -> str:
    """What rows call a card: the shortest of its names that has a letter."""
    return min((name for name in gpu.lookup_names if re.search(r"[A-Za-z]", name)), key=len)


def _has_sizes(name: str, gpus: Registry[Gpu]) -> bool:
    """Whether cards of this name are recorded with more than one size of memory."""
    return sum(gpu.name.upper().startswith(f"{name.upper()}-") for gpu in gpus) > 1
