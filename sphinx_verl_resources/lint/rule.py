"""Define lint rules: decorators turn a function that finds problems into a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..diagnostics import Code, Location
    from .context import CheckContext, RunEntry, SourceFile

#: What a rule looks at: the text of a file, one run, the entries of a registry, or all data together.
Scope = Literal["file", "run", "registry", "data"]
#: ``with-repository``: only a checkout of verl tells the right value.
Fixable = Literal["no", "yes", "with-repository"]


def _find_nothing(context: CheckContext) -> Iterable[Diagnostic]:
    """Find nothing, for a code that the loader of the data reports itself."""
    return ()


@dataclass(frozen=True)
class Rule:
    """A code, how severe it is, and the function that finds what breaks the rule.

    Attributes:
        code: what the messages carry; its meaning and remedy are declared there.
        severity: of everything that the rule finds.
        scope: what it looks at.
        find: yields what breaks the rule.
        fixable: whether ``check --fix`` repairs what it finds.
        needs_repository: whether it only runs where a checkout of verl is given.
    """

    code: Code
    severity: Severity
    scope: Scope
    find: Callable[[CheckContext], Iterable[Diagnostic]] = _find_nothing
    fixable: Fixable = "no"
    needs_repository: bool = False

    def problems(self, context: CheckContext) -> Iterable[Diagnostic]:
        """Return what breaks the rule."""
        return () if self.needs_repository and context.repository is None else self.find(context)

    def broken_at(self, place: Location, message: str, remedy: str) -> Diagnostic:
        """Return the problem of a place that breaks the rule."""
        return Diagnostic(place, self.code, message, remedy, self.severity)


def file_rule(
    code: Code, severity: Severity = Severity.WARNING, fixable: Fixable = "no"
) -> Callable[[Callable[[SourceFile], Iterable[Diagnostic]]], Rule]:
    """Make a rule that looks at the text of each file."""
    return lambda find: Rule(
        code,
        severity,
        "file",
        lambda context: (problem for file in context.files for problem in find(file)),
        fixable,
    )


def run_rule(
    code: Code,
    severity: Severity = Severity.WARNING,
    fixable: Fixable = "no",
    *,
    needs_repository: bool = False,
) -> Callable[[Callable[[RunEntry, CheckContext], Iterable[Diagnostic]]], Rule]:
    """Make a rule that looks at each run."""
    return lambda find: Rule(
        code,
        severity,
        "run",
        lambda context: (problem for entry in context.runs for problem in find(entry, context)),
        fixable,
        needs_repository,
    )


def data_rule(
    code: Code, scope: Scope, severity: Severity = Severity.WARNING
) -> Callable[[Callable[[CheckContext], Iterable[Diagnostic]]], Rule]:
    """Make a rule that looks at registries, or at all data together."""
    return lambda find: Rule(code, severity, scope, find)
