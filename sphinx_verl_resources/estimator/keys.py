"""Check settings: does this version of verl have the key, and does the value have the default's type?"""

from __future__ import annotations

import difflib
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..dataset import bundled_directory
from ..diagnostics import Severity
from .request import ACTOR, dotted_leaves, error_at, warning_at
from .versions import RELEASES, version_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..diagnostics import Diagnostic
    from .registries import Registries
    from .request import Request
    from .versions import Version

#: The list of keys in the package, written by ``tools/key_names.py``.
KEY_NAMES = "key_names.txt"
#: The minimum similarity (1 for equal names) at which one name may be a misspelling of the other.
SIMILAR = 0.85
#: The same for whole keys, which have long parts in common.
SIMILAR_KEY = 0.95
#: Problems that are reported at the key of a setting; others are reported at its value.
AT_KEY = frozenset({"unknown_key", "config_key", "impossible_settings"})
#: Prefixes of keys that only verl's trainer for supervised fine-tuning has.
FINE_TUNING = ("engine.", "model.", "optim.")
#: Parts of verl's configuration that scripts choose by name, as in ``model_engine=megatron``.
_CHOSEN = frozenset({"actor", "critic", "engine", "model", "model_engine", "optim", "ref", "rollout"})
#: The types of values that a key accepts, by the type of its default, and their description in messages.
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "number": ((int, float), "a number"),
}


class KeyName(NamedTuple):
    """A key of verl's configuration.

    Attributes:
        first: the first listed release that has the key.
        last: the last release that has the key; None if the branch main has it too.
        kind: ``bool``, ``number``, ``text`` or ``list``; ``any`` for null, ``open`` for a section that
            accepts any key, ``?`` if the default does not show the type.
    """

    first: Version
    last: Version | None
    kind: str


class KeyNames:
    """All keys by name, with lookups for misspelt keys."""

    def __init__(self, text: str) -> None:
        self.known: dict[str, KeyName] = {}
        self._sections: dict[str, list[str]] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                self._add(line)

    def _add(self, line: str) -> None:
        """Add the keys of a line: section, releases, type, names."""
        start, _, names = line.partition(": ")
        section, releases, kind = start.split()
        first, _, last = releases.partition("-")
        entry = KeyName(_release(first), _release(last) if last else None, kind)
        of_section = self._sections.setdefault(section.strip("."), [])
        for name in names.split():
            of_section.append(name)
            self.known[f"{section}.{name}".lstrip(".")] = entry

    def is_below_open(self, key: str) -> bool:
        """Return whether a section above the key accepts any key; one that is null by default does.

        >>> key_names().is_below_open("actor_rollout_ref.rollout.engine_kwargs.vllm.any_option")
        True
        """
        while "." in key:
            key = key.rpartition(".")[0]
            above = self.known.get(key)
            if above is not None and above.kind in {"any", "open"}:
                return True
        return False

    def meant_by(self, key: str) -> str | None:
        """Return the known key that ``key`` probably misspells.

        >>> key_names().meant_by("actor_rollout_ref.rollouts.n")
        'actor_rollout_ref.rollout.n'
        """
        section, _, name = key.rpartition(".")
        if section in self._sections:
            found = difflib.get_close_matches(name, self._sections[section], n=1, cutoff=SIMILAR)
            return f"{section}.{found[0]}".lstrip(".") if found else None
        return self._namesake(key, SIMILAR_KEY)

    def hint_for(self, key: str) -> str | None:
        """Return the known key that ends with ``key``, or a similar one with the same last part.

        >>> key_names().hint_for("rollout.gpu_memory_utilization")
        'actor_rollout_ref.rollout.gpu_memory_utilization'
        """
        ending = (other for other in self.known if other.endswith(f".{key}"))
        return next(ending, None) or self._namesake(key, SIMILAR)

    def _namesake(self, key: str, similarity: float) -> str | None:
        name = key.rpartition(".")[2]
        namesakes = [other for other in self.known if other.endswith(f".{name}")]
        return next(iter(difflib.get_close_matches(key, namesakes, n=1, cutoff=similarity)), None)


@lru_cache(maxsize=1)
def key_names() -> KeyNames:
    """Return the keys that the package lists."""
    return KeyNames((bundled_directory().path / KEY_NAMES).read_text("utf-8"))


def _release(text: str) -> Version:
    major, minor, patch = map(int, text.split("."))
    return major, minor, patch


def settings_problems(
    config: Mapping[str, Any], version: Version, registries: Registries
) -> Iterator[Diagnostic]:
    """Yield problems of settings: keys that a version of verl does not read, and values of a wrong type.

    ``Reader`` checks the values that decide memory.
    """
    flat = dict(dotted_leaves(config))
    for key, value in flat.items():
        if problem := key_problem(key, version, registries) or value_problem(key, value):
            yield problem
    for role in (ACTOR, "critic"):
        mini, batch = flat.get(f"{role}.ppo_mini_batch_size"), flat.get("data.train_batch_size")
        dynamic = flat.get(f"{role}.use_dynamic_bsz") is True
        if type(mini) is int and type(batch) is int and mini > batch > 0 and not dynamic:
            message = (
                f"the mini-batch of {mini:,} is larger than data.train_batch_size, {batch:,}: verl rejects it"
            )
            yield error_at(f"{role}.ppo_mini_batch_size", message, "correct one of the two")


def key_warnings(
    request: Request, registries: Registries, noted: Iterable[Diagnostic] = ()
) -> Iterator[Diagnostic]:
    """Yield the problems of a request's settings as warnings, since it can still be estimated.

    Forks and the trainer for supervised fine-tuning have other keys, so their settings are not checked.

    Args:
        request: the request.
        registries: the registries.
        noted: the problems already reported about its settings.
    """
    config = request.config
    if request.framework.lower() != "verl" or any(key.startswith(FINE_TUNING) for key in config):
        return
    known = {problem.place.key for problem in noted}
    for problem in settings_problems(config, request.version, registries):
        if problem.place.key not in known:
            yield replace(problem, severity=Severity.WARNING)


@lru_cache(maxsize=4096)
def key_problem(key: str, version: Version, registries: Registries) -> Diagnostic | None:
    """Return the problem with the name of a setting; None if the version of verl reads it.

    A run on the main branch between two releases may use the keys of either.

    >>> from sphinx_verl_resources.estimator.context import EstimatorContext
    >>> print(key_problem("data.max_respone_length", (0, 9, 0), EstimatorContext().registries).text)
    data.max_respone_length: verl has no such key; did you mean 'data.max_response_length'?
    """
    recorded, listed = registries.config_keys.get(key), key_names()
    name = listed.known.get(key)
    if name and not _is_in(name, version) and not listed.is_below_open(key):
        return _elsewhen(key, name, version, registries)
    if recorded and recorded.status == "moved" and not name:
        return _renamed(key, recorded.moved_to or "", version)
    if name or key in registries.config_keys:  # even if this key causes errors in verl
        return None
    return _unknown(key, registries)


def _unknown(key: str, registries: Registries) -> Diagnostic | None:
    """Return the problem of a key that no version of verl has; None in a section that accepts any key."""
    listed = key_names()
    if meant := listed.meant_by(key):
        problem = warning_at if listed.is_below_open(key) else error_at
        return problem(key, "verl has no such key", f"did you mean {meant!r}?", "unknown_key")
    above = registries.known_key(key)
    if listed.is_below_open(key) or (above and above.type == "dict") or key in _CHOSEN or "@" in key:
        return None
    remedy = "remove it, or add it to config_keys.yaml if it belongs to your own recipe"
    if near := listed.hint_for(key):
        remedy = f"did you mean {near!r}? If not, {remedy}"
    return warning_at(key, "verl has no such key", remedy, "config_key")


def _elsewhen(key: str, name: KeyName, version: Version, registries: Registries) -> Diagnostic | None:
    """Return the problem of a key that only other versions of verl have."""
    asked = version_text(version)
    recorded = registries.config_keys.get(key)
    if name.last and name.last < version:
        if recorded and recorded.status == "active":  # today it needs a plus sign on the command line
            return None
        today = registries.renamed.get(key)
        if today:
            return _renamed(key, today, version)
        message = f"verl {asked} has no such key; {version_text(name.last)} was the last release with it"
        return warning_at(key, message, "remove it", "config_key")
    if registries.name_in(key, version) not in {key, None}:  # settings may use today's names
        return None
    message = f"verl {asked} has no such key; {version_text(name.first)} is the first release with it"
    return warning_at(key, message, "remove it, or correct the version", "config_key")


def _renamed(key: str, today: str, version: Version) -> Diagnostic:
    message = f"verl {version_text(version)} has another name for this key"
    return warning_at(key, message, f"write {today!r}", "config_key")


def _is_in(name: KeyName, version: Version) -> bool:
    """Return whether a version, or the release after it, has a key."""
    following = next((release for _, release in RELEASES if release > version), version)
    return name.first <= following and (name.last is None or version <= name.last)


def value_problem(key: str, value: Any) -> Diagnostic | None:
    """Return the problem if a value's type differs from that of verl's default; None if there is none.

    >>> print(value_problem("data.shuffle", "often").text)
    data.shuffle: expected true or false, got 'often'; correct it
    """
    name = key_names().known.get(key)
    types, expected = _TYPES.get(name.kind if name else "", ((), ""))
    if not types or value is None or (isinstance(value, str) and "${" in value):
        return None
    if isinstance(value, types) and (bool in types or not isinstance(value, bool)):
        return None
    return warning_at(key, f"expected {expected}, got {str(value)[:80]!r}", "correct it", "wrong_type")
