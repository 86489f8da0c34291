"""The lines of a console log that may matter, whatever its size and whatever bytes are in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

#: Bytes that are read at once.
BLOCK = 1 << 20
#: Bytes of a line that are looked at; a line of metrics has a tenth of this.
MAX_LINE = 1 << 16

#: What terminals take for commands: colours, titles.
_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")
#: What Ray puts before the lines of a worker, with what a scheduler may have put before that.
_WORKER = re.compile(r"(?:^|(?<=\s))\((?P<who>[^()]{0,120}?\bpid=\d{1,10}[^()]{0,120})\) ?")
#: Where Ray may write it at all.
_FRONT = 160
_REPEATED = re.compile(r"\[repeated \d{1,9}x across cluster\].*\Z")


@dataclass(frozen=True)
class Piece:
    """A line, or what stands between two carriage returns of one.

    Attributes:
        text: without colours and without the worker's name.
        who: the worker, as Ray names it; empty for the program itself.
        line: counted from 1.
        column: where the piece begins in the line as it stands in the file.
        whole: nothing of the line was cut off.
    """

    text: str
    who: str
    line: int
    column: int
    whole: bool = True


def pieces_of(stream: BinaryIO, words: Sequence[bytes], wants_all: Callable[[], bool]) -> Iterator[Piece]:
    r"""The pieces of the lines that hold one of ``words``, in their order; no more than a block is in memory.

    Args:
        stream: the log.
        words: what makes a line matter.
        wants_all: asked before each line; while it says so, every line counts.

    >>> import io
    >>> log = io.BytesIO(b"nothing\n\x1b[36m(TaskRunner pid=7)\x1b[0m step:1 - a:2\n")
    >>> list(pieces_of(log, [b"step:"], lambda: False))
    [Piece(text='step:1 - a:2', who='TaskRunner pid=7', line=2, column=1, whole=True)]
    """
    number, rest = 1, b""
    while True:
        read = stream.read(BLOCK)
        block = rest + read
        end = block.rfind(b"\n") + 1 if read else len(block)
        if read and not end:
            rest = block[:MAX_LINE] if len(block) > BLOCK else block  # the rest of so long a line is not kept
            continue
        block, rest = block[:end], block[end:]
        for line, text in _lines_of(block, words, wants_all):
            yield from _pieces(text, number + line)
        number += block.count(b"\n")
        if not read:
            return


def _lines_of(
    block: bytes, words: Sequence[bytes], wants_all: Callable[[], bool]
) -> Iterator[tuple[int, bytes]]:
    """The lines of a block that count, with their number in it and with what ends them."""
    at = number = 0
    places = [-1] * len(words)
    while at < len(block):
        if not wants_all():
            # Ten searches for a plain word are faster than one for a pattern of ten.
            for index, place in enumerate(places):
                if place < at:
                    found = block.find(words[index], at)
                    places[index] = found if found >= 0 else len(block)
            first = min(places)
            if first == len(block):
                return
            start = max(at, block.rfind(b"\n", at, first) + 1)
            number += block.count(b"\n", at, start)
            at = start
        end = block.find(b"\n", at) + 1 or len(block)
        yield number, block[at : min(end, at + MAX_LINE)]
        number, at = number + 1, end


def _pieces(line: bytes, number: int) -> Iterator[Piece]:
    """A line between its carriage returns, which progress bars write."""
    whole = line.endswith(b"\n")
    column = 1
    text = line.decode("utf-8", "replace").rstrip("\n").removesuffix("\r")
    parts = text.split("\r")
    for index, part in enumerate(parts):
        if part.strip():
            yield _piece(part, number, column, whole=whole or index < len(parts) - 1)
        column += len(part) + 1


def _piece(text: str, number: int, column: int, *, whole: bool) -> Piece:
    plain = _ANSI.sub("", text)
    worker = _WORKER.search(plain, 0, _FRONT)
    who = worker["who"] if worker else ""
    shown = plain[worker.end() :] if worker else plain
    return Piece(_REPEATED.sub("", shown).rstrip(), who, number, column, whole)
