"""Update the list of verl's configuration keys: ``python tools/key_names.py CHECKOUT``.

Reads the composed configurations of each release in a git checkout of verl, and the keys that its scripts add
with ``+``. Writes ``data/key_names.txt``, which depends only on the commits below.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET = Path(__file__).resolve().parent.parent / "data/key_names.txt"
#: The commits to read, by release; the last one is on the branch main.
COMMITS = {
    "0.2.0": "v0.2.0.post2", "0.3.0": "v0.3.0.post1", "0.4.0": "v0.4.0", "0.4.1": "v0.4.1", "0.5.0": "v0.5.0",
    "0.6.0": "v0.6.0", "0.6.1": "v0.6.1", "0.7.0": "v0.7.0", "0.7.1": "v0.7.1", "0.8.0": "v0.8.0",
    "0.9.0": "v0.9.0", "0.10.0": "1dda039b9c6311889a9c9a26040677e1254814f9",
}  # fmt: skip
#: The composed configurations, older ones in a single file, and the configurations of other trainers.
_CONFIGURATION = re.compile(
    r"verl/trainer/config/(_generated_\w+|ppo_(megatron_)?trainer)\.yaml"
    r"|(recipe|verl/experimental|examples)/.*config/\w*trainer\w*\.yaml"
)
#: Sections into which the parts of a configuration go, one part for each training backend.
_PARTS = {"actor": "actor_rollout_ref.actor", "ref": "actor_rollout_ref.ref", "critic": "critic"}
_PART = re.compile(r"(verl/trainer/config)/(actor|ref|critic)/\w+\.yaml")
#: Settings in a script that are in no configuration.
_ADDED = r"\+{1,2}[a-zA-Z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)+="
#: Sections that accept any key, even if verl sets some of them.
_OPEN = re.compile(r"override_\w+|\w+_kwargs|ray_init|teacher_models|impl_cfg|turbo_config")
#: Keys that accept a text as well as a number.
_SEVERAL_TYPES = frozenset({"algorithm.rollout_correction.rollout_is_threshold", "trainer.test_freq"})
#: Sections of other programs: Hydra itself, and supervised fine-tuning.
_OTHERS = frozenset({"hydra", "defaults", "engine", "model", "optim", "checkpoint", "env"})
HEADER = """\
# The names of verl's configuration keys: section, releases, type, names. 0.10.0 is the branch main, {commit}.
# Made by tools/key_names.py from the composed configurations of verl's releases (Apache-2.0), and from
# keys that verl's own scripts add with a plus. any: null by default; open: takes any key below it.
"""


def git(checkout: str, *arguments: str) -> str:
    """Return the output of git."""
    command = ["git", "-C", checkout, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def parts(checkout: str, commit: str, file: str, match: re.Match[str]) -> Iterator[tuple[str, str]]:
    """Yield the keys of a part of a configuration and of the parts that it includes."""
    section = f"{_PARTS[match[2]]}."
    content = yaml.safe_load(git(checkout, "show", f"{commit}:{file}"))
    for entry in content.pop("defaults", []):
        for name, values in entry.items() if isinstance(entry, dict) else ():
            group, _, target = name.removeprefix("../").partition("@")
            for choice in [values] if isinstance(values, str) else values or []:
                other = git(checkout, "show", f"{commit}:{match[1]}/{group}/{choice}.yaml")
                yield from leaves(yaml.safe_load(other), f"{section}{target}." if target else section)
    yield from leaves(content, section)


def leaves(settings: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of a configuration with their types; a section that accepts any key is ``open``."""
    for name, value in settings.items():
        key = f"{above}{name}"
        if isinstance(value, dict):
            if not value or _OPEN.fullmatch(str(name)):
                yield key, "open"
            yield from leaves(value, f"{key}.")
        else:
            yield key, type_of(value)


def type_of(value: Any) -> str:
    """Return the type of a default; empty if it refers to another setting."""
    if isinstance(value, str) and (value.startswith("${") or value == "???"):
        return ""
    types = ((bool, "bool"), ((int, float), "number"), (str, "text"), (list, "list"))
    return next((name for of, name in types if isinstance(value, of)), "any")


def read(checkout: str) -> dict[str, dict[str, set[str]]]:
    """Return the releases of each key, with its types there."""
    names: dict[str, dict[str, set[str]]] = {}
    for release, commit in COMMITS.items():
        files = git(checkout, "ls-tree", "-r", "--name-only", commit).split("\n")
        for file in filter(_CONFIGURATION.fullmatch, files):
            for key, kind in leaves(yaml.safe_load(git(checkout, "show", f"{commit}:{file}"))):
                names.setdefault(key, {}).setdefault(release, set()).add(kind)
        for match in filter(None, map(_PART.fullmatch, files)):
            for key, kind in parts(checkout, commit, match[0], match):
                names.setdefault(key, {}).setdefault(release, set()).add(kind)
        added = git(checkout, "grep", "-hoE", _ADDED, commit, "--", "*.sh", "*.md", "*.rst")
        for key in re.findall(r"\+([\w.]+)=", added):
            if not is_below_open(key, names) and not looks_misspelt(key, names):
                names.setdefault(key, {}).setdefault(release, set()).add("")
    return {key: names[key] for key in sorted(names) if key.partition(".")[0] not in _OTHERS}


def is_below_open(key: str, names: dict[str, dict[str, set[str]]]) -> bool:
    """Return whether a section above a key accepts any key."""
    above = [key[: dot.start()] for dot in re.finditer(r"\.", key)]
    return any({"open", "any"} & kinds for name in above for kinds in names.get(name, {}).values())


def looks_misspelt(key: str, names: dict[str, dict[str, set[str]]]) -> bool:
    """Return whether a key is a prefix of another one in its section, or the other way round."""
    section, _, name = key.rpartition(".")
    others = (other.rpartition(".") for other in names if other != key)
    return key not in names and any(
        above == section and (name.startswith(other) or other.startswith(name)) for above, _, other in others
    )


def line_of(key: str, releases: dict[str, set[str]]) -> tuple[str, str]:
    """Return the beginning of a key's line, and its name there."""
    section, _, name = key.rpartition(".")
    order = list(COMMITS)
    places = sorted(map(order.index, releases))
    last = "" if places[-1] == len(order) - 1 else order[places[-1]]
    kinds = set().union(*releases.values())
    only = kinds - {"any"}
    if key in _SEVERAL_TYPES or {"any", "bool"} <= kinds:  # false and null are also defaults of paths
        only = {""}
    kind = "open" if "open" in kinds else only.pop() if len(only) == 1 else "" if only else "any"
    return f"{section or '.'} {order[places[0]]}-{last} {kind or '?'}:", name


def main() -> None:
    """Write the list."""
    lines: dict[str, list[str]] = {}
    for key, releases in read(sys.argv[1]).items():
        start, name = line_of(key, releases)
        lines.setdefault(start, []).append(name)
    text = "".join(f"{start} {' '.join(names)}\n" for start, names in sorted(lines.items()))
    TARGET.write_text(HEADER.format(commit=COMMITS["0.10.0"]) + text, "utf-8", newline="\n")


if __name__ == "__main__":
    main()
