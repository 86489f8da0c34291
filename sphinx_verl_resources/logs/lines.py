"""Read a console log of any size line by line, without colours and without the worker's name."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO, NamedTuple

#: Characters to keep of a line; verl's lines of figures have a tenth of them.
MAX_LINE = 1 << 16
#: Terminal control sequences: colours, and titles.
_CONTROLS = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")
#: The worker that Ray prints before a line, perhaps after a time or a name. In messages, the same brackets
#: follow a task, as in ``ray::main_task() (pid=7)``.
_WORKER = re.compile(r"(?:^|(?<=\s))(?<!\(\) )(?<!task )(?<!lease )\((?P<who>[^()]*\bpid=\d+[^()]*)\) ?")
#: The first columns, in which the worker's name begins.
_FRONT = 160


class Line(NamedTuple):
    """A line of a log, or its part between two carriage returns, which progress bars print.

    Attributes:
        text: the text.
        who: the worker, as in ``TaskRunner pid=7``; empty for the program that started the run.
        number: the number of the line, from 1.
        column: the column in the file's line, from 1.
        is_whole: whether its end is there.
    """

    text: str
    who: str = ""
    number: int = 1
    column: int = 1
    is_whole: bool = True


def lines_of(stream: BinaryIO) -> Iterator[Line]:
    r"""Yield the lines of a log that are not empty; any bytes are accepted.

    Zero bytes, with which the beginning of a truncated log is filled, are left out.

    >>> log = io.BytesIO(b"\x1b[36m(TaskRunner pid=7)\x1b[0m step:1 - a:2\n")
    >>> [(line.text, line.who) for line in lines_of(log)]
    [('step:1 - a:2', 'TaskRunner pid=7')]
    """
    reader = io.TextIOWrapper(stream, "utf-8", "replace", newline="")
    text, number, column, end = "", 1, 1, 1
    for part in iter(partial(reader.readline, MAX_LINE), ""):
        text, end = (text + part.replace("\0", ""))[:MAX_LINE], end + len(part)
        if part.endswith(("\n", "\r")):
            yield from _line(text, number, column)
            number, end = (number + 1, 1) if part.endswith("\n") else (number, end)
            text, column = "", end
    yield from _line(text, number, column)
    reader.detach()  # the stream is the caller's


def _line(text: str, number: int, column: int) -> Iterator[Line]:
    plain = _CONTROLS.sub("", text).lstrip("\ufeff\ufffd")  # a byte order mark
    worker = _WORKER.search(plain, 0, _FRONT) if "pid=" in plain else None
    who, shown = (worker["who"], plain[worker.end() :]) if worker else ("", plain)
    shown = shown.partition(" [repeated ")[0].rstrip()
    if shown:
        yield Line(shown, who, number, column, text.endswith(("\n", "\r")))
