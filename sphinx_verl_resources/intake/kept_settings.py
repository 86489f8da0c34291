"""Which settings of a script go into a run file: those that others need, and nothing of a machine."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Keys that name files, folders, accounts and machines, or that a field of its own says.
_PRIVATE = re.compile(
    r"data\.(?:train|val|test)_files$|trainer\.(?:logger|project_name|experiment_name)$"
    r"|actor_rollout_ref\.model\.path$|(?:.*[._])?(?:path|paths|dir|dirs|file|files|folder|home)$"
    r"|(?:ray_init|ray_kwargs|global_profiler)\.|.*wandb"
    r"|(?:.*[._])?(?:host|hostname|ip|addr|address|url|port|user|username|email|password|secret|credentials?)$"
    r"|(?:.*[._-])?(?:api_?key|access_?key|secret_?key|auth_?token|access_?token|token)$",
    re.IGNORECASE,
)
#: Values that do, whatever their key is.
_PRIVATE_VALUE = re.compile(
    r"\A[~/\\]|\A[A-Za-z]:\\|\A\.{1,2}/|://|@\w|\$|(?<!\d)\d{1,3}(?:\.\d{1,3}){3}(?!\d)|\A(?:hf|sk|ghp)[_-]\w{16}"
    r"|(?:^|/)(?:home|root|mnt|data|users)/",
    re.IGNORECASE,
)
#: What the schema takes.
_KEY = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_MAX_KEY, _MAX_TEXT, _MAX_ITEMS = 200, 500, 100


def kept_settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The settings for a run file, and the keys of those that are left out.

    >>> kept_settings({"data.train_files": "~/a.parquet", "trainer.nnodes": 2, "trainer.logger": "wandb"})
    ({'trainer.nnodes': 2}, ['data.train_files', 'trainer.logger'])
    """
    kept = {key: value for key, value in values.items() if _is_public(key, value)}
    return kept, [key for key in values if key not in kept]


def tells_of_a_machine(key: str, value: Any) -> bool:
    """Whether a setting is left out for what it names, and not since a run file cannot hold it."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    return is_private(key) or any(isinstance(item, str) and _PRIVATE_VALUE.search(item) for item in items)


def is_private(key: str) -> bool:
    """Whether a key tells of a machine, or of what a field of its own says, whatever it is set to."""
    return _PRIVATE.match(key) is not None


def _is_public(key: str, value: Any) -> bool:
    if is_private(key) or not _KEY.fullmatch(key) or len(key) > _MAX_KEY:
        return False
    items = value if isinstance(value, (tuple, list)) else (value,)
    return len(items) <= _MAX_ITEMS and all(_is_plain(item) for item in items)


def _is_plain(value: Any) -> bool:
    """Whether a value can stand in a run file and tells nothing of a machine."""
    if isinstance(value, str):
        whole = len(value) <= _MAX_TEXT and value.isprintable() and value == value.strip()
        return whole and not _PRIVATE_VALUE.search(value) and not value.startswith("TODO")
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int))
