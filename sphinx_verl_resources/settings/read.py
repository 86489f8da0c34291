"""Settings from a text of any kind: a launch script, YAML, or overrides."""

from __future__ import annotations

import re
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from ..diagnostics import Code
from .overrides import OVERRIDE, add_override
from .result import Collector, SettingsText
from .shell.expansion import Expansion
from .shell.follow import read_commands
from .shell.syntax import Source, TooMuchError
from .shell.variables import Argument, known, reason, split_key, written
from .shell.words import split_words
from .yaml_text import read_yaml_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: Characters; a real script has a hundredth of this.
MAX_LENGTH = 1 << 18

#: Texts handed to another shell that are looked into.
_MAX_TEXTS = 3

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

#: Options of Hydra that take the next word; the others stand alone.
_OPTIONS = frozenset({"--config-path", "-cp", "--config-dir", "-cd", "--package", "-p", "--cfg", "-c"})
_CONFIG_NAME = frozenset({"--config-name", "-cn"})
#: Programs that only show what stands behind them.
_SHOWS = frozenset({"echo", "cat", "grep", "sed"})
#: A word such as ``trainer.nnodes=1`` or ``+actor.x.y=2``.
_DOTTED = re.compile(r"\+{0,2}[A-Za-z_]\w*\.[\w.]*=")

_Command = tuple[Argument, ...]


def read_settings(text: str, shown: str) -> SettingsText:
    r"""Read verl's settings from a launch script, from YAML, or from overrides such as ``trainer.nnodes=2``.

    The content tells which of them the text is. An empty text sets nothing.

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
    return (read_script if _SCRIPT.search(text) else _read_lines)(text, shown)


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
    collector, source = Collector(), Source(text.replace("\r\n", "\n"), shown)
    if _is_too_long(source, collector):
        return collector.result()
    commands, problems = read_commands(source)
    collector.problems += problems
    trainings = _trainings(commands) or _trainings(_inner_commands(commands)) or _with_settings(commands)
    if not trainings and not problems:
        message = "no command that trains with verl was found"
        hint = "expected one such as python3 -m verl.trainer.main_ppo data.train_batch_size=256"
        collector.fail(source.place(0), Code.shell_syntax, message, hint)
    if len(trainings) > 1:
        place = source.place(trainings[1][0][0].at)
        message = f"the script trains {len(trainings)} times; only the settings of the first are read"
        collector.warn(place, Code.shell_syntax, message, "split the script")
    for command, arguments in trainings[:1]:
        _read_arguments(collector, arguments, source)
        _report_lost(collector, commands, command, source)
    return collector.result()


def _read_lines(text: str, shown: str) -> SettingsText:
    """Read overrides with the quotes, comments and variables of a shell, but no commands."""
    collector, source = Collector(), Source(text.replace("\r\n", "\n"), shown)
    if _is_too_long(source, collector):
        return collector.result()
    try:
        words, problems = split_words(source)
        arguments = Expansion().words(words)
    except TooMuchError as error:
        message = f"the text was not read: {error}"
        collector.fail(source.place(0), Code.shell_syntax, message, "write values out")
        return collector.result()
    collector.problems += problems
    _read_arguments(collector, arguments, source)
    return collector.result()


def _is_too_long(source: Source, collector: Collector) -> bool:
    """Return whether a text is longer than any launch script, and report it."""
    if len(source.text) <= MAX_LENGTH:
        return False
    message = f"the script has more than {MAX_LENGTH} characters and was not read"
    collector.fail(source.place(0), Code.file_too_large, message, "take the part that starts the training")
    return True


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


def _trainings(commands: Iterable[_Command]) -> list[tuple[_Command, Sequence[Argument]]]:
    """Return the commands that train with verl, each with the words behind the name of the program."""
    trainings: list[tuple[_Command, Sequence[Argument]]] = []
    for command in commands:
        words = [known(argument.text) or "" for argument in command]
        for index, (before, word) in enumerate(pairwise(words), 2):
            if (before == "-m" or word.endswith(".py")) and _trains(word.removesuffix(".py")):
                trainings.append((command, command[index:]))
                break
    return trainings


def _trains(module: str) -> bool:
    """Return whether a module is one of verl's programs that train, or of a recipe's."""
    package, _, name = module.replace("/", ".").rpartition(".")
    if name.startswith(("main_eval", "main_generation")):
        return False
    is_main = name.startswith("main_") or name.endswith("_main") or "sft_trainer" in name
    return is_main or (name == "main" and "verl" in package.split("."))


def _inner_commands(commands: Iterable[_Command]) -> Iterator[_Command]:
    """Yield the commands in a text that is handed to another shell, as in ``bash -c "…"``."""
    texts = ((written(argument.text), argument.at) for command in commands for argument in command)
    for text, at in islice((item for item in texts if " -m " in item[0]), _MAX_TEXTS):
        for command in read_commands(Source(text))[0]:
            yield tuple(Argument(argument.text, at) for argument in command)


def _with_settings(commands: Iterable[_Command]) -> list[tuple[_Command, Sequence[Argument]]]:
    """Return the command with most words that look like settings, for scripts that name no known program."""
    candidates = [
        (command, [argument for argument in command if _DOTTED.match(written(argument.text))])
        for command in commands
        if known(command[0].text) not in _SHOWS
    ]
    most = max(candidates, key=lambda candidate: len(candidate[1]), default=None)
    return [most] if most and most[1] else []


def _report_lost(
    collector: Collector, commands: Sequence[_Command], training: _Command, source: Source
) -> None:
    """Warn of settings that stand below the command and are not part of it."""
    start = next((index for index, command in enumerate(commands, 1) if command is training), len(commands))
    lost = (command[0] for command in commands[start:] if _DOTTED.match(written(command[0].text)))
    for argument in islice(lost, 1):
        message = "the settings from here on are not passed on: the command ends above"
        hint = "a line without a backslash ends a command, and so does a comment or a blank behind one"
        collector.warn(source.place(argument.at), Code.shell_syntax, message, hint)
