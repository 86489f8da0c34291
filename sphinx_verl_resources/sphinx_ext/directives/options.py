"""Options of directives: their descriptions, and readers of their text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from docutils.parsers.rst import directives

from ...diagnostics import NoAnswerError, nearest
from ...selection import each_once, whole_number, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Option:
    """An option of a directive; the reference in the documentation uses it too.

    Attributes:
        name: its name without colons.
        help: its description, in reStructuredText.
        values: its possible values, in words; empty for a flag.
        default: its default, in words; empty if there is none.
        read: a function that turns the text into a value, or raises ``NoAnswerError``.
        value: its default.
        needed: the message if a required option is unset; empty for an optional one.
        about_table: whether it requires the table, which ``:show:`` can leave out.
    """

    name: str
    help: str
    values: str = ""
    default: str = ""
    read: Callable[[str], Any] = str.strip
    value: Any = None
    needed: str = ""
    about_table: bool = False


class AnyOption(dict[str, Callable[[str], Any]]):
    """An option specification that accepts every option as text.

    docutils reports an unknown option in several lines and without a hint, so the directive reports it.

    A block that is not a list of options never gets here: docutils and MyST parse and report it before they
    call the directive. Handling it would mean parsing MyST's option syntax.
    """

    def __missing__(self, name: str) -> Callable[[str], Any]:
        return directives.unchanged

    def __bool__(self) -> bool:
        # If this is false, docutils reads the options as the argument.
        return True


def number(most: int) -> Callable[[str], int]:
    """Return a reader of a whole number from 1 to ``most``."""
    return lambda text: whole_number(text, most)


def numbers(most: int) -> Callable[[str], tuple[int, ...]]:
    """Return a reader of distinct whole numbers from 1 to ``most``, in the given order."""
    return lambda text: each_once(words(text), number(most), "name at least one number")


def resource(text: str) -> tuple[int, str]:
    """Read the number and type of GPUs, written as ``8*H100``.

    Raises:
        NoAnswerError: the text has another form.
    """
    from ...estimator.request import parse_gpus

    count, gpu = parse_gpus(text)
    if count is None or gpu is None:
        raise NoAnswerError.because(f"write the number and type of GPUs as in 8*H100, not {text!r}")
    return count, gpu


def choices(allowed: Iterable[str], *alone: str) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of distinct words from ``allowed``, in the given order.

    Args:
        allowed: the words.
        alone: words that must be the only value; they appear in hints.
    """
    known = list(allowed)

    def read(word: str) -> str:
        if word.lower() in alone:
            message = f"{word!r} cannot be combined with other values"
            raise NoAnswerError.because(message, "write it alone, or leave it out")
        if word.lower() not in known:
            near, listed = nearest(word, known), ", ".join([*known, *alone])
            hint = f"did you mean {near!r}? Allowed: {listed}" if near else f"allowed: {listed}"
            raise NoAnswerError.because(f"unknown value {word!r}", hint)
        return word.lower()

    return lambda text: each_once(words(text), read, f"name at least one of {', '.join(known)}")


def pieces(help_text: str, allowed: Sequence[str], shown: Sequence[str] = ()) -> Option:
    """Return the option ``:show:``.

    Args:
        help_text: the description, which explains each piece.
        allowed: their names.
        shown: the default; all of them if empty.
    """
    read = choices(allowed)
    default = f"``{', '.join(shown)}``" if shown else "all"
    values = f"any of {listed(allowed)}, separated by commas"
    return Option(
        "show", help_text, values, default, lambda text: with_table(read(text)), tuple(shown or allowed)
    )


def listed(words: Iterable[str]) -> str:
    """Return words as code, for the description of an option."""
    return ", ".join(f"``{word}``" for word in words)


def with_table(pieces: tuple[str, ...]) -> tuple[str, ...]:
    """Return the pieces to show, adding the table after a chart if it is missing.

    >>> with_table(("chart", "host"))
    ('chart', 'table', 'host')
    """
    if "table" in pieces or "chart" not in pieces:
        return pieces
    after = pieces.index("chart") + 1
    return (*pieces[:after], "table", *pieces[after:])
