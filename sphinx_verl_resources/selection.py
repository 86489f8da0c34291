"""The selection of runs and columns: size classes, filters, order, and their parsing.

Directives and commands share this code for their options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from .diagnostics import Code, NoAnswerError, did_you_mean, suggest_or
from .fields import field_named, find_field
from .records import ENGINES, PAGE_SIZES, SIZES, TAGS, WORDS, fold, sizes_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from .dataset import BrokenRun, Dataset
    from .records import Run

T = TypeVar("T")


class Filter(NamedTuple):
    """A filter of runs: the selected runs in words, an example, and the words besides those of recorded runs.

    ``known`` is None if any word is allowed. ``remedy`` is for an unknown word.
    """

    meaning: str
    example: str
    known: Callable[[Dataset], Iterable[str]] | None
    remedy: str = "no run has it"


FILTERS = {
    "tag": Filter("with one of these tags", "MIN", lambda data: find_field("tag").choices),
    "task": Filter("of one of these tasks", "GRPO-LoRA", None),
    "gpu": Filter(
        "on one of these GPUs, by any of their names",
        "H100",
        lambda data: data.gpus.names,
        "add it to gpus.yaml",
    ),
    "train": Filter("with one of these training backends", "fsdp", lambda data: find_field("train").choices),
    "infer": Filter(
        "with one of these rollout engines, with or without version", "vllm", lambda data: [*ENGINES]
    ),
    "kind": Filter(
        "with this evidence: ran, reported, claimed, or a kind of run files",
        "ran",
        lambda data: [*WORDS, *find_field("kind").choices],
    ),
    "model": Filter(
        "of one of these models, by the Hugging Face name or the name in the row",
        "Qwen2.5-7B",
        lambda data: data.architectures.names,
        "add it to architectures.yaml",
    ),
}


@dataclass(frozen=True)
class RunSelection:
    """The selected runs and their order, as plain values that can be pickled and compared.

    Attributes:
        sizes: the size classes in the requested order; empty for all.
        filters: pairs of a name in ``FILTERS`` and the allowed values, compared without case.
        sort: pairs of a field name and whether its order is reversed. Empty: by evidence (ran, reported,
            claimed), then by tag, date added, number of GPUs and id.
    """

    sizes: tuple[str, ...] = ()
    filters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    sort: tuple[tuple[str, bool], ...] = ()


def select_runs(data: Dataset, selection: RunSelection) -> list[Run]:
    """Return the runs of ``selection``, in its order."""
    chosen = [run for run in data.runs.values() if not selection.sizes or run.size in selection.sizes]
    for name, words in selection.filters:
        wanted, field = {_compared(data, name, word) for word in words}, find_field(name)
        found = {run.id: {_compared(data, name, word) for word in field.search_words(run)} for run in chosen}
        chosen = [run for run in chosen if wanted & found[run.id]]
    chosen.sort(key=_page_order)
    # Stable sorts from the last key to the first combine the keys.
    for name, descending in reversed(selection.sort):
        keys = {run.id: field_named(name).sort_key(run) for run in chosen}
        present = [run for run in chosen if keys[run.id] is not None]
        absent = [run for run in chosen if keys[run.id] is None]
        chosen = sorted(present, key=lambda run: keys[run.id], reverse=descending) + absent
    return chosen


def _compared(data: Dataset, name: str, word: str) -> str:
    """Normalise a word for comparison; a GPU becomes its name in the registry."""
    gpu = data.gpus.get(word) if name == "gpu" else None
    return gpu.name if gpu else fold(word)


def _page_order(run: Run) -> tuple[int, int, str, int, str]:
    tag = TAGS.index(run.tag) if run.tag else len(TAGS)
    added = run.added.isoformat() if run.added else "9999"
    return WORDS.index(run.word), tag, added, run.gpus.count, run.id


def select_broken(data: Dataset, selection: RunSelection) -> list[BrokenRun]:
    """Return the broken run files that may belong to the selection."""
    sizes = selection.sizes
    return [file for file in data.broken if not sizes or file.size is None or file.size in sizes]


def sizes_to_show(records: Iterable[Run | BrokenRun], selection: RunSelection) -> list[str]:
    """Return the size classes to show: the selected ones, otherwise the page's and any others with runs."""
    if selection.sizes:
        return list(selection.sizes)
    used = {record.size for record in records}
    return [size for size in SIZES if size in PAGE_SIZES or size in used]


def hint_if_unknown(data: Dataset, name: str, value: str) -> str | None:
    """Return a hint for an unknown value, empty if there is no suggestion; None for a known value.

    Args:
        data: the data.
        name: a filter, or ``settings``.
        value: a value of the filter, or a key.
    """
    runs = data.runs.values()
    if name == "settings":
        keys = sorted({key for run in runs for key in run.settings})
        return None if value in keys else did_you_mean(value, keys)
    known = FILTERS[name].known
    if known is None:
        return None
    search = find_field(name).search_words if name in {"infer", "model"} else lambda run: []
    allowed = [*known(data), *sorted({word for run in runs for word in search(run)})]
    return None if fold(value) in map(fold, allowed) else did_you_mean(value, allowed)


def filter_values(data: Dataset, name: str, found: Sequence[str]) -> tuple[str, ...]:
    """Check the values of the filter ``name``.

    Raises:
        NoAnswerError: a value is unknown, or there is none.
    """
    if not found:
        raise NoAnswerError.because("name at least one value")
    for value in found:
        hint = hint_if_unknown(data, name, value)
        if hint is not None:
            add = FILTERS[name].remedy
            remedy = suggest_or(value, list(FILTERS[name].known(data)), add) if "add" in add else hint or add  # type: ignore[misc]
            raise NoAnswerError.because(f"unknown value {value!r}", remedy)
    return tuple(found)


# -- parsing


def words(text: str) -> list[str]:
    """Split a list at commas and spaces."""
    return [word for word in re.split(r"[,\s]+", text) if word]


def phrases(text: str) -> list[str]:
    """Split a list at commas; an item may contain spaces."""
    return [phrase for part in text.split(",") if (phrase := " ".join(part.split()))]


def whole_number(text: str, most: int) -> int:
    """Parse a whole number from 1 to ``most``, with optional commas and underscores between digits.

    Raises:
        NoAnswerError: the text is not such a number.

    >>> whole_number("1,000", 100_000)
    1000
    """
    digits = text.strip().replace(",", "").replace("_", "")
    if not re.fullmatch(r"[0-9]{1,30}", digits) or not 1 <= int(digits) <= most:
        raise NoAnswerError.because(f"must be a whole number from 1 to {most:,}, got {text[:80]!r}")
    return int(digits)


def each_once(
    words: Iterable[str],
    read: Callable[[str], T],
    none: str,
    *,
    what: str = "",
    code: Code = "directive",
) -> tuple[T, ...]:
    """Parse words into distinct values, in the order given.

    Args:
        words: the words of a list.
        read: turns a word into a value; raises ``NoAnswerError`` for an invalid word.
        none: the message if there are no words.
        what: the kind of the words, for messages.
        code: the code of the message if there are no words.
    """
    found: dict[T, None] = {}
    for word in words:
        value = read(word)
        if value in found:
            raise NoAnswerError.because(f"{what}{word!r} is given twice", "keep one of the two")
        found[value] = None
    if not found:
        raise NoAnswerError.because(none, code=code)
    return tuple(found)


def names(found: Sequence[str], none: str, what: str = "") -> tuple[str, ...]:
    """Return names as written; they must differ in more than case, see ``each_once``."""
    each_once(found, str.casefold, none, what=what)
    return tuple(found)


def sizes(text: str) -> tuple[str, ...]:
    """Parse size classes, in the order given.

    Raises:
        NoAnswerError: a size class does not exist or is given twice, or there is none.
    """
    message = "name at least one size class, or leave the argument out"
    return each_once(words(text), _size, message, what="the size class ", code="unknown_size")


def _size(word: str) -> str:
    if word.upper() not in SIZES:
        raise NoAnswerError.because(f"unknown size class {word!r}", sizes_hint(word), code="unknown_size")
    return word.upper()


def columns(text: str, computed: Collection[str]) -> tuple[str, ...]:
    """Parse the names of fields and of ``computed`` columns.

    Raises:
        NoAnswerError: a column does not exist or is given twice, or there is none.
    """
    read = partial(_column, computed=computed)
    return each_once(words(text), read, "name at least one field", what="the field ")


def sort_fields(text: str, computed: Collection[str]) -> tuple[tuple[str, bool], ...]:
    """Parse names of fields, each with an optional leading ``-`` that reverses its order.

    Raises:
        NoAnswerError: a field does not exist or is computed, or there is none.
    """
    found = tuple((_column(word.removeprefix("-"), computed), word.startswith("-")) for word in words(text))
    for name in (name for name, _ in found if name in computed):
        raise NoAnswerError.because(f"{name!r} is computed", "use a field of run files")
    if not found:
        raise NoAnswerError.because("name at least one field")
    return found


def _column(word: str, computed: Collection[str]) -> str:
    """Return the name of a field or of a computed column."""
    name = word.lower()
    if name.startswith("estimate.") and name not in computed:
        raise NoAnswerError.because(f"unknown field {word!r}", did_you_mean(name, computed))
    return name if name in computed else find_field(word).name
