"""The settings that a launch script passes to verl."""

from __future__ import annotations

import re
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from ..diagnostics import Code
from .overrides import add_override, parse_override
from .places import Places
from .result import Collector, SettingsText
from .shell import read_commands
from .variables import Field, known, reason, split_key, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: Characters; a real script has a hundredth of this.
MAX_LENGTH = 1 << 18

#: Texts handed to another shell that are looked into.
_MAX_TEXTS = 3

#: Options of Hydra that take the next word; the others stand alone.
_OPTIONS = frozenset({"--config-path", "-cp", "--config-dir", "-cd", "--package", "-p", "--cfg", "-c"})
_CONFIG_NAME = ("--config-name", "-cn")
#: Programs that only show what stands behind them.
_SHOWS = frozenset({"echo", "cat", "grep", "sed"})
#: A word such as ``trainer.nnodes=1`` or ``+actor.x.y=2``.
_DOTTED = re.compile(r"\+{0,2}[A-Za-z_]\w*\.[\w.]*=")

_Command = tuple[Field, ...]


def read_script(text: str, shown: str) -> SettingsText:
    r"""Read the settings that a launch script passes to verl, without running anything.

    Variables, defaults such as ``${NAME:-8}``, arithmetic, arrays, branches and functions are followed. The
    script is read as it runs when it is started without arguments and nothing is set around it.

    Args:
        text: the script.
        shown: its name in messages.

    Returns:
        The settings of the first command that trains. What only a running shell knows is in ``unresolved``,
        with a warning each; a text without a command that trains is an error.

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
    collector = Collector()
    text = text.replace("\r\n", "\n")
    places = Places(text, shown)
    if is_too_long(text, collector, places):
        return collector.result()
    commands, problems = read_commands(text)
    for problem in problems:
        collector.fail(places.at(problem.at), Code.shell_syntax, problem.message, problem.remedy)
    trainings = _trainings(commands) or _trainings(_inner_commands(commands)) or _with_settings(commands)
    if not trainings:
        if problems:  # which are why
            return collector.result()
        message = "no command that trains with verl was found"
        hint = "expected one such as python3 -m verl.trainer.main_ppo data.train_batch_size=256"
        collector.fail(places.at(0), Code.shell_syntax, message, hint)
        return collector.result()
    if len(trainings) > 1:
        at = places.at(trainings[1][0][0].at)
        message = f"the script trains {len(trainings)} times; only the settings of the first are read"
        collector.warn(at, Code.shell_syntax, message, "split the script")
    command, words = trainings[0]
    read_words(collector, words, places)
    _report_lost(collector, commands, command, places)
    return collector.result()


def is_too_long(text: str, collector: Collector, places: Places) -> bool:
    """Whether a text is longer than any launch script; if so, it is reported."""
    if len(text) <= MAX_LENGTH:
        return False
    message = f"the script has more than {MAX_LENGTH} characters and was not read"
    collector.fail(places.at(0), Code.file_too_large, message, "take the part that starts the training")
    return True


def read_words(collector: Collector, words: Iterable[Field], places: Places) -> None:
    """Note what the arguments of a training command set."""
    remaining = iter(words)
    for field in remaining:
        place = places.at(field.at)
        text = known(field.text)
        shown = written(field.text)
        if shown.startswith("-"):
            option, equals, value = shown.partition("=")
            if option in _CONFIG_NAME:
                following = field if equals else next(remaining, field)
                value = value if equals else written(following.text)
                collector.config_name = re.sub(r"\.ya?ml\Z", "", value)
                why = reason(following.text)
                if why:
                    message = f"the name of the configuration is not known: {why}"
                    collector.config_name = None
                    collector.warn(place, Code.unresolved, message, "write it out")
            elif option in _OPTIONS and not equals:
                next(remaining, None)
        elif text is not None:
            add_override(collector, text, place)
        else:
            key, value_text = split_key(field.text)
            override = parse_override(f"{key}=")
            if override:
                collector.leave_open(override.key, written(value_text), reason(field.text), place)
            else:
                message = f"what {shown!r} adds is not known: {reason(field.text)}"
                collector.warn(place, Code.unresolved, message, "write the settings out")


def _trainings(commands: Iterable[_Command]) -> list[tuple[_Command, Sequence[Field]]]:
    """The commands that train with verl, each with the words behind the name of the program."""
    found: list[tuple[_Command, Sequence[Field]]] = []
    for command in commands:
        words = [known(field.text) or "" for field in command]
        for index, (before, word) in enumerate(pairwise(words), 2):
            if (before == "-m" or word.endswith(".py")) and _trains(word.removesuffix(".py")):
                found.append((command, command[index:]))
                break
    return found


def _trains(module: str) -> bool:
    """Whether a module is one of verl's programs that train, or of a recipe's."""
    package, _, name = module.replace("/", ".").rpartition(".")
    if name.startswith(("main_eval", "main_generation")):
        return False
    is_main = name.startswith("main_") or name.endswith("_main") or "sft_trainer" in name
    return is_main or (name == "main" and "verl" in package.split("."))


def _inner_commands(commands: Iterable[_Command]) -> Iterator[_Command]:
    """The commands in a text that is handed to another shell, as in ``bash -c "…"``."""
    texts = ((written(field.text), field.at) for command in commands for field in command)
    for text, at in islice((item for item in texts if " -m " in item[0]), _MAX_TEXTS):
        for command in read_commands(text)[0]:
            yield tuple(Field(field.text, at) for field in command)


def _with_settings(commands: Iterable[_Command]) -> list[tuple[_Command, Sequence[Field]]]:
    """The command with most words that look like settings, where none names a program that is known."""
    found = [
        (command, [field for field in command if _DOTTED.match(written(field.text))])
        for command in commands
        if known(command[0].text) not in _SHOWS
    ]
    most = max(found, key=lambda item: len(item[1]), default=None)
    return [most] if most and most[1] else []


def _report_lost(
    collector: Collector, commands: Sequence[_Command], training: _Command, places: Places
) -> None:
    """Warn of settings that stand below the command and are not part of it."""
    start = next((index for index, command in enumerate(commands, 1) if command is training), len(commands))
    for command in commands[start:]:
        if _DOTTED.match(written(command[0].text)):
            message = "the settings from here on are not passed on: the command ends above"
            hint = "a line without a backslash ends a command, and so does a comment or a blank behind one"
            collector.warn(places.at(command[0].at), Code.shell_syntax, message, hint)
            break
