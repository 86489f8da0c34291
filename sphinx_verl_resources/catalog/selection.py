"""The choice of runs and columns: size classes, filters, an order, and how people type them.

Options of directives and of commands are read here alike.
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

#: The fields that runs can be filtered by: the runs that are left, and a value.
FILTERS = {
    "tag": ("with one of these tags", "MIN"),
    "task": ("of one of these tasks", "GRPO-LoRA"),
    "gpu": ("on one of these GPUs, each by any of its names", "H100"),
    "train": ("with one of these training backends", "fsdp"),
    "infer": ("with one of these rollout engines, with or without version", "vllm"),
    "kind": ("known in one of these ways: ran, reported, claimed, or a kind of run files", "ran"),
    "model": ("of one of these models, by the checkpoint or by what the row shows", "Qwen2.5-7B"),
}
#: What to do about a name that a filter cannot know.
ADD_IT = {"gpu": "add it to gpus.yaml", "model": "add it to architectures.yaml"}


@dataclass(frozen=True)
class RunSelection:
    """The runs that are asked for, and their order: plain values that can be pickled and compared.

    Attributes:
        sizes: size classes in the order asked for; empty for all.
        filters: pairs of a name in ``FILTERS`` and the values allowed, compared without case.
        sort: pairs of a field name and whether its order is reversed. Empty: from those that ran to
            those that are claimed, then by tag, date added, number of GPUs and id.
    """

    sizes: tuple[str, ...] = ()
    filters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    sort: tuple[tuple[str, bool], ...] = ()


T = TypeVar("T")
Find = TypeVar("Find", bound="Callable[..., object]")


def once(find: Find) -> Find:
    """Keep the result of a search through all runs with the catalog: hundreds of pages may ask for it."""

    @wraps(find)
    def kept(catalog: Catalog, *args: object) -> object:
        key = (find, *args)
        if key not in catalog.found:
            catalog.found[key] = find(catalog, *args)
        return catalog.found[key]

    return cast("Find", kept)


def select_runs(catalog: Catalog, selection: RunSelection) -> list[Run]:
    """Return the runs that ``selection`` asks for, in its order."""
    chosen = [run for run in catalog.runs.values() if not selection.sizes or run.size in selection.sizes]
    for name, wanted in selection.filters:
        by_word = _runs_by_word(catalog, name)
        ids = set().union(*(by_word.get(_compared(catalog, name, word), ()) for word in wanted))
        chosen = [run for run in chosen if run.id in ids]
    chosen.sort(key=_page_order)
    # Stable sorts from the last key to the first give the order of all of them.
    for name, descending in reversed(selection.sort):
        key = field_named(name).sort_key
        present = [run for run in chosen if key(run) is not None]
        absent = [run for run in chosen if key(run) is None]
        chosen = sorted(present, key=key, reverse=descending) + absent
    return chosen


@once
def _runs_by_word(catalog: Catalog, name: str) -> dict[str, list[str]]:
    """Return the ids of the runs that match each word of a filter."""
    found: dict[str, list[str]] = {}
    field = find_field(name)
    for run in catalog.runs.values():
        for word in {_compared(catalog, name, word) for word in field.search_words(run)}:
            found.setdefault(word, []).append(run.id)
    return found


def _compared(catalog: Catalog, name: str, word: str) -> str:
    """Return a word as it is compared: a GPU by its name in the registry, everything else by its spelling."""
    gpu = catalog.gpus.get(word) if name == "gpu" else None
    return gpu.name if gpu else fold(word)


def _page_order(run: Run) -> tuple[int, int, str, int, str]:
    tag = TAGS.index(run.tag) if run.tag else len(TAGS)
    added = run.added.isoformat() if run.added else "9999"
    return WORDS.index(run.word), tag, added, run.gpus.count, run.id


def select_broken(catalog: Catalog, selection: RunSelection) -> list[BrokenRun]:
    """Return the unusable run files that may belong to the answer."""
    sizes = selection.sizes
    return [file for file in catalog.broken if not sizes or file.size is None or file.size in sizes]


def sizes_to_show(records: Iterable[Run | BrokenRun], selection: RunSelection) -> list[str]:
    """Return the size classes with a section: those asked for, or the page's and every other with a run."""
    if selection.sizes:
        return list(selection.sizes)
    used = {record.size for record in records}
    return [size for size in SIZES if size in PAGE_SIZES or size in used]


@once
def allowed_values(catalog: Catalog, name: str) -> list[str] | None:
    """Return the values of a filter; None for ``task``, which may be one that nobody has recorded yet.

    For ``settings``, return every key that some run has a setting for.
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
    """Return None for a value that the data know, else a hint at what it may mean; empty without one.

    Args:
        catalog: the data.
        name: of a filter, or ``settings``.
        value: of the filter, or a key.
    """
    allowed = allowed_values(catalog, name)
    if allowed is None:
        return None
    is_known = value in allowed if name == "settings" else fold(value) in map(fold, allowed)
    return None if is_known else did_you_mean(value, allowed)


def gpu_name(catalog: Catalog, run: Run) -> str | None:
    """Return the registry's name of a run's GPU; None where the source does not name it."""
    gpu = catalog.gpu_of(run)
    return gpu.name if gpu else run.gpus.type


def words(text: str) -> list[str]:
    """Split a list at commas and spaces."""
    return [word for word in re.split(r"[,\s]+", text) if word]


def phrases(text: str) -> list[str]:
    """Split a list at commas; an item may hold spaces."""
    return [phrase for part in text.split(",") if (phrase := " ".join(part.split()))]


def whole_number(text: str, most: int) -> int:
    """Read a whole number from 1 to ``most``; commas and underscores may divide its digits.

    Raises:
        NoAnswerError: it is none.

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
    """Read words whose values must differ, in the order given.

    Args:
        words: those of a list.
        read: turns a word into a value; raises ``NoAnswerError`` for any other.
        none: the message where there is no word.
        what: the kind of the words, for messages.
        code: of the message where there is no word.
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
    """Return names as they are written, which must differ by more than their case; see ``each_once``."""
    each_once(found, str.casefold, none, what=what)
    return tuple(found)


def sizes(text: str) -> tuple[str, ...]:
    """Read size classes, in the order given.

    Raises:
        NoAnswerError: a size class does not exist, is named twice, or none is named.
    """
    message = "name at least one size class, or leave the argument out"
    return each_once(words(text), _size, message, what="the size class ", code=Code.unknown_size)


def _size(word: str) -> str:
    size = next((size for size in SIZES if size.lower() == word.lower()), None)
    if size is None:
        message = f"there is no size class {word!r}"
        raise NoAnswerError.because(message, sizes_hint(word), code=Code.unknown_size)
    return size


def columns(text: str, computed: Collection[str]) -> tuple[str, ...]:
    """Read the names of fields and of ``computed`` columns.

    Raises:
        NoAnswerError: a column does not exist, is named twice, or none is named.
    """
    return each_once(
        words(text),
        lambda word: _computed(word, computed) or find_field(word).name,
        "name at least one field",
        what="the field ",
    )


def sort_fields(text: str, computed: Collection[str]) -> tuple[tuple[str, bool], ...]:
    """Read names of fields, each with whether a leading ``-`` reverses its order.

    Raises:
        NoAnswerError: a field does not exist or is computed, or none is named.
    """
    found = tuple((_field(word.removeprefix("-"), computed), word.startswith("-")) for word in words(text))
    if not found:
        raise NoAnswerError.because("name at least one field")
    return found


def filter_values(catalog: Catalog, name: str, found: Sequence[str]) -> tuple[str, ...]:
    """Check the values of the filter ``name``.

    Raises:
        NoAnswerError: a value that nothing can match, or no value.
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
    """Return the computed column that ``word`` names, None for any other."""
    name = word.lower()
    if name.startswith("estimate.") and name not in computed:
        raise NoAnswerError.because(f"unknown field {word!r}", did_you_mean(name, computed))
    return name if name in computed else None


def _field(word: str, computed: Collection[str]) -> str:
    if _computed(word, computed):
        raise NoAnswerError.because(f"{word!r} is computed", "name a field of the run files")
    return find_field(word).name
