"""``verl-resources export``: all recorded runs with their estimates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..answer.export import CSV, JSON, export_files
from ..commands import DATA, OUTPUT, PATHS, command, load_runs, option

if TYPE_CHECKING:
    import argparse


@command(
    PATHS,
    DATA,
    option("--format", choices=("json", "csv"), help="default: by the name of the file, otherwise json"),
    OUTPUT,
)
def export(options: argparse.Namespace) -> tuple[str, int]:
    """Export every recorded run with its estimate, for programs and spreadsheets.

    Examples:
      verl-resources export                               # print JSON
      verl-resources export --format csv                  # print a table for spreadsheets
      verl-resources export docs/data --output runs.csv   # write it to a file

    The results are verl-resources.json and verl-resources.csv, the downloads of the verl-downloads
    directive.

    Exit codes: 0 success, 1 runs with errors are missing from the export, 2 could not run.
    """
    data, code = load_runs(options)
    form = options.format or Path(options.result_file or "").suffix
    _contents, text = export_files(data)[CSV if form.lower() in {"csv", ".csv"} else JSON]
    return text.rstrip("\n"), code
