"""Find text in a launch script that looks like a setting but was not read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..diagnostics import Diagnostic, Location, warning
from .settings import some_of

if TYPE_CHECKING:
    from .settings import SettingsText

#: A dotted key in lower case, like verl's keys, and its value; or a section or key of verl's in YAML.
_MENTION = re.compile(
    r"(?<![\w./~$@?&{}-])(?:\+\+?|~)?(?P<key>[a-z_]\w*(?:\.[a-z_]\w*)+)=(?!=)(?P<value>[^\s\\;|&]*)"
    r"|\A\s*(?P<yaml>(?:actor_rollout_ref|algorithm|critic|data|trainer|reward_model|ray_kwargs)(?:\.[a-z_]\w*)*)"
    r"\s*:(?:\s+\S.*|\s*)\Z"
)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")


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
    reported = {problem.place for problem in settings.problems}
    unread: dict[str, Location] = {}
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        for match in _MENTION.finditer(_COMMENT.sub("", line)):
            key = match["key"] or match["yaml"]
            place = Location(shown, number, match.start("key" if match["key"] else "yaml") + 1)
            # A value may come through a variable, and a mapping has keys of its own.
            lines = {*settings.lines.get(key, ()), *settings.passed}
            if key in settings.places:
                lines |= settings.assigned
            lines |= {at.line for name, at in settings.places.items() if name.startswith(f"{key}.")}
            is_same = str(settings.values.get(key)).lower() == (match["value"] or "").strip("'\"").lower()
            if not (number in lines or is_same or place in reported or key.startswith("hydra.")):
                unread.setdefault(key, place)
    if not unread:
        return ()
    message = f"{next(iter(unread))} was not read, because it is not an argument of the training command"
    if len(unread) > 1:
        listed = some_of([f"{key} (line {place.line})" for key, place in unread.items()])
        message = f"{len(unread)} settings were not read, because they are not arguments of the training "
        message += f"command: {listed}"
    remedy = "if the run used such a setting, add it to the run file, or pass it to that command"
    return (warning(next(iter(unread.values())), "unread", message, remedy),)
