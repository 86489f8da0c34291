"""Write verl's settings as YAML and as overrides for the command line."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

#: The command that launches verl.
LAUNCHER = "python3 -m verl.trainer.main_ppo"


def nested_yaml(settings: Mapping[str, Any]) -> str:
    """Return dotted keys as YAML with one level per dot, in order."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        *groups, name = key.split(".")
        branch = tree
        for group in groups:
            branch = branch.setdefault(group, {})
        branch[name] = list(value) if isinstance(value, tuple) else value
    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=200)).rstrip()


def flat_yaml(settings: Mapping[str, Any]) -> str:
    """Return dotted keys as YAML, one per line, in order."""
    flat = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
    return str(yaml.safe_dump(flat, sort_keys=False, allow_unicode=True, width=200)).rstrip()


def overrides(settings: Mapping[str, Any], new: Container[str] = ()) -> list[str]:
    """Return settings as arguments of verl's launcher, quoted for a shell.

    Args:
        settings: the values by key.
        new: the keys that are not in the composed configuration; Hydra requires a plus before them.
    """
    return [
        shlex.quote(f"{'+' if key in new else ''}{key}={_hydra(value)}") for key, value in settings.items()
    ]


def _hydra(value: Any) -> str:
    """Return a value in the grammar of Hydra's overrides."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(_hydra(item) for item in value)}]"
    if value is None:
        return "null"
    if isinstance(value, (bool, int, float)):
        return str(value)
    if re.fullmatch(r"[\w./:@%+-]+", value) and not re.fullmatch(
        r"[-+.\d].*|true|false|null|inf|nan", value, re.IGNORECASE
    ):
        return str(value)
    # To Hydra, a backslash is an ordinary character unless a quote follows.
    escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), value)
    return f"'{escaped}'"
