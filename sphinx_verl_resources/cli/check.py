"""``verl-resources check``: every problem of the data, one a line."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from ..diagnostics import Severity
from .data import add_path_argument, load_paths

if TYPE_CHECKING:
    import argparse

    from ..diagnostics import Diagnostic

NAME = "check"
HELP = "check run files and registries"
EXAMPLES = """\
examples:
  verl-resources check                 check ./data
  verl-resources check docs/data       check another directory
  verl-resources check --format json   the same for programs

Each problem is a line on standard error: path:line:col: LEVEL: message [code].
Exit codes: 0 no error, 1 errors found, 2 could not run. Warnings do not fail."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add_path_argument(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how problems are printed")


def run(options: argparse.Namespace) -> int:
    """Check and report."""
    catalog = load_paths(options.paths)
    errors = sum(problem.severity is Severity.ERROR for problem in catalog.diagnostics)
    if options.format == "json":
        print(json.dumps([_plain(problem) for problem in catalog.diagnostics], indent=2))
    else:
        for problem in catalog.diagnostics:
            print(problem, file=sys.stderr)
        warnings = len(catalog.diagnostics) - errors
        print(f"{len(catalog.runs)} runs, {errors} errors, {warnings} warnings")
    return 1 if errors else 0


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
