"""Options of directives: what each is for, and how its text is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from docutils.parsers.rst import directives

from ...catalog.selection import each_once, whole_number, words
from ...diagnostics import NoAnswerError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Option:
    """An option of a directive; the reference in the documentation is made from it.

    Attributes:
        name: without colons.
        help: what it does, in reStructuredText.
        values: what can be written; empty for a flag.
        default: what counts where it is not given, in words, if that is a value.
        read: turns the text into a value, or raises ``NoAnswerError``.
        value: what counts where it is not given.
        needed: the message where it is not given, if the directive cannot do without it.
        about_table: whether it has no meaning where ``:show:`` leaves the table out.
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
    """An option specification that lets every option through as text.

    docutils reports an unknown option in several lines and without a hint; the directive does it itself.

    A block that is no list of options at all never comes here: docutils and MyST parse it before they ask for
    a directive, and report it themselves. Taking it over would mean to parse MyST's own language of options.
    """

    def __missing__(self, name: str) -> Callable[[str], Any]:
        return directives.unchanged

    def __bool__(self) -> bool:
        # docutils takes the options of a directive that has none for its argument.
        return True


def number(most: int) -> Callable[[str], int]:
    """Return a reader of a whole number from 1 to ``most``."""
    return lambda text: whole_number(text, most)


def numbers(most: int) -> Callable[[str], tuple[int, ...]]:
    """Return a reader of different whole numbers from 1 to ``most``, in the order given."""
    return lambda text: each_once(words(text), number(most), "name at least one number")


def resource(text: str) -> tuple[int, str]:
    """Read how many GPUs and which, written as ``8*H100``.

    Raises:
        NoAnswerError: it is written otherwise.
    """
    from ...estimator.request import parse_gpus

    count, gpu = parse_gpus(text)
    if count is None or gpu is None:
        raise NoAnswerError.because(f"write how many GPUs and which, as in 8*H100, and not {text!r}")
    return count, gpu


def choices(allowed: Iterable[str], *alone: str) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of different words out of ``allowed``, in the order given.

    Args:
        allowed: the words.
        alone: words that may only be written by themselves, for the hint.
    """
    known = list(allowed)

    def read(word: str) -> str:
        if word.lower() in alone:
            message = f"{word!r} goes with no other value"
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
        help_text: the pieces, each with what it is.
        allowed: their names.
        shown: the default; all of them if empty.
    """
    read = choices(allowed)
    default = f"``{', '.join(shown)}``" if shown else "all of it"
    values = f"any of {listed(allowed)}, separated by commas"
    return Option(
        "show", help_text, values, default, lambda text: with_table(read(text)), tuple(shown or allowed)
    )


def listed(words: Iterable[str]) -> str:
    """Return words as code, for the text of an option."""
    return ", ".join(f"``{word}``" for word in words)


def with_table(pieces: tuple[str, ...]) -> tuple[str, ...]:
    """Return the pieces to show, with the table after a chart where it is not among them.

    >>> with_table(("chart", "host"))
    ('chart', 'table', 'host')
    """
    if "table" in pieces or "chart" not in pieces:
        return pieces
    after = pieces.index("chart") + 1
    return (*pieces[:after], "table", *pieces[after:])
