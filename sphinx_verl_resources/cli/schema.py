"""``verl-resources schema``: the JSON Schemas of the data files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..catalog.schema import MODELS, schema_texts
from ..catalog.yaml_data import printable
from .files import replace_file
from .terminal import UsageError

if TYPE_CHECKING:
    import argparse

NAME = "schema"
HELP = "write the JSON Schemas of the data files"
EXAMPLES = """\
examples:
  verl-resources schema run                    print the schema of a run file
  verl-resources schema --output data/schema   write all of them

Exit codes: 0 good, 2 could not run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    kinds = sorted(MODELS)
    which = f"which kind of file: {', '.join(kinds)}; default: run, and with --output all"
    parser.add_argument("kind", metavar="KIND", nargs="?", choices=kinds, help=which)
    parser.add_argument("--output", metavar="DIR", type=Path, help="write to this directory instead")


def run(options: argparse.Namespace) -> int:
    """Print one schema, or write one or all."""
    texts = schema_texts()
    if options.output is None:
        print(texts[options.kind or "run"], end="")
        return 0
    if options.output.exists() and not options.output.is_dir():
        raise UsageError(f"{printable(str(options.output))}: is no directory; name a folder")
    if options.kind:
        texts = {options.kind: texts[options.kind]}
    for kind, text in texts.items():
        replace_file(options.output / f"{kind}.json", text)
    return 0
