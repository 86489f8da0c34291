"""docutils for pages that somebody else has typed: no files, no raw HTML, and nothing that it stops at.

Names that only Sphinx knows are read as what they hold. Lists and rows of any length make a table, so that
a row that lacks cells can be named instead of being lost with its table.
"""

from __future__ import annotations

import csv
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from docutils import frontend, nodes
from docutils.parsers.rst import Directive, Parser, directives, roles, states
from docutils.parsers.rst.directives.tables import CSVTable, ListTable
from docutils.statemachine import StringList
from docutils.transforms import references
from docutils.utils import new_document, unescape

if TYPE_CHECKING:
    from collections.abc import Iterator

#: docutils keeps the names of roles and directives for the whole process.
_LOCK = threading.RLock()
_DIRECTIVES: Any = directives
_ROLES: Any = roles
_TRANSFORMS = (
    references.Substitutions,
    references.PropagateTargets,
    references.AnonymousHyperlinks,
    references.IndirectHyperlinks,
    references.ExternalTargets,
    references.InternalTargets,
    references.DanglingReferences,
)
_SETTINGS: dict[str, Any] = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "report_level": 5,
    "halt_level": 6,
    "warning_stream": False,
    "syntax_highlight": "none",
    "tab_width": 8,
    "smart_quotes": False,
    "traceback": True,
}


class ListedRows(nodes.General, nodes.Element):
    """A table that is typed as a list of lists, as it stands: rows may differ in length."""


def parse(text: str, shown: str) -> tuple[nodes.document, list[nodes.system_message]]:
    """A page as docutils reads it, and every remark that docutils has.

    Raises:
        Exception: whatever docutils itself fails with.
    """
    settings = frontend.get_default_settings(Parser)
    for name, value in _SETTINGS.items():
        setattr(settings, name, value)
    document = new_document(shown, settings)
    messages: list[nodes.system_message] = []
    document.reporter.attach_observer(messages.append)
    with _LOCK, _lenient():
        Parser().parse(text, document)
    document.transformer.add_transforms(_TRANSFORMS)
    document.transformer.apply_transforms()
    return document, messages


@contextmanager
def _lenient() -> Iterator[None]:
    """Let docutils find an answer for every name, and for tables of lists one of ours; undone afterwards."""
    known_directives, known_roles = _DIRECTIVES._directives, _ROLES._roles
    find_directive, find_role = _DIRECTIVES.directive, _ROLES.role
    kept = dict(known_directives), dict(known_roles)

    def some_directive(name: str, *args: Any) -> tuple[Any, list[Any]]:
        found, _ = find_directive(name, *args)
        return found or _Unknown, []

    def some_role(name: str, *args: Any) -> tuple[Any, list[Any]]:
        found, _ = find_role(name, *args)
        return found or _unknown_role, []

    _DIRECTIVES.directive, _ROLES.role = some_directive, some_role
    known_directives.update({"list-table": _LenientListTable, "csv-table": _LenientCsvTable})
    known_directives.update(dict.fromkeys(("code", "code-block", "sourcecode"), _Code))
    try:
        yield
    finally:
        _DIRECTIVES.directive, _ROLES.role = find_directive, find_role
        for known, before in zip((known_directives, known_roles), kept, strict=True):
            known.clear()
            known.update(before)


class _AnyOptions(dict[str, Any]):
    """Options of any name, as text."""

    def __init__(self) -> None:
        super().__init__({"class": directives.unchanged})

    def __missing__(self, name: str) -> Any:
        return directives.unchanged


class _Unknown(Directive):
    """A directive that docutils does not know: whatever it holds is read."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = _AnyOptions()

    def run(self) -> list[nodes.Node]:
        held = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, held, match_titles=True)
        return list(held.children)


class _Code(_Unknown):
    """A block of code, whose options are Sphinx's: its text, with the language among its classes."""

    option_spec = _AnyOptions()

    def run(self) -> list[nodes.Node]:
        text = "\n".join(self.content)
        classes = [*self.arguments, *self.options.get("class", "").split()]
        return [nodes.literal_block(text, text, classes=classes)]


class _LenientListTable(ListTable):
    """``list-table`` without its check that all rows are of one length."""

    option_spec = _AnyOptions()

    def run(self) -> list[Any]:
        rows = ListedRows()
        rows.line = self.lineno
        self.state.nested_parse(self.content, self.content_offset, rows)
        shapes = [
            type(child) for child in rows if not isinstance(child, (nodes.system_message, nodes.comment))
        ]
        if shapes != [nodes.bullet_list]:
            message = "The list-table holds something else than one list"
            return [self.reporter.error(message, line=self.lineno)]
        return [rows]


class _LenientCsvTable(CSVTable):
    """``csv-table`` that does not fill up short rows, for nobody could see any more that they were short."""

    def extend_short_rows_with_empty_cells(self, columns: int, parts: Any) -> None:
        del columns, parts

    def parse_csv_data_into_rows(self, csv_data: Any, dialect: Any, source: Any) -> tuple[list[Any], int]:
        """As docutils does it, but every cell knows its line."""
        reader = csv.reader((f"{line}\n" for line in csv_data), dialect=dialect)
        rows: list[list[Any]] = []
        begun = 0
        for row in reader:
            typed = isinstance(csv_data, StringList) and begun < len(csv_data)
            line = csv_data.offset(begun) if typed else self.lineno - 1
            places = [(cell.splitlines(), line) for cell in row]
            rows.append(
                [(0, 0, 0, StringList(lines, items=[(source, line)] * len(lines))) for lines, line in places]
            )
            begun = reader.line_num
        return rows, max(map(len, rows), default=0)


def _unknown_role(
    name: str,
    rawtext: str,
    text: str,
    lineno: int,
    inliner: states.Inliner,
    options: Any = None,
    content: Any = None,
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """A role that docutils does not know: its text, without the target."""
    del name, rawtext, lineno, inliner, options, content
    shown, separator, target = unescape(text).rpartition(" <")
    return [nodes.inline("", shown if separator and target.endswith(">") else unescape(text))], []
