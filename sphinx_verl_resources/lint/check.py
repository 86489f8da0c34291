"""Check data: problems from loading and from the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..diagnostics import listed
from . import data_rules, run_rules
from .context import Rule

if TYPE_CHECKING:
    from ..diagnostics import Diagnostic
    from .context import CheckContext

#: All rules, in the order of the documentation.
RULES: tuple[Rule, ...] = tuple(
    rule for module in (run_rules, data_rules) for rule in vars(module).values() if isinstance(rule, Rule)
)


def check_data(context: CheckContext) -> tuple[Diagnostic, ...]:
    """Return all problems of the data, ordered by file and line."""
    problems = [*context.problems, *(problem for rule in RULES for problem in rule.problems(context))]
    return listed(sorted(problems))
