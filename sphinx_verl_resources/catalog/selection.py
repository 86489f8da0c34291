"""The selection of runs and columns: size classes, filters, order, and their parsing.

Directives and commands share this code for their options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, TypeVar, cast

from ..diagnostics import Code, NoAnswerError, did_you_mean, suggest_or
from .fields import field_named, find_field
from .names import ENGINES, PAGE_SIZES, SIZES, TAGS, WORDS, fold, sizes_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from .catalog import BrokenRun, Catalog
    from .models.run import Run

#: The filters, each with a description of the selected runs and an example value.
FILTERS = {
    "tag": ("with one of these tags", "MIN"),
    "task": ("of one of these tasks", "GRPO-LoRA"),
    "gpu": ("on one of these GPUs, by any of their names", "H100"),
    "train": ("with one of these training backends", "fsdp"),
    "infer": ("with one of these rollout engines, with or without version", "vllm"),
    "kind": ("with this evidence: ran, reported, claimed, or a kind of run files", "ran"),
    "model": ("of one of these models, by the Hugging Face name or the name in the row", "Qwen2.5-7B"),
}
#: The remedies for unknown names in filters.
ADD_IT = {"gpu": "add it to gpus.yaml", "model": "add it to architectures.yaml"}


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


T = TypeVar("T")
Find = TypeVar("Find", bound="Callable[..., object]")


def once(find: Find) -> Find:
    """Cache the result of a search through all runs in the catalog, because hundreds of pages may use it."""

    @wraps(find)
    def kept(catalog: Catalog, *args: object) -> object:
        key = (find, *args)
        if key not in catalog.found:
            catalog.found[key] = find(catalog, *args)
        return catalog.found[key]

    return cast("Find", kept)


def select_runs(catalog: Catalog, selection: RunSelection) -> list[Run]:
    """Return the runs of ``selection``, in its order."""
    chosen = [run for run in catalog.runs.values() if not selection.sizes or run.size in selection.sizes]
    for name, wanted in selection.filters:
        by_word = _runs_by_word(catalog, name)
        ids = set().union(*(by_word.get(_compared(catalog, name, word), ()) for word in wanted))
        chosen = [run for run in chosen if run.id in ids]
    chosen.sort(key=_page_order)
    # Stable sorts from the last key to the first combine the keys.
    for name, descending in reversed(selection.sort):
        key = field_named(name).sort_key
        present = [run for run in chosen if key(run) is not None]
        absent = [run for run in chosen if key(run) is None]
        chosen = sorted(present, key=key, reverse=descending) + absent
    return chosen


@once
def _runs_by_word(catalog: Catalog, name: str) -> dict[str, list[str]]:
    """Return the ids of the matching runs for each word of a filter."""
    found: dict[str, list[str]] = {}
    field = find_field(name)
    for run in catalog.runs.values():
        for word in {_compared(catalog, name, word) for word in field.search_words(run)}:
            found.setdefault(word, []).append(run.id)
    return found


def _compared(catalog: Catalog, name: str, word: str) -> str:
    """Normalise a word for comparison; a GPU becomes its name in the registry."""
    gpu = catalog.gpus.get(word) if name == "gpu" else None
    return gpu.name if gpu else fold(word)


def _page_order(run: Run) -> tuple[int, int, str, int, str]:
    tag = TAGS.index(run.tag) if run.tag else len(TAGS)
    added = run.added.isoformat() if run.added else "9999"
    return WORDS.index(run.word), tag, added, run.gpus.count, run.id


def select_broken(catalog: Catalog, selection: RunSelection) -> list[BrokenRun]:
    """Return the broken run files that may belong to the selection."""
    sizes = selection.sizes
    return [file for file in catalog.broken if not sizes or file.size is None or file.size in sizes]


def sizes_to_show(records: Iterable[Run | BrokenRun], selection: RunSelection) -> list[str]:
    """Return the size classes to show: the selected ones, otherwise the page's and any others with runs."""
    if selection.sizes:
        return list(selection.sizes)
    used = {record.size for record in records}
    return [size for size in SIZES if size in PAGE_SIZES or size in used]


@once
def allowed_values(catalog: Catalog, name: str) -> list[str] | None:
    """Return the values of a filter; None for ``task``, which may be a new one.

    For ``settings``, return the keys of all recorded settings.
    """
    runs = catalog.runs.values()
    if name == "task":
        return None
    if name == "settings":
        return sorted({key for run in runs for key in run.settings})
    field = find_field(name)
    if name == "gpu":
        return catalog.gpus.names
    if name == "kind":
        return [*WORDS, *field.choices]
    if name not in ("model", "infer"):
        return list(field.choices)
    recorded = {word for run in runs for word in field.search_words(run)}
    return [*(ENGINES if name == "infer" else catalog.architectures.names), *sorted(recorded)]


def hint_if_unknown(catalog: Catalog, name: str, value: str) -> str | None:
    """Return a hint for an unknown value, empty if there is no suggestion; None for a known value.

    Args:
        catalog: the data.
        name: a filter, or ``settings``.
        value: a value of the filter, or a key.
    """
    allowed = allowed_values(catalog, name)
    if allowed is None:
        return None
    is_known = value in allowed if name == "settings" else fold(value) in map(fold, allowed)
    return None if is_known else did_you_mean(value, allowed)


def gpu_name(catalog: Catalog, run: Run) -> str | None:
    """Return the registry's name of a run's GPU; None if the source does not give it."""
    gpu = catalog.gpu_of(run)
    return gpu.name if gpu else run.gpus.type


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
    code: Code = Code.directive,
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
    return each_once(words(text), _size, message, what="the size class ", code=Code.unknown_size)


def _size(word: str) -> str:
    size = next((size for size in SIZES if size.lower() == word.lower()), None)
    if size is None:
        message = f"unknown size class {word!r}"
        raise NoAnswerError.because(message, sizes_hint(word), code=Code.unknown_size)
    return size


def columns(text: str, computed: Collection[str]) -> tuple[str, ...]:
    """Parse the names of fields and of ``computed`` columns.

    Raises:
        NoAnswerError: a column does not exist or is given twice, or there is none.
    """
    return each_once(
        words(text),
        lambda word: _computed(word, computed) or find_field(word).name,
        "name at least one field",
        what="the field ",
    )


def sort_fields(text: str, computed: Collection[str]) -> tuple[tuple[str, bool], ...]:
    """Parse names of fields, each with an optional leading ``-`` that reverses its order.

    Raises:
        NoAnswerError: a field does not exist or is computed, or there is none.
    """
    found = tuple((_field(word.removeprefix("-"), computed), word.startswith("-")) for word in words(text))
    if not found:
        raise NoAnswerError.because("name at least one field")
    return found


def filter_values(catalog: Catalog, name: str, found: Sequence[str]) -> tuple[str, ...]:
    """Check the values of the filter ``name``.

    Raises:
        NoAnswerError: a value is unknown, or there is none.
    """
    if not found:
        raise NoAnswerError.because("name at least one value")
    for value in found:
        hint = hint_if_unknown(catalog, name, value)
        if hint is not None:
            remedy = hint or "no run has it"
            if name in ADD_IT:
                remedy = suggest_or(value, allowed_values(catalog, name) or (), ADD_IT[name])
            raise NoAnswerError.because(f"unknown value {value!r}", remedy)
    return tuple(found)


def _computed(word: str, computed: Collection[str]) -> str | None:
    """Return the computed column called ``word``, or None."""
    name = word.lower()
    if name.startswith("estimate.") and name not in computed:
        raise NoAnswerError.because(f"unknown field {word!r}", did_you_mean(name, computed))
    return name if name in computed else None


def _field(word: str, computed: Collection[str]) -> str:
    if _computed(word, computed):
        raise NoAnswerError.because(f"{word!r} is computed", "use a field of run files")
    return find_field(word).name
