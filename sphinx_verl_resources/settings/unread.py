"""Text in a launch script that looks like a setting and was not read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..diagnostics import Code, Diagnostic, Location, Severity
from .result import MAX_PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .result import SettingsText

#: A dotted key, in small letters as verl's are, and its value.
_SETTING = re.compile(
    r"(?<![\w./~$@?&{}-])(?:\+\+?|~)?(?P<key>[a-z_]\w*(?:\.[a-z_]\w*)+)=(?!=)(?P<value>[^\s\\;|&]*)"
)
#: A part of verl's configuration that begins as YAML, or one of its keys.
_YAML = re.compile(
    r"\A\s*(?P<key>(?:actor_rollout_ref|algorithm|critic|data|trainer|reward_model|ray_kwargs)(?:\.[a-z_]\w*)*)\s*:"
    r"(?:\s+(?P<value>\S.*?))?\s*\Z"
)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")


class _Mention(NamedTuple):
    """A place of a script that looks like a setting."""

    key: str
    value: str
    line: int
    column: int


def unread_settings(text: str, settings: SettingsText, shown: str) -> list[Diagnostic]:
    r"""Report each place of a script that looks like a setting and is not among those read.

    It may stand in a second command, in a function that is never called, in a text that is written to a file
    (as YAML too), or in a branch that is not taken. Comments do not count, nor do settings set twice,
    which are reported elsewhere.

    Args:
        text: the script.
        settings: the settings read from it.
        shown: its name in messages.

    >>> from .read import read_script
    >>> script = "python3 -m verl.trainer.main_ppo trainer.nnodes=2\npython3 x.py trainer.nnodes=4 # a.b=1\n"
    >>> [str(problem.place) for problem in unread_settings(script, read_script(script, "run.sh"), "run.sh")]
    ['run.sh:2:14']
    """
    mentions: dict[str, list[_Mention]] = {}
    for mention in _mentions(text.replace("\r\n", "\n")):
        mentions.setdefault(mention.key, []).append(mention)
    reported = {(problem.place.line, problem.place.column) for problem in settings.problems}
    problems = [
        _problem(mention, shown)
        for key, of_key in mentions.items()
        for mention in _not_read(key, of_key, settings)
        if (mention.line, mention.column) not in reported
    ]
    problems.sort(key=lambda problem: problem.sort_key)
    if len(problems) > MAX_PROBLEMS:
        rest = len(problems) - MAX_PROBLEMS
        message = f"{rest} more lines look like settings and were not read"
        place = problems[MAX_PROBLEMS].place
        hint = "look through the script from here on"
        problems[MAX_PROBLEMS:] = [Diagnostic(place, Code.unread, message, hint, Severity.WARNING)]
    return problems


def _mentions(text: str) -> Iterator[_Mention]:
    for number, line in enumerate(text.split("\n"), 1):
        if ":" not in line and ("=" not in line or "." not in line):
            continue
        code = _COMMENT.sub("", line)
        if match := _YAML.match(code):
            yield _Mention(match["key"], match["value"] or "", number, match.start("key") + 1)
        for match in _SETTING.finditer(code):
            if not match["key"].startswith("hydra."):
                yield _Mention(match["key"], match["value"].strip("'\""), number, match.start("key") + 1)


def _not_read(key: str, mentions: list[_Mention], settings: SettingsText) -> list[_Mention]:
    """Return the mentions of one key that were not read."""
    if key not in settings.places:  # or it is a mapping, of which the keys are read
        inside = {where.line for name, where in settings.places.items() if name.startswith(f"{key}.")}
        return [mention for mention in mentions if mention.line not in inside]
    value = str(settings.values[key]).lower() if key in settings.values else None
    others = [mention for mention in mentions if mention.value.lower() != value]
    elsewhere = [mention for mention in others if mention.line not in settings.lines[key]]
    if any(mention.line == settings.places[key].line for mention in mentions):
        return elsewhere
    # It came through a variable: if no mention has its value, it is taken from the last one.
    return [m for m in elsewhere if m is not others[-1]] if len(others) == len(mentions) else elsewhere


def _problem(mention: _Mention, shown: str) -> Diagnostic:
    message = f"{mention.key} is set here and was not read: it is no argument of the command that trains"
    hint = "if the run had this setting, add it to the file, or pass it to that command"
    place = Location(shown, mention.line, mention.column)
    return Diagnostic(place, Code.unread, message, hint, Severity.WARNING)
