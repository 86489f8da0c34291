"""The lines of a console log that may matter, whatever its size and whatever bytes are in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
#: Bytes that are read at once.
BLOCK = 1 << 20
#: Bytes of a line that are looked at; a line of metrics has a tenth of this.
MAX_LINE = 1 << 16
#: What is kept of the end of a block that is cut off, lest a word be cut in two.
_OVERLAP = 64

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
        lost: the text is one of the words that must not be lost, from the part of a line that was cut off.
    """

    text: str
    who: str
    line: int
    column: int
    whole: bool = True
    lost: bool = False


class Blocks(Protocol):
    """Whatever a log is read from, a part at a time."""

    def read(self, size: int, /) -> bytes:
        """No more than so many bytes; none at the end."""


class _Place(NamedTuple):
    """Where in a log a block begins."""

    line: int = 1
    column: int = 1

    def behind(self, text: bytes) -> _Place:
        """The place behind a text."""
        lines = text.count(b"\n")
        column = 1 if lines else self.column
        last = text[text.rfind(b"\n") + 1 :]
        return _Place(self.line + lines, column + len(last.decode("utf-8", "replace")))


def pieces_of(
    stream: Blocks, words: Sequence[bytes], wants_all: Callable[[], bool], weighty: Sequence[bytes] = ()
) -> Iterator[Piece]:
    r"""The pieces of the lines that hold one of ``words``, in their order.

    A carriage return ends a piece: progress bars write one after each of their states, so that a line of them
    has any length. Zero bytes, which stand where the beginning of a log was cut off, count as nothing. Little
    more than a block is in memory.

    Args:
        stream: the log.
        words: what makes a piece matter.
        wants_all: asked before each piece; while it says so, every piece counts.
        weighty: words of which it is said where they stand in what is cut off from a piece.

    >>> import io
    >>> log = io.BytesIO(b"nothing\n\x1b[36m(TaskRunner pid=7)\x1b[0m step:1 - a:2\n")
    >>> [(piece.text, piece.who, piece.line) for piece in pieces_of(log, [b"step:"], lambda: False)]
    [('step:1 - a:2', 'TaskRunner pid=7', 2)]
    """
    place, rest, told = _Place(), b"", set[tuple[_Place, bytes]]()
    while True:
        read = stream.read(BLOCK)
        block = rest + read.replace(b"\0", b"")
        end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1 if read else len(block)
        if read and not end:
            rest = block
            if len(block) > BLOCK + MAX_LINE:  # of so long a piece only the beginning is kept
                yield from _lost(block, place, weighty, told)
                rest = block[:MAX_LINE] + block[-_OVERLAP:]
            continue
        block, rest = block[:end], block[end:]
        for text, begin in _texts_of(block, place, words, wants_all):
            yield from _lost(text, begin, weighty, told)
            if text.strip():
                yield _piece(text, begin)
        place = place.behind(block)
        if not read:
            return


def _texts_of(
    block: bytes, begin: _Place, words: Sequence[bytes], wants_all: Callable[[], bool]
) -> Iterator[tuple[bytes, _Place]]:
    """What counts of a block, each with what ends it and with its place in the log."""
    at, newline = 0, -1
    place, known = begin, 0
    nearest = [-1] * len(words)
    while at < len(block):
        if not wants_all():
            # Ten searches for a plain word are faster than one for a pattern of ten.
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
        place, known = place.behind(block[known:at]), at
        yield block[at:end], place
        at = end


def _lost(
    text: bytes, place: _Place, weighty: Sequence[bytes], told: set[tuple[_Place, bytes]]
) -> Iterator[Piece]:
    """The words that stand behind what is looked at of a piece, each once."""
    for word in weighty:
        if text.find(word, MAX_LINE - len(word) + 1) >= 0 and (place, word) not in told:
            told.add((place, word))
            yield Piece(word.decode(), "", place.line, place.column, whole=False, lost=True)


def _piece(text: bytes, place: _Place) -> Piece:
    kept = text[:MAX_LINE]
    plain = _ANSI.sub("", kept.decode("utf-8", "replace").rstrip("\r\n")).lstrip("\ufeff\ufffd")
    worker = _WORKER.search(plain, 0, _FRONT)
    who = worker["who"] if worker else ""
    shown = plain[worker.end() :] if worker else plain
    whole = kept.endswith((b"\n", b"\r"))
    return Piece(_REPEATED.sub("", shown).rstrip(), who, place.line, place.column, whole)
