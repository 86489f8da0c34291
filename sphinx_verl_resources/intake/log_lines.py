"""Find the lines of a console log that may matter. The log may have any size and any bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

#: Bytes to read at once.
BLOCK = 1 << 20
#: Bytes to read of a line; a line of figures is a tenth as long.
MAX_LINE = 1 << 16
#: Bytes to keep at the end of a cut block, so that no word is split.
_OVERLAP = 64

#: Terminal control sequences: colours, titles.
_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")
#: The worker that Ray writes before a line; a scheduler may write more before it. After a task, as in
#: ``ray::main_task() (pid=7)``, it shows where the task ran.
_WORKER = re.compile(
    r"(?:^|(?<=\s))(?<!\(\) )(?<!task )(?<!lease )\((?P<who>[^()]{0,120}?\bpid=\d{1,10}[^()]{0,120})\) ?"
)
#: Columns in which it may begin.
_FRONT = 160
_REPEATED = re.compile(r"\[repeated \d{1,9}x across cluster\].*\Z")


@dataclass(frozen=True)
class Piece:
    """A line, or its part between two carriage returns.

    Attributes:
        text: the text without colours and without the worker's name.
        who: Ray's name of the worker; empty for the program itself.
        line: line number, from 1.
        column: column in the file's line, from 1.
        whole: the line was not cut off.
    """

    text: str
    who: str
    line: int
    column: int
    whole: bool = True


class _Place(NamedTuple):
    """A place in a log."""

    line: int = 1
    column: int = 1

    def after(self, text: bytes) -> _Place:
        """Return the place after a text that starts here."""
        lines = text.count(b"\n")
        column = 1 if lines else self.column
        last = text[text.rfind(b"\n") + 1 :]
        return _Place(self.line + lines, column + len(last.decode("utf-8", "replace")))


def blocks_of(stream: BinaryIO) -> Iterator[bytes]:
    """Return the contents of a log block by block."""
    return iter(lambda: stream.read(BLOCK), b"")


def pieces_of(
    blocks: Iterable[bytes],
    words: Sequence[bytes],
    wants_all: Callable[[], bool],
) -> Iterator[Piece]:
    r"""Yield the pieces of lines that contain one of ``words``, in order.

    A carriage return ends a piece, because progress bars write one after each update. Zero bytes, which
    replace the beginning of a truncated log, are ignored. Little more than one block is kept in memory.

    Args:
        blocks: the blocks of the log, in order.
        words: words that select a piece.
        wants_all: function called before each piece; while it returns True, every piece is selected.

    >>> import io
    >>> log = blocks_of(io.BytesIO(b"nothing\n\x1b[36m(TaskRunner pid=7)\x1b[0m step:1 - a:2\n"))
    >>> [(piece.text, piece.who, piece.line) for piece in pieces_of(log, [b"step:"], lambda: False)]
    [('step:1 - a:2', 'TaskRunner pid=7', 2)]
    """
    place, rest = _Place(), b""
    for read in chain(blocks, [b""]):
        block = rest + read.replace(b"\0", b"")
        end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1 if read else len(block)
        if read and not end:
            rest = block
            if len(block) > BLOCK + MAX_LINE:  # keep only the beginning of so long a piece
                rest = block[:MAX_LINE] + block[-_OVERLAP:]
            continue
        block, rest = block[:end], block[end:]
        for text, begin in _texts_of(block, place, words, wants_all):
            if text.strip():
                yield _piece(text, begin)
        place = place.after(block)


def _texts_of(
    block: bytes, begin: _Place, words: Sequence[bytes], wants_all: Callable[[], bool]
) -> Iterator[tuple[bytes, _Place]]:
    """Yield the selected pieces of a block, each with its line ending and its place in the log."""
    at, newline = 0, -1
    place, known = begin, 0
    nearest = [-1] * len(words)
    while at < len(block):
        if not wants_all():
            # Ten searches for plain words are faster than one for a pattern of ten.
            for index, where in enumerate(nearest):
                if where < at:
                    found = block.find(words[index], at)
                    nearest[index] = found if found >= 0 else len(block)
            first = min(nearest)
            if first == len(block):
                return
            at = max(at, block.rfind(b"\n", at, first) + 1)
            at = max(at, block.rfind(b"\r", at, first) + 1)
        if newline < at:
            newline = block.find(b"\n", at)
            newline = newline if newline >= 0 else len(block)
        end = block.find(b"\r", at, newline) + 1 or min(newline + 1, len(block))
        place, known = place.after(block[known:at]), at
        yield block[at:end], place
        at = end


def _piece(text: bytes, place: _Place) -> Piece:
    kept = text[:MAX_LINE]
    plain = kept.decode("utf-8", "replace").rstrip("\r\n")
    plain = (_ANSI.sub("", plain) if "\x1b" in plain else plain).lstrip("\ufeff\ufffd")
    worker = _WORKER.search(plain, 0, _FRONT)
    who = worker["who"] if worker else ""
    shown = plain[worker.end() :] if worker else plain
    whole = kept.endswith((b"\n", b"\r"))
    return Piece(_REPEATED.sub("", shown).rstrip(), who, place.line, place.column, whole)
