"""Read the configuration of a run from its log.

verl prints the whole configuration as a Python dict. Hydra prints the overrides of a run that fails.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..diagnostics import Location
from ..memory.request import dotted_leaves
from ..scripts.overrides import read_overrides
from .facts import Line

#: The beginning of a configuration, at any of its sections.
_DICT = re.compile(r"\{'(?:actor_rollout_ref|algorithm|critic|data|trainer|ray_init)': ")
_HYDRA = "Error executing job with overrides: "

#: A text of one line, up to its end if it is not closed: it always matches, so that nothing is read twice.
_TEXT = r"'(?:[^'\\\n]|\\.?)*'?|\"(?:[^\"\\\n]|\\.?)*\"?"
_TOKEN = re.compile(rf"{_TEXT}|[{{}}\[\]()]")
#: The beginning of each line but the first: blanks, then a value or a bracket.
_CONTINUES = re.compile(r"\s+(?:['\"{}\[\](<]|-?[\d.]|None\b|True\b|False\b|nan\b|inf\b|np\.)|['\"}\]]")
#: Texts and other words of Python, numbers of NumPy, and what is neither: ``inf``, ``<Enum.x: 1>``.
_ATOM = re.compile(
    rf"(?P<text>{_TEXT}|\b(?:True|False|None)\b)|np\.\w+\((?P<number>[-+\d.eE]+)\)|"
    r"<[^,{}\[\]()\n]*|(?<![\w.])[A-Za-z_][^,{}\[\]():'\"\n<]*(?:\([^()\n]*\))?"
)
#: Stands for a value that cannot be read.
_UNREAD = "<not read>"


def config_at(line: Line) -> PrintedConfig | None:
    """Return the configuration that begins in a line; None if there is none."""
    if not (begin := _DICT.search(line.text)):
        return None
    start = begin.start()
    return PrintedConfig(line._replace(text=line.text[start:], column=line.column + start))


def overrides_at(line: Line) -> Mapping[str, Any]:
    """Return the overrides in Hydra's message about a failed run; empty for other lines.

    >>> overrides_at(Line("Error executing job with overrides: ['trainer.nnodes=2', '+data.shuffle=False']"))
    {'trainer.nnodes': 2, 'data.shuffle': False}
    """
    words = _evaluated(line.text.partition(_HYDRA)[2]) if _HYDRA in line.text else None
    return read_overrides(map(str, words), Location("")).values if words else {}


class PrintedConfig:
    """A configuration of one worker, line by line.

    Attributes:
        line: its first line, from its beginning.
        is_complete: whether every bracket is closed.
        size: the number of its characters.
    """

    def __init__(self, line: Line) -> None:
        self.line, self.is_complete = line, False
        self._texts: list[str] = []
        self._depth = self.size = 0
        self.add(line)

    def add(self, line: Line) -> bool:
        """Add a line of the same worker; return False if it is not part of the configuration."""
        if self.is_complete or (self._texts and not _CONTINUES.match(line.text)):
            return False
        end = len(line.text)
        for token in _TOKEN.finditer(line.text):
            self._depth += (token[0] in "{[(") - (token[0] in "}])")
            if not self._depth:
                self.is_complete, end = True, token.end()
                break
        self._texts.append(line.text[:end])
        self.size += end
        return True

    def values(self) -> tuple[dict[str, Any], list[str]]:
        """Return the settings by dotted key, and what cannot be read: keys, or all of it."""
        text = "\n".join(self._texts)
        plain = _ATOM.sub(lambda match: match["text"] or match["number"] or repr(_UNREAD), text)
        leaves = dotted_leaves(_evaluated(text) or _evaluated(plain) or {})
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in leaves}
        known = {key: value for key, value in values.items() if _UNREAD not in repr(value)}
        return known, [key for key in values if key not in known] if values else ["all of it"]


def _evaluated(text: str) -> Any:
    """Return the value of a Python literal; None if it is none."""
    with warnings.catch_warnings(), suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        warnings.simplefilter("ignore")  # about escapes in texts
        return ast.literal_eval(text)
    return None
