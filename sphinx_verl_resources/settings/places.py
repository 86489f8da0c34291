"""From characters counted in a text to its lines and columns."""

from __future__ import annotations

from bisect import bisect_right

from ..diagnostics import Location


class Places:
    r"""The lines of one text; ``shown`` is what it is called in messages.

    >>> str(Places("set -x\npython3 train.py", "run.sh").at(7))
    'run.sh:2:1'
    """

    def __init__(self, text: str, shown: str = "") -> None:
        self._shown = shown
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def at(self, position: int) -> Location:
        """The place of the character at ``position``, counted from 0."""
        line = bisect_right(self._starts, position)
        return Location(self._shown, line, position - self._starts[line - 1] + 1)
