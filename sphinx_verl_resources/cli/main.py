"""Parse the command line and run a command.

Exit codes of every command: 0 success, 1 problems found or does not fit, 2 could not run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..diagnostics import printable
from .command import Command, UsageError
from .files import write_result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

_EPILOG = """\
Run verl-resources COMMAND --help for examples.
Problems are printed to standard error, one per line: path:line:col: LEVEL: message [code].
Exit codes: 0 success, 1 problems found or does not fit, 2 could not run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; an expected failure prints one line and returns 2."""
    # A closed stream is None, and print() would write to the other one instead.
    with (
        contextlib.redirect_stdout(sys.stdout or io.StringIO()),
        contextlib.redirect_stderr(sys.stderr or io.StringIO()),
    ):
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # escape characters that the encoding lacks
                stream.reconfigure(errors="backslashreplace")
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        except (UsageError, OSError, UnicodeEncodeError) as error:
            _refuse(_in_words(error))
            return 2


def _run(arguments: Sequence[str]) -> int:
    """Run the command, write its result, and return its exit code."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            options = _parsed(arguments)
            code: int = options.run(options)
    except SystemExit:  # --help and --version
        _write(output.getvalue())
        raise
    file = getattr(options, "result_file", None)
    if file is None:
        _write(output.getvalue())
    elif code != 2:
        write_result(file, output.getvalue())
    return code


def build_parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser of the command line, and the parser of each command by name."""
    parser = argparse.ArgumentParser(
        prog="verl-resources",
        description="Check and show the recorded hardware runs of verl's documentation; estimate GPU memory.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    parsers = {
        command.name: _parser_of(command, partial(subparsers.add_parser, command.name, help=command.help))
        for command in all_commands()
    }
    return parser, parsers


def _parser_of(
    command: Command, make: Callable[..., argparse.ArgumentParser] = argparse.ArgumentParser
) -> argparse.ArgumentParser:
    """Return the parser of one command, created with ``make``."""
    parser = make(
        prog=f"verl-resources {command.name}",
        description=f"{command.help[0].upper()}{command.help[1:]}.",
        epilog=command.epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)
    return parser


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; positional words and options may come in any order."""
    name = arguments[0] if arguments else ""
    if name in NAMES:
        command = _parser_of(command_named(name))
        return command.parse_intermixed_args(arguments[1:])
    parser, _ = build_parser()
    if not arguments:
        parser.print_help(sys.stderr)
        raise SystemExit(2)
    return parser.parse_args(arguments)


def _write(text: str) -> None:
    """Print and flush a text; a pipe closed by its reader does not change the exit code."""
    if not text:
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
    except OSError as error:
        _discard(sys.stdout)
        raise UsageError(f"the output cannot be written: {error.strerror}") from None


def _refuse(reason: str) -> None:
    """Print why the command could not run, if standard error can be written."""
    try:
        print(f"verl-resources: {reason}", file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Keep Python from trying to write a stream's remaining text again at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _in_words(error: UsageError | OSError | UnicodeEncodeError) -> str:
    """Return the message of an error, without the system's error number."""
    try:
        Path.cwd()
    except OSError:
        return "the current directory no longer exists; change to another one with cd"
    if isinstance(error, UnicodeEncodeError):  # Python keeps such bytes of arguments as lone surrogates
        wrong = printable(error.object[error.start : error.end])
        encoding = sys.getfilesystemencoding().upper()
        return (
            f"an argument is not valid {encoding}: '{wrong}'; encode it in {encoding}, or set LC_ALL=C.UTF-8"
        )
    if isinstance(error, UsageError) or not error.strerror:
        return str(error)
    file = f"{printable(str(error.filename))[:200]}: " if error.filename else ""
    return f"{file}{error.strerror.lower()}"


#: The commands in the order of the help text, with their modules; only the module needed is loaded.
NAMES = {
    "new": "new",
    "check": "check",
    "table": "print_data",
    "export": "print_data",
    "estimate": "estimate",
    "plan": "plan",
    "diagnose": "diagnose",
    "schema": "print_data",
}


def command_named(name: str) -> Command:
    """Return a command."""
    found: Command = getattr(import_module(f"{__package__}.{NAMES[name]}"), name.upper().replace("-", "_"))
    return found


def all_commands() -> tuple[Command, ...]:
    """Return the commands in the order of the help text."""
    return tuple(map(command_named, NAMES))
