"""A hand-typed page of hardware runs: what it records, and each thing that was mended or is not understood.

Nothing is guessed: what a page leaves open stays open, and what was taken for something is said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..diagnostics import Code, Diagnostic, Location, Severity
from .page_columns import LostRow, TypedRow, rows_of_runs
from .page_parser import parse
from .page_runs import Known, PageRun, last_updated, run_of
from .page_tables import tables_of
from .page_text import UnreadablePageError, mend_underlines, page_text

if TYPE_CHECKING:
    from docutils import nodes

    from ..catalog.files import DataFile

__all__ = ["Known", "Page", "PageRun", "UnreadablePageError", "read_page"]


@dataclass(frozen=True)
class Page:
    """A page as it was read.

    Attributes:
        shown: its path as messages name it.
        rows: how many have something recorded, understood or not.
        runs: those that are understood, in the order of the page.
        problems: everything that was mended, assumed or not understood, by line.
    """

    shown: str
    rows: int
    runs: tuple[PageRun, ...]
    problems: tuple[Diagnostic, ...]


def read_page(file: DataFile, known: Known) -> Page:
    """Read a page.

    Args:
        file: the page.
        known: registries and what the user has said.

    Raises:
        UnreadablePageError: it is no text, too large, or nothing that docutils can parse.
    """
    lines = page_text(file).split("\n")
    document, messages, problems = _parsed(lines, file.shown)
    day, about_day = last_updated(lines, file.shown)
    known = replace(known, added=day)
    problems += _about_markup(messages, file.shown)
    runs: list[PageRun] = []
    taken: set[str] = set()
    found = [found for table in tables_of(document) for found in rows_of_runs(table, file.shown)]
    for row in found:
        if isinstance(row, TypedRow):
            run, about_row = run_of(row, file.shown, known, taken)
            problems += about_row
            runs += [run] if run else []
        else:
            problems.append(row.problem if isinstance(row, LostRow) else row)
    if about_day and (runs or about_day.severity is Severity.ERROR):
        problems.append(about_day)
    if not found:
        message = "the page holds no row of runs"
        hint = "expected tables under headings such as 7B, with columns such as Tag, Model and Resource"
        problems.append(Diagnostic(Location(file.shown), Code.page_row, message, hint))
    problems.sort(key=lambda problem: problem.sort_key)
    rows = sum(isinstance(row, (TypedRow, LostRow)) for row in found)
    return Page(file.shown, rows, tuple(runs), tuple(problems))


def _parsed(
    lines: list[str], shown: str
) -> tuple[nodes.document, list[nodes.system_message], list[Diagnostic]]:
    """The page as docutils reads it after its headings are mended, in place."""
    document, messages = _parse(lines, shown)
    short = [
        message["line"]
        for message in messages
        if "itle underline" in message.astext() and "too short" in message.astext() and message.get("line")
    ]
    mended = mend_underlines(lines, short, shown)
    if mended:
        document, messages = _parse(lines, shown)
    return document, messages, mended


def _parse(lines: list[str], shown: str) -> tuple[nodes.document, list[nodes.system_message]]:
    try:
        return parse("\n".join(lines), shown)
    except Exception as error:  # whatever docutils stumbles over, a page is no reason to fail
        message = f"docutils cannot read the page: {type(error).__name__}: {error}"
        hint = "look for markup that is nested very deeply, or import the tables alone"
        raise UnreadablePageError(Diagnostic(Location(shown), Code.page_syntax, message, hint)) from error


#: Files and raw HTML are not read on purpose. Of links with one text each keeps its own address; where a name
#: is used that two targets have, docutils says that besides.
_HARMLESS = re.compile(r"\b(raw|include)\W+directive disabled|^Duplicate explicit target name")


def _about_markup(messages: list[nodes.system_message], shown: str) -> list[Diagnostic]:
    """What docutils has to say; that a table is lost is an error, everything else a warning."""
    found = []
    for message in messages:
        if message["level"] < 2:
            continue
        text = message[0].astext() if len(message) else ""
        if _HARMLESS.search(text):
            continue
        lost = "table" in text.lower() and "target name" not in text
        severity = Severity.ERROR if lost else Severity.WARNING
        place = Location(shown, message.get("line") or 1)
        hint = (
            "the table is not read; mend its markup" if lost else "see whether the rows near it are complete"
        )
        found.append(Diagnostic(place, Code.page_syntax, text.rstrip("."), hint, severity))
    return found
