"""Rules about the text of single files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..catalog.fields import field_at
from ..catalog.run_text import FIELD_ORDER, SCHEMA_LINE, SCHEMA_LINE_READ
from ..catalog.yaml_data import leaves
from ..diagnostics import Location
from .rule import Finding, at_key, at_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.yaml_data import Loc
    from .tree import SourceFile

#: Kinds whose files lie in a folder of their own, a level below the schemas.
_BELOW = frozenset({"run", "cases"})


def schema_target(kind: str) -> str:
    """Where the schema of a kind of file lies, seen from such a file."""
    return f"{'../' if kind in _BELOW else ''}schema/{kind}.json"


def schema_line(file: SourceFile) -> Iterator[Finding]:
    """The first line leads editors to the schema."""
    hint = f"the first line is {SCHEMA_LINE.format(schema_target(file.kind))}"
    first = file.document.text.split("\n", 1)[0]
    found = SCHEMA_LINE_READ.match(first)
    if not found:
        yield Finding(Location(file.shown, 1, 1), "the first line does not name the schema", hint)
    elif found[1].rsplit("/", 1)[-1] != f"{file.kind}.json":
        message = f"the first line leads to {found[1][:80]!r}, which is another schema"
        yield Finding(Location(file.shown, 1, found.start(1) + 1), message, hint)


def field_order(file: SourceFile) -> Iterator[Finding]:
    """The fields of a run stand in the order of the schema."""
    if file.kind != "run" or not isinstance(file.document.data, dict):
        return
    names = [name for name in file.document.data if name in FIELD_ORDER]
    ranks = [FIELD_ORDER.index(name) for name in names]
    for index, name in enumerate(names[1:], 1):
        behind = [
            other for other, rank in zip(names[:index], ranks[:index], strict=True) if rank > ranks[index]
        ]
        if behind:
            first = behind[0]
            message = f"{name!r} stands behind {first!r}, and before it in all other files"
            yield at_key(file, (name,), message, f"move it above {first!r}")
            return


def unquoted_version(file: SourceFile) -> Iterator[Finding]:
    """Versions and lines are in quotes."""
    if file.kind != "run":
        return
    for loc, value in leaves(file.document.data):
        field = field_at(loc)
        if field and field.quoted and isinstance(value, str) and _is_plain(file, loc):
            message = f"{'.'.join(map(str, loc))}: {value[:80]} is not in quotes"
            yield at_value(file, loc, message, f'write "{value[:80]}"')


def _value(data: object, loc: Loc) -> object:
    for part in loc:
        if isinstance(part, int):
            data = data[part] if isinstance(data, tuple) else None
        else:
            data = data.get(part) if isinstance(data, dict) else None
    return data


def _is_plain(file: SourceFile, loc: Loc) -> bool:
    """Whether a text stands there without quotes."""
    line, column = file.document.value_place(loc)
    lines = re.split(r"\r\n|[\r\n]", file.document.text)
    return line <= len(lines) and lines[line - 1][column - 1 : column] not in ('"', "'", "|", ">")


def repeated_text(file: SourceFile) -> Iterator[Finding]:
    """The text of a link says more than the link."""
    if file.kind != "run":
        return
    path, text = (_value(file.document.data, ("script", name)) for name in ("path", "text"))
    if isinstance(path, str) and path.rsplit("/", 1)[-1] == text:
        message = f"script.text repeats the name of the file, {text[:80]!r}"
        yield at_key(file, ("script", "text"), message, "remove it; a link shows the name by itself")
