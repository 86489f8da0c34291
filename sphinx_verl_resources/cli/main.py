"""The command line: read it and run the command that it names.

Exit codes, for every command: 0 good, 1 problems found or does not fit, 2 could not run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
from typing import TYPE_CHECKING

from .. import __version__
from ..diagnostics import nearest
from . import backtest, check, completion, estimate, export, import_rst, new, plan, schema, table
from .files import write_result
from .terminal import COLOR_CHOICES, UsageError, choose_color

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (new, check, import_rst, table, export, estimate, plan, backtest, schema, completion)
EXIT_CODES = "Exit codes: 0 good, 1 problems found or does not fit, 2 could not run."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # show what the encoding lacks as an escape
            stream.reconfigure(errors="backslashreplace")
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            options = _parsed(sys.argv[1:] if arguments is None else arguments)
            choose_color(options.color)
            code: int = options.run(options)
        file = getattr(options, "result_file", None)
        if file is None:
            _write(output.getvalue())
        elif code != 2:
            write_result(file, output.getvalue())
    except SystemExit:  # --help and --version
        _write(output.getvalue())
        raise
    except KeyboardInterrupt:
        print("\nverl-resources: interrupted", file=sys.stderr)
        return 2
    except (UsageError, OSError) as error:  # an OSError: the current directory is gone, for example
        print(f"verl-resources: {error}", file=sys.stderr)
        return 2
    return code


def build_parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser of the command line, and those of the commands by their names."""
    parser = argparse.ArgumentParser(
        prog="verl-resources",
        description="Check and show the recorded hardware runs of verl's documentation, estimate GPU memory.",
        epilog=f"verl-resources COMMAND --help has examples of each.\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    commands: dict[str, argparse.ArgumentParser] = {}
    for module in COMMANDS:
        command = commands[module.NAME] = subparsers.add_parser(
            module.NAME,
            help=module.HELP,
            description=f"{module.HELP[0].upper()}{module.HELP[1:]}.",
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.add_argument(
            "--color",
            choices=COLOR_CHOICES,
            default="auto",
            help="colours in messages; default: auto, on a terminal that NO_COLOR does not keep without",
        )
        command.set_defaults(run=module.run)
    commands[completion.NAME].set_defaults(parser=parser, commands=tuple(commands.values()))
    return parser, commands


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; positional words may stand before, between and after them."""
    parser, commands = build_parser()
    if not arguments:
        parser.print_help(sys.stderr)
        raise SystemExit(2)
    name, *words = arguments
    if name in commands:
        _refuse_unknown(commands[name], words)
        return commands[name].parse_intermixed_args(words)
    if not name.startswith("-"):
        near = nearest(name, commands)
        remedy = f"did you mean {near!r}?" if near else f"the commands are {', '.join(commands)}"
        parser.error(f"unknown command {name[:80]!r}; {remedy}")
    if not any(option.startswith(name) for option in ("-h", "--help", "--version")):
        parser.error(f"{name[:80]!r} stands before a command; a command comes first, then its options")
    return parser.parse_args(arguments)


def _refuse_unknown(command: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Name the nearest option before argparse asks for what is missing because of the misspelling."""
    known = re.findall(r"--[\w-]+", command.format_usage())
    for word in words:
        if word == "--":
            return
        option = word.partition("=")[0]
        if option.startswith("--") and not any(name.startswith(option) for name in ["--help", *known]):
            near = nearest(option, known)
            remedy = f"; did you mean {near!r}?" if near else f"; see {command.prog} --help"
            command.error(f"unrecognized arguments: {option[:80]}{remedy}")


def _write(text: str) -> None:
    """Print at once, when the exit code is known: a reader that goes away early does not change it."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise UsageError(f"the output cannot be written: {error.strerror}") from None
