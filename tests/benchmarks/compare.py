"""Compare the speed of the tables with other ways to make the same tables. Run by ``make benchmark``.

Each figure is for a whole ``sphinx-build`` process; of several short ones, the fastest counts. Processes take
turns on one machine, and the ratios between them matter. Writes docs/benchmarks.json, which the documentation
shows, and prints the same tables.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import documentation
import full_builds
import machine
import rebuilds
import text_builder
from builds import build
from peers import PEERS
from projects import write_project
from tabulate import tabulate

DOCS = Path(__file__).resolve().parents[2] / "docs"


def measure(*, quick: bool) -> list[dict[str, str | int | float]]:
    """Run all comparisons, with a line of progress for each figure."""
    records = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for index, peer in enumerate(PEERS):  # compiles the modules that each imports
            build(write_project(folder / f"first-{index}", peer, 12, 12), folder / "bytecode")
        figures = (
            *(full_builds.measure(folder, quick=quick), rebuilds.measure(folder)),
            *(text_builder.measure(folder), documentation.measure(folder)),
        )
        for figure in (figure for group in figures for figure in group):
            records.append(figure.record())
            print(json.dumps(records[-1]), file=sys.stderr, flush=True)
    return records


def main() -> None:
    """Measure, write and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="leave out 10,000 rows: minutes instead of a quarter"
    )
    parser.add_argument("--output", type=Path, default=DOCS / "benchmarks.json")
    options = parser.parse_args()
    result = {"machine": machine.describe(), "measurements": measure(quick=options.quick)}
    options.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    show(options.output)


def show(path: Path) -> None:
    """Print the figures as the documentation shows them."""
    sys.path.insert(0, str(DOCS / "_ext"))
    from benchmark_report import Report

    report = Report.read(path)
    print(report.machine)
    for table in report.tables():
        print(f"\n{table.title}\n{tabulate(table.rows, table.headings, disable_numparse=True)}")
    print("\n" + tabulate([target.cells for target in report.targets()], report.TARGET_HEADINGS))


if __name__ == "__main__":
    main()
