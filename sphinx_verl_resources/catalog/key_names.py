"""The keys of verl's configuration, each with the releases that have it and the type of its default."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import NamedTuple

from .files import bundled_directory

#: A release of verl, for example (0, 7, 1).
Version = tuple[int, int, int]
#: The list of keys in the package, written by ``tools/key_names.py``.
KEY_NAMES = "key_names.txt"
#: The minimum similarity (1 for equal names) at which one name may be a misspelling of the other.
SIMILAR = 0.85
#: The same for whole keys, which have long parts in common.
SIMILAR_KEY = 0.95


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
        return next(iter(difflib.get_close_matches(key, self.known, n=1, cutoff=SIMILAR_KEY)), None)

    def hint_for(self, key: str) -> str | None:
        """Return the known key that ends with ``key``, or a similar one.

        >>> key_names().hint_for("rollout.gpu_memory_utilization")
        'actor_rollout_ref.rollout.gpu_memory_utilization'
        """
        ending = (other for other in self.known if other.endswith(f".{key}"))
        return next(ending, None) or next(
            iter(difflib.get_close_matches(key, self.known, n=1, cutoff=SIMILAR)), None
        )


@lru_cache(maxsize=1)
def key_names() -> KeyNames:
    """Return the keys that the package lists."""
    return KeyNames((bundled_directory().path / KEY_NAMES).read_text("utf-8"))


def _release(text: str) -> Version:
    major, minor, patch = map(int, text.split("."))
    return major, minor, patch
