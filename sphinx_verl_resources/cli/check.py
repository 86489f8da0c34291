"""``verl-resources check``: every problem of the data, one a line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..diagnostics import Severity
from .data import add_path_argument, default_paths, enclosing_data_directory, load_checked
from .terminal import report

if TYPE_CHECKING:
    import argparse

    from ..diagnostics import Diagnostic

NAME = "check"
HELP = "check run files, registries and cases"
EXAMPLES = """\
examples:
  verl-resources check                 check ./data, or the data directory that one is in
  verl-resources check docs/data       check another directory
  verl-resources check data/runs/a.yaml   one file, in the light of all the others
  verl-resources check --format json   the same for programs

Each problem is a line on standard error: path:line:col: LEVEL: message [code].
Exit codes: 0 no error, 1 errors found, 2 could not run. Warnings do not fail."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add_path_argument(parser, "data directory, or a file or folder in one")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how problems are printed")


def run(options: argparse.Namespace) -> int:
    """Check and report."""
    directories = sorted({_data_directory(path) for path in options.paths}) or default_paths()
    catalog, found = load_checked(directories)
    problems = sorted(
        (problem for problem in found if _is_asked_for(problem, options.paths)),
        key=lambda problem: problem.sort_key,
    )
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    if options.format == "json":
        print(json.dumps([_plain(problem) for problem in problems], indent=2))
    else:
        report(problems)
        counts = {
            "run": len(catalog.runs) + len(catalog.broken),
            "error": errors,
            "warning": len(problems) - errors,
        }
        summary = ", ".join(f"{number} {word}{'' if number == 1 else 's'}" for word, number in counts.items())
        print(f"{', '.join(directories) or 'the dataset of the package'}: {summary}")
    return 1 if errors else 0


def _data_directory(path: str) -> str:
    """The data directory that a path is, or lies in.

    Raises:
        OSError: there is nothing at the path.
    """
    if not os.path.lexists(path):
        raise FileNotFoundError(f"{path}: no such file or directory")
    # Not resolved: a file that is a link belongs where it is linked.
    return next(iter(enclosing_data_directory(Path.cwd() / path)), path)


def _is_asked_for(problem: Diagnostic, paths: list[str]) -> bool:
    """Whether the problem lies in one of the files or folders named; everything does if none is."""
    # Not resolved: a file that is a link is asked for where it is linked.
    place = Path.cwd() / problem.location.path
    return not paths or any(
        _plain_path(place).is_relative_to(_plain_path(Path.cwd() / path)) for path in paths
    )


def _plain_path(path: Path) -> Path:
    """A path without ``.`` and ``..``, links left as they are."""
    return Path(os.path.normpath(path))


def _plain(problem: Diagnostic) -> dict[str, Any]:
    return {
        "path": problem.location.path,
        "line": problem.location.line,
        "column": problem.location.column,
        "level": problem.severity.name,
        "code": problem.code.id,
        "message": problem.message,
        "hint": problem.hint,
    }
