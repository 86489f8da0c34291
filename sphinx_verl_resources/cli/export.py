"""``verl-resources export``: everything recorded, in files for programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..estimator.export import export_of
from ..views.exports import download_texts
from ..views.file_names import CSV, JSON
from .data import add_data_option, add_path_argument, data_snapshot, load_records
from .files import replace_file, write_result
from .terminal import report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

NAME = "export"
HELP = "write every recorded run, with what is computed of it, for programs and spreadsheets"
EXAMPLES = f"""\
examples:
  verl-resources export                          print JSON
  verl-resources export --format csv             print a table for spreadsheets
  verl-resources export --output runs.csv        write one file
  verl-resources export docs/data --output out/  write all of them into a folder

The files are those that pages with the directive verl-downloads offer, byte for byte: {JSON},
its schema and {CSV}.

Each problem is a line on standard error: path:line:col: LEVEL: message [code].
Exit codes: 0 good, 1 the data have errors and the export lacks those runs, 2 could not run."""
_FILES = {"json": JSON, "csv": CSV}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_path_argument(parser)
    add_data_option(parser)
    parser.add_argument(
        "--format",
        choices=tuple(_FILES),
        help="default: by the name of the file, else json; a folder gets all",
    )
    parser.add_argument(
        "--output",
        metavar="FILE or DIR",
        help="write to this file, or to a folder, which ends with a slash or is there already",
    )


def run(options: argparse.Namespace) -> int:
    """Print or write."""
    context, problems = load_records(data_snapshot([*options.paths, *(options.data or ())]))
    bad = report(problems)
    texts = download_texts(export_of(context, __version__))
    if options.output is None:
        print(texts[_FILES[options.format or "json"]], end="")
    else:
        _write(options.output, options.format, texts)
    return int(bad)


def _write(output: str, form: str | None, texts: Mapping[str, str]) -> None:
    """Write one file, or a folder of them, which is made if need be."""
    path = Path(output)
    if not output.endswith("/") and not path.is_dir():
        by_name = "csv" if path.suffix.lower() == ".csv" else "json"
        write_result(path, texts[_FILES[form or by_name]])
        return
    for name, text in texts.items():
        if form is None or name == _FILES[form]:
            replace_file(path / name, text)
