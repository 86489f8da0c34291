"""Parts of every command: its description, options for the result, and reports on standard error."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from dataclasses import dataclass
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..diagnostics import Code, counted, listed, one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..diagnostics import Diagnostic
    from ..estimator.names import Verdict

#: Return to the first column and clear the line.
_CLEAR = "\r\x1b[K"
#: Seconds before progress is shown, and between two updates.
PATIENCE, STEP = 1.0, 0.1

#: Exit codes of the commands that return a verdict.
EXIT_CODES = (
    "0 fits or may fit (borderline, depends on the lengths, unknown), 1 does not fit, has errors, or with "
    "--strict may fit, 2 no answer. Warnings do not change the exit code."
)
#: Longest printed line, in characters, on a wider terminal.
WIDTH = 100

Item = TypeVar("Item")
#: Problems of a launch script that are printed without ``--verbose``.
MOST_PROBLEMS = 10
#: Problems that affect the answer; they are printed first, after the errors.
_DECISIVE = frozenset(
    {
        Code.unresolved, Code.undecided, Code.assumed_device, Code.unused_variable, Code.unknown_model,
        Code.shell_syntax, Code.missing_key, Code.impossible_settings,
    }
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A command of ``verl-resources``.

    Attributes:
        name: its name on the command line.
        help: its purpose, in the list of commands.
        examples: the words after the name, each with an explanation, which may be empty.
        exit_codes: the meaning of its exit codes.
        add_arguments: function that adds its arguments to a parser.
        run: function that does the work and returns the exit code.
        notes: text of its help after the examples.
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
        """The example command lines, each with its explanation."""
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
    """A one-line reason why the command cannot run; the exit code is 2."""


def add_result_options(
    parser: argparse.ArgumentParser, formats: Sequence[str] = ("text", "json"), default: str = "text"
) -> None:
    """Add ``--format`` and ``--output``."""
    parser.add_argument(
        "--format", choices=formats, default=default, help=f"format of the result; default: {default}"
    )
    parser.add_argument(
        "--output",
        dest="result_file",
        metavar="FILE",
        type=Path,
        help="write the result to this file instead; nothing is written if the command cannot run",
    )


def exit_code(verdict: Verdict, *, strict: bool) -> int:
    """Return the exit code of a verdict: 0 fits, 1 does not fit; “may fit” gives 0, or 1 if strict."""
    if verdict == "fits":
        return 0
    return int(strict or verdict == "does-not-fit")


def screen_width() -> int:
    """Return the terminal's width in characters, at most 100."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def report(problems: Sequence[Diagnostic]) -> bool:
    """Print problems to standard error, one per line, and return whether any is an error."""
    for problem in listed(problems):
        print(problem, file=sys.stderr)
    return any(problem.is_error for problem in problems)


def report_first(problems: Sequence[Diagnostic]) -> bool:
    """Print the first ten problems, errors and those that affect the answer first, and count the rest."""
    ranked = sorted(problems, key=lambda problem: (not problem.is_error, problem.code not in _DECISIVE))
    bad = report(ranked[:MOST_PROBLEMS])
    rest = ranked[MOST_PROBLEMS:]
    if rest:
        print(f"… and {counted(len(rest), 'more message')}; --verbose shows all", file=sys.stderr)
    return bad or any(problem.is_error for problem in rest)


def progress(
    items: Iterable[Item], what: str, /, total: int = 0, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[Item]:
    """Wrap an iterable and show progress on a terminal if the work takes long.

    The progress line is on standard error. It is updated in place and cleared at the end.

    Args:
        items: the items to yield.
        what: the line's first words, for example ``cases``.
        total: their number, if the iterable has no length.
        clock: function that returns the time in seconds.
    """
    if not sys.stderr.isatty():
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
    """Replace the progress line; cut it to the terminal's width, since a wrapped line cannot be cleared."""
    room = shutil.get_terminal_size().columns - 1
    sys.stderr.write(_CLEAR + one_line(text)[:room])
    sys.stderr.flush()
