"""Problems, each with a place, a code, a message and a remedy; and texts that are safe to print."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Literal, get_args

#: The kinds of problems. Messages end with ``[verl.<code>]``, which ``suppress_warnings`` accepts.
Code = Literal[
    "assumed_device", "bad_character", "config", "config_key", "directive", "duplicate_id",
    "duplicate_key", "duplicate_name", "duplicate_run", "email_address", "encoding", "far_from_computed",
    "file_empty", "file_too_large", "file_unexpected", "file_unreadable", "future_date", "gpu_count",
    "id_mismatch", "impossible_settings", "incomplete_run", "left_out", "log_differs",
    "missing_key", "moving_ref", "not_faster", "not_modelled", "not_training",
    "out_of_memory", "parameter_count", "peak_above_capacity",
    "script_differs", "script_name", "script_place", "several_runs", "shell_syntax",
    "todo", "unknown_gpu", "unknown_key", "unknown_model", "unknown_path", "unknown_ref",
    "unknown_size", "unknown_value", "unread", "unresolved", "untested_claim",
    "unused_variable", "wrong_size", "wrong_type", "wrong_value", "yaml_feature", "yaml_syntax",
]  # fmt: skip
CODES: tuple[Code, ...] = get_args(Code)
#: The maximum length of a printed message, and of a printed remedy, in characters.
MAX_MESSAGE = 500
#: The maximum number of problems to print; nobody reads more at once.
MAX_PROBLEMS = 500
#: The maximum number of names to compare with a misspelt one, which takes up to 60 ms.
_MOST_KNOWN = 1_000
#: Finds the sizes in the name of a model: 30B and 3B in Qwen3-30B-A3B.
_sizes = re.compile(r"[\d.]+b\b").findall

#: Invisible characters and characters that reorder visible ones: controls except tab and line breaks, line
#: separators, zero-width and bidirectional controls, fillers, tag characters, surrogates, non-characters.
#: Joiners and variation selectors are allowed, because scripts and emoji need them.
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffc\ud800-\udfff\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


class Severity(str, Enum):
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
        path = re.sub(r":(?=\d)", r"\\x3a", printable(self.path))
        return f"{path}:{self.line}:{self.column}" if self.path else ""


@dataclass(frozen=True, order=True)
class Diagnostic:
    """A problem; problems are ordered by place."""

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
        parts = (self.named_message, self.remedy)
        short = (part if len(part) <= MAX_MESSAGE else f"{part[:MAX_MESSAGE]} …" for part in parts if part)
        return one_line("; ".join(short))

    @property
    def is_error(self) -> bool:
        """True for an error, False for a warning."""
        return self.severity is Severity.ERROR

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place.path else ""
        return f"{place}{self.severity.name}: {self.text} [verl.{self.code}]"


def warning(place: Location, code: Code, message: str, remedy: str) -> Diagnostic:
    """Return a warning."""
    return Diagnostic(place, code, message, remedy, Severity.WARNING)


class NoAnswerError(Exception):
    """A question without an answer; its diagnostics give the reasons, errors first."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics = tuple(sorted(dict.fromkeys(diagnostics), key=lambda problem: problem.severity))
        super().__init__("; ".join(problem.text for problem in self.diagnostics))

    @classmethod
    def because(cls, text: str, remedy: str = "", code: Code = "directive", key: str = "") -> NoAnswerError:
        """Return an error with one diagnostic, about the setting, option or field ``key``."""
        return cls(Diagnostic(Location("", key=key), code, text, remedy))


def capped(problems: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return the problems to print; of very many the first ones, errors before warnings, and a note."""
    every = [*problems]
    if len(every) > MAX_PROBLEMS:
        *every, last = sorted(every, key=lambda problem: problem.severity)[: MAX_PROBLEMS + 1]
        message = "more problems are not listed; fix the others first"
        every.append(Diagnostic(replace(last.place, key=""), last.code, message, "", last.severity))
    return tuple(every)


# -- texts


def one_line(text: str) -> str:
    """Return a text on one line, with control characters escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in " ".join(text.split()))


def visible(text: str) -> str:
    r"""Escape what controls a terminal, is invisible, or changes the direction of writing.

    Every text goes to a terminal through this function, whatever script, log or data it comes from.

    >>> visible("project=\x1b[31ma\u202eb\r"), visible("two\n\tlines, Größe 👍🏽")
    ('project=\\x1b[31ma\\u202eb\\r', 'two\n\tlines, Größe 👍🏽')
    """
    return re.sub(rf"{FORBIDDEN.pattern}|\r", lambda match: ascii(match[0])[1:-1], text)


def printable(name: str) -> str:
    """Escape a file name to print on one line; doubled backslashes keep different names different."""
    return re.sub(rf"{FORBIDDEN.pattern}|[\t\n\r\\]", lambda match: ascii(match[0])[1:-1], name)


def counted(number: int, word: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "error"), counted(0, "error")
    ('1 error', '0 errors')
    """
    return f"{number} {word}{'' if number == 1 else 's'}"


# -- suggestions


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the known word that ``word`` probably means; None if there is none.

    A model of another size is never meant.

    >>> nearest("GPRO", ["GSPO", "GRPO"]), nearest("deepspeed", ["fsdp", "mindspeed"])
    ('GRPO', None)
    >>> nearest("Qwen3.5-7B", ["Qwen3.5-27B"]), nearest("Qwen3.5-27", ["Qwen3.5-27B"])
    (None, 'Qwen3.5-27B')
    """
    target, names = word.casefold(), {name.casefold(): name for name in islice(candidates, _MOST_KNOWN)}
    near = difflib.get_close_matches(target, names, cutoff=0.7)
    near.sort(key=lambda name: sorted(name) != sorted(target))  # swapped letters are the likeliest mistake
    return next((names[name] for name in near if _sizes(target) in ([], _sizes(name))), None)


def did_you_mean(word: str, candidates: Iterable[str], otherwise: str = "") -> str:
    """Return a remedy: the nearest known word and ``otherwise``, or one of both, or all words if few."""
    names = list(dict.fromkeys(candidates))
    if near := nearest(word, names):
        return f"did you mean {near!r}?" + (f" If not, {otherwise}" if otherwise else "")
    return otherwise or (f"allowed: {', '.join(names)}" if 0 < len(names) <= 24 else "")
