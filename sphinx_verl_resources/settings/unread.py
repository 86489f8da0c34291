"""Find text in a launch script that looks like a setting but was not read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..diagnostics import Diagnostic, Location, warning
from .result import some_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .result import SettingsText

#: A dotted key in lower case, like verl's keys, and its value.
_SETTING_TEXT = re.compile(
    r"(?<![\w./~$@?&{}-])(?:\+\+?|~)?(?P<key>[a-z_]\w*(?:\.[a-z_]\w*)+)=(?!=)(?P<value>[^\s\\;|&]*)"
)
#: A section or key of verl's configuration in YAML.
_YAML_LINE = re.compile(
    r"\A\s*(?P<key>(?:actor_rollout_ref|algorithm|critic|data|trainer|reward_model|ray_kwargs)(?:\.[a-z_]\w*)*)\s*:"
    r"(?:\s+(?P<value>\S.*?))?\s*\Z"
)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")


class _Mention(NamedTuple):
    """A text in a script that looks like a setting."""

    key: str
    value: str
    place: Location


def unread_settings(text: str, settings: SettingsText, shown: str) -> tuple[Diagnostic, ...]:
    r"""Report text of a script that looks like a setting but was not read.

    It may be in a second command, in an unused function, or in text (also YAML) that is written to a file.
    This ignores comments, branches that do not run, and settings set twice, which are reported elsewhere.

    Args:
        text: the script.
        settings: the settings read from it.
        shown: its name in messages.

    >>> script = "python3 -m verl.trainer.main_ppo trainer.nnodes=2\npython3 x.py trainer.nnodes=4 # a.b=1\n"
    >>> from .read import read_script
    >>> [str(problem.place) for problem in unread_settings(script, read_script(script, "run.sh"), "run.sh")]
    ['run.sh:2:14']
    """
    mentions: dict[str, list[_Mention]] = {}
    for mention in _mentions(text.replace("\r\n", "\n"), shown):
        mentions.setdefault(mention.key, []).append(mention)
    reported = {problem.place for problem in settings.problems}
    found = (mention for key, of_key in mentions.items() for mention in _not_read(key, of_key, settings))
    unread = sorted(
        (each for each in found if each.place not in reported and each.place.line not in settings.passed),
        key=lambda mention: mention.place,
    )
    return (_unread_problem(unread),) if unread else ()


def _mentions(text: str, shown: str) -> Iterator[_Mention]:
    for number, line in enumerate(text.split("\n"), 1):
        if ":" not in line and ("=" not in line or "." not in line):
            continue
        code = _COMMENT.sub("", line)
        of_yaml = _YAML_LINE.match(code)
        for match in [*([of_yaml] if of_yaml else []), *_SETTING_TEXT.finditer(code)]:
            if not match["key"].startswith("hydra."):
                place = Location(shown, number, match.start("key") + 1)
                yield _Mention(match["key"], (match["value"] or "").strip("'\""), place)


def _not_read(key: str, mentions: list[_Mention], settings: SettingsText) -> list[_Mention]:
    """Return the mentions of a key that were not read."""
    if key not in settings.places:  # or it is a mapping whose keys were read
        inside = {where.line for name, where in settings.places.items() if name.startswith(f"{key}.")}
        return [mention for mention in mentions if mention.place.line not in inside]
    value = str(settings.values[key]).lower() if key in settings.values else None
    others = [
        mention
        for mention in mentions
        # Ignore values of variables that are assigned again later.
        if mention.value.lower() != value and mention.place.line not in settings.assigned
    ]
    elsewhere = [mention for mention in others if mention.place.line not in settings.lines[key]]
    if any(mention.place.line == settings.places[key].line for mention in mentions):
        return elsewhere
    # The value came through a variable: if no mention has it, assume the last one.
    return [m for m in elsewhere if m is not others[-1]] if len(others) == len(mentions) else elsewhere


def _unread_problem(mentions: list[_Mention]) -> Diagnostic:
    lines: dict[str, int] = {}
    for mention in mentions:
        lines.setdefault(mention.key, mention.place.line)
    if len(lines) == 1:
        message = f"{mentions[0].key} was not read, because it is not an argument of the training command"
    else:
        listed = some_of([f"{key} (line {line})" for key, line in lines.items()])
        message = (
            f"{len(lines)} settings were not read, because they are not arguments of the training command: "
        )
        message += listed
    remedy = "if the run used such a setting, add it to the run file, or pass it to that command"
    return warning(mentions[0].place, "unread", message, remedy)
