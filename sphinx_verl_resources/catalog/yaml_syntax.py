"""The likely cause of a YAML syntax error, and its line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, Diagnostic, Location

if TYPE_CHECKING:
    import yaml

#: The allowed text before the colon of a key.
_BEFORE = re.compile(r" *(?:- +)*[\w./+'\"-]*")
#: A key with its value directly after the colon.
_NO_SPACE = re.compile(r" *(?:- )*[A-Za-z_][\w.]*:(?=[^\s:/])")
_NO_SPACE_AFTER = ("a colon without a space after it", "put a space after it")
_NOT_ALIKE = ("this does not belong to the keys above it", "indent all keys of a level alike")
TOO_DEEP = ("too many nested lists or mappings", "nest fewer")


def _stray_colon(lines: list[str], noticed: tuple[int, int]) -> tuple[tuple[int, int], str, str]:
    """Return the place, message and remedy for an unexpected colon."""
    number, column = noticed
    if number > 1 and _BEFORE.fullmatch(lines[number - 1][: column - 1]):
        above = _NO_SPACE.match(lines[number - 2])
        return ((number - 1, above.end()), *_NO_SPACE_AFTER) if above else (noticed, *_NOT_ALIKE)
    return noticed, "a colon in a text without quotes", "put the text in quotes"


def syntax_problem(error: yaml.MarkedYAMLError, text: str, shown: str) -> Diagnostic:
    """Return the likely cause of a syntax error.

    The mistake is not always at the place that the parser reports. PyYAML and libyaml agree on places but not
    on wording, so this compares only words that both use.
    """

    def explain(place: tuple[int, int], message: str, remedy: str) -> Diagnostic:
        return Diagnostic(Location(shown, *place), Code.yaml_syntax, message, remedy)

    lines = text.splitlines() or [""]
    noticed = position(error.problem_mark or error.context_mark)
    if noticed[0] > len(lines):  # report the end of the text on its last line
        noticed = len(lines), len(lines[-1]) + 1
    began = position(error.context_mark or error.problem_mark)
    problem, context = error.problem or "", error.context or ""
    if "nesting depth" in problem:
        return explain(noticed, *TOO_DEEP)
    found = lines[noticed[0] - 1][noticed[1] - 1 : noticed[1]]
    if found == "\t" or "tab character" in problem:
        return explain(noticed, "a tab cannot indent YAML", "use spaces")
    if "escape" in problem or "hexdecimal" in problem or "Unicode character code" in problem:
        return explain(noticed, "invalid escape sequence", "double the backslash, or use single quotes")
    if "quoted scalar" in context:
        return explain(began, "the quote that opens here is never closed", "add the closing quote")
    if "flow node" in context:
        return explain(
            noticed, "a value is missing here", "write it, and check for unclosed brackets and quotes"
        )
    if "flow" in context:
        return explain(began, "the bracket that opens here is not closed", "close it, or add a comma")
    if "expected ':'" in problem and (match := _NO_SPACE.match(lines[began[0] - 1])):
        return explain((began[0], match.end()), *_NO_SPACE_AFTER)
    if "expected ':'" in problem:
        return explain(began, "a key without a colon", "write 'key: value', with a space after the colon")
    if "values are not allowed" in problem:
        return explain(*_stray_colon(lines, noticed))
    if "cannot start any token" in problem:
        return explain(noticed, f"text cannot begin with {found!r}", "put it in quotes")
    if "block mapping" in context or "block collection" in context:
        if not lines[noticed[0] - 1][: noticed[1] - 1].strip():
            return explain(noticed, *_NOT_ALIKE)
        return explain(noticed, _NOT_ALIKE[0], "close each quote and bracket once")
    message = " ".join(part for part in (problem, context) if part)
    return explain(noticed, f"not valid YAML: {message}", "")


def position(mark: Any) -> tuple[int, int]:
    """Return the line and column, from 1, of a mark of PyYAML or libyaml, which share no base class."""
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
