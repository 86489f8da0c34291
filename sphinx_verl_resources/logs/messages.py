"""The messages of runs that run out of memory: their forms, and the sizes in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..strict_yaml import read_yaml

#: Everything that is known about failures, see the file's own comments.
TABLES: dict[str, Any] = read_yaml(Path(__file__).with_name("failures.yaml").read_bytes()).data

_FORMS = [(re.compile(row["pattern"]), row["form"], row.get("phase", "")) for row in TABLES["messages"]]
#: A part of every message, to leave out most lines.
_ANY = re.compile(r"emory|OOMKilled|ALLOC_FAILED|worker died|SYSTEM_ERROR|SIGKILL|larger than the max")
#: Messages after which a library tries again.
_HARMLESS = re.compile(r"may not be an issue|\(may retry\)")

#: Ray's GB are GiB.
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "GB": 2**30, "TiB": 2**40}
_SIZE = r"(\d+(?:\.\d+)?)(?: ?(bytes|[KMGT]iB|GB))?"
_SIZES = [(row["name"], re.compile(row["pattern"].replace("#", _SIZE))) for row in TABLES["sizes"]]
_OTHER = re.compile(rf"[Pp]rocess \d+ has {_SIZE} memory in use")


def form_of(text: str) -> tuple[str, str] | None:
    """Return the form of a line's message, and its phase; empty if only a traceback tells it.

    >>> form_of("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")
    ('cuda', '')
    >>> form_of("Lower gpu_memory_utilization to avoid running out of memory")
    """
    if not _ANY.search(text) or _HARMLESS.search(text):
        return None
    return next(((name, phase) for pattern, name, phase in _FORMS if pattern.search(text)), None)


def sizes_in(text: str) -> dict[str, int]:
    """Return the sizes in a message in bytes, by their names in ``Failure``.

    >>> sizes_in("Tried to allocate 2.00 GiB. A total capacity of 79.00 GiB of which 1.50 GiB is free")
    {'tried': 2147483648, 'capacity': 84825604096, 'free': 1610612736}
    """
    found = {name: _bytes(match) for name, pattern in _SIZES if (match := pattern.search(text))}
    if "reserved" in found:
        found["reserved_unallocated"] = max(0, found.pop("reserved") - found.get("allocated", 0))
    if "in_use" in found and "capacity" in found:  # of a node
        found.setdefault("free", max(0, found["capacity"] - found["in_use"]))
    others = [_bytes(match) for match in _OTHER.finditer(text)]
    if others and "in_use" not in found:
        # If PyTorch cannot tell its own process, it is the one that uses at least what PyTorch holds.
        held = found.get("allocated", 0) + found.get("reserved_unallocated", 0)
        own = others if len(others) == 1 else [size for size in others if size >= held > 0]
        if len(own) != 1:
            return found
        found["in_use"] = own[0]
        others.remove(own[0])
    return {**found, "others": sum(others)} if others else found


def _bytes(match: re.Match[str]) -> int:
    number, unit, *_ = (*filter(None, match.groups()), "GiB")
    return round(float(number) * _UNITS[unit])
