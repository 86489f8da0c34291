"""Check data: report what a build reports and what the rules find, less what ``exceptions.yaml`` excuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..catalog.models.registries import ExceptionsFile
from ..catalog.validation import load
from ..diagnostics import Code, Diagnostic, Location, Severity
from . import data_rules, file_rules, run_rules
from .rule import Rule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ..catalog.files import DataFile, Directory
    from ..catalog.models.registries import Suppression
    from ..catalog.yaml_data import Document
    from .context import CheckContext

STALE = Rule(Code.stale_exception, Severity.ERROR, "data")
EXCUSED_ERROR = Rule(Code.excused_error, Severity.ERROR, "data")
#: All rules, in the order in which the documentation lists them: a rule is what a decorator of ``rule`` made.
RULES: tuple[Rule, ...] = (
    *(
        rule
        for module in (file_rules, run_rules, data_rules)
        for rule in vars(module).values()
        if isinstance(rule, Rule)
    ),
    STALE,
    EXCUSED_ERROR,
)
#: Codes that no exception can excuse.
_ERRORS = frozenset(rule.code for rule in RULES if rule.severity is Severity.ERROR)


class Excused(NamedTuple):
    """A warning, and the recorded reason why the data are right."""

    problem: Diagnostic
    reason: str


@dataclass(frozen=True)
class CheckResult:
    """The problems that are left and those that are excused, each in the order of files and lines."""

    problems: tuple[Diagnostic, ...]
    excused: tuple[Excused, ...]


def check_data(context: CheckContext) -> CheckResult:
    """Return everything that is wrong with the data, excused warnings apart.

    What is wrong with the exceptions themselves is among the problems.
    """
    problems = [*context.problems, *(problem for rule in RULES for problem in rule.problems(context))]
    suppressed: list[_Suppressed] = []
    of_exceptions: list[Diagnostic] = []
    for directory, file in context.exceptions:
        record, document, wrong = load(file, ExceptionsFile)
        of_exceptions += wrong
        suppressed += [
            _Suppressed(item, index, directory, file, document)
            for index, item in enumerate(record.exceptions if record else ())
        ]
    silent = {rule.code for rule in RULES if rule.needs_repository and context.repository is None}
    reasons, more = apply_suppressions(suppressed, problems, silent)
    left = [problem for problem in problems if problem not in reasons]
    excused = [Excused(problem, reasons[problem]) for problem in problems if problem in reasons]
    return CheckResult(
        tuple(sorted([*left, *of_exceptions, *more])),
        tuple(sorted(excused)),
    )


@dataclass(frozen=True)
class _Suppressed:
    """An entry of a file of exceptions, with its position."""

    suppression: Suppression
    index: int
    directory: Directory
    file: DataFile
    document: Document

    def place(self, *loc: str | int) -> Location:
        """Return the place of one of its values."""
        return self.document.place(("exceptions", self.index, *loc))


def apply_suppressions(
    entries: Collection[_Suppressed], problems: Collection[Diagnostic], silent: Collection[Code]
) -> tuple[dict[Diagnostic, str], list[Diagnostic]]:
    """Match the entries of exceptions with the problems.

    Args:
        entries: the entries.
        problems: everything that was found.
        silent: codes of rules that did not run.

    Returns:
        The reason of each excused warning, and what is wrong with the entries.
    """
    reasons: dict[Diagnostic, str] = {}
    wrong: list[Diagnostic] = []
    for entry in entries:
        code, names = Code[entry.suppression.code], entry.suppression.names
        in_file = {
            name: [problem for problem in problems if problem.place.path == entry.directory.show(name)]
            for name in entry.suppression.files
        }
        alike = [problem for found in in_file.values() for problem in found if problem.code is code]
        if code in _ERRORS or any(problem.is_error for problem in alike):
            message = f"{code.name} is an error, and only warnings can be excused"
            remedy = "mend the error, and remove the exception"
            wrong.append(EXCUSED_ERROR.broken_at(entry.place("code"), message, remedy))
            continue
        excused = [problem for problem in alike if names is None or problem.place.key in names]
        reasons.update(dict.fromkeys(excused, entry.suppression.reason))
        # Rules do not look at a file with errors, so that its exceptions may still be needed.
        settled = [
            name
            for name, found in in_file.items()
            if code not in silent and all(not problem.is_error for problem in found)
        ]
        wrong += _stale(entry, settled, alike)
    return reasons, wrong


def _stale(entry: _Suppressed, settled: list[str], alike: list[Diagnostic]) -> Iterator[Diagnostic]:
    """Yield the files and names of an entry that no warning is about any more.

    Args:
        entry: the entry.
        settled: the files of which every rule has looked.
        alike: the warnings of its code in all of its files.
    """
    item, remedy = entry.suppression, "remove it from the exception"
    for index, name in enumerate(item.files):
        shown = entry.directory.show(name)
        here = {problem.place.key for problem in alike if problem.place.path == shown}
        if name in settled and not (here if item.names is None else here.intersection(item.names)):
            those = "of these names" if item.names else "any more"
            message = f"{name!r} has no warning {item.code} {those}"
            yield STALE.broken_at(entry.place("files", index), message, remedy)
    keys = {problem.place.key for problem in alike}
    for index, name in enumerate(item.names or ()):
        if keys and name not in keys:
            message = f"no warning {item.code} is about {name!r} any more"
            yield STALE.broken_at(entry.place("names", index), message, remedy)
