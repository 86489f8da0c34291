"""Read the configuration of a run from its log: as printed by verl, or as overrides of its command.

verl prints the whole configuration as a Python dict, EasyR1 as JSON. Hydra prints the overrides when a run
fails; a shell with ``set -x`` prints the command.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING, Any

from ..scripts.overrides import read_overrides
from ..scripts.read import read_command
from ..scripts.settings import leaves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..diagnostics import Location
    from .log_lines import Piece

#: Beginnings of a configuration, one for each possible first key.
_DICTS = tuple(
    f"{{'{key}': " for key in ("actor_rollout_ref", "algorithm", "critic", "data", "trainer", "ray_init")
)
#: The second line of EasyR1's JSON; the first contains only a bracket.
_JSON = '  "data": {'
_JSON_BY = re.compile(r"(?:Runner|main_task)\b")
_HYDRA = "Error executing job with overrides: "
_COMMAND = re.compile(r"\++ (?=.*?-m (?:recipe|verl)\.[\w.]*main)")
#: Every first line of a configuration contains one of these.
WORDS = (b"': {'", _JSON.encode(), _HYDRA.encode(), b"verl.trainer.main")


def config_at(piece: Piece) -> PrintedConfig | None:
    """Return the configuration that starts in a line; None if there is none."""
    starts = [at for start in _DICTS if (at := piece.text.find(start)) >= 0]
    if starts:
        at, opening = min(starts), ""
    elif piece.text == _JSON and _JSON_BY.match(piece.who):
        at, opening = 0, "{"
    else:
        return None
    config = PrintedConfig(piece.who, piece.line, piece.column + at)
    config.add(type(piece)(opening + piece.text[at:], piece.who, piece.line, piece.column, piece.whole))
    return config


def is_command(piece: Piece) -> bool:
    """Return whether a line is the command that starts a run, printed by a shell."""
    return not piece.who and bool(_COMMAND.match(piece.text))


def overrides_at(piece: Piece, place: Location) -> Mapping[str, Any]:
    """Return the overrides in the command of a run or in Hydra's error message; empty if there are none.

    >>> from sphinx_verl_resources.diagnostics import Location
    >>> from sphinx_verl_resources.intake.log_lines import Piece
    >>> line = "Error executing job with overrides: ['trainer.nnodes=2', '+data.shuffle=False']"
    >>> overrides_at(Piece(line, "", 9, 1), Location("run.log"))
    {'trainer.nnodes': 2, 'data.shuffle': False}
    """
    if not piece.whole:
        return {}
    if is_command(piece):
        return read_command(_COMMAND.sub("", piece.text, count=1), place.path).values
    at = piece.text.find(_HYDRA)
    if at < 0:
        return {}
    try:
        words = _evaluated(piece.text[at + len(_HYDRA) :])
    except ValueError:
        return {}
    words = words if isinstance(words, list) else []
    return read_overrides([word for word in words if isinstance(word, str)], place).values


#: Limits of one configuration; verl's has 600 lines and 8 levels.
MAX_LINES, MAX_LENGTH, MAX_DEPTH = 20_000, 1 << 20, 40
#: Number of consecutive lines of other workers that ends a configuration.
MAX_FOREIGN = 5_000

#: Python strings of limited length, brackets and commas.
_TOKEN = re.compile(r"'(?:[^'\\]|\\.){0,4000}'|\"(?:[^\"\\]|\\.){0,4000}\"|[{}\[\](),]")
#: Strings, and everything else that begins with a letter or an angle bracket.
_ATOM = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.){0,4000}'|\"(?:[^\"\\]|\\.){0,4000}\")|"
    r"(?P<number>np\.\w+\((?P<inner>[-+\d.eE]+)\))|"
    r"(?P<word>(?<![\w.])[A-Za-z_<][^,{}\[\]():'\"\n]*(?:\([^()\n]*\)|[^,{}\[\]()\n]*>)?)"
)
_JSON_WORDS = {"true": "True", "false": "False", "null": "None"}
_PAIRS = {"}": "{", "]": "[", ")": "("}
#: The beginning of lines after the first: indentation, then a value as Python prints it.
_CONTINUES = re.compile(r"\s+(?:['\"{}\[\](<]|-?[\d.]|None\b|True\b|False\b|nan\b|inf\b|np\.)|['\"}\]]")
_NO_DICT = "it is neither a Python dict nor JSON"
#: Limit of the absolute value of numbers.
_MAX_NUMBER = 1 << 63
#: Replaces a value that is not a Python literal.
_UNREAD = "\0unread\0"


class PrintedConfig:
    """A configuration of one worker, read line by line.

    Attributes:
        who: the worker that prints it.
        line: its first line.
        column: its first column.
        ended: whether it is complete or cut off.
    """

    def __init__(self, who: str, line: int, column: int) -> None:
        self.who, self.line, self.column = who, line, column
        self.ended = False
        self._lines: list[str] = []
        self._length = 0
        self._open: list[str] = []
        self._lists = 0  # number of open brackets of lists
        self._cut, self._cut_depth = 0, 0

    @property
    def complete(self) -> bool:
        """True if every bracket is closed."""
        return bool(self._lines) and not self._open

    def add(self, piece: Piece) -> bool:
        """Add a line of the worker; return False if it is not part of the configuration."""
        if self._lines and not _CONTINUES.match(piece.text):
            return False
        end = len(piece.text)
        for token in _TOKEN.finditer(piece.text):
            if not self._follow(token, self._length):
                end, self.ended = token.end(), True
                break
        self._lines.append(piece.text[:end])
        self._length += end + 1
        self.ended = self.ended or not piece.whole or self._is_too_much()
        return True

    def values(self) -> tuple[dict[str, Any], list[str]]:
        """Return the settings by dotted key, and the keys of unreadable values.

        If the configuration is cut off, its complete entries are used; an unclosed list is not.

        Raises:
            ValueError: it is neither a Python dict nor JSON.
        """
        text = "\n".join(self._lines)
        if not self.complete:
            text = text[: self._cut] + "}" * self._cut_depth
        config = _literal(text)
        if not isinstance(config, dict):
            raise ValueError(_NO_DICT)
        try:
            values = dict(leaves(config))
        except ValueError:  # a key is a number that is too long to print
            raise ValueError(_NO_DICT) from None
        unread = [key for key, value in values.items() if not _is_plain(value)]
        return {key: value for key, value in values.items() if key not in unread}, unread

    def _follow(self, token: re.Match[str], before: int) -> bool:
        """Process a token; return False if no bracket is open after it, or if it closes the wrong one."""
        sign = token[0]
        if sign in "{[(":
            self._open.append(sign)
            self._lists += sign != "{"
        elif sign in _PAIRS:
            if not self._open or self._open.pop() != _PAIRS[sign]:
                self._open = ["?"]  # never closed, so only entries before it are used
                return False
            self._lists -= sign != "}"
            self._remember(before + token.end())
        elif sign == ",":
            self._remember(before + token.start())
        return bool(self._open)

    def _remember(self, at: int) -> None:
        """Remember the place after a complete entry if only dicts are open."""
        if not self._lists:
            self._cut, self._cut_depth = at, len(self._open)

    def _is_too_much(self) -> bool:
        return len(self._lines) >= MAX_LINES or self._length > MAX_LENGTH or len(self._open) > MAX_DEPTH


def _literal(text: str) -> Any:
    try:
        return _evaluated(text)
    except ValueError:
        return _evaluated(_ATOM.sub(_as_literal, text))


def _evaluated(text: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in strings
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError(_NO_DICT) from None


def _as_literal(match: re.Match[str]) -> str:
    if match["text"] or (match["word"] or "").strip() in {"True", "False", "None"}:
        return match[0]
    if (word := (match["word"] or "").strip()) in _JSON_WORDS:
        return _JSON_WORDS[word]
    return match["inner"] or repr(_UNREAD)


def _is_plain(value: Any) -> bool:
    """Return whether a value is valid in a configuration; Python refuses to print very long numbers."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, (*value, *value.values())))
    if isinstance(value, (int, float)):
        return abs(value) < _MAX_NUMBER  # also False for nan
    return value is None or (isinstance(value, str) and value != _UNREAD)
