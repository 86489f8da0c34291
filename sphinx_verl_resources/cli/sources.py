"""Options, files and reports that several commands share."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from ..commands import UsageError, option
from ..dataset import DataFile, read_data_file, refuse_irregular, refuse_link_in_data
from ..diagnostics import Diagnostic, Location, NoAnswerError, capped, counted, did_you_mean, visible, warning
from ..fit.terminal import wrapped
from ..memory.registries import EstimatorContext
from ..memory.resolve import is_harmless
from ..scripts.read import read_settings
from ..scripts.settings import SettingsText, refusal

#: The place of a problem with an argument rather than a file.
COMMAND_LINE = Location("")

# -- options


def parser_of(read: Callable[[str], Any], expected: str = "") -> Callable[[str], Any]:
    """Return a function that parses an option and raises the error that argparse expects."""

    def parse(text: str) -> Any:
        try:
            value = read(text)
        except NoAnswerError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if value is None:
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text[:80]!r}")
        return value

    return parse


def _variable(text: str) -> tuple[str | Any, ...] | None:
    match = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", text, re.ASCII | re.DOTALL)
    return match and match.groups()


SCRIPT = option("--script", metavar="FILE", help="launch script of the run; it is read, never run")
ENV = option(
    "--env",
    metavar="NAME=VALUE",
    type=parser_of(_variable, "NAME=VALUE, as in DEVICE=gpu"),
    action="append",
    default=[],
    help="environment variable of the script, such as DEVICE=npu; repeatable",
)


def refuse_lone_variables(options: argparse.Namespace) -> None:
    """Raise ``UsageError`` for ``--env`` without a script."""
    if options.env and not options.script:
        raise UsageError("--env sets variables of a launch script; give the script with --script")


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
    refuse_link_in_data(Path(name))
    return read_data_file(Path(name), name)


def read_text(name: str) -> str:
    """Read the text of a file.

    Raises:
        OSError: it cannot be read or is not a regular file.
        UsageError: it is not text.
    """
    try:
        return read_file(name).content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: not UTF-8 text, at byte {error.start}") from None


# -- launch scripts


def read_source(source: str, options: argparse.Namespace) -> SettingsText:
    """Read a file of settings with the variables of ``--env``.

    Raises:
        NoAnswerError: one of its settings cannot be read, or it has none: an answer would be wrong.
        UsageError: it cannot be read.
    """
    environment = dict(options.env)
    text = with_unused(read_settings(read_text(source), source, environment), environment)
    wrong = refusal(text)
    errors = [wrong] if wrong else [each for each in text.problems if each.is_error]
    if not (errors or text.values or text.unresolved):
        message, remedy = "the file contains no settings of verl", "give a launch script, YAML or overrides"
        errors = [Diagnostic(Location(source), "file_empty", message, remedy)]
    if errors:
        raise NoAnswerError(*errors)
    return text


def with_unused(text: SettingsText, environment: Mapping[str, str]) -> SettingsText:
    """Return settings, with a warning for each variable that their text does not use."""
    problems = [*text.problems]
    for name in (name for name in environment if name not in text.asked):
        message = f"--env {name}: the script does not use this environment variable"
        remedy = did_you_mean(name, sorted(text.asked)) or "correct the name, or set it in the script"
        problems.append(warning(COMMAND_LINE, "unused_variable", message, remedy))
    return replace(text, problems=tuple(problems))


def still_open(text: SettingsText, known: Container[str]) -> tuple[Diagnostic, ...]:
    """Return a text's problems, except for unresolved values that are given elsewhere or harmless."""
    return text.problems_besides({key for key in text.unresolved if key in known or is_harmless(key)})


# -- the report

#: Problems of a launch script that are printed without ``--verbose``.
MOST_PROBLEMS = 10
#: Problems that affect the answer; they are printed first, after the errors.
_DECISIVE = {
    "unresolved", "undecided", "assumed_device", "unused_variable", "unknown_model", "shell_syntax",
    "missing_key", "impossible_settings",
}  # fmt: skip


def errors_text(problems: Iterable[Diagnostic]) -> str:
    """Return the errors on one line, for programs."""
    return "; ".join(problem.text for problem in capped(problems) if problem.is_error)


def screen_width() -> int:
    """Return the terminal's width in characters, at most 100."""
    return min(100, shutil.get_terminal_size((100, 24)).columns)


def registry_problems(data: EstimatorContext) -> list[Diagnostic]:
    """Return the problems of the registries, and the errors in reading the files."""
    errors = [problem for problem in data.problems["files"] if problem.is_error]
    return sorted([*errors, *data.diagnostics_of("gpus", "architectures", "config_keys", "accuracy")])


def report_first(problems: Sequence[Diagnostic]) -> bool:
    """Print the first ten problems, errors and those that affect the answer first, and count the rest.

    On a terminal, the problems wrap.
    """
    ranked = sorted(problems, key=lambda problem: (not problem.is_error, problem.code not in _DECISIVE))
    lines = [*map(str, ranked[:MOST_PROBLEMS])]
    if rest := len(ranked[MOST_PROBLEMS:]):
        lines.append(f"… and {counted(rest, 'more message')}; --verbose shows all")
    if lines:
        width = screen_width() if sys.stderr.isatty() else 0
        print(visible(wrapped(lines, width, "    ")), file=sys.stderr)
    return any(problem.is_error for problem in problems)
