"""Read the tables of a hand-typed page in reStructuredText.

docutils parses the page, without opening other files. Directives and roles that only Sphinx knows are
replaced by their content. Rows keep their length, so that rows with missing cells can be reported.
"""

from __future__ import annotations

import csv
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, directives
from docutils.parsers.rst.directives.misc import Replace
from docutils.parsers.rst.directives.tables import CSVTable
from docutils.parsers.rst.roles import GenericRole
from docutils.statemachine import StringList
from docutils.utils import column_width
from sphinx.util.docutils import CustomReSTDispatcher

from ..catalog.yaml_data import MAX_BYTES
from ..diagnostics import Code, Diagnostic, Location, NoAnswerError, Severity, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..catalog.files import DataFile

#: The beginning of a heading of a size class.
SIZE_TITLE = re.compile(r"(\d{1,4}(?:\.\d{1,3})?) *B(?!\w)", re.IGNORECASE)
#: A heading of a size class below an empty line, and its underline.
_UNDERLINED = re.compile(
    rf"(?<![^\n]\n)^(?P<title>{SIZE_TITLE.pattern}.*)\n(?P<line>(?P<mark>[!-/:-@\[-`{{-~])(?P=mark)*)$",
    re.IGNORECASE | re.MULTILINE,
)
#: Characters that end a line in docutils but not in an editor, so that line numbers would differ.
_SEPARATORS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
#: docutils' limit on the length of lines; it rejects pages with longer ones.
_MAX_LINE = 10_000
#: Targets, footnotes, substitutions, references, and characters that may begin markup. For each one, docutils
#: searches all others or the rest of the paragraph.
_MARK = re.compile(r"^[ \t]*\.\. [_\[|]|^[ \t]*__ |[\w`|\]]_(?!\w)|[*`|](?=[^\s*`|+-])", re.MULTILINE)
#: A target; docutils passes its names to each target that directly follows.
_TARGET = re.compile(r"^[ \t]*\.\. _", re.MULTILINE)
#: Maximum numbers of targets and of marks in a page; a page with a thousand links has two thousand marks.
_MOST = ((_TARGET, 1_000, "targets"), (_MARK, 5_000, "links and marks"))
#: Maximum number of nodes of a substitution, which docutils copies for each use.
_MOST_REPLACED = 20
#: Texts of cells in which nothing is recorded.
_PLACEHOLDERS = frozenset(
    {"", "\\", "/", "-", "--", "\N{EN DASH}", "\N{EM DASH}", "?", "n/a", "none", "not recorded", "tbd"}
)
_SETTINGS = {
    "_disable_config": True,
    "docinfo_xform": False,
    "doctitle_xform": False,
    "file_insertion_enabled": False,
    "halt_level": 5,
    "warning_stream": False,
}
_ANY_OPTIONS: dict[str, Any] = defaultdict(lambda: directives.unchanged, {"class": directives.class_option})


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: its text on one line.
        links: the addresses that it links to.
        broken: whether it contains a broken link or other invalid markup.
    """

    text: str
    links: tuple[str, ...] = ()
    broken: bool = False

    @property
    def is_empty(self) -> bool:
        """True if nothing is recorded in it."""
        return self.text.casefold() in _PLACEHOLDERS and not self.links


@dataclass(frozen=True)
class TypedRow:
    """A row of a table and its line; it has no cells if an item of a list-table is not a list."""

    line: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class TypedTable:
    """A table.

    Attributes:
        title: title of the innermost section that looks like a size class; None if there is none.
        line: its first line.
        rows: all rows, the headings first.
    """

    title: str | None
    line: int
    rows: tuple[TypedRow, ...]


def page_text(file: DataFile) -> str:
    """Return the text of a page: UTF-8, or UTF-16 with its byte order mark.

    Raises:
        NoAnswerError: it is too large, in another encoding, or has a line that docutils rejects.
    """
    if len(file.content) > MAX_BYTES:
        message = f"the page is larger than {MAX_BYTES >> 20} MiB"
        raise _unreadable(file, 0, Code.file_too_large, message, "import it in parts")
    encoding = "UTF-16" if file.content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "UTF-8"
    try:
        text = file.content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        number = file.content.count(b"\n", 0, error.start) + 1
        message = f"the page is not {encoding} text"
        raise _unreadable(file, number, Code.encoding, message, "save it as UTF-8") from None
    lines = [line.rstrip() for line in re.split(r"\r\n?|\n", _SEPARATORS.sub(" ", text))]
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            message = "NUL character, as in UTF-32 or in UTF-16 without a byte order mark"
            raise _unreadable(file, number, Code.encoding, message, "save the page as UTF-8")
        if len(line.expandtabs()) > _MAX_LINE:
            message = f"the line is longer than {_MAX_LINE} characters"
            remedy = "break it; docutils rejects longer lines"
            raise _unreadable(file, number, Code.page_syntax, message, remedy)
    text = "\n".join(lines)
    for mark, most, what in _MOST:
        if beyond := next(islice(mark.finditer(text), most, None), None):
            line, message = line_at(text, beyond.start()), f"the page has more than {most:,} {what}"
            raise _unreadable(file, line, Code.file_too_large, message, "import it in parts")
    return text


def line_at(text: str, position: int) -> int:
    """Return the line of a position."""
    return text.count("\n", 0, position) + 1


def _unreadable(file: DataFile, line: int, code: Code, message: str, remedy: str) -> NoAnswerError:
    return NoAnswerError(Diagnostic(Location(file.shown, line), code, message, remedy))


def read_tables(text: str, shown: str) -> tuple[list[TypedTable], list[Diagnostic]]:
    """Return the tables of a page in order, and the problems that docutils reports.

    Args:
        text: the text of the page.
        shown: the page's name in messages.

    Raises:
        NoAnswerError: docutils fails on the page.
    """
    problems: list[Diagnostic] = []

    def lengthened(match: re.Match[str]) -> str:
        """Return a heading with an underline as long as its title; docutils reads a shorter one as text."""
        title, underline = match["title"], match["line"]
        width = column_width(title)
        if len(underline) < width:
            message = f"the underline of the heading {title!r} has {counted(len(underline), 'character')}"
            remedy = f"write {width}; docutils would read it as text, but here it is read as a heading"
            place = Location(shown, line_at(text, match.start("line")))
            problems.append(Diagnostic(place, Code.page_mended, message, remedy, Severity.WARNING))
        return f"{title}\n{underline.ljust(width, underline[0])}"

    try:
        with _Dispatcher():
            document = publish_doctree(_UNDERLINED.sub(lengthened, text), settings_overrides=_SETTINGS)
    except Exception as error:  # docutils may raise anything
        message = f"docutils cannot read the page: {type(error).__name__}: {error}"
        remedy = "look for very deeply nested markup, or import only the tables"
        raise NoAnswerError(Diagnostic(Location(shown), Code.page_syntax, message, remedy)) from error
    problems += _reported(document, shown)
    for note in [*document.findall(nodes.system_message)]:
        note.parent.remove(note)
    return [_table(node) for node in document.findall(nodes.table)], problems


def _reported(document: nodes.document, shown: str) -> Iterator[Diagnostic]:
    """Yield the problems that docutils reports about a page."""
    for note in document.parse_messages + document.transform_messages:
        message = note[0].astext().rstrip(".") if len(note) else ""
        if note["level"] < 2 or message.startswith("Duplicate explicit target name"):
            continue  # links of the same text keep their own addresses
        severity, remedy = Severity.WARNING, "check the rows near it"
        if "table" in message.lower() and "target name" not in message:
            severity, remedy = Severity.ERROR, "the table is not read; fix its markup"
        place = Location(shown, note.get("line") or 1)
        yield Diagnostic(place, Code.page_syntax, message, remedy, severity)


def _table(node: nodes.Element) -> TypedTable:
    """Return a table, without the rows of tables inside its cells."""
    own = [row for row in node.findall(nodes.row) if row.parent.parent.parent is node]
    begin = node.line or min(filter(None, map(_line, own)), default=1)
    rows = [
        TypedRow(_line(row) or begin, tuple(_cell(cell) for cell in row if isinstance(cell, nodes.entry)))
        for row in own
    ]
    titles = []
    while node.parent is not None:
        node = node.parent
        if isinstance(node, nodes.section):
            titles.append(" ".join(node[0].astext().split()))
    return TypedTable(next(filter(SIZE_TITLE.match, titles), None), begin, tuple(rows))


def _line(node: nodes.Node) -> int | None:
    return min((inner.line for inner in node.findall() if inner.line), default=None)


def _cell(node: nodes.Node) -> Cell:
    references = [*node.findall(nodes.reference)]
    links = dict.fromkeys(str(link["refuri"]) for link in references if "refuri" in link)
    lost = [*node.findall(nodes.problematic), *(link for link in references if "refuri" not in link)]
    return Cell(" ".join(node.astext().split()), tuple(links), bool(lost))


class _Dispatcher(CustomReSTDispatcher):
    """A dispatcher with a directive and a role for every name."""

    def directive(self, directive_name: str, *context: Any) -> tuple[type[Directive], list[Any]]:
        found = _DIRECTIVES.get(directive_name.lower()) or super().directive(directive_name, *context)[0]
        return found or _Unknown, []

    def role(self, role_name: str, *context: Any) -> tuple[Any, list[Any]]:
        return super().role(role_name, *context)[0] or GenericRole(role_name, nodes.inline), []


class _Unknown(Directive):
    """A directive unknown to docutils; its content is read."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = _ANY_OPTIONS

    def run(self) -> list[nodes.Node]:
        content = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, content, match_titles=True)
        return list(content.children)


class _Skipped(_Unknown):
    """A directive that is skipped: its content is not text of the page, or it would open a file."""

    def run(self) -> list[nodes.Node]:
        return []


class _ListTable(_Unknown):
    """A ``list-table`` whose rows may differ in length."""

    def run(self) -> list[nodes.Node]:
        ignored = (nodes.system_message, nodes.comment)
        lists = [node for node in super().run() if not isinstance(node, ignored)]
        if [type(node) for node in lists] != [nodes.bullet_list]:
            raise self.error("The list-table must contain exactly one list")
        body = nodes.tbody()
        for item in lists[0].children:
            cells = [
                cell for child in item.children if isinstance(child, nodes.bullet_list) for cell in child
            ]
            body += nodes.row("", *(nodes.entry("", *cell.children) for cell in cells))
            body[-1].line = item.line or _line(item)
        table = nodes.table("", nodes.tgroup("", body))
        table.line = self.lineno
        return [table]


class _CsvTable(CSVTable):
    """A ``csv-table`` that keeps short rows short and records the lines of cells."""

    def extend_short_rows_with_empty_cells(self, columns: int, parts: Any) -> None:
        """Leave the rows as they are."""

    def parse_csv_data_into_rows(self, csv_data: Any, dialect: Any, source: Any) -> tuple[list[Any], int]:
        """Return the rows as docutils does, with the line of each row in its cells."""
        reader = csv.reader((f"{line}\n" for line in csv_data), dialect=dialect)
        rows: list[list[Any]] = []
        begin = 0
        for row in reader:
            line = csv_data.offset(begin) if isinstance(csv_data, StringList) else self.lineno - 1
            texts = [cell.splitlines() for cell in row]
            rows.append([(0, 0, 0, StringList(text, items=[(source, line)] * len(text))) for text in texts])
            begin = reader.line_num
        return rows, max(map(len, rows), default=0)


class _Replace(Replace):
    """A ``replace`` with short content, since docutils copies it at each use and nested ones multiply."""

    def run(self) -> list[nodes.Node]:
        found = [*super().run()]
        inner = [node for one in found for node in one.findall()]
        if any(isinstance(node, nodes.substitution_reference) for node in inner):
            raise self.error("A substitution inside another one is not read; write its text instead")
        if len(inner) > _MOST_REPLACED:
            raise self.error("A substitution with many links or marks is not read; write its text instead")
        return found


#: Directives that docutils would read differently; ``role`` is skipped, as its roles would outlive the page.
_DIRECTIVES: dict[str, type[Directive]] = {
    "list-table": _ListTable,
    "csv-table": _CsvTable,
    "replace": _Replace,
    **dict.fromkeys(("code", "code-block", "include", "raw", "role", "sourcecode"), _Skipped),
}
