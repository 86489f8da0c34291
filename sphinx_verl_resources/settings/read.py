"""Settings from a text of any kind (a launch script, YAML, overrides), and what of a script was not read."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ..diagnostics import Code, Diagnostic, Location, Severity
from .overrides import OVERRIDE, add_override
from .programs import Program, Started, kind_of, named_in, started
from .result import Collector, SettingsText, listed, read_yaml_settings
from .shell.expansion import Expansion
from .shell.follow import read_commands
from .shell.syntax import Source, TooMuchError
from .shell.variables import Argument, known, reason, split_key, written
from .shell.words import split_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .programs import Command, Kind
    from .result import SettingsText


#: Characters; a real script has a hundredth of this.
MAX_LENGTH = 1 << 18

#: Texts handed to another shell that are looked into.
_MAX_TEXTS = 3

#: A text whose first line that is not empty, nor a comment, is YAML.
_YAML = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*"
    r"(?:[ \t]*(?:\{\s*)?['\"]?[\w.+/-]+['\"]?[ \t]*:(?!\S)|[ \t]*-[ \t]|---|\{\s*\})"
)
#: A command that a line begins with, or a module that Python is to run.
_SCRIPT = re.compile(
    r"^[ \t]*(?:set|export|source|if|for|while|case|function|cd|ray|python3?|torchrun|bash|srun)"
    r"[ \t]+[^ \t=:]|"
    r"^[ \t]*-m[ \t]|[ \t]-m[ \t]",
    re.MULTILINE,
)

#: Options of Hydra that take the next word; the others take none.
_OPTIONS = frozenset({"--config-path", "-cp", "--config-dir", "-cd", "--package", "-p", "--cfg", "-c"})
_CONFIG_NAME = frozenset({"--config-name", "-cn"})
#: Programs that only show their arguments.
_SHOWS = frozenset({"echo", "cat", "grep", "sed"})
#: A word such as ``trainer.nnodes=1`` or ``+actor.x.y=2``.
_DOTTED = re.compile(r"\+{0,2}[A-Za-z_]\w*\.[\w.]*=")
#: The programs whose settings are read, first those that are looked for first.
_TRAIN: tuple[Kind, ...] = ("rl", "sft")


def read_settings(text: str, shown: str) -> SettingsText:
    r"""Read verl's settings from a launch script, from YAML, or from overrides such as ``trainer.nnodes=2``.

    The content tells which of them the text is. An empty text sets nothing.

    Args:
        text: as it was written; overrides are separated by blanks or ends of lines.
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
    if not text.startswith("#!") and _YAML.match(text):
        return read_yaml_settings(text, shown)
    is_script = text.startswith("#!") or _SCRIPT.search(text)
    return _read(text, shown, _read_commands if is_script else _read_words)


def read_script(text: str, shown: str) -> SettingsText:
    r"""Read the settings that a launch script passes to verl, without running anything.

    Variables, defaults such as ``${NAME:-8}``, arithmetic, arrays, branches and functions are followed. The
    script is read as it runs when it is started without arguments and nothing is set around it.

    Args:
        text: the script.
        shown: its name in messages.

    Returns:
        The settings of the first command that trains. Values that only a running shell knows are in
        ``unresolved``, with a warning each; a text without a command that trains is an error.

    >>> script = r'''
    ... N_GPUS=${N_GPUS:-8}
    ... python3 -m verl.trainer.main_ppo \
    ...     data.train_batch_size=$((N_GPUS * 16)) \
    ...     actor_rollout_ref.model.path="$HOME/models/Qwen3-8B" $@
    ... '''
    >>> settings = read_script(script, "run.sh")
    >>> settings.values, settings.unresolved
    ({'data.train_batch_size': 128}, {'actor_rollout_ref.model.path': '$HOME/models/Qwen3-8B'})
    >>> print(settings.problems[0].place, settings.problems[0].message)
    run.sh:5:5 the value of actor_rollout_ref.model.path is not known: $HOME is set nowhere in the script
    """
    return _read(text, shown, _read_commands)


def _read(text: str, shown: str, read: Callable[[Collector, Source], None]) -> SettingsText:
    """Read a text that is not longer than any launch script."""
    collector, source = Collector(), Source(text.replace("\r\n", "\n"), shown)
    if len(text) > MAX_LENGTH:
        message = f"the script has more than {MAX_LENGTH} characters and was not read"
        remedy = "take the part that starts the training"
        collector.fail(source.place(0), Code.file_too_large, message, remedy)
    else:
        read(collector, source)
    return collector.result()


def _read_commands(collector: Collector, source: Source) -> None:
    """Note the settings of the first command that trains, and the program that it starts."""
    commands, problems = read_commands(source)
    collector.problems += problems
    programs = started(commands)
    if not any(found.kind in _TRAIN for found in programs):
        programs = started(_inner_commands(commands)) or programs
    trainings = [found for kind in _TRAIN for found in programs if found.kind == kind]
    trainings = trainings or _with_settings(commands, programs)
    if not trainings and not problems:
        message = "no command that trains with verl was found"
        hint = "expected one such as python3 -m verl.trainer.main_ppo data.train_batch_size=256"
        collector.fail(source.place(0), Code.shell_syntax, message, hint)
    if len(trainings) > 1:
        read, place = (source.place(found.command[0].at) for found in trainings[:2])
        message = f"the script trains {len(trainings)} times; only the settings of line {read.line} are read"
        collector.warn(place, Code.shell_syntax, message, "split the script")
    for first in (trainings or programs)[:1]:
        collector.program = Program(first.name, first.kind, source.place(first.command[0].at))
    for training in trainings[:1]:
        _read_arguments(collector, training.arguments, source)
        _report_lost(collector, commands, training.command, source)


def _read_words(collector: Collector, source: Source) -> None:
    """Note overrides with the quotes, comments and variables of a shell, but no commands."""
    try:
        words, problems = split_words(source)
        arguments = Expansion().words(words)
    except TooMuchError as error:
        message = f"the text was not read: {error}"
        collector.fail(source.place(0), Code.shell_syntax, message, "write values out")
        return
    collector.problems += problems
    _read_arguments(collector, arguments, source)


def _read_arguments(collector: Collector, arguments: Iterable[Argument], source: Source) -> None:
    """Note the settings among the arguments of a training command."""
    remaining = iter(arguments)
    for argument in remaining:
        place = source.place(argument.at)
        shown = written(argument.text)
        option, equals, value = shown.partition("=")
        if option in _CONFIG_NAME:
            name = argument.text if equals else next(remaining, argument).text
            if why := reason(name):
                message = f"the name of the configuration is not known: {why}"
                collector.warn(place, Code.unresolved, message, "write it out")
            value = value if equals else written(name)
            collector.config_name = None if why else re.sub(r"\.ya?ml\Z", "", value)
        elif option in _OPTIONS and not equals:
            next(remaining, None)
        elif shown.startswith("-"):
            continue
        elif not reason(argument.text):
            add_override(collector, shown, place)
        else:
            key, rest = split_key(argument.text)
            if override := OVERRIDE.fullmatch(key):
                collector.leave_open(override["key"], written(rest), reason(rest), place)
            else:
                message = f"what {shown!r} adds is not known: {reason(argument.text)}"
                collector.warn(place, Code.unresolved, message, "write the settings out")


def _inner_commands(commands: Iterable[Command]) -> Iterator[Command]:
    """Yield the commands in a text that is handed to another shell, as in ``bash -c "…"``."""
    texts = ((written(argument.text), argument.at) for command in commands for argument in command)
    for text, at in islice((item for item in texts if " -m " in item[0]), _MAX_TEXTS):
        for command in read_commands(Source(text))[0]:
            yield tuple(Argument(argument.text, at) for argument in command)


def _with_settings(commands: Iterable[Command], programs: Sequence[Started]) -> list[Started]:
    """Return the command with most words that look like settings, for scripts that name no known program."""
    candidates = [
        (command, [argument for argument in command if _DOTTED.match(written(argument.text))])
        for command in commands
        if known(command[0].text) not in _SHOWS
    ]
    most = max(candidates, key=lambda candidate: len(candidate[1]), default=None)
    if most is None or not most[1]:
        return []
    command, arguments = most
    named = [(found.name, found.kind) for found in programs if found.command is command]
    name, kind = next(iter(named), (module := named_in(command), kind_of(module)))
    return [Started(command, arguments, name, "rl" if kind == "other" else kind)]


def _report_lost(
    collector: Collector, commands: Sequence[Command], training: Command, source: Source
) -> None:
    """Warn of settings below the command that are not part of it."""
    start = next((index for index, command in enumerate(commands, 1) if command is training), len(commands))
    lost = (command[0] for command in commands[start:] if _DOTTED.match(written(command[0].text)))
    for argument in islice(lost, 1):
        message = "the settings from here on are not passed on: the command ends above"
        hint = "a line without a backslash ends a command, and so does a comment or a blank after one"
        collector.warn(source.place(argument.at), Code.shell_syntax, message, hint)


#: A dotted key, in small letters as verl's are, and its value.
_SETTING_TEXT = re.compile(
    r"(?<![\w./~$@?&{}-])(?:\+\+?|~)?(?P<key>[a-z_]\w*(?:\.[a-z_]\w*)+)=(?!=)(?P<value>[^\s\\;|&]*)"
)
#: A part of verl's configuration that begins as YAML, or one of its keys.
_YAML_LINE = re.compile(
    r"\A\s*(?P<key>(?:actor_rollout_ref|algorithm|critic|data|trainer|reward_model|ray_kwargs)(?:\.[a-z_]\w*)*)\s*:"
    r"(?:\s+(?P<value>\S.*?))?\s*\Z"
)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")


class _Mention(NamedTuple):
    """A place of a script that looks like a setting."""

    key: str
    value: str
    place: Location


def unread_settings(text: str, settings: SettingsText, shown: str) -> tuple[Diagnostic, ...]:
    r"""Report each place of a script that looks like a setting and is not among those read.

    It may be in a second command, in a function that is never called, in a text that is written to a file
    (as YAML too), or in a branch that is not taken. Comments do not count, nor do settings set twice,
    which are reported elsewhere.

    Args:
        text: the script.
        settings: the settings read from it.
        shown: its name in messages.

    >>> script = "python3 -m verl.trainer.main_ppo trainer.nnodes=2\npython3 x.py trainer.nnodes=4 # a.b=1\n"
    >>> [str(problem.place) for problem in unread_settings(script, read_script(script, "run.sh"), "run.sh")]
    ['run.sh:2:14']
    """
    mentions: dict[str, list[_Mention]] = {}
    for mention in _mentions(text.replace("\r\n", "\n"), shown):
        mentions.setdefault(mention.key, []).append(mention)
    reported = {problem.place for problem in settings.problems}
    found = (_not_read(key, of_key, settings) for key, of_key in mentions.items())
    return listed(
        _unread_problem(mention) for unread in found for mention in unread if mention.place not in reported
    )


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
    """Return the mentions of one key that were not read."""
    if key not in settings.places:  # or it is a mapping, of which the keys are read
        inside = {where.line for name, where in settings.places.items() if name.startswith(f"{key}.")}
        return [mention for mention in mentions if mention.place.line not in inside]
    value = str(settings.values[key]).lower() if key in settings.values else None
    others = [mention for mention in mentions if mention.value.lower() != value]
    elsewhere = [mention for mention in others if mention.place.line not in settings.lines[key]]
    if any(mention.place.line == settings.places[key].line for mention in mentions):
        return elsewhere
    # It came through a variable: if no mention has its value, it is taken from the last one.
    return [m for m in elsewhere if m is not others[-1]] if len(others) == len(mentions) else elsewhere


def _unread_problem(mention: _Mention) -> Diagnostic:
    message = f"{mention.key} is set here and was not read: it is no argument of the command that trains"
    remedy = "if the run had this setting, add it to the file, or pass it to that command"
    return Diagnostic(mention.place, Code.unread, message, remedy, Severity.WARNING)
