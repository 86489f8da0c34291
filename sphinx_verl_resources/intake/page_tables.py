"""The tables of a hand-typed page in reStructuredText.

docutils reads the page. Nothing that the page names is opened. Directives and roles that only Sphinx knows
count as what they contain. Rows keep their length, so that a row that lacks cells can be named.
"""

from __future__ import annotations

import csv
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from docutils import frontend, nodes
from docutils.parsers.rst import Directive, Parser, directives
from docutils.parsers.rst.directives.body import CodeBlock
from docutils.parsers.rst.directives.tables import CSVTable
from docutils.statemachine import StringList
from docutils.transforms import references
from docutils.utils import column_width, new_document, unescape
from sphinx.util.docutils import CustomReSTDispatcher

from ..catalog.yaml_data import MAX_BYTES
from ..diagnostics import Code, Diagnostic, Location, NoAnswerError, Severity, counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..catalog.files import DataFile

#: The beginning of a heading that names a size class.
SIZE_TITLE = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)\s*B(?!\w)", re.IGNORECASE)
#: Characters at which docutils ends a line and an editor does not: line numbers would differ.
_SEPARATORS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
#: docutils' limit of a line's columns; it reads nothing of a page with a longer line.
_MAX_LINE = 10_000
#: What people type where nothing is recorded.
_PLACEHOLDERS = frozenset(
    {"", "\\", "/", "-", "--", "\N{EN DASH}", "\N{EM DASH}", "?", "n/a", "na", "none", "not recorded", "tbd"}
)
_ANY_OPTIONS: dict[str, Any] = defaultdict(lambda: directives.unchanged, {"class": directives.class_option})
_SETTINGS = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "report_level": 5,
    "halt_level": 6,
    "warning_stream": False,
    "syntax_highlight": "none",
}
_TRANSFORMS = (
    references.Substitutions,
    references.PropagateTargets,
    references.AnonymousHyperlinks,
    references.IndirectHyperlinks,
    references.ExternalTargets,
    references.InternalTargets,
    references.DanglingReferences,
)
#: Messages that matter to no row: files and raw HTML are not read on purpose, and links of the same text keep
#: their own addresses (where a name that two targets have is used, docutils reports that too).
_HARMLESS = re.compile(r"\b(raw|include)\W+directive disabled|^Duplicate explicit target name")


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: its text on one line.
        links: the addresses that it links to.
        broken: it holds a link, or other markup, that leads nowhere.
    """

    text: str
    links: tuple[str, ...] = ()
    broken: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is recorded in it."""
        return self.text.casefold() in _PLACEHOLDERS and not self.links


@dataclass(frozen=True)
class TypedRow:
    """A row of a table, with its line; without cells where an item of a list-table is no list of cells."""

    line: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class TypedTable:
    """A table.

    Attributes:
        title: of the innermost section around it that names a size class; None if there is none.
        line: of its beginning.
        rows: all rows, the headings first.
    """

    title: str | None
    line: int
    rows: tuple[TypedRow, ...]


def page_lines(file: DataFile) -> list[str]:
    """Return the lines of a page: UTF-8, or UTF-16 with its byte order mark.

    Raises:
        NoAnswerError: it is too large, in another encoding, or has a line that docutils refuses.
    """
    if len(file.content) > MAX_BYTES:
        raise _unreadable(
            Location(file.shown),
            Code.file_too_large,
            f"the page is larger than {MAX_BYTES >> 20} MiB",
            "import it in parts",
        )
    is_utf16 = file.content.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    try:
        text = file.content.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        place = Location(file.shown, error.object.count(b"\n", 0, error.start) + 1)
        message = f"the page is not {'UTF-16' if is_utf16 else 'UTF-8'} text"
        raise _unreadable(place, Code.encoding, message, "save it as UTF-8") from None
    lines = re.split(r"\r\n?|\n", _SEPARATORS.sub(" ", text))
    for number, line in enumerate(lines, 1):
        place = Location(file.shown, number)
        if "\0" in line:
            message = "a NUL character, as in UTF-32 or in UTF-16 without a byte order mark"
            raise _unreadable(place, Code.encoding, message, "save the page as UTF-8")
        if len(line.expandtabs()) > _MAX_LINE:
            message = f"the line is longer than {_MAX_LINE} characters"
            remedy = "break it: docutils reads no page with such a line"
            raise _unreadable(place, Code.page_syntax, message, remedy)
    return lines


def read_tables(lines: list[str], shown: str) -> tuple[list[TypedTable], list[Diagnostic]]:
    """Return the tables of a page in its order, and what docutils has against the page.

    Underlines of size headings that are too short are lengthened first, since docutils takes them for text.

    Args:
        lines: of the page.
        shown: the page's name in messages.

    Raises:
        NoAnswerError: docutils fails on the page.
    """
    document, messages = parse_page(lines, shown)
    lines, problems = _lengthened(lines, messages, shown)
    if problems:
        document, messages = parse_page(lines, shown)
    problems += [problem for message in messages if (problem := _problem(message, shown))]
    for message in [*document.findall(nodes.system_message)]:
        message.parent.remove(message)
    return [_table(node) for node in document.findall(nodes.table)], problems


def parse_page(lines: list[str], shown: str) -> tuple[nodes.document, list[nodes.system_message]]:
    """Parse a page, and collect what docutils reports.

    Raises:
        NoAnswerError: docutils fails on it.
    """
    settings = frontend.get_default_settings(Parser)
    vars(settings).update(_SETTINGS)
    document = new_document(shown, settings)
    messages: list[nodes.system_message] = []
    document.reporter.attach_observer(messages.append)
    try:
        with _Dispatcher():
            Parser().parse("\n".join(lines), document)
        document.transformer.add_transforms(_TRANSFORMS)
        document.transformer.apply_transforms()
    except Exception as error:  # docutils may stumble over any page
        message = f"docutils cannot read the page: {type(error).__name__}: {error}"
        remedy = "look for markup that is nested very deeply, or import the tables alone"
        raise _unreadable(Location(shown), Code.page_syntax, message, remedy) from error
    return document, messages


def _unreadable(place: Location, code: Code, message: str, remedy: str) -> NoAnswerError:
    return NoAnswerError(Diagnostic(place, code, message, remedy))


class _Dispatcher(CustomReSTDispatcher):
    """A dispatcher that has a directive and a role for every name."""

    def directive(self, directive_name: str, *context: Any) -> tuple[type[Directive], list[Any]]:
        found = _DIRECTIVES.get(directive_name.lower()) or super().directive(directive_name, *context)[0]
        return found or _Unknown, []

    def role(self, role_name: str, *context: Any) -> tuple[Any, list[Any]]:
        return super().role(role_name, *context)[0] or _unknown_role, []


class _Unknown(Directive):
    """A directive that docutils does not know; its content is read."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = _ANY_OPTIONS

    def run(self) -> list[nodes.Node]:
        content = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, content, match_titles=True)
        return list(content.children)


class _Code(CodeBlock):
    """A block of code with the options of Sphinx."""

    option_spec = _ANY_OPTIONS


class _ListTable(_Unknown):
    """A ``list-table`` whose rows may differ in length."""

    def run(self) -> list[nodes.Node]:
        lists = _without((nodes.system_message, nodes.comment), super().run())
        if [type(node) for node in lists] != [nodes.bullet_list]:
            raise self.error("The list-table holds something else than one list")
        body = nodes.tbody()
        for item in lists[0].children:
            cells = _without((nodes.system_message,), item.children)
            if len(cells) == 1 and isinstance(cells[0], nodes.bullet_list):
                cells = [_like(cell, nodes.entry("", *cell.children)) for cell in cells[0].children]
            body += _like(item, nodes.row("", *cells))
        table = nodes.table("", nodes.tgroup("", body))
        table.line = self.lineno
        return [table]


def _like(node: nodes.Node, other: nodes.Element) -> nodes.Element:
    """Give a node the line of another."""
    other.line = node.line
    return other


def _without(kinds: tuple[type[nodes.Node], ...], children: Iterable[nodes.Node]) -> list[nodes.Node]:
    return [node for node in children if not isinstance(node, kinds)]


class _CsvTable(CSVTable):
    """A ``csv-table`` whose short rows stay short, and whose cells know their lines."""

    def extend_short_rows_with_empty_cells(self, columns: int, parts: Any) -> None:
        """Leave the rows as they are."""

    def parse_csv_data_into_rows(self, csv_data: Any, dialect: Any, source: Any) -> tuple[list[Any], int]:
        """Return what docutils returns, with the line of each row in its cells."""
        reader = csv.reader((f"{line}\n" for line in csv_data), dialect=dialect)
        rows: list[list[Any]] = []
        begin = 0
        for row in reader:
            typed = isinstance(csv_data, StringList) and begin < len(csv_data)
            line = csv_data.offset(begin) if typed else self.lineno - 1
            texts = [cell.splitlines() for cell in row]
            rows.append([(0, 0, 0, StringList(text, items=[(source, line)] * len(text))) for text in texts])
            begin = reader.line_num
        return rows, max(map(len, rows), default=0)


#: Directives that are read in another way than by docutils; a role that a page defines would outlive it.
_DIRECTIVES: dict[str, type[Directive]] = {
    "list-table": _ListTable,
    "csv-table": _CsvTable,
    "code": _Code,
    "code-block": _Code,
    "sourcecode": _Code,
    "role": _Unknown,
}


def _unknown_role(
    name: str, rawtext: str, text: str, *_: Any, **__: Any
) -> tuple[list[nodes.Node], list[Any]]:
    """Return the text of a role that docutils does not know, without the target."""
    del name, rawtext
    shown, separator, target = unescape(text).rpartition(" <")
    return [nodes.inline("", shown if separator and target.endswith(">") else unescape(text))], []


def _lengthened(
    lines: list[str], messages: list[nodes.system_message], shown: str
) -> tuple[list[str], list[Diagnostic]]:
    """Return the lines with longer underlines below size headings, and a warning for each."""
    lines, problems = [*lines], []
    short = {
        message["line"]
        for message in messages
        if re.search(r"itle underline.*too short", message.astext()) and message.get("line")
    }
    for number in sorted(short):
        title, underline = (lines[number - 2] if number > 1 else ""), lines[number - 1].rstrip()
        if not SIZE_TITLE.match(title):
            continue
        width = column_width(title.rstrip())
        lines[number - 1] = underline[0] * width
        if number > 2 and lines[number - 3].rstrip() == underline:  # the line above the title
            lines[number - 3] = lines[number - 1]
        message = f"the underline of the heading {title.strip()!r} has {counted(len(underline), 'character')}"
        remedy = f"write {width}: docutils takes this one for text; it was read as a heading"
        place = Location(shown, number)
        problems.append(Diagnostic(place, Code.page_mended, message, remedy, Severity.WARNING))
    return lines, problems


def _problem(message: nodes.system_message, shown: str) -> Diagnostic | None:
    """Return what a message of docutils means for the rows; that a table is lost is an error."""
    text = message[0].astext() if len(message) else ""
    if message["level"] < 2 or _HARMLESS.search(text):
        return None
    place = Location(shown, message.get("line") or 1)
    if "table" in text.lower() and "target name" not in text:
        return Diagnostic(place, Code.page_syntax, text.rstrip("."), "the table is not read; mend its markup")
    remedy = "see whether the rows near it are complete"
    return Diagnostic(place, Code.page_syntax, text.rstrip("."), remedy, Severity.WARNING)


def _table(node: nodes.Element) -> TypedTable:
    """Return a table; one inside a cell is a table of its own."""
    own = [row for row in node.findall(nodes.row) if row.parent.parent.parent is node]
    begin = node.line or min(filter(None, map(_line, own)), default=1)
    rows = tuple(
        TypedRow(_line(row) or begin, tuple(_cell(cell) for cell in row if isinstance(cell, nodes.entry)))
        for row in own
    )
    titles = []
    while node.parent is not None:
        node = node.parent
        if isinstance(node, nodes.section):
            titles += [" ".join(child.astext().split()) for child in node if isinstance(child, nodes.title)]
    return TypedTable(next(filter(SIZE_TITLE.match, titles), None), begin, rows)


def _line(node: nodes.Node) -> int | None:
    return min((inner.line for inner in node.findall() if inner.line), default=None)


def _cell(node: nodes.Node) -> Cell:
    references = [*node.findall(nodes.reference)]
    links = dict.fromkeys(str(link["refuri"]) for link in references if "refuri" in link)
    lost = [*node.findall(nodes.problematic), *(link for link in references if "refuri" not in link)]
    return Cell(" ".join(node.astext().split()), tuple(links), bool(lost))
