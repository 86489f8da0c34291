"""The command ``verl-resources``: its commands, arguments, exit codes, files and data.

Exit codes of every command: 0 success, 1 problems found or does not fit, 2 could not run.
"""

from __future__ import annotations

import argparse
import io
import os
import secrets
import sys
import textwrap
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from . import __version__
from .dataset import DATA_NAMES, DataFile, configured_directory, refuse_irregular, refuse_link_in_data
from .diagnostics import NoAnswerError, listed, one_line, printable
from .estimator.context import EstimatorContext
from .git import GitError
from .strict_yaml import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .dataset import Directory
    from .diagnostics import Diagnostic

#: The module of each command, in the order of the help text; only the module needed is loaded.
COMMANDS = {
    "new": "cli.new",
    "check": "print_commands",
    "table": "print_commands",
    "export": "print_commands",
    "estimate": "cli.estimate",
    "plan": "cli.plan",
    "diagnose": "cli.diagnose",
    "schema": "print_commands",
}


class UsageError(Exception):
    """A one-line reason why a command cannot run."""


# -- commands and their arguments

#: The arguments of ``ArgumentParser.add_argument``.
Option = tuple[tuple[str, ...], dict[str, Any]]


def option(*names: str, **settings: Any) -> Option:
    """Return an argument of a command."""
    return names, settings


DATA = option("--data", action="append", default=[], metavar="DIR", help="data directory; may be repeated")
FORMAT = option("--format", choices=("text", "json"), default="text", help="default: text")
OUTPUT = option("--output", dest="result_file", metavar="FILE", help="write the result to this file instead")


@dataclass(frozen=True)
class Command:
    """A command of ``verl-resources``.

    Attributes:
        name: its name on the command line.
        help: its purpose, in the list of commands.
        options: its arguments.
        run: function that does the work and returns the result as text, and the exit code.
        examples: the words after the name, each with an explanation, which may be empty.
        exit_codes: the meaning of its exit codes.
        notes: text of its help after the examples.
    """

    name: str
    help: str
    options: tuple[Option, ...]
    run: Callable[[argparse.Namespace], tuple[str, int]]
    examples: Mapping[str, str]
    exit_codes: str
    notes: str = ""

    @property
    def lines(self) -> dict[str, str]:
        """The example command lines, each with its explanation."""
        return {f"verl-resources {self.name} {words}".strip(): does for words, does in self.examples.items()}

    def parser(self) -> argparse.ArgumentParser:
        """Return the parser of its arguments."""
        width = max((len(line) for line, does in self.lines.items() if does), default=0)
        examples = [f"  {line:{width}}   {does}".rstrip() for line, does in self.lines.items()]
        notes = f"{self.notes} Exit codes: {self.exit_codes}".strip()
        parser = _Parser(
            prog=f"verl-resources {self.name}",
            description=f"{self.help[0].upper()}{self.help[1:]}.",
            epilog="\n".join(["examples:", *examples, "", textwrap.fill(notes, 100, break_on_hyphens=False)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for names, settings in self.options:
            parser.add_argument(*names, **settings)
        return parser


class _Parser(argparse.ArgumentParser):
    """A parser whose errors take one line."""

    def error(self, message: str) -> NoReturn:
        """Raise a usage error."""
        raise UsageError(f"{message}; see {self.prog} --help")


def command_named(name: str) -> Command:
    """Return a command."""
    found: Command = getattr(import_module(f".{COMMANDS[name]}", __package__), name.upper())
    return found


# -- running


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    code = 2
    try:
        command, options = _parsed(sys.argv[1:] if arguments is None else arguments)
        text, code = command.run(options)
        file = getattr(options, "result_file", None)
        if text and not file:
            _print(text)
        elif file and code != 2:
            write_file(Path(file), f"{text}\n")
    except BrokenPipeError:  # the reader has seen enough
        return code
    except (UsageError, NoAnswerError, GitError, OSError, UnicodeError) as error:
        print(f"verl-resources: {_reason(error)}", file=sys.stderr)
        return 2
    return code


def _reason(error: Exception) -> str:
    """Return the reason on one line, without the system's error number."""
    if not isinstance(error, OSError):
        return one_line(str(error))
    file = f"{printable(str(error.filename))}: " if error.filename else ""
    return f"{file}{(error.strerror or str(error)).lower()}"


def _parsed(arguments: Sequence[str]) -> tuple[Command, argparse.Namespace]:
    """Return the command and its arguments, in which words and options may come in any order."""
    if arguments and arguments[0] in COMMANDS:
        command = command_named(arguments[0])
        return command, command.parser().parse_intermixed_args(arguments[1:])
    parser = _Parser(
        prog="verl-resources",
        description="Check and show the recorded hardware runs of verl's documentation; estimate GPU memory.",
        epilog="See verl-resources COMMAND --help for examples. Problems go to standard error, one per line: "
        "path:line:col: LEVEL: message [code]. Exit codes: 0 success, 1 problems or no fit, 2 could not run.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        subparsers.add_parser(name, help=command_named(name).help)
    parser.parse_args(arguments)
    raise UsageError("the name of the command comes first; see verl-resources --help")


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except OSError:
        sys.stdout = io.StringIO()  # Python would write the rest of the text to the other one at exit
        raise


def report(problems: Sequence[Diagnostic]) -> bool:
    """Print problems to standard error, one per line, and return whether any is an error."""
    for problem in listed(problems):
        print(problem, file=sys.stderr)
    return any(problem.is_error for problem in problems)


# -- files that the user names


def open_file(name: str) -> BinaryIO:
    """Open a file of any size.

    Raises:
        OSError: it cannot be read or is not a regular file.
    """
    refuse_link_in_data(Path(name))
    refuse_irregular(Path(name))
    return Path(name).open("rb")


def read_file(name: str) -> DataFile:
    """Read a file, or the first part of one that is too large.

    Raises:
        OSError: it cannot be read or is not a regular file.
    """
    with open_file(name) as stream:
        return DataFile(Path(name), name, stream.read(MAX_BYTES + 1))


def read_text(name: str) -> str:
    """Read the text of a file.

    Raises:
        OSError: it cannot be read or is not a regular file.
        UsageError: it is not text.
    """
    try:
        return read_file(name).content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{printable(name)}: not UTF-8 text, at byte {error.start}") from None


def write_file(path: Path, text: str) -> None:
    """Write a whole file or nothing; a link is kept and its target replaced.

    Raises:
        OSError: it cannot be written, or is not a regular file.
    """
    target = Path(os.path.realpath(path))
    # Files whose names begin with a dot are not read as data.
    written = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        refuse_link_in_data(path)
        if target.exists():
            refuse_irregular(target)
        written.write_text(text, "utf-8", "backslashreplace")
        written.replace(target)
    except OSError as error:
        error.filename = path
        raise
    finally:
        written.unlink(missing_ok=True)


# -- data


def given_data(names: Sequence[str]) -> EstimatorContext:
    """Read the named directories after the bundled dataset, or the default one, if there is any.

    Raises:
        OSError: a path is not a directory.
        UsageError: a directory contains no data.
    """
    return EstimatorContext(data_directories(names or default_data()))


def data_directories(names: Sequence[str]) -> list[Directory]:
    """Return the data directories of these paths.

    Raises:
        OSError: a path is not a directory.
        UsageError: a directory contains no data.
    """
    for name in names:
        if DATA_NAMES.isdisjoint(path.name for path in Path(name).iterdir()):
            raise UsageError(f"{printable(name)}: contains no data; give a folder that contains runs/")
    return [configured_directory(name, Path.cwd()) for name in names]


def default_data() -> list[str]:
    """Return ./data or the enclosing data directory; empty for the bundled dataset."""
    return first_with_data(Path("data"), Path.cwd(), *Path.cwd().parents)


def first_with_data(*folders: Path) -> list[str]:
    """Return the relative path of the first of these folders that contains data, or an empty list."""
    found = [folder for folder in folders if any((folder / name).exists() for name in DATA_NAMES)]
    return [os.path.relpath(folder) for folder in found[:1]]
