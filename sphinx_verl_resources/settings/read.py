"""Settings from a text of any kind: a launch script, YAML, or overrides."""

from __future__ import annotations

import re

from ..diagnostics import Code
from .expansion import Expansion
from .launch_script import is_too_long, read_script, read_words
from .places import Places
from .result import Collector, SettingsText
from .syntax import TooMuchError
from .words import split_words
from .yaml_text import read_yaml_settings

#: The first line that is not empty, nor a comment.
_FIRST = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*")
_YAML = re.compile(r"[ \t]*(?:\{\s*)?['\"]?[\w.+/-]+['\"]?[ \t]*:(?!\S)|[ \t]*-[ \t]|---|\{\s*\}")
#: A command that a line begins with, or a module that Python is to run.
_SCRIPT = re.compile(
    r"^[ \t]*(?:set|export|source|if|for|while|case|function|cd|ray|python3?|torchrun|bash|srun)"
    r"[ \t]+[^ \t=:]|"
    r"^[ \t]*-m[ \t]|[ \t]-m[ \t]",
    re.MULTILINE,
)


def read_settings(text: str, shown: str) -> SettingsText:
    r"""Read verl's settings from a launch script, from YAML, or from overrides such as ``trainer.nnodes=2``.

    What the text is shows in its content. An empty text sets nothing.

    Args:
        text: as it was written; overrides stand one on a line, or several between blanks.
        shown: the name of the text in messages.

    Returns:
        The settings under dotted keys, with places and problems. Nothing is run, no file and no variable of
        the environment is read, and no text raises.

    >>> read_settings("trainer.nnodes: 2", "a.yaml").values
    {'trainer.nnodes': 2}
    >>> read_settings("trainer.nnodes=2 +actor.x=a,b", "overrides").values
    {'trainer.nnodes': 2, 'actor.x': 'a,b'}
    >>> read_settings("N=2\npython3 -m verl.trainer.main_ppo trainer.nnodes=$N", "run.sh").values
    {'trainer.nnodes': 2}
    """
    text = text.removeprefix("\ufeff")
    if text.startswith("#!"):
        return read_script(text, shown)
    first = _FIRST.match(text)
    if _YAML.match(text, first.end() if first else 0):
        return read_yaml_settings(text, shown)
    if _SCRIPT.search(text):
        return read_script(text, shown)
    return _read_lines(text.replace("\r\n", "\n"), shown)


def _read_lines(text: str, shown: str) -> SettingsText:
    """Overrides with the quotes, comments and variables of a shell, but no commands."""
    collector, places = Collector(), Places(text, shown)
    if is_too_long(text, collector, places):
        return collector.result()
    try:
        words, problems = split_words(text)
        fields = Expansion().fields(words)
    except TooMuchError as error:
        collector.fail(places.at(0), Code.shell_syntax, f"the text was not read: {error}", "write values out")
        return collector.result()
    for problem in problems:
        collector.fail(places.at(problem.at), Code.shell_syntax, problem.message, problem.remedy)
    read_words(collector, fields, places)
    return collector.result()
