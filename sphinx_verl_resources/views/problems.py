"""Problems for other programs: plain JSON, annotations of GitHub, and SARIF."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..diagnostics import Code, Severity, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..diagnostics import Diagnostic

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning"}


def problems_json(problems: Iterable[Diagnostic]) -> str:
    """Return a JSON list with an object for each problem."""
    return json.dumps([plain_problem(problem) for problem in problems], indent=2)


def plain_problem(problem: Diagnostic) -> dict[str, Any]:
    """Return a problem as a JSON object."""
    return {
        "path": problem.place.path,
        "line": problem.place.line,
        "column": problem.place.column,
        "level": problem.severity.name,
        "code": problem.code.id,
        "message": problem.named_message,
        "hint": problem.remedy,
    }


def problems_github(problems: Sequence[Diagnostic], summary: str) -> str:
    """Return workflow commands, which GitHub shows at their lines, and a folded list of all problems.

    GitHub shows only the first ten errors and ten warnings of a step at their lines.
    """
    lines = [_annotation(problem) for problem in problems]
    if problems:
        # A line that starts with a blank is not a command.
        lines += ["::group::All problems", *(f" {problem}" for problem in problems), "::endgroup::"]
    return "\n".join([*lines, summary])


def _annotation(problem: Diagnostic) -> str:
    location = problem.place
    properties = {
        "file": visible(location.path),
        "line": str(location.line or 1),
        "col": str(location.column or 1),
        "title": problem.code.id,
    }
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_LEVELS[problem.severity]} {written}::{_escaped(problem.text)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def problems_sarif(
    problems: Sequence[Diagnostic], suppressed: Sequence[tuple[Diagnostic, str]], version: str
) -> str:
    """Return a log in SARIF 2.1.0, including suppressed problems with the reason.

    Args:
        problems: the problems that are not suppressed.
        suppressed: the suppressed problems, each with the reason why the data are right.
        version: the version of this program.
    """
    codes = {problem.code for problem in (*problems, *(problem for problem, _ in suppressed))}
    rules = [code for code in Code if code in codes]
    results = [_result(problem, rules) for problem in problems]
    for problem, reason in suppressed:
        suppression = {"kind": "external", "status": "accepted", "justification": " ".join(reason.split())}
        results.append({**_result(problem, rules), "suppressions": [suppression]})
    driver = {
        "name": "verl-resources",
        "semanticVersion": version,
        "rules": [_rule(code) for code in rules],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(code: Code) -> dict[str, Any]:
    meaning, remedy = code.meaning.replace("``", "`"), code.remedy.replace("``", "`")
    return {
        "id": code.id,
        "name": "".join(word.capitalize() for word in code.name.split("_")),
        "shortDescription": {"text": meaning},
        "help": {"text": f"{meaning} {remedy}"},
    }


def _result(problem: Diagnostic, rules: list[Code]) -> dict[str, Any]:
    location = problem.place
    region = {"startLine": location.line or 1, "startColumn": location.column or 1}
    artifact = {"uri": quote(os.fsencode(location.path))}
    return {
        "ruleId": problem.code.id,
        "ruleIndex": rules.index(problem.code),
        "level": _LEVELS[problem.severity],
        "message": {"text": problem.text},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}],
    }
