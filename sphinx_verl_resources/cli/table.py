"""``verl-resources table``: the recorded runs as text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..catalog.fields import PAGE_COLUMNS, UnknownFieldError, field_name
from ..catalog.links import Links
from ..catalog.names import SIZES
from ..catalog.selection import RunQuery, select_runs
from ..diagnostics import Severity
from ..render.text_table import FORMATS, runs_text
from .data import add_path_argument, default_paths, load_paths

if TYPE_CHECKING:
    import argparse

NAME = "table"
HELP = "print recorded runs as a table"
EXAMPLES = """\
examples:
  verl-resources table --size 7B
  verl-resources table --format github --columns model,gpus,measured.gib
  verl-resources table --format list-table"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add_path_argument(parser)
    parser.add_argument(
        "--size", action="append", choices=SIZES, help="size class; may be given several times"
    )
    parser.add_argument("--columns", metavar="FIELD,...", help="fields to show; default: those of the page")
    parser.add_argument("--format", choices=FORMATS, default="plain", help="default: plain")


def run(options: argparse.Namespace) -> int:
    """Print the table; problems of the data go to standard error."""
    try:
        names = options.columns.split(",") if options.columns else PAGE_COLUMNS
        columns = [field_name(name.strip()) for name in names]
    except UnknownFieldError as error:
        print(f"verl-resources: --columns: {error}", file=sys.stderr)
        return 2
    catalog = load_paths(options.paths or default_paths())
    for problem in catalog.diagnostics:
        print(problem, file=sys.stderr)
    runs = select_runs(catalog, RunQuery(tuple(options.size or ())))
    runs.sort(key=lambda run: SIZES.index(run.size))
    print(runs_text(runs, columns, Links(), options.format))
    return 1 if any(problem.severity is Severity.ERROR for problem in catalog.diagnostics) else 0
