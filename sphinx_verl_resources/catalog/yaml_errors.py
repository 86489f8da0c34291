"""What PyYAML and libyaml mean when they complain, in words that say what to do.

The two parsers agree on places and not on wording, so the kinds are told apart by what both say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

_LEVELS = "indent the keys of one level alike, and close each quote and bracket once"


@dataclass(frozen=True)
class Explanation:
    """Where the mistake was made, which is not always where the parser noticed it."""

    line: int
    column: int
    message: str
    remedy: str


def explain(error: yaml.MarkedYAMLError, text: str) -> Explanation:
    """The likely mistake behind a syntax error in ``text``."""
    lines = text.splitlines() or [""]
    noticed = position(error.problem_mark or error.context_mark)
    if noticed[0] > len(lines):  # at the end of the text, which people look for on its last line
        noticed = len(lines), len(lines[-1]) + 1
    began = position(error.context_mark or error.problem_mark)
    problem, context = error.problem or "", error.context or ""
    found = lines[noticed[0] - 1][noticed[1] - 1 : noticed[1]]
    if found == "\t" or "tab character" in problem:
        return Explanation(*noticed, "a tab cannot indent YAML", "use spaces")
    if "escape" in problem or "hexdecimal" in problem or "Unicode character code" in problem:
        return Explanation(*noticed, "a backslash that means nothing here", "double it, or use single quotes")
    if "quoted scalar" in context:
        return Explanation(*began, "the quote that opens here is never closed", "close it")
    if "flow node" in context:
        return Explanation(*noticed, "a value is missing before this place", "close every bracket and quote")
    if "flow" in context:
        return Explanation(
            *began, "the bracket that opens here is not closed where it should be", "close it, or add a comma"
        )
    if "expected ':'" in problem:
        return Explanation(
            *began, "a key without a colon", "write 'key: value', with a space behind the colon"
        )
    if "values are not allowed" in problem:
        hint = f"put a space behind each colon, put text that holds ': ' in quotes, {_LEVELS}"
        return Explanation(*noticed, "a colon where none can stand", hint)
    if "cannot start any token" in problem:
        return Explanation(*noticed, f"text cannot begin with {found!r}", "put it in quotes")
    if "block mapping" in context or "block collection" in context:
        return Explanation(*noticed, "this does not belong to the keys above it", _LEVELS)
    message = " ".join(part for part in (problem, context) if part)
    return Explanation(*noticed, f"not valid YAML: {message}", "")


def position(mark: Any) -> tuple[int, int]:
    """Line and column, counted from 1, of a mark of PyYAML or libyaml; they share no base class."""
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
