"""What a rule is: a small function that finds something, and what is said about all that it finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..diagnostics import Diagnostic, Location, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..catalog.yaml_data import Loc
    from ..diagnostics import Code
    from .tree import CheckContext, RunEntry, SourceFile

#: What a rule looks at: the text of a file, one run, a registry, or all data of a directory.
Scope = Literal["file", "run", "registry", "tree"]


#: Whether a program can repair what a rule finds.
Fixable = Literal["no", "yes", "with-repository"]


class Finding(NamedTuple):
    """One place that breaks a rule.

    Attributes:
        place: where.
        message: what is wrong there.
        hint: what to do about it.
        name: of the entry of a registry that it is about, for exceptions.
    """

    place: Location
    message: str
    remedy: str
    name: str = ""


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        code: what its messages carry; meaning and remedy stand there.
        scope: what it looks at.
        severity: of all that it finds.
        find: the function that looks. What a build or the reading of exceptions
            reports has a rule that finds nothing more.
        fixable: whether a program can repair what it finds; what needs a checkout of verl to know the value
            is ``with-repository``.
        needs_repository: whether it only looks where a checkout of verl is given.
    """

    code: Code
    scope: Scope
    severity: Severity
    find: Callable[[CheckContext], Iterator[Finding]]
    fixable: Fixable = "no"
    needs_repository: bool = False

    def problems(self, tree: CheckContext) -> Iterator[tuple[Diagnostic, str]]:
        """What breaks the rule, each with the name of its entry."""
        if self.needs_repository and tree.repository is None:
            return
        for place, message, hint, name in self.find(tree):
            yield Diagnostic(place, self.code, message, hint, self.severity), name


def each_file(find: Callable[[SourceFile], Iterator[Finding]]) -> Callable[[CheckContext], Iterator[Finding]]:
    """A rule about single files, for all of them."""
    return lambda tree: (finding for file in tree.files for finding in find(file))


def each_run(
    find: Callable[[RunEntry, CheckContext], Iterator[Finding]],
) -> Callable[[CheckContext], Iterator[Finding]]:
    """A rule about single runs, for all of them."""
    return lambda tree: (finding for entry in tree.runs for finding in find(entry, tree))


def at_value(file: SourceFile, loc: Loc, message: str, hint: str, name: str = "") -> Finding:
    """A finding at the value of ``loc``, or at what is around it."""
    place = Location(file.shown, *file.document.value_place(loc))
    return Finding(place, message, hint, name)


def at_key(file: SourceFile, loc: Loc, message: str, hint: str) -> Finding:
    """A finding at the key that ``loc`` ends in."""
    return Finding(Location(file.shown, *file.document.key_place(loc)), message, hint)
