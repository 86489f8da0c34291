"""Problems for other programs, as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..diagnostics import Diagnostic


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
