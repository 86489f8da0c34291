"""The checkpoint that a path in a script means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..diagnostics import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

_CACHE = re.compile(r"models--(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+)")
_HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
#: Folders that programs put behind the name of a model.
_INSIDE = re.compile(r"/(?:snapshots(?:/\w+)?|huggingface|hf|actor|global_step_\d+)\Z")


def recorded_models(path: str, names: Iterable[str]) -> list[str]:
    """The recorded checkpoints that a path can mean: the name itself, or those that end as the path does.

    >>> recorded_models("$HOME/models/qwen2.5-7b/", ["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct"])
    ['Qwen/Qwen2.5-7B']
    """
    known = list(dict.fromkeys(names))
    if path in known:
        return [path]
    last = last_part(path).casefold()
    same = [name for name in known if last and last_part(name).casefold() == last]
    owned = [name for name in same if path.rstrip("/").casefold().endswith(name.casefold())]
    return owned or same


def is_hub_name(path: str) -> bool:
    """Whether a text has the form of a name of Hugging Face, ``owner/name``."""
    return _HUB.fullmatch(path) is not None


def nearest_model(path: str, names: Iterable[str]) -> str | None:
    """The recorded checkpoint whose name is most like the end of a path."""
    lasts = {last_part(name): name for name in names}
    near = nearest(last_part(path), lasts)
    return next((name for last, name in lasts.items() if near and last.casefold() == near.casefold()), None)


def last_part(path: str) -> str:
    """The name of a model at the end of a path.

    >>> last_part("/cache/models--Qwen--Qwen2.5-7B/snapshots/abc"), last_part("${ROOT}/Qwen3-8B/")
    ('Qwen2.5-7B', 'Qwen3-8B')
    """
    cached = _CACHE.search(path)
    if cached:
        return cached["name"]
    path = path.rstrip("/")
    while shorter := _INSIDE.sub("", path):
        if shorter == path:
            break
        path = shorter
    return path.rsplit("/", 1)[-1].strip("\"'}")
