"""Check settings: does this version of verl have the key, and does the value have the default's type?"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..dataset import bundled_directory
from .request import ACTOR, Request, dotted_leaves, error_at, warning_at
from .versions import CURRENT, LAST, RELEASES, Version, version_of, version_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..diagnostics import Diagnostic
    from .registries import Registries

    Config = Mapping[str, Any]
    Problems = Iterable[Diagnostic]

#: Problems that are reported at the key of a setting; others are reported at its value.
AT_KEY = frozenset({"unknown_key", "config_key", "impossible_settings"})
#: Prefixes of keys that only verl's trainer for supervised fine-tuning has.
FINE_TUNING = ("engine.", "model.", "optim.")
#: Parts of verl's configuration that scripts choose by name, as in ``model_engine=megatron``.
_CHOSEN = {"actor", "critic", "engine", "model", "model_engine", "optim", "ref", "rollout"}
#: A line of the list: section, first and last release, type, names.
_LINE = re.compile(r"^(\S+) ([\d.]+)-(\S*) (\S+): (.+)$", re.MULTILINE)
#: The types of values that a key accepts, by the type of its default, and their description in messages.
_TYPES: dict[str, Any] = {"bool": ({bool}, "true or false"), "number": ({int, float}, "a number")}


class KeyName(NamedTuple):
    """A key of verl's configuration.

    Attributes:
        first: the first listed release that has the key.
        last: the last release that has the key; ``LAST`` if the main branch has it.
        kind: ``bool``, ``number``, ``text`` or ``list``; ``any`` for null, ``open`` for a section that
            accepts any key, ``?`` if the default does not show the type, or if only scripts have the key.
    """

    first: Version
    last: Version
    kind: str


@lru_cache(maxsize=1)  # reading takes 12 ms, and pages ask for each recorded run
def key_names() -> dict[str, KeyName]:
    """Return all keys of verl's configuration by name, from the list that ``tools/key_names.py`` writes."""
    text, names = (bundled_directory().path / "key_names.txt").read_text("utf-8"), dict[str, KeyName]()
    for section, first, last, kind, words in _LINE.findall(text):
        name = KeyName(version_of(first) or LAST, version_of(last) or LAST, kind)
        names |= {f"{section}.{word}".lstrip("."): name for word in words.split()}
    return names


def settings_problems(config: Config, version: Version, registries: Registries) -> Problems:
    """Yield problems of settings: keys that a version of verl does not read, and values of a wrong type.

    ``Reader`` checks the values that decide memory.
    """
    flat, names = dict(dotted_leaves(config)), key_names()
    for key, value in flat.items():
        types, expected = _TYPES.get(names[key].kind if key in names else "", ({type(value)}, ""))
        if problem := key_problem(key, version, registries):
            yield problem
        elif type(value) not in types and value is not None and "${" not in str(value):
            yield warning_at(key, f"expected {expected}, got {str(value)[:80]!r}", "correct it", "wrong_type")
    for role in (ACTOR, "critic"):
        mini, batch = flat.get(f"{role}.ppo_mini_batch_size"), flat.get("data.train_batch_size")
        if type(mini) is type(batch) is int and mini > batch > 0 and not flat.get(f"{role}.use_dynamic_bsz"):
            message = f"verl rejects a mini-batch of {mini:,}, larger than data.train_batch_size, {batch:,}"
            yield error_at(f"{role}.ppo_mini_batch_size", message, "correct one of the two")


def key_warnings(request: Request, registries: Registries, noted: Problems = ()) -> Problems:
    """Yield the problems of a request's settings as warnings, since it can still be estimated.

    Forks and the trainer for supervised fine-tuning have other keys, so their settings are not checked.

    Args:
        request: the request.
        registries: the registries.
        noted: the problems already reported about its settings.
    """
    if request.framework.lower() == "verl" and not any(key.startswith(FINE_TUNING) for key in request.config):
        known = {problem.place.key for problem in noted}
        for problem in settings_problems(request.config, request.version, registries):
            if problem.place.key not in known:
                yield warning_at(problem.place.key, problem.message, problem.remedy, problem.code)


def key_problem(key: str, version: Version, registries: Registries) -> Diagnostic | None:
    """Return the problem with the name of a setting; None if the version of verl reads it.

    A run on the main branch between two releases may use the keys of either.

    >>> from sphinx_verl_resources.memory.context import EstimatorContext
    >>> print(key_problem("data.max_respone_length", (0, 9, 0), EstimatorContext().registries).text)
    data.max_respone_length: verl has no such key; did you mean 'data.max_response_length'?
    """
    name, recorded, today = key_names().get(key), registries.config_keys.get(key), registries.renamed.get(key)
    if not name:
        return None if key in registries.config_keys else _unknown(key, registries)
    # Verl's files have lost a few keys that it still reads, if they have a plus sign on the command line.
    has_plus = recorded is not None and recorded.status == "active" and name.last < LAST
    if is_early := any(version < release < name.first for _, release in RELEASES):
        reads = registries.name_in(key, version) not in {key, None}  # settings may use today's names
        limit = f"{version_text(name.first)} is the first"
    else:
        reads = min(version, LAST) <= name.last
        limit = f"{version_text(name.last)} was the last"
    text, remedy = f"no such key; {limit} release with it", "remove it, or correct the version"
    if today and not is_early:
        text, remedy = "another name for this key", f"write {today!r}"
    problem = warning_at(key, f"verl {version_text(version)} has {text}", remedy, "config_key")
    return None if reads or has_plus or _is_below_open(key) else problem


def _unknown(key: str, registries: Registries) -> Diagnostic | None:
    """Return the problem of a key that no version of verl has; None in a section that accepts any key."""
    (section, _, name), names, is_open = key.rpartition("."), key_names(), _is_below_open(key)
    beside = {other.rpartition(".")[2]: other for other in names if other.rpartition(".")[0] == section}
    namesakes = [other for other in names if other.endswith(f".{name}")]
    near = [beside[other] for other in get_close_matches(name, beside, 1, 0.85)]
    # Whole keys have long parts in common.
    if near := near or ([] if beside else get_close_matches(key, namesakes, 1, 0.95)):
        report = warning_at if is_open else error_at
        return report(key, "verl has no such key", f"did you mean {near[0]!r}?", "unknown_key")
    if is_open or registries.known_key(key) or key in _CHOSEN or "@" in key:
        return None
    endings = [other for other in namesakes if other.endswith(f".{key}")]
    near = endings or get_close_matches(key, namesakes, 1, 0.85)
    hint = f"did you mean {near[0]!r}? If not, " if near else ""
    remedy = f"{hint}remove it, or add it to config_keys.yaml if it belongs to your own recipe"
    return warning_at(key, "verl has no such key", remedy, "config_key")


def _is_below_open(key: str) -> bool:
    """Return whether a section above the key accepts any key; one that is null by default does."""
    above, names = key.rpartition(".")[0], key_names()
    is_open = above in names and names[above].kind in {"any", "open"}
    return is_open or ("." in above and _is_below_open(above))


def releases_of(config: Config, registries: Registries) -> tuple[Version, Version, tuple[str, ...]] | None:
    """Return the first and the last release of verl that have all keys of a configuration, and the reasons.

    None if all releases have them, or none. Keys with a plus sign, and keys that verl's own scripts add with
    one, are no evidence: other releases accept them too.

    >>> from sphinx_verl_resources.memory.context import EstimatorContext
    >>> registries = EstimatorContext().registries
    >>> releases_of({"actor_rollout_ref.rollout.chat_scheduler": None}, registries)[:2]
    ((0, 3, 0), (0, 4, 0))
    """
    names = key_names()
    keys = [key for key, _ in dotted_leaves(config) if key in names and names[key].kind != "?"]
    releases = sorted({name.first for name in names.values()})
    found = [[key_problem(key, release, registries) for key in keys] for release in releases]
    possible = [at for at, problems in enumerate(found) if not any(problems)]
    if len(possible) in {0, len(found)}:
        return None
    first, last = possible[0], possible[-1]
    beyond = (problem for problems in found[max(first - 1, 0) : last + 2] for problem in problems if problem)
    return releases[first], releases[last], tuple(problem.named_message for problem in beyond)


def release_for(config: Config, registries: Registries) -> tuple[Version, str]:
    """Return the newest release, up to the current one, that has all keys of a configuration.

    If this is an older one, also return why.
    """
    bounds = releases_of(config, registries)
    if bounds is None or bounds[1] >= CURRENT:
        return CURRENT, ""
    return bounds[1], f"verl {version_text(bounds[1])} is assumed: {bounds[2][-1]}"
