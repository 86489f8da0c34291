"""The syntax tree of a shell script, limited to the parts that affect settings."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from ...diagnostics import Location

if TYPE_CHECKING:
    from collections.abc import Iterator

_Part = TypeVar("_Part")


class TooMuchError(Exception):
    """A script with too much nesting or expansion; reading stops."""


@dataclass(frozen=True)
class Source:
    r"""A text and its name in messages.

    >>> str(Source("set -x\npython3 train.py", "run.sh").place(7))
    'run.sh:2:1'
    """

    text: str
    shown: str = ""

    def place(self, at: int) -> Location:
        """Return the line and column of the character at ``at``, which counts from 0."""
        line = bisect_right(self._starts, at)
        return Location(self.shown, line, at - self._starts[line - 1] + 1)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]


class Cause(NamedTuple):
    """The reason why something is unknown.

    Attributes:
        text: the reason, a clause.
        names: the environment variables that determine it.
        at: the position in the script of the condition or loop that determines it, if any.
    """

    text: str
    names: tuple[str, ...] = ()
    at: int | None = None


class Unknown(NamedTuple):
    """A piece of text that is only known when the script runs.

    Attributes:
        source: the text as written.
        cause: the reason why it is unknown.
        unset: whether it is a variable that the script does not set and that may therefore be empty.
    """

    source: str
    cause: Cause
    unset: bool = False


class Parameter(NamedTuple):
    """``$NAME`` or ``${NAME:-operand}``.

    Attributes:
        name: the name of a variable, ``@`` or ``*``, or the number of an argument.
        source: the text as written.
        element: the text in brackets after the name; None without brackets.
        operator: ``:-``, ``-``, ``:=``, ``=``, ``:+``, ``+``, ``:?``, ``?``, ``length``, ``from``, or empty.
        operand: the word after the operator.
    """

    name: str
    source: str
    element: str | None = None
    operator: str = ""
    operand: Word | None = None


class Arithmetic(NamedTuple):
    """``$(( … ))``; ``inner`` is not yet expanded."""

    inner: Word
    source: str


class Part(NamedTuple):
    """Text or an expansion; ``quoted`` if the shell does not split it."""

    content: str | Unknown | Parameter | Arithmetic
    quoted: bool


@dataclass(frozen=True)
class Word:
    """A word of adjacent parts; ``at`` is its position in the script in characters."""

    parts: tuple[Part, ...]
    at: int = 0

    @property
    def plain(self) -> str:
        """The word if it is a single piece of unquoted text; otherwise empty."""
        content, quoted = self.parts[0] if len(self.parts) == 1 else ("", True)
        return content if isinstance(content, str) and not quoted else ""


class Assignment(NamedTuple):
    """``NAME=value``, ``NAME+=value`` or ``NAME=( … )``; the value is None if one array element is set."""

    name: str
    value: Word | tuple[Word, ...] | None
    appends: bool


class Simple(NamedTuple):
    """Assignments, or a command with its words; ``declares`` marks ``export`` and similar commands."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    at: int
    declares: bool = False


class Chain(NamedTuple):
    """Commands joined by ``&&`` and ``||``: the first, then pairs of operator and command."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


class Negated(NamedTuple):
    """``! command``."""

    command: Node


class If(NamedTuple):
    """``if``: pairs of condition and commands, then the commands after ``else``."""

    branches: tuple[tuple[Body, Body], ...]
    otherwise: Body
    at: int


class Loop(NamedTuple):
    """``for``, ``while``, ``until`` or ``select``; ``name`` is the variable that it sets, or empty."""

    name: str
    condition: Body
    body: Body
    at: int


class Case(NamedTuple):
    """``case``: the word, then patterns and commands."""

    word: Word
    branches: tuple[tuple[tuple[Word, ...], Body], ...]
    at: int


class Group(NamedTuple):
    """``{ … }``."""

    body: Body


class Apart(NamedTuple):
    """``( … )``, or the commands of a pipeline: each body runs in its own shell, with its own variables."""

    bodies: tuple[Body, ...]


class Function(NamedTuple):
    """A function; ``body`` is followed at each call."""

    name: str
    body: Node


class Calculation(NamedTuple):
    """``(( … ))`` as a command."""

    inner: Word


Node: TypeAlias = Simple | Chain | Negated | If | Loop | Case | Group | Apart | Function | Calculation
Body: TypeAlias = tuple[Node, ...]


def parts_of(tree: object, kind: type[_Part]) -> Iterator[_Part]:
    """Yield the parts of a kind in a tree of commands."""
    if isinstance(tree, kind):
        yield tree
    tree = tree.parts if isinstance(tree, Word) else tree
    if isinstance(tree, (tuple, list)):
        for each in tree:
            yield from parts_of(each, kind)
