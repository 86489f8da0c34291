"""Read settings from a launch script, YAML or overrides."""

from __future__ import annotations

import re
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING

from .overrides import OVERRIDE, add_override
from .programs import Program, Started, kind_of, named_in, started
from .result import Collector, Reason, SettingsText, read_yaml_settings
from .shell.expansion import Expansion
from .shell.follow import follow
from .shell.syntax import Source, TooMuchError
from .shell.variables import Argument, cause_of, known, split_key, written
from .shell.words import split_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .programs import Command, Kind
    from .shell.follow import Followed
    from .shell.syntax import Cause

#: The maximum length of a text in characters; real scripts have a hundredth of this.
MAX_LENGTH = 1 << 18

_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})

#: The maximum number of texts for another shell to parse.
_MAX_TEXTS = 3

#: A text whose first line is YAML, apart from empty lines and comments.
_YAML = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*"
    r"(?:[ \t]*(?:\{\s*)?['\"]?[\w.+/-]+['\"]?[ \t]*:(?!\S)|[ \t]*-[ \t]|---|\{\s*\})"
)
#: A command at the beginning of a line, or a module for Python to run.
_SCRIPT = re.compile(
    r"^[ \t]*(?:set|export|source|if|for|while|case|function|cd|ray|python3?|torchrun|bash|srun)"
    r"[ \t]+[^ \t=:]|"
    r"^[ \t]*-m[ \t]|[ \t]-m[ \t]",
    re.MULTILINE,
)

#: Options of Hydra with a value in the next word; the others have none.
_OPTIONS = frozenset({"--config-path", "-cp", "--config-dir", "-cd", "--package", "-p", "--cfg", "-c"})
_CONFIG_NAME = frozenset({"--config-name", "-cn"})
#: Programs that only show their arguments.
_SHOWS = frozenset({"echo", "cat", "grep", "sed"})
#: A word such as ``trainer.nnodes=1`` or ``+actor.x.y=2``.
_DOTTED = re.compile(r"\+{0,2}[A-Za-z_]\w*\.[\w.]*=")
#: The programs whose settings are read, in order of preference.
_TRAIN: tuple[Kind, ...] = ("rl", "sft")
#: Files that prepare a shell, but set nothing that a launch script passes to verl.
_PREPARES = re.compile(
    r"(?:\A|/)(?:activate|set_?env(?:_\w+)?\.sh|setvars\.sh|conda\.sh|\.?(?:bashrc|bash_profile|profile))\Z"
)


def read_settings(text: str, shown: str, environment: Mapping[str, str] = _NO_VARIABLES) -> SettingsText:
    r"""Read verl's settings from a launch script, from YAML, or from overrides such as ``trainer.nnodes=2``.

    The format is detected from the content. An empty text has no settings.

    Args:
        text: the text; overrides are separated by blanks or line ends.
        shown: its name in messages.
        environment: the environment variables of a script.

    Returns:
        The settings by dotted keys, with places and problems. This runs nothing, reads no files and no
        environment variables, and never raises.

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
    return _read(text, shown, _read_commands if is_script else _read_words, environment)


def read_script(text: str, shown: str, environment: Mapping[str, str] = _NO_VARIABLES) -> SettingsText:
    r"""Read the settings that a launch script passes to verl, without running anything.

    Variables, defaults such as ``${NAME:-8}``, arithmetic, arrays, branches and functions are evaluated. The
    script is assumed to start without arguments, on GPUs, with only the variables in ``environment``.

    Args:
        text: the script.
        shown: its name in messages.
        environment: its environment variables.

    Returns:
        The settings of the first training command. Values that only a running shell knows are in
        ``unresolved``, with a warning each. A text without a training command is an error.

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
    run.sh:5:5 the value of actor_rollout_ref.model.path is unknown: the script does not set $HOME
    """
    return _read(text, shown, _read_commands, environment)


def _read(
    text: str,
    shown: str,
    read: Callable[[Collector, Source, Mapping[str, str]], None],
    environment: Mapping[str, str],
) -> SettingsText:
    """Read a text, unless it is too long."""
    collector, source = Collector(), Source(text.replace("\r\n", "\n"), shown)
    if len(text) > MAX_LENGTH:
        message = f"the script has more than {MAX_LENGTH} characters and was not read"
        remedy = "give only the part that starts the training"
        collector.fail(source.place(0), "file_too_large", message, remedy)
    else:
        read(collector, source, environment)
    return collector.result()


def _read_commands(collector: Collector, source: Source, environment: Mapping[str, str]) -> None:
    """Collect the settings of the first training command, and the program that it starts."""
    followed = follow(source, environment)
    commands, problems = followed.commands, followed.problems
    collector.problems += problems
    collector.passed, collector.assigned, collector.asked = followed.passed, followed.assigned, followed.asked
    programs = started(commands)
    if not any(found.kind in _TRAIN for found in programs):
        programs = started(_inner_commands(commands)) or programs
    trainings = [found for kind in _TRAIN for found in programs if found.kind == kind]
    trainings = trainings or _with_settings(commands, programs)
    if not trainings and not problems:
        message = "the script has no command that trains with verl"
        hint = "expected one such as python3 -m verl.trainer.main_ppo data.train_batch_size=256"
        collector.fail(source.place(0), "shell_syntax", message, hint)
    if len(trainings) > 1:
        _report_others(collector, trainings, followed, source)
    for first in (trainings or programs)[:1]:
        place = source.place(first.command[0].at)
        collector.program = Program(first.name, first.kind, place, first.launcher)
    for training in trainings[:1]:
        _read_arguments(collector, training.arguments, source)
        _report_lost(collector, commands, training.command, source)
        _report_sourced(collector, followed, source)


def _report_others(
    collector: Collector, trainings: Sequence[Started], followed: Followed, source: Source
) -> None:
    """Warn about further training commands, and about a condition that selects the one that runs."""
    read, other = (found.command[0].at for found in trainings[:2])
    line = source.place(read).line
    message = f"the script has {len(trainings)} training commands; only the one in line {line} is read"
    remedy = "split the script"
    if doubt := followed.doubts.get(read):
        reason = _reason(doubt, source)
        message, remedy = f"{message}: {doubt.text}", reason.remedy("the command")
        collector.incomplete.append(f"the command in line {line}: {doubt.text}")
    collector.warn(source.place(other), "shell_syntax", message, remedy)


def _report_sourced(collector: Collector, followed: Followed, source: Source) -> None:
    """Warn about files that the script sources, which may set variables."""
    for at, name in followed.sourced.items():
        if not _PREPARES.search(name):
            message = f"{name!r} was not read, but may set any variable of this script"
            collector.warn(source.place(at), "unresolved", message, "copy its lines into the script")
            collector.incomplete.append(f"{name}: it was not read, but may set any variable")


def _reason(cause: Cause, source: Source) -> Reason:
    """Return a cause as a reason, with its place in the file."""
    return Reason(cause.text, cause.names, None if cause.at is None else source.place(cause.at))


def _read_words(collector: Collector, source: Source, environment: Mapping[str, str]) -> None:
    """Collect overrides, which may have a shell's quotes, comments and variables, but no commands."""
    expansion = Expansion(environment)
    try:
        words, problems = split_words(source)
        arguments = expansion.words(words)
    except TooMuchError as error:
        message = f"the text was not read: {error}"
        collector.fail(source.place(0), "shell_syntax", message, "write values out")
        return
    collector.problems += problems
    collector.asked = frozenset(expansion.environment.asked)
    _read_arguments(collector, arguments, source)


def _read_arguments(collector: Collector, arguments: Iterable[Argument], source: Source) -> None:
    """Collect the settings in the arguments of a training command."""
    remaining = iter(arguments)
    for argument in remaining:
        place = source.place(argument.at)
        shown = written(argument.text)
        option, equals, value = shown.partition("=")
        if option in _CONFIG_NAME:
            name = argument.text if equals else next(remaining, argument).text
            if why := cause_of(name):
                message = f"the name of the configuration is unknown: {why.text}"
                remedy = _reason(why, source).remedy("it")
                collector.warn(place, "unresolved", message, remedy)
                collector.incomplete.append(message)
            value = value if equals else written(name)
            collector.config_name = None if why else re.sub(r"\.ya?ml\Z", "", value)
        elif option in _OPTIONS and not equals:
            next(remaining, None)
        elif shown.startswith("-"):
            continue
        elif (why := cause_of(argument.text)) is None:
            add_override(collector, shown, place)
        else:
            key, rest = split_key(argument.text)
            if override := OVERRIDE.fullmatch(key):
                collector.leave_open(override["key"], written(rest), _reason(why, source), place)
            else:
                collector.leave_more(shown, _reason(why, source), place)


def _inner_commands(commands: Iterable[Command]) -> Iterator[Command]:
    """Yield the commands in a text for another shell, as in ``bash -c "…"``."""
    texts = ((written(argument.text), argument.at) for command in commands for argument in command)
    for text, at in islice((item for item in texts if " -m " in item[0]), _MAX_TEXTS):
        for command in follow(Source(text), {}).commands:
            yield tuple(Argument(argument.text, at) for argument in command)


def _with_settings(commands: Iterable[Command], programs: Sequence[Started]) -> list[Started]:
    """Return the command with the most settings, for scripts without a known program."""
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
    """Warn about settings below the training command that are not part of it."""
    start = next((index for index, command in enumerate(commands, 1) if command is training), len(commands))
    lost = (command[0] for command in commands[start:] if _DOTTED.match(written(command[0].text)))
    for argument in islice(lost, 1):
        message = "the settings from here on are not passed to verl, because the command ends above"
        hint = "end each line with a backslash, without a comment or blank after it"
        collector.warn(source.place(argument.at), "shell_syntax", message, hint)
