"""``verl-resources backtest``: compare the estimate of every case with its observation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..catalog.cases import CaseEntry, load_cases, with_marks
from ..estimator.accuracy import accuracy_of, accuracy_text, summaries
from ..estimator.backtest import GROUPS, boundaries, score, verdict_counts
from ..estimator.export import gib_value
from ..views.plain_text import backtest_text
from .command import Command, UsageError, add_result_options, progress, report, screen_width
from .data import add_data_option, given_data, registry_problems
from .files import read_file, write_result

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ..catalog.cases import BrokenCase
    from ..catalog.models.registries import Accuracy
    from ..estimator.backtest import Boundary, Score


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "paths", nargs="*", metavar="CASES.yaml", help="files of cases; default: the recorded cases"
    )
    parser.add_argument(
        "--record", metavar="FILE", help="write the accuracy and the resulting ranges to this file"
    )
    add_data_option(parser)
    add_result_options(parser)


def _run(options: argparse.Namespace) -> int:
    """Estimate the cases, compare and print."""
    data = given_data(options.data)
    registries, recorded, problems = data.registries, data.cases, registry_problems(data)
    asked = [with_marks(load_cases([read_file(name)]), recorded) for name in options.paths] or [recorded]
    problems += [problem for found in asked for problem in found.diagnostics]
    bad = report(problems)
    cases = [entry.case for found in asked for entry in found.entries if isinstance(entry, CaseEntry)]
    broken = [entry for found in asked for entry in found.broken]
    if options.record:
        if broken or not cases:
            raise UsageError(f"{options.record}: not written; fix the cases first")
        scores, accuracy = accuracy_of(cases, registries, progress)
        write_result(Path(options.record), accuracy_text(accuracy))
    else:
        scores = tuple(score(case, registries) for case in progress(cases, "cases"))
    limits = boundaries(cases, registries)
    if options.format == "json":
        print(json.dumps(_plain(scores, broken, limits), indent=2))
    else:
        print(backtest_text(scores, limits, screen_width()))
    return int(bad or any(item.error and item.case.is_scored for item in scores))


def _plain(
    scores: Sequence[Score], broken: Sequence[BrokenCase], limits: Sequence[Boundary]
) -> dict[str, Any]:
    """Return the result for programs; errors are fractions, signed for a single case."""
    return {
        "cases": [
            *map(_case, scores),
            *({"id": entry.id, "problem": entry.error.text, "scored": False} for entry in broken),
        ],
        "summary": [_summary(found) for found in summaries(scores)],
        "verdicts": {verdict: found._asdict() for verdict, found in verdict_counts(scores).items()},
        "boundaries": [
            {
                "name": limit.name,
                "recorded": limit.recorded,
                "computed": limit.computed,
                "error": round(limit.deviation, 4),
            }
            for limit in limits
        ],
    }


def _case(item: Score) -> dict[str, Any]:
    deviation = item.deviation
    return {
        "id": item.case.id,
        "group": item.group,
        "figure": item.figure,
        "computed_gib": gib_value(item.computed),
        "low_gib": gib_value(item.low),
        "high_gib": gib_value(item.high),
        "observed_gib": gib_value(item.observed),
        "error": None if deviation is None else round(deviation, 4),
        "inside": item.inside,
        "outcome": item.case.outcome,
        "verdict": item.verdict,
        "agrees": item.agrees,
        "scored": item.case.is_scored,
        "contested": item.case.contested,
        "not_scored": item.case.not_scored,
        "problem": item.error or None,
    }


def _summary(found: Accuracy) -> dict[str, Any]:
    figures = found.model_dump(exclude={"name", "parts"})
    return {
        "group": found.name,
        "label": GROUPS[found.name],
        **{name: round(figure, 4) for name, figure in figures.items()},
    }


BACKTEST = Command(
    "backtest",
    "compare estimates with observations",
    {
        "": "the recorded cases",
        "cases.yaml": "your own cases",
        "--format json": "the recorded cases, for programs",
        "--record accuracy.yaml": "write the accuracy to a file",
    },
    "0 success, 1 a case is broken or a scored one has no estimate, 2 could not run.",
    _add_arguments,
    _run,
    notes="Contested and unscored cases are shown but do not count. A case with the same "
    "settings and outcome as a recorded case is treated like that case.",
)
