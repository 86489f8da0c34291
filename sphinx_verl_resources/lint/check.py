"""Check data: problems from loading and from the rules, without those excused in ``exceptions.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..catalog.models.registries import ExceptionsFile
from ..catalog.validation import load
from ..diagnostics import Code, Diagnostic, Location, Severity, listed
from . import data_rules, file_rules, run_rules
from .context import exceptions_in
from .rule import Rule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import date

    from ..catalog.files import Directory
    from ..catalog.models.registries import Suppression
    from ..catalog.yaml_data import Document
    from .context import CheckContext

STALE = Rule(Code.stale_exception, "data", Severity.ERROR)
SUPPRESSED_ERROR = Rule(Code.excused_error, "data", Severity.ERROR)
#: All rules, in the order of the documentation.
RULES: tuple[Rule, ...] = (
    *(
        rule
        for module in (file_rules, run_rules, data_rules)
        for rule in vars(module).values()
        if isinstance(rule, Rule)
    ),
    STALE,
    SUPPRESSED_ERROR,
)
#: Codes of facts that were not yet required when older runs were published.
_GAPS = frozenset({Code.no_evidence, Code.no_version})
#: Codes that exceptions cannot excuse.
_ERRORS = frozenset(rule.code for rule in RULES if rule.severity is Severity.ERROR)


class Suppressed(NamedTuple):
    """An excused warning, and the recorded reason."""

    problem: Diagnostic
    reason: str


@dataclass(frozen=True)
class CheckResult:
    """The reported problems and the excused ones, both ordered by file and line.

    Attributes:
        problems: the problems to report.
        suppressed: the warnings excused in ``exceptions.yaml``.
        gaps: the missing facts of runs published before ``published_before``.
        published_before: the date.
    """

    problems: tuple[Diagnostic, ...]
    suppressed: tuple[Suppressed, ...]
    gaps: tuple[Suppressed, ...] = ()
    published_before: date | None = None


def check_data(context: CheckContext) -> CheckResult:
    """Return all problems of the data, with excused warnings and gaps of old runs listed separately.

    The problems include those of the exceptions themselves.
    """
    problems = [*context.problems, *(problem for rule in RULES for problem in rule.problems(context))]
    by_path: dict[str, list[Diagnostic]] = {}
    for problem in problems:
        by_path.setdefault(problem.place.path, []).append(problem)
    silent = {rule.code for rule in RULES if rule.needs_repository and context.repository is None}
    reasons: dict[Diagnostic, str] = {}
    wrong: list[Diagnostic] = []
    for directory, file in context.exceptions:
        record, document, broken = load(file, ExceptionsFile)
        wrong += broken
        for index, item in enumerate(record.exceptions if record else ()):
            entry = _Suppression(item, document, index, directory, by_path)
            wrong += entry.problems(silent)
            reasons |= dict.fromkeys(entry.suppressed, item.reason)
    left = [problem for problem in problems if problem not in reasons]
    suppressed = sorted(Suppressed(problem, reasons[problem]) for problem in problems if problem in reasons)
    day = _published_before(context)
    gaps = _gaps(left, context, day) if day else frozenset()
    left = [problem for problem in left if problem not in gaps]
    why = f"The run was published before {day}."
    return CheckResult(
        listed(sorted([*left, *wrong])),
        tuple(suppressed),
        tuple(sorted(Suppressed(problem, why) for problem in gaps)),
        day,
    )


def _published_before(context: CheckContext) -> date | None:
    """Return ``published_before`` of the last data directory that sets it, or of the package."""
    files, _ = exceptions_in((context.bundled, *context.directories))
    records = (load(file, ExceptionsFile)[0] for _, file in files)
    days = [record.published_before for record in records if record and record.published_before]
    return days[-1] if days else None


def _gaps(problems: Iterable[Diagnostic], context: CheckContext, day: date) -> frozenset[Diagnostic]:
    """Return the problems about facts that runs added before ``day`` may lack."""
    old = {entry.source.shown for entry in context.runs if entry.run.added and entry.run.added < day}
    return frozenset(item for item in problems if item.code in _GAPS and item.place.path in old)


class _Suppression:
    """An entry of a file of exceptions, with the warnings that it matches.

    Attributes:
        suppressed: the warnings that it excuses; empty if its code is an error.
    """

    def __init__(
        self,
        item: Suppression,
        document: Document,
        index: int,
        directory: Directory,
        problems: Mapping[str, Sequence[Diagnostic]],
    ) -> None:
        self._item = item
        self._document = document
        self._index = index
        self._in_files = [problems.get(directory.show(name), ()) for name in item.files]
        self._alike = [
            problem for found in self._in_files for problem in found if problem.code.name == item.code
        ]
        self._is_of_error = Code[item.code] in _ERRORS or any(problem.is_error for problem in self._alike)
        names = None if item.names is None else set(item.names)
        self.suppressed = {
            problem
            for problem in self._alike
            if not self._is_of_error and (names is None or problem.place.key in names)
        }

    def problems(self, silent: Collection[Code]) -> Iterator[Diagnostic]:
        """Yield the problems of the entry: it is for an error, or a part of it matches no warning.

        Args:
            silent: the codes of rules that did not run.
        """
        item = self._item
        if self._is_of_error:
            message = f"{item.code} is an error, but only warnings can be excused"
            yield SUPPRESSED_ERROR.broken_at(
                self._place("code"), message, "fix the error, and remove the exception"
            )
            return
        remedy = "remove it from the exception"
        for index, (name, found) in enumerate(zip(item.files, self._in_files, strict=True)):
            # Rules skip files with errors, so their exceptions may still be needed.
            is_judged = Code[item.code] not in silent and not any(problem.is_error for problem in found)
            if is_judged and not any(problem in self.suppressed for problem in found):
                those = " for these names" if item.names else ""
                message = f"{name!r} has no warning {item.code}{those}"
                yield STALE.broken_at(self._place("files", index), message, remedy)
        keys = {problem.place.key for problem in self._alike}
        for index, name in enumerate(item.names or ()):
            if keys and name not in keys:
                message = f"no warning {item.code} is about {name!r}"
                yield STALE.broken_at(self._place("names", index), message, remedy)

    def _place(self, *loc: str | int) -> Location:
        """Return the place of a value of the entry."""
        return self._document.place(("exceptions", self._index, *loc))
