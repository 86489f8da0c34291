"""One rule: a code, the function that finds what breaks it, and what that function looks at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ..diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..diagnostics import Code, Location
    from .context import CheckContext

#: What a rule looks at: the text of a file, one run, the entries of a registry, or all data together.
Scope = Literal["file", "run", "registry", "data"]
#: ``with-repository``: only a checkout of verl tells the right value.
Fixable = Literal["no", "yes", "with-repository"]


@dataclass(frozen=True)
class Rule:
    """A code, how severe it is, and the function that finds what breaks the rule.

    Attributes:
        code: what the messages carry; its meaning and remedy are declared there.
        scope: what it looks at.
        severity: of everything that the rule finds.
        fixable: whether ``check --fix`` repairs what it finds.
        needs_repository: whether it only runs where a checkout of verl is given.
        find: yields what breaks the rule; None for a code that is reported elsewhere.
    """

    code: Code
    scope: Scope
    severity: Severity = Severity.WARNING
    fixable: Fixable = "no"
    needs_repository: bool = False
    find: Callable[..., Iterable[Diagnostic]] | None = None

    def __call__(self, find: Callable[..., Iterable[Diagnostic]]) -> Rule:
        """Return the rule with its function, which it decorates.

        The function takes a file, or a run and the context, or the context, as the scope says.
        """
        return replace(self, find=find)

    def problems(self, context: CheckContext) -> Iterator[Diagnostic]:
        """Yield what breaks the rule."""
        if self.find is None or (self.needs_repository and context.repository is None):
            return
        if self.scope == "file":
            for file in context.files:
                yield from self.find(file)
        elif self.scope == "run":
            for entry in context.runs:
                yield from self.find(entry, context)
        else:
            yield from self.find(context)

    def broken_at(self, place: Location, message: str, remedy: str) -> Diagnostic:
        """Return the problem of a place that breaks the rule."""
        return Diagnostic(place, self.code, message, remedy, self.severity)
