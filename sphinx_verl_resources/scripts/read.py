"""Read settings from a launch script, YAML or overrides."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..diagnostics import Diagnostic, Location, NoAnswerError
from ..memory.request import dotted_leaves
from ..strict_yaml import read_yaml
from .overrides import OVERRIDE, add_override
from .settings import Program, SettingsText, program_of
from .values import Cause, Unknown, Word, cause_of, source_of, split_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .shell import Command, Shell

_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})

#: A text whose first line is YAML, apart from empty lines and comments.
_YAML = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*"
    r"(?:[ \t]*(?:\{\s*)?['\"]?[\w.+/-]+['\"]?[ \t]*:(?!\S)|[ \t]*-[ \t]|---|\{\s*\})"
)
#: A command at the beginning of a line, or a module for Python to run.
_SCRIPT = re.compile(
    r"^[ \t]*(?:set|export|source|if|for|while|case|function|cd|ray|python3?|torchrun|bash|srun)"
    r"[ \t]+[^ \t=:]|^[ \t]*-m[ \t]|[ \t]-m[ \t]",
    re.MULTILINE,
)
#: What only a shell knows, in an override.
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*(?![\w.:])|\$\(|`")

#: Options of Hydra with a value in the next word; the others have none.
_OPTIONS = frozenset({"--config-path", "-cp", "--config-dir", "-cd", "--package", "-p", "--cfg", "-c"})
_CONFIG_NAME = frozenset({"--config-name", "-cn"})
#: A word such as ``trainer.nnodes=1`` or ``+actor.x.y=2``.
_DOTTED = re.compile(r"\+{0,2}[A-Za-z_]\w*\.[\w.]*=")
#: Files that prepare a shell, but set nothing that a launch script passes to verl.
_PREPARES = re.compile(
    r"(?:\A|/)(?:activate|set_?env(?:_\w+)?\.sh|setvars\.sh|conda\.sh|\.?(?:bashrc|bash_profile|profile))\Z"
)


def read_settings(text: str, label: str, environment: Mapping[str, str] = _NO_VARIABLES) -> SettingsText:
    r"""Read verl's settings from a launch script, from YAML, or from overrides such as ``trainer.nnodes=2``.

    The format is detected from the content. An empty text has no settings. Overrides may have a shell's
    quotes and comments; a shell's variables in them are unknown.

    Args:
        text: the text; overrides are separated by blanks or line ends.
        label: its name in messages.
        environment: the environment variables of a script.

    Returns:
        The settings by dotted keys, with places and problems. This runs nothing, reads no files and no
        environment variables.

    Raises:
        NoAnswerError: the text is a script, and the packages of the extra ``scripts`` are not installed.

    >>> read_settings("trainer.nnodes: 2", "a.yaml").values
    {'trainer.nnodes': 2}
    >>> read_settings("trainer.nnodes=2 +actor.x=a,b", "overrides").values
    {'trainer.nnodes': 2, 'actor.x': 'a,b'}
    """
    script, text = text, text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.startswith("#!") and _YAML.match(text):
        return _read_yaml(text, label)
    if text.startswith("#!") or _SCRIPT.search(text):
        return read_script(script, label, environment)
    settings = SettingsText()
    _read_arguments(settings, _words(settings, text, label))
    return settings.resolved(translated=True)


def read_script(text: str, label: str, environment: Mapping[str, str] = _NO_VARIABLES) -> SettingsText:
    r"""Read the settings that a launch script passes to verl, without running anything.

    Variables, defaults such as ``${NAME:-8}``, arithmetic, arrays, branches and functions are evaluated. The
    script is assumed to start without arguments, on GPUs, with only the variables in ``environment``.

    Args:
        text: the script.
        label: its name in messages.
        environment: its environment variables.

    Returns:
        The settings of the first training command. Values that only a running shell knows are in
        ``unresolved``, with a warning each. A text without a training command is an error.

    Raises:
        NoAnswerError: the packages of the extra ``scripts`` are not installed.

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
    try:
        from .shell import Shell  # it needs the packages of the extra
    except ModuleNotFoundError as error:
        message = f"reading a launch script needs the package {error.name}, which is not installed"
        remedy = 'install the extra "scripts" of the package, or give the settings as YAML or KEY=VALUE'
        raise NoAnswerError(Diagnostic(Location(label), "file_unreadable", message, remedy)) from None
    settings = SettingsText()
    shell = Shell(label, environment)
    shell.follow(text.replace("\r\n", "\n"))
    _read_commands(settings, shell, label)
    return settings.resolved(translated=True)


def _read_commands(settings: SettingsText, shell: Shell, label: str) -> None:
    """Add the settings of the first training command, and the program that it starts."""
    settings.problems = tuple(shell.problems.values())
    settings.variables_read = frozenset(shell.expansion.variables_read)
    programs = [(command, program) for command in shell.commands if (program := program_of(command.words))]
    trainings = [each for kind in ("rl", "sft") for each in programs if each[1].kind == kind]
    of_verl = bool(trainings)
    trainings = trainings or _with_settings(shell.commands)
    if not trainings and not settings.problems:
        message = "the script has no command that trains with verl"
        hint = "expected one such as python3 -m verl.trainer.main_ppo data.train_batch_size=256"
        settings.error(Location(label), "shell_syntax", message, hint)
    for _, program in (trainings or programs)[:1]:
        settings.program = program
    if not trainings:
        return
    command, program = trainings[0]
    if len(trainings) > 1:
        line, remedy = program.place.line, "split the script"
        message = f"the script has {len(trainings)} training commands; only the one in line {line} is read"
        if doubt := command.doubt:
            message, remedy = f"{message}: {doubt.text}", doubt.remedy("the command")
            settings.incomplete += (f"the command in line {line}: {doubt.text}",)
        settings.warn(trainings[1][1].place, "shell_syntax", message, remedy)
    _read_arguments(settings, program.arguments, of_verl=of_verl)
    below = shell.commands[shell.commands.index(command) + 1 :]
    lost = [words[0].place for words, _ in below if _DOTTED.match(source_of(words[0].text))]
    for place in lost[:1]:
        message = "the settings from here on are not passed to verl, because the command ends above"
        hint = "end each line with a backslash, without a comment or blank after it"
        settings.warn(place, "shell_syntax", message, hint)
    for place, name in shell.skipped.items():
        if not _PREPARES.search(name):
            message = f"{name[:80]!r} was not read, but may set any variable of this script"
            settings.warn(place, "unresolved", message, "copy its lines into the script")
            settings.incomplete += (f"{name[:80]}: it was not read, but may set any variable",)


def _with_settings(commands: Iterable[Command]) -> list[tuple[Command, Program]]:
    """Return the command with the most settings, for scripts without a known program."""
    best: list[tuple[Command, Program]] = []
    most = 0
    for command in commands:
        texts = [source_of(word.text) for word in command.words]
        dotted = [at for at, word in enumerate(texts) if _DOTTED.match(word)]
        if len(dotted) <= most or texts[0] in {"echo", "cat", "grep", "sed"}:
            continue
        most, start = len(dotted), dotted[0]
        while start > 1 and (texts[start - 1][:1] == "-" or "=" in texts[start - 1]):
            start -= 1
        unnamed = Program("", "other", command.words[0].place, command.words[start:])
        program = program_of(command.words) or unnamed
        best = [(command, program._replace(kind="rl" if program.kind == "other" else program.kind))]
    return best


def _read_arguments(settings: SettingsText, arguments: Iterable[Word], *, of_verl: bool = True) -> None:
    """Add the settings in the arguments of a training command; other programs may have other arguments."""
    remaining = iter(arguments)
    for text, place in remaining:
        source, cause = source_of(text), cause_of(text)
        option, equals, value = source.partition("=")
        if option in _CONFIG_NAME:
            name = text if equals else next(remaining, Word(text)).text
            if cause := cause_of(name):
                message = f"the name of the configuration is unknown: {cause.text}"
                settings.warn(place, "unresolved", message, cause.remedy("it"))
                settings.incomplete += (message,)
            settings.config_name = None if cause else re.sub(r"\.ya?ml\Z", "", value or source_of(name))
        elif option in _OPTIONS and not equals:
            next(remaining, None)
        elif source.startswith("-"):
            continue
        elif cause is None and (of_verl or "=" in source):
            add_override(settings, source, place)
        elif cause:
            key, rest = split_key(text)
            if override := OVERRIDE.fullmatch(key):
                settings.leave_open(override["key"], source_of(rest), cause, place)
            else:
                message = f"the settings in {source!r} are unknown: {cause.text}"
                settings.warn(cause.place or place, "unresolved", message, cause.remedy("the settings"))
                settings.incomplete += (f"{source}: {cause.text}",)


def _words(settings: SettingsText, text: str, label: str) -> Iterator[Word]:
    """Yield the words of a text of overrides; those with a shell's variables are unknown."""
    for number, line in enumerate(text.split("\n"), 1):
        words = shlex.shlex(line.rstrip().removesuffix("\\"), posix=True)
        words.whitespace_split, words.commenters = True, ""  # bash begins comments only between words
        try:
            for word in takewhile(lambda word: word[:1] != "#", words):
                key, _, value = word.partition("=")
                unknown = Unknown(value, Cause(f"only a shell knows {value!r}"))
                parts = (f"{key}=", unknown) if _VARIABLE.search(word) else (word,)
                yield Word(parts, Location(label, number, max(line.find(key), 0) + 1))
        except ValueError:
            message = "the text has a quote that is never closed"
            settings.error(Location(label, number), "shell_syntax", message, "add the closing quote")


def _read_yaml(text: str, label: str) -> SettingsText:
    """Read settings from YAML; dotted keys and nested mappings are equivalent."""
    settings = SettingsText()
    document = read_yaml(text.encode("utf-8", "surrogatepass"), label)
    settings.problems = tuple(document.problems)
    if isinstance(document.data, dict):
        for key, value in dotted_leaves(document.data):
            value = tuple(value) if isinstance(value, list) else value
            settings.add(key, value, document.key_place(tuple(key.split("."))))
    elif document.data is not None:
        hint = "write keys and values, as in data.train_batch_size: 64"
        settings.error(Location(label), "wrong_type", "expected keys and values", hint)
    return settings.resolved(translated=True)
