"""Changing a YAML text in single places; every other character stays as it was typed.

A parser that keeps comments would write the whole file anew: with ruamel.yaml, a comment above a key stays
behind when the key moves, since it belongs to the one before, and blanks, indents and folds are made alike.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Path = tuple["str | int", ...]


@dataclass(frozen=True)
class Value:
    """One value of a text: where it lies in the data, its node, and the node of its key if it has one."""

    path: Path
    node: yaml.Node
    key: yaml.ScalarNode | None = None

    @property
    def start(self) -> int:
        """Where it begins, counted in characters from 0."""
        return int(self.node.start_mark.index)

    @property
    def end(self) -> int:
        """Where what follows it begins."""
        return int(self.node.end_mark.index)

    @property
    def line(self) -> int:
        """The line of its key, or of itself, counted from 1."""
        return int((self.key or self.node).start_mark.line) + 1


def values(text: str) -> list[Value]:
    """All values of a text, outer ones first; none if it is not YAML."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    return list(_below(root, ())) if root else []


def _below(node: yaml.Node, path: Path, key: yaml.ScalarNode | None = None) -> Iterator[Value]:
    yield Value(path, node, key)
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode):
                yield from _below(value, (*path, name.value), name)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _below(value, (*path, index))


def at(found: Sequence[Value], *path: str | int) -> Value | None:
    """The value at a path, or None."""
    return next((value for value in found if value.path == path), None)


def scalar(value: Value) -> str | None:
    """The text of a scalar as it was typed, without quotes; None for anything else."""
    return value.node.value if isinstance(value.node, yaml.ScalarNode) else None


def plain(value: Value) -> str | None:
    """The same of one that was typed without quotes; None for one with them, too."""
    return scalar(value) if getattr(value.node, "style", "") is None else None


def quoted(text: str) -> str:
    """A text in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def replaced(text: str, value: Value, new: str) -> str:
    """The text with another value in that place."""
    return text[: value.start] + new + text[value.end :]


def without(text: str, value: Value) -> str:
    """The text without a key and its value; as it is where something else stands beside them on a line."""
    assert value.key is not None
    start, end = value.key.start_mark.index, value.end
    line, next_line = text.rfind("\n", 0, start) + 1, text.find("\n", end) + 1 or len(text)
    if not text[line:start].strip() and not text[end:next_line].strip():
        return text[:line] + text[next_line:]
    if comma := re.search(r"\s*,\s*\Z", text[:start]):
        return text[: comma.start()] + text[end:]
    if comma := re.match(r"\s*,\s*", text[end:]):
        return text[:start] + text[end + comma.end() :]
    return text


def with_keys_in_order(text: str, mapping: Value, order: Sequence[str]) -> str:
    """The text with the keys of one mapping in the order given, others behind them as they stand.

    What stands above a key or behind its value moves with it. The text is returned as it is where that cannot
    be done line by line or, inside braces, comma by comma.
    """
    node = mapping.node
    assert isinstance(node, yaml.MappingNode)
    names = [key.value for key, _value in node.value]
    rank = {name: index for index, name in enumerate(order)}
    wanted = sorted(range(len(names)), key=lambda index: rank.get(names[index], len(order)))
    if wanted == sorted(wanted):
        return text
    return _in_braces(text, node, wanted) if node.flow_style else _in_lines(text, node, wanted)


def _in_braces(text: str, node: yaml.MappingNode, wanted: list[int]) -> str:
    spans = [(key.start_mark.index, value.end_mark.index) for key, value in node.value]
    if "#" in text[spans[0][0] : spans[-1][1]]:  # a comment, whose end is that of its line
        return text
    between = [text[spans[index][1] : spans[index + 1][0]] for index in range(len(spans) - 1)]
    pieces = [text[slice(*spans[index])] for index in wanted]
    joined = "".join(piece + gap for piece, gap in zip(pieces, [*between, ""], strict=True))
    return text[: spans[0][0]] + joined + text[spans[-1][1] :]


def _in_lines(text: str, node: yaml.MappingNode, wanted: list[int]) -> str:
    """The same for keys that stand one below the other."""
    lines = text.splitlines(keepends=True)
    rows = [key.start_mark.line for key, _value in node.value]
    column = node.value[0][0].start_mark.column
    own_line = [not lines[row][:column].strip() for row in rows]
    # In a list the first key stands behind its dash, which stays where it is.
    behind_dash = column > 0 and re.fullmatch(r"\s*-\s+", lines[rows[0]][:column]) is not None
    if not all(own_line[1:]) or not (own_line[0] or behind_dash):
        return text
    if behind_dash:
        first = rows[0]
    else:
        first = _start(lines, rows[0], column) if column else _start_of_first(lines, rows[0])
    starts = [first, *(_start(lines, row, column) for row in rows[1:])]
    end = _end(lines, node)
    blocks = ["".join(lines[start:stop]) for start, stop in zip(starts, [*starts[1:], end], strict=True)]
    if behind_dash:
        dash, blocks[0] = lines[rows[0]][:column], " " * column + blocks[0][column:]
    blocks = [block if block.endswith("\n") else f"{block}\n" for block in blocks]
    moved = "".join(blocks[index] for index in wanted)
    if behind_dash:
        if not re.match(rf"[ ]{{{column}}}[^#\s]", moved):  # a comment would come to stand behind the dash
            return text
        moved = dash + moved[column:]
    return "".join(lines[:first]) + moved + "".join(lines[end:])


def _start(lines: list[str], row: int, column: int) -> int:
    """The line in which what belongs to a key begins: comments and blank lines right above it."""
    while row > 0 and re.match(rf"(?:[ ]{{{column}}}#|[ \t\r]*\n)", lines[row - 1]):
        row -= 1
    return row


def _start_of_first(lines: list[str], row: int) -> int:
    """The same for the first key of a file: comments above a blank line are about the file."""
    start = row
    while start > 0 and lines[start - 1].startswith("#") and "$schema" not in lines[start - 1]:
        start -= 1
    return start


def _end(lines: list[str], node: yaml.MappingNode) -> int:
    """The line behind the last one of a mapping; comments less far in, or at the end, are not its."""
    mark, column = node.end_mark, node.value[0][0].start_mark.column
    # A block ends where the next thing begins, be it the dash of another item.
    end = mark.line if not "".join(lines[mark.line : mark.line + 1])[: mark.column].strip() else mark.line + 1
    while re.match(rf"[ ]{{0,{max(column - 1, 0)}}}(?:#|[ \t\r]*\n?\Z)", lines[end - 1]):
        end -= 1
    return end
