"""What is wrong with data, after the exceptions that they record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..catalog.models.exceptions import ExceptionsFile
from ..catalog.validation import load, problem_at
from ..diagnostics import Code, Diagnostic, Severity
from .rules import RULES
from .tree import exceptions_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..catalog.files import DataFile, Directory
    from ..catalog.models.exceptions import Suppression
    from ..catalog.yaml_data import Document
    from .tree import CheckContext


class Excused(NamedTuple):
    """A warning, and why it is right."""

    problem: Diagnostic
    reason: str


@dataclass(frozen=True)
class Verdict:
    """What is left, and what is excused, both in the order of files and lines."""

    problems: tuple[Diagnostic, ...]
    excused: tuple[Excused, ...]


class _Found(NamedTuple):
    """A problem, and the entry of a registry that it is about."""

    problem: Diagnostic
    name: str


def judge(tree: CheckContext) -> Verdict:
    """Everything that is wrong with the data: what a build says, and what the rules find.

    Warnings that ``exceptions.yaml`` of their directory excuses are set apart. What is wrong with the
    exceptions themselves is among the problems.
    """
    found = [_Found(problem, "") for problem in tree.found]
    found += [_Found(*item) for rule in RULES for item in rule.problems(tree)]
    of_exceptions: list[Diagnostic] = []
    reasons: dict[int, str] = {}
    for directory in tree.directories:
        file, problems = exceptions_file(directory)
        of_exceptions += problems
        if file:
            of_exceptions += _apply(file, directory, found, reasons, tree)
    left = [item.problem for index, item in enumerate(found) if index not in reasons]
    excused = [Excused(found[index].problem, reason) for index, reason in reasons.items()]
    return Verdict(
        tuple(sorted([*left, *of_exceptions], key=lambda problem: problem.sort_key)),
        tuple(sorted(excused, key=lambda item: item.problem.sort_key)),
    )


def _apply(
    file: DataFile, directory: Directory, found: Sequence[_Found], reasons: dict[int, str], tree: CheckContext
) -> Iterator[Diagnostic]:
    """Note the reasons for what is excused, by the place in ``found``; yields what is wrong with the file."""
    record, document, problems = load(file, ExceptionsFile)
    yield from problems
    silent = {rule.code for rule in RULES if rule.needs_repository and tree.repository is None}
    for index, excuse in enumerate(record.exceptions if record else ()):
        code = Code[excuse.code]
        for place, name in enumerate(excuse.files):
            shown = directory.show(name)
            here = [(number, item) for number, item in enumerate(found) if item.problem.place.path == shown]
            alike = [(number, item) for number, item in here if item.problem.code is code]
            at = ("exceptions", index, "files", place)
            if any(item.problem.severity is Severity.ERROR for _, item in alike) or _is_error(code):
                yield _excused_error(file, document, index, code)
                break
            meant = [
                (number, item) for number, item in alike if excuse.names is None or item.name in excuse.names
            ]
            reasons.update((number, excuse.reason) for number, _ in meant)
            # A file that cannot be used is not looked at by the rules.
            unsure = any(item.problem.severity is Severity.ERROR for _, item in here)
            if not meant and code not in silent and not unsure:
                those = "of these names" if excuse.names else "any more"
                message = f"{name!r} has no warning {excuse.code} {those}"
                yield problem_at(
                    file, document, at, Code.stale_exception, message, "remove it from the exception"
                )
        yield from _stale_names(file, document, index, excuse, found, directory)


def _is_error(code: Code) -> bool:
    """Whether a rule finds nothing but errors."""
    return any(rule.code is code and rule.severity is Severity.ERROR for rule in RULES)


def _excused_error(file: DataFile, document: Document, index: int, code: Code) -> Diagnostic:
    message = f"{code.name} is an error, and only warnings can be excused"
    loc = ("exceptions", index, "code")
    return problem_at(
        file, document, loc, Code.excused_error, message, "mend the error, and remove the exception"
    )


def _stale_names(
    file: DataFile,
    document: Document,
    index: int,
    excuse: Suppression,
    found: Iterable[_Found],
    directory: Directory,
) -> Iterator[Diagnostic]:
    """Names that no warning of these files is about."""
    shown = {directory.show(name) for name in excuse.files}
    seen = {
        item.name
        for item in found
        if item.problem.code.name == excuse.code and item.problem.place.path in shown
    }
    for place, name in enumerate(excuse.names or ()):
        if seen and name not in seen:
            message = f"no warning {excuse.code} is about {name!r} any more"
            loc = ("exceptions", index, "names", place)
            yield problem_at(
                file, document, loc, Code.stale_exception, message, "remove it from the exception"
            )
