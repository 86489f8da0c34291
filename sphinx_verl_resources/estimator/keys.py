"""What follows from verl's registry of keys: defaults of a version, and settings under today's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .versions import version_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.catalog import Registry
    from ..catalog.models.config_key import ConfigKey
    from .versions import Version

_ACTOR = "actor_rollout_ref.actor"
#: Parts of the actor's settings that the critic has too, with the same defaults.
_SHARED = {f"{_ACTOR}.fsdp_config.": "critic.fsdp.", f"{_ACTOR}.megatron.": "critic.megatron."}
_SHARED[f"{_ACTOR}.optim."] = "critic.optim."


def defaults_in(keys: Registry[ConfigKey], version: Version) -> Mapping[str, Any]:
    """Verl's defaults in a version, by dotted key; those of the critic that are not recorded are the actor's.

    >>> from sphinx_verl_resources.cli.data import load_registries
    >>> defaults = defaults_in(load_registries([]).config_keys, (0, 9, 0))
    >>> defaults["critic.megatron.sequence_parallel"], defaults["actor_rollout_ref.rollout.max_num_seqs"]
    (True, 256)
    """
    recorded = {key.name: _default(key, version) for key in keys}
    of_critic = {
        critic + name.removeprefix(actor): default
        for name, default in recorded.items()
        for actor, critic in _SHARED.items()
        if name.startswith(actor)
    }
    return {**of_critic, **recorded}


def _default(key: ConfigKey, version: Version) -> Any:
    """The default in force; that of the oldest change recorded for what is older still."""
    default = key.default_changes[0].default if key.default_changes else key.default
    for change in key.default_changes:
        since = version_of(change.since)
        if since and since <= version:
            default = change.default
    return default


def renamed_keys(keys: Registry[ConfigKey]) -> Mapping[str, str]:
    """What keys were called before, and what they are called now, where only the name has changed.

    >>> from sphinx_verl_resources.cli.data import load_registries
    >>> renamed_keys(load_registries([]).config_keys)["critic.model.fsdp_config.fsdp_size"]
    'critic.fsdp.fsdp_size'
    """
    before = {key.moved_from: key.name for key in keys if key.moved_from}
    moved = {key.name: key.moved_to for key in keys if key.status == "moved" and key.moved_to}
    return {**before, **moved}


def known_key(key: str, keys: Registry[ConfigKey]) -> ConfigKey | None:
    """The entry of a key, or of the nearest one above it: ``override_optimizer_config`` for its parts."""
    while key:
        found = keys.get(key)
        if found is not None:
            return found
        key = key.rpartition(".")[0]
    return None


def in_todays_names(config: Mapping[str, Any], renamed: Mapping[str, str]) -> Mapping[str, Any]:
    """Settings under the names that keys have now, and with what is nested under keys of its own.

    >>> in_todays_names({"old": 1, "a": {"b": {"c": 2}}}, {"old": "new"})
    {'new': 1, 'a.b.c': 2}
    """
    if renamed.keys().isdisjoint(config) and not any(type(value) is dict for value in config.values()):
        return config
    flat = dict(_leaves("", config))
    older = {renamed[key]: value for key, value in flat.items() if key in renamed}
    return {**older, **{key: value for key, value in flat.items() if key not in renamed}}


def _leaves(prefix: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _leaves(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value
