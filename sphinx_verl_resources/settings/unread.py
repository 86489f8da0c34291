"""What looks like a setting in a launch script and was not read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..diagnostics import Code, Diagnostic, Location, Severity
from .result import MAX_PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .result import SettingsText

#: A dotted key, in small letters as verl's are, with something behind its equals sign.
_SETTING = re.compile(
    r"(?<![\w./~$@?&{}-])(?:\+\+?|~)?(?P<key>[a-z_]\w*(?:\.[a-z_]\w*)+)=(?!=)(?P<value>[^\s\\;|&]*)"
)
#: Where a part of verl's configuration begins as YAML, or one of its keys stands in it.
_YAML = re.compile(
    r"\A\s*(?P<key>(?:actor_rollout_ref|algorithm|critic|data|trainer|reward_model|ray_kwargs)(?:\.[a-z_]\w*)*)\s*:"
    r"(?:\s+(?P<value>\S.*?))?\s*\Z"
)
_TWICE = re.compile(r"(?P<key>\S+) is set twice; this value replaces that of line (?P<line>\d+)")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_HYDRA = ("hydra.",)
_QUOTES = "'\""


class _Found(NamedTuple):
    key: str
    value: str
    line: int
    column: int


def unread_settings(text: str, read: SettingsText, shown: str) -> list[Diagnostic]:
    r"""Every place of a script where a setting stands that is not among those read.

    Settings in a second command, in a function that is never called, in a text that is written to a file
    (as YAML too), or on the way that was not taken. What stands in a comment does not count, nor what is set
    twice, which is reported elsewhere.

    Args:
        text: the script.
        read: what was read of it.
        shown: its name in messages.

    >>> from .read import read_script
    >>> script = "python3 -m verl.trainer.main_ppo trainer.nnodes=2\npython3 x.py trainer.nnodes=4 # a.b=1\n"
    >>> [str(found.place) for found in unread_settings(script, read_script(script, "run.sh"), "run.sh")]
    ['run.sh:2:14']
    """
    found = _settings_in(text.replace("\r\n", "\n"))
    written: dict[str, list[_Found]] = {}
    for item in found:
        written.setdefault(item.key, []).append(item)
    reported = set(_reported(read.problems))
    problems = [
        _problem(item, shown)
        for items in written.values()
        for item in _not_read(items, read)
        if not {(item.key, item.line), (item.column, item.line)} & reported
    ]
    problems.sort(key=lambda problem: problem.sort_key)
    if len(problems) > MAX_PROBLEMS:
        rest = len(problems) - MAX_PROBLEMS
        message = f"{rest} more lines look like settings and were not read"
        place = problems[MAX_PROBLEMS].place
        hint = "look through the script from here on"
        problems[MAX_PROBLEMS:] = [Diagnostic(place, Code.unread, message, hint, Severity.WARNING)]
    return problems


def _reported(problems: Iterable[Diagnostic]) -> Iterator[tuple[str | int, int | None]]:
    """What is reported already: keys, and columns, each with its line."""
    for problem in problems:
        line = problem.place.line
        yield from ((word, line) for word in problem.message.replace(";", " ").split())
        if problem.place.column:
            yield problem.place.column, line
        if twice := _TWICE.match(problem.message):
            yield twice["key"], int(twice["line"])


def _settings_in(text: str) -> list[_Found]:
    found: list[_Found] = []
    for number, line in enumerate(text.split("\n"), 1):
        if part := _YAML.match(_COMMENT.sub("", line)):
            found.append(_Found(part["key"], part["value"] or "", number, part.start("key") + 1))
        if "=" not in line or "." not in line:
            continue
        found += [
            _Found(match["key"], match["value"].strip(_QUOTES), number, match.start("key") + 1)
            for match in _SETTING.finditer(_COMMENT.sub("", line))
            if not match["key"].startswith(_HYDRA)
        ]
    return found


def _not_read(items: list[_Found], read: SettingsText) -> list[_Found]:
    """Of the places where one key stands, those that what was read does not come from."""
    key = items[0].key
    place = read.places.get(key)
    if place is None:  # or it is a mapping, of which the keys are read
        inside = {where.line for name, where in read.places.items() if name.startswith(f"{key}.")}
        return [item for item in items if item.line not in inside]
    if any(item.line == place.line for item in items):
        return [item for item in items if item.line != place.line and not _says(item, key, read)]
    # It came through a variable, and so from the last place that says it.
    others = [item for item in items if not _says(item, key, read)]
    return others[:-1] if len(others) == len(items) else others


def _says(item: _Found, key: str, read: SettingsText) -> bool:
    """Whether a place says what was read."""
    return key in read.values and item.value.lower() == str(read.values[key]).lower()


def _problem(item: _Found, shown: str) -> Diagnostic:
    message = f"{item.key} is set here and was not read: it is no argument of the command that trains"
    hint = "if the run had this setting, add it to the file, or pass it to that command"
    return Diagnostic(Location(shown, item.line, item.column), Code.unread, message, hint, Severity.WARNING)
