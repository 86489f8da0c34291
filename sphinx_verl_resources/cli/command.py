"""Define what every command has: a description, options for its result, and reports on standard error."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from dataclasses import dataclass
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..diagnostics import Code, Severity, counted, listed, one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TextIO

    from ..catalog.names import Verdict
    from ..diagnostics import Diagnostic

#: What ``--color`` can be set to.
COLOR_CHOICES = ("auto", "always", "never")
_RESET, _DIM = "\x1b[0m", "\x1b[2m"
_LEVELS = {Severity.ERROR: "\x1b[31m", Severity.WARNING: "\x1b[33m"}
#: Back to the first column, and nothing after it.
_CLEAR = "\r\x1b[K"
#: Seconds of work that need no sign of life, and between two signs.
PATIENCE, STEP = 1.0, 0.1

#: What the exit codes of commands mean that answer questions.
EXIT_CODES = (
    "0 fits or may fit (borderline, depends on the lengths, unknown), 1 does not fit, has problems, or with "
    "--strict only may fit, 2 no answer. Warnings do not fail."
)
#: The characters of the longest line that is printed, where the terminal has more.
WIDTH = 100

Item = TypeVar("Item")
#: Problems of a launch script that are printed where nobody asks for all.
MOST_PROBLEMS = 10
#: The problems that decide an answer: they come first after the errors.
_DECISIVE = frozenset(
    {
        Code.unresolved, Code.undecided, Code.assumed_device, Code.unused_variable, Code.unknown_model,
        Code.shell_syntax, Code.missing_key, Code.impossible_settings,
    }
)  # fmt: skip
_choice = "auto"


@dataclass(frozen=True)
class Command:
    """A command of ``verl-resources``.

    Attributes:
        name: the word that calls it.
        help: its purpose, in the list of commands.
        examples: by the words after its name, what they do; empty where the words say it.
        exit_codes: their meaning.
        add_arguments: adds its arguments to a parser.
        run: does the work and returns the exit code.
        notes: what else its help says.
    """

    name: str
    help: str
    examples: Mapping[str, str]
    exit_codes: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    notes: str = ""

    @property
    def lines(self) -> dict[str, str]:
        """The examples by whole command lines."""
        return {f"verl-resources {self.name} {words}".strip(): does for words, does in self.examples.items()}

    @property
    def epilog(self) -> str:
        """The end of its help text."""
        width = max((len(line) for line, does in self.lines.items() if does), default=0)
        lines = [f"  {line:{width}}   {does}".rstrip() for line, does in self.lines.items()]
        below = (
            textwrap.fill(text, WIDTH, break_on_hyphens=False)
            for text in (self.notes, f"Exit codes: {self.exit_codes}")
            if text
        )
        return "\n\n".join(["\n".join(["examples:", *lines]), *below])


class UsageError(Exception):
    """A reason why the command cannot run, on one line; it ends with exit code 2."""


def add_result_options(
    parser: argparse.ArgumentParser, formats: Sequence[str] = ("text", "json"), default: str = "text"
) -> None:
    """Add ``--format`` and ``--output``."""
    parser.add_argument(
        "--format", choices=formats, default=default, help=f"how the result is printed; default: {default}"
    )
    parser.add_argument(
        "--output",
        dest="result_file",
        metavar="FILE",
        type=Path,
        help="write the result to this file instead, whole or not at all; where the command could not run, "
        "nothing is written",
    )


def exit_code(verdict: Verdict, *, strict: bool) -> int:
    """Return the exit code of a verdict: 0 fits, 1 does not; what may fit is 0 unless that is not enough."""
    if verdict == "fits":
        return 0
    return int(strict or verdict == "does-not-fit")


def screen_width() -> int:
    """Return the characters of a line: those of the terminal, at most 100."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def choose_color(choice: str) -> None:
    """Set ``--color`` for everything that is reported from now on."""
    global _choice
    _choice = choice


def wants_color(stream: TextIO | None, choice: str, environment: Mapping[str, str]) -> bool:
    """Return whether to write colours: where they are asked for, or else on a terminal.

    Args:
        stream: where the text goes.
        choice: one of ``COLOR_CHOICES``.
        environment: with ``NO_COLOR`` and ``FORCE_COLOR``, which count if they are not empty.
    """
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    return _is_terminal(stream) and environment.get("TERM") != "dumb"


def report(problems: Sequence[Diagnostic]) -> bool:
    """Print problems on standard error, one a line, and return whether there is an error among them."""
    colored = wants_color(sys.stderr, _choice, os.environ)
    for problem in listed(problems):
        print(_colored(problem) if colored else problem, file=sys.stderr)
    return any(problem.is_error for problem in problems)


def report_first(problems: Sequence[Diagnostic]) -> bool:
    """Report ten problems, first errors and what decides an answer, and count the others."""
    ranked = sorted(problems, key=lambda problem: (not problem.is_error, problem.code not in _DECISIVE))
    bad = report(ranked[:MOST_PROBLEMS])
    rest = ranked[MOST_PROBLEMS:]
    if rest:
        print(f"… and {counted(len(rest), 'more message')}; --verbose shows all", file=sys.stderr)
    return bad or any(problem.is_error for problem in rest)


def progress(
    items: Iterable[Item], what: str, /, total: int = 0, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[Item]:
    """Yield the items, and on a terminal show how many are done once that takes long.

    The line is on standard error, is written over itself, and is gone when the items are or the caller stops.

    Args:
        items: what is worked on.
        what: the line's first words, ``cases`` for example.
        total: how many there are, where the items do not tell.
        clock: seconds that go by.
    """
    if not _is_terminal(sys.stderr):
        yield from items
        return
    total = total or length_hint(items)
    of_total = f" of {total:,}" if total else ""
    next_sign = clock() + PATIENCE
    shown = False
    try:
        for done, item in enumerate(items):
            if (now := clock()) >= next_sign:
                next_sign, shown = now + STEP, True
                _show(f"{what}: {done:,}{of_total}")
            yield item
    finally:
        if shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def _show(text: str) -> None:
    """Write over the line, and keep it shorter than the terminal: two lines could not be written over."""
    room = shutil.get_terminal_size().columns - 1
    sys.stderr.write(_CLEAR + one_line(text)[:room])
    sys.stderr.flush()


def _colored(problem: Diagnostic) -> str:
    """Return a problem as it is printed, the level in its colour and the code dimmed."""
    level = f"{_LEVELS[problem.severity]}{problem.severity.name}{_RESET}"
    place = f"{problem.place}: " if problem.place.path else ""
    return f"{place}{level}: {problem.text} {_DIM}[{problem.code.id}]{_RESET}"


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
