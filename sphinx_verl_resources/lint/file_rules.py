"""Rules for the text of single files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..catalog.fields import field_at
from ..catalog.run_text import SCHEMA_LINE, SCHEMA_LINE_READ
from ..catalog.yaml_data import leaves
from ..diagnostics import Code, Location, Severity
from .rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..diagnostics import Diagnostic
    from .context import SourceFile

#: Kinds of files in a subfolder of the data directory.
_BELOW = frozenset({"run", "cases"})


def schema_target(kind: str) -> str:
    """Return the path of the schema for a kind of file, relative to such a file."""
    return f"{'../' if kind in _BELOW else ''}schema/{kind}.json"


def has_schema(file: SourceFile) -> bool:
    """Return whether the data directory of a file has its schema."""
    return (file.file.path.parent / schema_target(file.kind)).is_file()


@Rule(Code.schema_line, "file")
def schema_line(file: SourceFile) -> Iterator[Diagnostic]:
    """Require a first line that points editors to the schema, if the directory has it."""
    remedy = f"begin the file with {SCHEMA_LINE.format(schema_target(file.kind))}"
    match = SCHEMA_LINE_READ.match(file.document.text.split("\n", 1)[0])
    if not match:
        if has_schema(file):
            place = Location(file.shown, 1, 1)
            yield schema_line.broken_at(place, "the first line does not point to the schema", remedy)
    elif match[1].rsplit("/", 1)[-1] != f"{file.kind}.json":
        message = f"the first line points to a different schema, {match[1][:80]!r}"
        yield schema_line.broken_at(Location(file.shown, 1, match.start(1) + 1), message, remedy)


@Rule(Code.unquoted_version, "file")
def unquoted_version(file: SourceFile) -> Iterator[Diagnostic]:
    """Require quotes around versions and lines."""
    if file.kind != "run":
        return
    for loc, value in leaves(file.document.data):
        field = field_at(loc)
        if field and field.quoted and isinstance(value, str) and file.document.is_plain(loc):
            message = f"{'.'.join(map(str, loc))}: {value[:80]} is not in quotes"
            yield unquoted_version.broken_at(file.value_place(*loc), message, f'write "{value[:80]}"')


#: Reported by the loader of run files.
ID_MISMATCH = Rule(Code.id_mismatch, "file", Severity.ERROR)
