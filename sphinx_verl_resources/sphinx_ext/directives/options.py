"""Reading the options of directives, with errors that say what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from docutils.parsers.rst import directives

from ...catalog import selection
from ...catalog.selection import words
from ...diagnostics import Code, NoAnswerError, did_you_mean, nearest
from ...views.runs import COMPUTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ...catalog.catalog import Catalog


class OptionError(ValueError):
    """An argument, option or setting that cannot be used; ``place`` is empty for that of the directive."""

    def __init__(self, message: str, code: Code = Code.directive, place: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.place = place


class Problems(list["OptionError | NoAnswerError"]):
    """Collects what is wrong with a directive, so that all of it is said at once."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Go on behind the block where something in it cannot be used."""
        try:
            yield
        except (OptionError, NoAnswerError) as problem:
            self.append(problem)


@dataclass(frozen=True)
class Option:
    """An option of a directive; the reference in the documentation is made from it.

    Attributes:
        name: without colons.
        help: what it does, in reStructuredText.
        values: what can stand there; empty for a flag.
        default: what counts where it is not given, if that is a value.
    """

    name: str
    help: str
    values: str = ""
    default: str = ""


class AnyOption(dict[str, Callable[[str], Any]]):
    """An option specification that lets every option through as text.

    docutils reports an unknown option in several lines and without a hint; the directive does it itself.

    A block that is no list of options at all never comes here: docutils and MyST parse it before they ask for
    a directive, and report it themselves. Taking it over would mean to parse MyST's own language of options.

    Attributes:
        options: what the directive has.
    """

    options: tuple[Option, ...] = ()

    @classmethod
    def of(cls, *options: Option, elsewhere: Iterable[str] = ()) -> AnyOption:
        """A specification of these options.

        Args:
            options: what the directive has.
            elsewhere: names that the directive wants to see, to say what to write instead.
        """
        names = (*(option.name for option in options), *elsewhere)
        found = cls((name, directives.unchanged) for name in names)
        found.options = options
        return found

    def is_usable(self, name: str, value: str) -> bool:
        """Whether an option that the directive knows has a value just where it takes one."""
        takes = {option.name: bool(option.values) for option in self.options}.get(name)
        return takes is None or takes is bool(str(value or "").strip())

    def __missing__(self, name: str) -> Callable[[str], Any]:
        return directives.unchanged

    def __bool__(self) -> bool:
        # docutils takes the options of a directive that has none for its argument.
        return True


def usable(given: Mapping[str, str], known: AnyOption, problems: Problems) -> dict[str, str]:
    """The options that exist and have a value, or have none if they are flags."""
    found: dict[str, str] = {}
    for name, value in given.items():
        with problems.noted():
            if name not in known:
                hint = did_you_mean(name, known) or "the directive takes none"
                raise OptionError(f":{name}: unknown option; {hint}")
            if not known.is_usable(name, value):
                what = (
                    f"takes no value, got {value!r}; remove it" if value else "a value is missing; write one"
                )
                raise OptionError(f":{name}: {what}")
            found[name] = value
    return found


def sizes(text: str) -> tuple[str, ...]:
    """Size classes, in the order given.

    Raises:
        OptionError: a size class does not exist, or stands there twice.
    """
    with _of_option(""):
        return selection.sizes(text)


def columns(text: str) -> tuple[str, ...]:
    """Field names for ``:columns:``.

    Raises:
        OptionError: a field does not exist, or none is named.
    """
    with _of_option("columns"):
        return selection.columns(text, COMPUTED)


def sort_fields(text: str) -> tuple[tuple[str, bool], ...]:
    """Field names for ``:sort:``, and whether a leading ``-`` turns the order round.

    Raises:
        OptionError: a field does not exist, or none is named.
    """
    with _of_option("sort"):
        return selection.sort_fields(text, COMPUTED)


def filter_values(catalog: Catalog, name: str, found: Sequence[str]) -> tuple[str, ...]:
    """The values of the filter ``name``, each one that the data know.

    Raises:
        OptionError: a value that nothing can match, or no value.
    """
    with _of_option(name):
        return selection.filter_values(catalog, name, found)


@contextmanager
def _of_option(name: str) -> Iterator[None]:
    """Say in which option the words stand that ask for nothing; without a name, in the argument."""
    try:
        yield
    except NoAnswerError as error:
        code = error.diagnostics[0].code
        raise OptionError(f":{name}: {error}" if name else str(error), code) from None


def counts(given: Mapping[str, str], limits: Mapping[str, int], problems: Problems) -> dict[str, int | None]:
    """A whole number, or None, for each option that ``limits`` names with its largest value."""
    found: dict[str, int | None] = dict.fromkeys(limits)
    for name, most in limits.items():
        with problems.noted():
            found[name] = count(given, name, most)
    return found


def count(given: Mapping[str, str], name: str, most: int) -> int | None:
    """A whole number from 1 to ``most``; None where the option is not given.

    Raises:
        OptionError: it is not one.
    """
    if name not in given:
        return None
    text = given[name].strip().replace(",", "").replace("_", "")
    if not re.fullmatch(r"[0-9]{1,30}", text) or not 1 <= int(text) <= most:
        raise OptionError(f":{name}: must be a whole number from 1 to {most:,}, got {given[name]!r}")
    return int(text)


def count_list(given: Mapping[str, str], name: str, most: int) -> tuple[int, ...] | None:
    """Whole numbers from 1 to ``most``, in the order given; None where the option is not given.

    Raises:
        OptionError: something else stands there, nothing does, or a number does twice.
    """
    if name not in given:
        return None
    found: list[int] = []
    for word in words(given[name]):
        number = count({name: word}, name, most) or 0
        if number in found:
            raise OptionError(f":{name}: {word} stands there twice; keep one of the two")
        found.append(number)
    if not found:
        raise OptionError(f":{name}: name at least one number")
    return tuple(found)


def resource(given: Mapping[str, str], name: str, most: int) -> tuple[int, str]:
    """How many GPUs and which, written as ``8*H100``.

    Raises:
        OptionError: it is written otherwise.
    """
    match = re.fullmatch(r"\s*(\S+?)\s*[*x×]\s*([^\s*×].*?)\s*", given[name])
    if match is None:
        raise OptionError(f":{name}: write how many GPUs and which, as in 8*H100, and not {given[name]!r}")
    return count({name: match[1]}, name, most) or 0, match[2]


def choices(
    given: Mapping[str, str], name: str, allowed: Iterable[str], *alone: str
) -> tuple[str, ...] | None:
    """Words out of ``allowed``, in the order given; None where the option is not given.

    Args:
        given: all options.
        name: of the option.
        allowed: the words.
        alone: words that may stand there only by themselves, for the hint.

    Raises:
        OptionError: a word is not allowed, or stands there twice.
    """
    if name not in given:
        return None
    known = list(allowed)
    found: list[str] = []
    for word in words(given[name]):
        if word.lower() in alone:
            raise OptionError(
                f":{name}: {word!r} stands there alone, or not at all; leave the others out, or it"
            )
        if word.lower() not in known:
            listed = ", ".join([*known, *alone])
            near = nearest(word, known)
            hint = f"did you mean {near!r}? Allowed: {listed}" if near else f"allowed: {listed}"
            raise OptionError(f":{name}: unknown value {word!r}; {hint}")
        if word.lower() in found:
            raise OptionError(f":{name}: {word!r} stands there twice; keep one of the two")
        found.append(word.lower())
    if not found:
        raise OptionError(f":{name}: name at least one of {', '.join(known)}")
    return tuple(found)


def with_table(pieces: tuple[str, ...]) -> tuple[str, ...]:
    """The pieces to show, with the table behind a chart if it is not among them.

    >>> with_table(("chart", "host"))
    ('chart', 'table', 'host')
    """
    if "table" in pieces or "chart" not in pieces:
        return pieces
    behind = pieces.index("chart") + 1
    return (*pieces[:behind], "table", *pieces[behind:])


def need_table(given: Mapping[str, str], names: Iterable[str], pieces: Iterable[str]) -> None:
    """Refuse options about a table where ``pieces``, what is shown, leaves the table out.

    Raises:
        OptionError: one of ``names`` is given, and there is no table.
    """
    about = [name for name in names if name in given]
    if about and "table" not in pieces:
        raise OptionError(
            f":{about[0]}: is about the table, which :show: leaves out; add table to :show:, or leave it out"
        )
