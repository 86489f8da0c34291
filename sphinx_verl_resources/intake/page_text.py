"""The bytes of a hand-typed page as text, and headings that docutils would not take for headings."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

from docutils.utils import column_width

from ..catalog.yaml_data import MAX_BYTES
from ..diagnostics import Code, Diagnostic, Location, Severity, counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..catalog.files import DataFile

#: What a file begins with that says how it is encoded; the longer marks first.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, ""),
    (codecs.BOM_UTF32_BE, ""),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
#: What docutils takes for the end of a line, and no editor does: numbers of lines would differ.
_SEPARATORS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
#: Columns of a line with which docutils reads a page; with one more it reads nothing of it.
_MAX_LINE = 10_000
#: What a heading says that names a size class.
SIZE_TITLE = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)\s*B(?!\w)", re.IGNORECASE)


class UnreadablePageError(ValueError):
    """A page that cannot be read at all; ``problem`` says why."""

    def __init__(self, problem: Diagnostic) -> None:
        super().__init__(str(problem))
        self.problem = problem


def page_text(file: DataFile) -> str:
    """The text of a page: UTF-8, or UTF-16 with its mark; lines end as docutils counts them.

    Raises:
        UnreadablePageError: it is larger than any real page, in another encoding, or not for docutils.
    """
    if len(file.content) > MAX_BYTES:
        message = f"the page is larger than {MAX_BYTES >> 20} MiB"
        raise UnreadablePageError(
            Diagnostic(Location(file.shown), Code.file_too_large, message, "import it in parts")
        )
    mark, encoding = next(
        ((mark, name) for mark, name in _MARKS if file.content.startswith(mark)), (b"", "utf-8")
    )
    try:
        if not encoding:
            raise UnicodeDecodeError("utf-32", file.content[:4], 0, 4, "UTF-32")
        text = file.content[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        place = Location(file.shown, file.content.count(b"\n", 0, len(mark) + error.start) + 1)
        message = f"the page is not {(encoding or 'utf-8').upper()} text"
        raise UnreadablePageError(Diagnostic(place, Code.encoding, message, "save it as UTF-8")) from None
    lines = _SEPARATORS.sub(" ", re.sub(r"\r\n?", "\n", text)).split("\n")
    for number, line in enumerate(lines, 1):
        place = Location(file.shown, number)
        if "\0" in line:
            message = "a NUL character, as text has it that is UTF-16 without a byte order mark"
            raise UnreadablePageError(Diagnostic(place, Code.encoding, message, "save it as UTF-8"))
        if len(line.expandtabs()) > _MAX_LINE:
            message = f"the line is longer than {_MAX_LINE} characters"
            hint = "break it: docutils reads no page with such a line"
            raise UnreadablePageError(Diagnostic(place, Code.page_syntax, message, hint))
    return "\n".join(lines)


def mend_underlines(lines: list[str], short: Iterable[int], shown: str) -> list[Diagnostic]:
    """Lengthen, in place, the underlines of headings that name a size class.

    Args:
        lines: of the page.
        short: numbers of the lines that docutils takes for underlines, and too short ones.
        shown: the page as messages name it.

    Returns:
        A warning for each heading that was mended.
    """
    found = []
    for number in sorted(set(short)):
        title, underline = (lines[number - 2] if number > 1 else ""), lines[number - 1].rstrip()
        if not SIZE_TITLE.match(title):
            continue
        width = column_width(title.rstrip())
        lines[number - 1] = underline[0] * width
        long = counted(len(underline), "character")
        message = f"the underline of the heading {title.strip()!r} has {long}"
        if number > 2 and lines[number - 3].rstrip() == underline:  # there is a line above the title too
            lines[number - 3] = lines[number - 1]
        hint = f"write {width}: docutils takes this one for text; it was read as a heading"
        found.append(Diagnostic(Location(shown, number), Code.page_mended, message, hint, Severity.WARNING))
    return found
