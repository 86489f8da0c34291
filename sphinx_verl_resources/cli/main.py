"""Reading the command line and calling the command that it names.

Exit codes, for every command: 0 good, 1 problems found or does not fit, 2 could not run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING

from .. import __version__
from . import backtest, check, estimate, plan, schema, table

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (check, table, estimate, plan, backtest, schema)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # whatever a terminal cannot show, it shows as an escape
            stream.reconfigure(errors="backslashreplace")
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            options = _parsed(arguments)
            code: int = options.run(options)
    except SystemExit:  # --help and --version
        _write(output.getvalue())
        raise
    except OSError as error:
        print(f"verl-resources: {error}", file=sys.stderr)
        return 2
    try:
        _write(output.getvalue())
    except OSError as error:
        print(f"verl-resources: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    return code


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; words may stand before, between and behind them, which argparse alone does not take."""
    parser = _parser()
    options, more = parser.parse_known_args(arguments)
    taken = next((name for name in ("settings", "paths") if hasattr(options, name)), None)
    if more and (taken is None or any(word.startswith("-") for word in more)):
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if taken:
        setattr(options, taken, [*getattr(options, taken), *more])
    return options


def _write(text: str) -> None:
    """Print at once, when the exit code is known: a reader that goes away early does not change it."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="verl-resources",
        description="Check and show the recorded hardware runs of verl's documentation, estimate GPU memory.",
        epilog="Exit codes: 0 good, 1 problems found or does not fit, 2 could not run.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in COMMANDS:
        command = commands.add_parser(
            module.NAME,
            help=module.HELP,
            description=f"{module.HELP[0].upper()}{module.HELP[1:]}.",
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser
