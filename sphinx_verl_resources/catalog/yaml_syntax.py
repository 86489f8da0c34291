"""The likely cause of a YAML syntax error, and its line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ..diagnostics import Code, Diagnostic, Location, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import yaml

#: The beginning of a line with a key or a list item.
_LINE = re.compile(
    r"(?P<indent> *)(?P<dashes>(?:- +)*)(?P<key>[\w./+'\"-]*[\w'\"]):(?: +(?P<value>[^#\s].*)?)?$"
)
_ITEM = re.compile(r"(?P<indent> *)- ")
#: The allowed text before the colon of a key.
_BEFORE = re.compile(r" *(?:- +)*[\w./+'\"-]*")
#: A key with its value directly after the colon.
_NO_SPACE = re.compile(r" *(?:- )*[A-Za-z_][\w.]*:(?=[^\s:/])")
_NO_SPACE_AFTER = ("a colon without a space after it", "put a space after it")
TOO_DEEP = ("too many nested lists or mappings", "nest fewer")


class _Line(NamedTuple):
    """A line with a key or a list item.

    Attributes:
        number: the line number, from 1.
        start: the number of spaces before the text.
        level: the number of spaces and dashes before the key; ``start`` for an item without a key.
        name: the key; empty for an item without a key.
        has_value: whether the key has a value on the line.
    """

    number: int
    start: int
    level: int
    name: str
    has_value: bool

    @property
    def is_item(self) -> bool:
        """True if the line begins with a dash."""
        return self.level > self.start or not self.name


class _Misplaced(NamedTuple):
    """A line with a different indentation from its neighbours."""

    line: _Line
    wanted: int


def _lines_in(text: list[str]) -> Iterator[_Line]:
    """Yield the lines with keys and items; other lines are comments or continue a value."""
    for number, line in enumerate(text, 1):
        if match := _LINE.match(line):
            start, level = len(match["indent"]), match.start("key")
            yield _Line(number, start, level, match["key"], bool(match["value"]))
        elif match := _ITEM.match(line):
            start = len(match["indent"])
            yield _Line(number, start, start, "", has_value=True)


def _misplaced(text: list[str], noticed: int) -> _Misplaced | None:
    """Return the line with the wrong indentation that a parser reported at line ``noticed``, or None."""
    lines = list(_lines_in(text))
    index = next((index for index, line in enumerate(lines) if line.number == noticed), 0)
    if not index:
        return None
    line, before = lines[index], lines[:index]
    last = before[-1]
    if line.start > last.level:
        above = before[-2] if index > 1 else None
        is_child = above and not above.has_value and above.level == last.start
        if above and last.start < line.start and (above.level == line.start or is_child):
            return _Misplaced(last, line.start)
        return _Misplaced(line, last.level) if last.has_value else None
    return _too_shallow(line, before, lines[index + 1 :])


def _too_shallow(line: _Line, before: list[_Line], after: list[_Line]) -> _Misplaced | None:
    """Return the wrong line if ``line`` has fewer spaces than the line above it, or None."""
    open_levels: list[tuple[int, bool, _Line]] = []
    members: dict[int, int] = {}
    for other in before:
        while open_levels and open_levels[-1][0] > other.start:
            members.pop(open_levels.pop()[0], None)
        for level, is_item in ((other.start, other.is_item), (other.level, False)):
            if not any(known[:2] == (level, is_item) for known in open_levels):
                open_levels.append((level, is_item, other))
        members[other.level] = members.get(other.level, 0) + 1
    if any(known[:2] == (line.start, line.is_item) for known in open_levels):
        return None
    deeper = [known for known in open_levels if known[0] > line.start and known[1] == line.is_item]
    if not deeper:
        return None
    wanted, _, first = deeper[0]
    parents = [level for level, _, _ in open_levels if level < line.start]
    fits = (parents and line.start == parents[-1] + 2) or (after and after[0].start == line.start)
    if first is before[-1] and members.get(wanted) == 1 and not first.is_item and (fits or not parents):
        return _Misplaced(first, line.start)
    return _Misplaced(line, wanted)


def _wrong_indentation(wrong: _Misplaced) -> tuple[tuple[int, int], str, str]:
    """Return the place, message and remedy for a line with wrong indentation."""
    line, wanted = wrong
    what = repr(line.name) if line.name else "the item"
    message = f"{what} is indented by {line.start}, but the lines next to it by {wanted}"
    remedy = f"put {counted(wanted, 'space')} before it" if wanted else "put no space before it"
    return (line.number, line.start + 1), message, remedy


def _stray_colon(lines: list[str], noticed: tuple[int, int]) -> tuple[tuple[int, int], str, str]:
    """Return the place, message and remedy for an unexpected colon."""
    number, column = noticed
    above = _NO_SPACE.match(lines[number - 2]) if number > 1 else None
    if above and _BEFORE.fullmatch(lines[number - 1][: column - 1]):
        return (number - 1, above.end()), *_NO_SPACE_AFTER
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
    if _BEFORE.fullmatch(lines[noticed[0] - 1][: noticed[1] - 1]) and found != "\t":
        wrong = _misplaced(lines, noticed[0])
        if wrong and ("not allowed" in problem or "expected" in problem):
            return explain(*_wrong_indentation(wrong))
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
        at_start = not lines[noticed[0] - 1][: noticed[1] - 1].strip()
        remedy = "indent all keys of a level alike" if at_start else "close each quote and bracket once"
        return explain(noticed, "this does not belong to the keys above it", remedy)
    message = " ".join(part for part in (problem, context) if part)
    return explain(noticed, f"not valid YAML: {message}", "")


def position(mark: Any) -> tuple[int, int]:
    """Return the line and column, from 1, of a mark of PyYAML or libyaml, which share no base class."""
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
