"""A rule: a code, a function that finds violations, and the scope of that function."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ..diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..diagnostics import Code, Location
    from .context import CheckContext

#: The input of a rule: the text of a file, a run, the entries of a registry, or all data.
Scope = Literal["file", "run", "registry", "data"]


@dataclass(frozen=True)
class Rule:
    """A code, its severity, and the function that finds violations.

    Attributes:
        code: the code of its messages.
        scope: its input.
        severity: the severity of its messages.
        needs_repository: whether it only runs with a checkout of verl.
        find: yields the violations; None for a code that is reported elsewhere.
    """

    code: Code
    scope: Scope
    severity: Severity = Severity.WARNING
    needs_repository: bool = False
    find: Callable[..., Iterable[Diagnostic]] | None = None

    def __call__(self, find: Callable[..., Iterable[Diagnostic]]) -> Rule:
        """Return the rule with the decorated function.

        Depending on the scope, the function takes a file, a run and the context, or only the context.
        """
        return replace(self, find=find)

    def problems(self, context: CheckContext) -> Iterator[Diagnostic]:
        """Yield the violations of the rule."""
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
        """Return the diagnostic for a violation."""
        return Diagnostic(place, self.code, message, remedy, self.severity)
