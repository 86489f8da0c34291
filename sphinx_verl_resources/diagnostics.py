"""Problems, each with a place, a code, a message and a remedy; and texts that are safe to print."""

from __future__ import annotations

import difflib
import heapq
import re
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The kinds of problems. Messages end with ``[verl.<code>]``, which ``suppress_warnings`` accepts.
Code = Literal[
    "assumed_device", "bad_character", "config", "config_key", "directive", "duplicate_id",
    "duplicate_key", "duplicate_name", "duplicate_run", "email_address", "encoding", "far_from_computed",
    "file_empty", "file_too_large", "file_unexpected", "file_unreadable", "future_date", "gpu_count",
    "id_mismatch", "impossible_settings", "incomplete_run", "left_out", "log_differs",
    "missing_key", "moving_ref", "not_modelled", "not_training",
    "out_of_memory", "parameter_count", "peak_above_capacity",
    "script_differs", "script_name", "script_place", "several_runs", "shell_syntax",
    "todo", "undecided", "unknown_gpu", "unknown_key", "unknown_model", "unknown_path", "unknown_ref",
    "unknown_size", "unknown_value", "unread", "unresolved", "untested_claim",
    "unused_variable", "wrong_size", "wrong_type", "wrong_value", "yaml_feature", "yaml_syntax",
]  # fmt: skip
CODES: tuple[Code, ...] = get_args(Code)
#: The maximum length of a printed message, and of a printed remedy, in characters.
MAX_MESSAGE = 500
#: The maximum number of problems to print for a file; a file with more is probably not a data file.
MAX_PROBLEMS = 50
#: The maximum number of names to compare letter by letter with a misspelt one, and to choose from.
_MOST_COMPARED, _MOST_KNOWN = 20, 5_000

#: Invisible characters and characters that reorder visible ones: controls except tab and line breaks, line
#: separators, zero-width and bidirectional controls, fillers, tag characters, surrogates, non-characters.
#: Joiners and variation selectors are allowed, because scripts and emoji need them.
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\ufffe\uffff\U000e0000-\U000e0fff]"
)


class Severity(Enum):
    """The level of a problem; messages show its name."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, order=True)
class Location:
    """A place in a file, or a setting that is not in a file.

    Attributes:
        path: the file's name for the user; messages escape it. Empty if there is no file.
        line: from 1; 1 for a whole file.
        column: from 1.
        key: the name of the wrong setting, option or field, if any; messages begin with it.
    """

    path: str
    line: int = 1
    column: int = 1
    key: str = ""

    def __str__(self) -> str:
        # Sphinx reads a location without a colon as a document name, so there is always a line.
        return f"{self.shown_path}:{self.line}:{self.column}" if self.path else ""

    @property
    def shown_path(self) -> str:
        """The path on one line, with colons before digits escaped; a line number follows it."""
        return re.sub(r":(?=\d)", r"\\x3a", printable(self.path))


@dataclass(frozen=True)
class Diagnostic:
    """A problem."""

    place: Location
    code: Code
    message: str
    remedy: str = ""
    severity: Severity = Severity.ERROR

    @property
    def named_message(self) -> str:
        """The message, with the setting, option or entry before it."""
        return f"{self.place.key}: {self.message}" if self.place.key else self.message

    @property
    def text(self) -> str:
        """The message and the remedy on one line, without place and code."""
        return one_line("; ".join(_cut(part) for part in (self.named_message, self.remedy) if part))

    @property
    def is_error(self) -> bool:
        """True for an error, False for a warning."""
        return self.severity is Severity.ERROR

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place.path else ""
        return f"{place}{self.severity.name}: {self.text} [verl.{self.code}]"

    def __lt__(self, other: Diagnostic) -> bool:
        """Order by place, code and message, for reproducible output."""
        return (self.place, self.code, self.message) < (other.place, other.code, other.message)


def warning(place: Location, code: Code, message: str, remedy: str) -> Diagnostic:
    """Return a warning."""
    return Diagnostic(place, code, message, remedy, Severity.WARNING)


class NoAnswerError(Exception):
    """A question without an answer; its diagnostics give the reasons, errors first."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        once = dict.fromkeys(diagnostics)
        self.diagnostics = tuple(sorted(once, key=lambda problem: not problem.is_error))
        super().__init__("; ".join(problem.text for problem in self.diagnostics))

    @property
    def code(self) -> Code:
        """The code of the first problem."""
        return self.diagnostics[0].code

    @classmethod
    def because(
        cls, message: str, remedy: str = "", *, code: Code = "directive", key: str = ""
    ) -> NoAnswerError:
        """Return an error with one diagnostic, about the setting, option or field ``key``."""
        return cls(Diagnostic(Location("", key=key), code, message, remedy))


def listed(problems: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return the problems to print: of a file with very many, ``MAX_PROBLEMS``, errors first, and a note."""
    by_path: dict[str, list[Diagnostic]] = {}
    for problem in problems:
        by_path.setdefault(problem.place.path, []).append(problem)
    for path, found in by_path.items():
        if len(found) > MAX_PROBLEMS:
            kept = sorted(found, key=lambda problem: not problem.is_error)[: MAX_PROBLEMS + 1]
            more = replace(kept.pop(), message="more problems are not listed", remedy="fix the others first")
            by_path[path] = [*sorted(kept), more]
    return tuple(problem for found in by_path.values() for problem in found)


# -- texts


def one_line(text: str) -> str:
    """Return a text on one line, with control characters escaped."""
    joined = " ".join(text.split())
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in joined)


def printable(name: str) -> str:
    """Escape a file name to print on one line; doubled backslashes keep different names different."""
    return re.sub(rf"{FORBIDDEN.pattern}|[\t\n\r\\]", _escaped, name)


def visible(text: str) -> str:
    r"""Escape the invisible characters of a text.

    >>> print(visible("H100\u200b"), visible("H100\U000e0100"))
    H100\u200b H100\U000e0100
    """
    return FORBIDDEN.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    # Not `repr`, which prints variation selectors, such as U+E0100, as they are.
    return match[0].encode("unicode_escape").decode()


def _cut(text: str) -> str:
    """Shorten a long text in the middle."""
    half = MAX_MESSAGE // 2
    return text if len(text) <= MAX_MESSAGE else f"{text[:half]} … {text[-half:]}"


def counted(number: int, word: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "error"), counted(0, "error")
    ('1 error', '0 errors')
    """
    return f"{number} {word}{'' if number == 1 else 's'}"


# -- suggestions


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that ``word`` probably means; None if there is none.

    A name with a number, such as a GPU's, also matches inside other words.

    >>> nearest("tagg", ["tag"]), nearest("deepspeed", ["fsdp", "mindspeed"])
    ('tag', None)
    >>> nearest("NVIDIA H800 80GB", ["GH200 480GB", "H800"])
    'H800'
    """
    asked, folded = word.casefold(), {name.casefold(): name for name in islice(known, _MOST_KNOWN)}
    inside = [name for name in folded if f" {name} " in f" {asked} " and any(map(str.isdigit, name))]
    letters = Counter(asked)
    # The share of common letters is fast to compute and never below the ratio of ``difflib``.
    common = {name: 2 * (letters & Counter(name)).total() / (len(name) + len(asked) or 1) for name in folded}
    alike = heapq.nlargest(_MOST_COMPARED, folded, key=common.__getitem__)
    near = [max(inside, key=len)] if inside else difflib.get_close_matches(asked, alike, n=1, cutoff=0.7)
    return folded[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a remedy: the nearest known word and ``otherwise``, or one of both, or all words if few."""
    names = list(dict.fromkeys(known))
    if near := nearest(word, names):
        return f"did you mean {near!r}?" + (f" If not, {otherwise}" if otherwise else "")
    return otherwise or (f"allowed: {', '.join(names)}" if 0 < len(names) <= 24 else "")
