"""The parts of a shell script that matter to its settings, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


class TooMuchError(Exception):
    """The script is nested or expands beyond what any real one does; reading ends here."""


@dataclass(frozen=True)
class SyntaxProblem:
    """Something that no shell would accept, at a place counted in characters."""

    at: int
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class Literal:
    """Text that stands for itself."""

    text: str
    quoted: bool


@dataclass(frozen=True)
class Parameter:
    """``$NAME`` or ``${NAME:-operand}``.

    Attributes:
        name: a variable, ``@`` or ``*``, or the number of an argument.
        source: as written.
        quoted: stands between double quotes, so that it is never split.
        index: what stands in brackets behind the name; None without brackets.
        operator: ``:-``, ``-``, ``:=``, ``=``, ``:+``, ``+``, ``:?``, ``?``, ``length``, or empty.
        operand: what stands behind the operator.
    """

    name: str
    source: str
    quoted: bool
    index: str | None = None
    operator: str = ""
    operand: Word | None = None


@dataclass(frozen=True)
class Arithmetic:
    """``$(( … ))``; ``inner`` is what stands between, with its variables not yet filled in."""

    inner: Word
    source: str
    quoted: bool


@dataclass(frozen=True)
class Opaque:
    """What only a shell that runs could expand."""

    source: str
    reason: str
    quoted: bool


Part: TypeAlias = Literal | Parameter | Arithmetic | Opaque


@dataclass(frozen=True)
class Word:
    """One word before its variables are filled in; ``at`` counts characters of the script."""

    parts: tuple[Part, ...]
    at: int

    @property
    def plain(self) -> str:
        """The word if it is a single run of unquoted text, else empty."""
        if len(self.parts) == 1 and isinstance(part := self.parts[0], Literal) and not part.quoted:
            return part.text
        return ""


@dataclass(frozen=True)
class Assignment:
    """``NAME=value``, ``NAME+=value`` or ``NAME=( … )``; a value of None changes one element of an array."""

    name: str
    value: Word | tuple[Word, ...] | None
    appends: bool


@dataclass(frozen=True)
class Simple:
    """Assignments, or a command with its words; ``declares`` tells ``export`` and its like."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    at: int
    declares: bool = False


@dataclass(frozen=True)
class Pipeline:
    """Commands that run beside each other, each in a shell of its own."""

    commands: tuple[Node, ...]


@dataclass(frozen=True)
class Chain:
    """Commands joined by ``&&`` and ``||``: the first, then pairs of operator and command."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Negated:
    """``! command``."""

    command: Node


@dataclass(frozen=True)
class If:
    """``if``: pairs of condition and commands, then what ``else`` does."""

    branches: tuple[tuple[Body, Body], ...]
    otherwise: Body
    at: int


@dataclass(frozen=True)
class Loop:
    """``for``, ``while``, ``until`` or ``select``; ``name`` is the variable that it sets, or empty."""

    name: str
    condition: Body
    body: Body
    at: int


@dataclass(frozen=True)
class Case:
    """``case``: the word, then patterns and commands."""

    word: Word
    branches: tuple[tuple[tuple[Word, ...], Body], ...]
    at: int


@dataclass(frozen=True)
class Group:
    """``{ … }``, or ``( … )``, which leaves no variable behind."""

    body: Body
    apart: bool


@dataclass(frozen=True)
class Function:
    """A function and what it does when it is called."""

    name: str
    body: Node


@dataclass(frozen=True)
class Calculation:
    """``(( … ))`` as a command."""

    inner: Word


Node: TypeAlias = Simple | Pipeline | Chain | Negated | If | Loop | Case | Group | Function | Calculation
Body: TypeAlias = tuple["Node", ...]
