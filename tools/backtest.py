"""Estimate cases, also those of plain training, which ``verl-resources estimate`` refuses.

``python tools/backtest.py CASES.yaml [--data DIR]… [--format json]``
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from training import estimate_any

from sphinx_verl_resources.commands import UsageError, given_data, report
from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.fit.arguments import errors_text, read_file, registry_problems
from sphinx_verl_resources.fit.results import case_result, failure
from sphinx_verl_resources.fit.terminal import plain_table
from sphinx_verl_resources.memory.cases import load_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx_verl_resources.memory.cases import Entry
    from sphinx_verl_resources.memory.registries import EstimatorContext


def results(entries: tuple[Entry, ...], registries: EstimatorContext) -> Iterator[dict[str, Any]]:
    """Yield the result of each case, as ``verl-resources estimate`` prints it."""
    for entry in entries:
        if entry.case is None:
            yield failure(entry.id, entry.error)
            continue
        try:
            yield case_result(entry.case, estimate_any(entry.case, registries))
        except NoAnswerError as error:
            yield failure(entry.id, errors_text(error.diagnostics))


def main() -> int:
    """Print the result of every case."""
    parser = argparse.ArgumentParser(description="Estimate cases, also those of plain training.")
    parser.add_argument("path", metavar="CASES.yaml", help="file of cases")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument(
        "--data", action="append", default=[], metavar="DIR", help="data directory; may be repeated"
    )
    options = parser.parse_args()
    try:
        data = given_data(options.data)
        cases = load_cases([read_file(options.path)])
    except (UsageError, OSError) as error:
        parser.error(str(error))
    bad = report([*registry_problems(data), *cases.problems])
    estimates = list(results(cases.entries, data))
    rows = ((item["id"], item["verdict"], str(item["peak_gib"]), item.get("error", "")) for item in estimates)
    table = plain_table("Case | Verdict | Peak GiB> | Problem", rows)
    sys.stdout.write(f"{json.dumps(estimates, indent=2) if options.format == 'json' else table}\n")
    return int(bad or any("error" in item or item["fits"] is False for item in estimates))


if __name__ == "__main__":
    sys.exit(main())
