"""The fields of a run, the selection of runs, and the parsing of options for both.

A field is named by its path in the run file: ``measured.gib``, ``settings.trainer.nnodes``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

from .dataset import Dataset
from .diagnostics import NoAnswerError, did_you_mean
from .i18n import N_
from .records import ENGINES, KINDS, SIZES, TAGS, TRAIN_BACKENDS, WORDS, Run, fold

#: The name of a field to sort by, and whether its order is reversed.
Order = tuple[str, bool]

T = TypeVar("T")

# -- fields


def as_text(value: Any) -> str:
    """Return a recorded value on one line, in YAML's spelling.

    >>> as_text(1e-05), as_text(None), as_text(("a", True))
    ('0.00001', 'null', 'a, true')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    if isinstance(value, tuple):
        return ", ".join(map(as_text, value))
    return re.sub(r"\s*\n\s*", " ", str(value).strip())


def is_numeric(value: Any) -> bool:
    """Return whether a value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def natural(text: str) -> list[Any]:
    """Return a sort key that puts ``2*H800`` before ``16*H100``, and ``0.8.3`` before ``0.10.0``."""
    # Words and numbers take turns, so that only like parts are compared.
    return [float(part) if part.isdecimal() else part for part in re.split(r"(\d+)", text.casefold())]


@dataclass(frozen=True)
class Field:
    """A field of a run.

    Attributes:
        name: the dotted path in the run file, such as ``measured.gib``.
        heading: the untranslated heading of its column.
        order: its values in ascending order; default: natural order, with numbers as numbers.
        read: returns the value of a run; default: the value with this name.
        detail: the title in the details of a run; empty if not shown there.
    """

    name: str
    heading: str
    order: Sequence[str] = ()
    read: Callable[[Run], Any] | None = None
    detail: str = ""

    def value(self, run: Run) -> Any:
        """Return the value; None if not recorded."""
        value: Any = self.read(run) if self.read else run
        for part in () if self.read else self.name.split("."):
            value = getattr(value, part, None)
        return None if value == () else value

    def text(self, run: Run) -> str:
        """Return the value as pages show it; empty if not recorded."""
        value = self.value(run)
        return "" if value is None else as_text(value)

    def sort_key(self, run: Run) -> list[Any]:
        """Return the sort key of a run for this field; empty if not recorded."""
        value = self.value(run)
        if value is None:
            return []
        if self.order:
            return [self.order.index(value)]
        # A setting may be a number in one run and a word in another.
        return ["", value] if is_numeric(value) else natural(as_text(value))


#: The fields in display order, except settings, see ``field_named``.
FIELDS = (
    Field("id", N_("Run")),
    Field("size", N_("Size"), order=SIZES),
    Field("tag", N_("Tag")),
    Field("model", N_("Model"), read=lambda run: run.short_name),
    Field("checkpoint", N_("Checkpoint"), read=lambda run: run.model),
    Field("task", N_("Task")),
    Field("gpus", N_("Resource")),
    Field("gpus.count", N_("GPUs")),
    Field("gpus.type", N_("GPU")),
    Field("gpus.nodes", N_("Nodes")),
    Field("train", N_("Train")),
    Field("infer", N_("Infer"), detail=N_("Rollout engine")),
    Field("infer.engine", N_("Engine")),
    Field("infer.version", N_("Engine version")),
    Field("trainer", N_("Trainer")),
    Field("versions", "versions", detail=N_("Versions")),
    Field("max_batch", N_("MaxBatch")),
    Field("kind", N_("Status"), order=KINDS),
    Field("added", N_("Added"), detail=N_("Added")),
    Field("checked", N_("Last checked")),
    Field("measured.gib", N_("Peak (GiB)")),
    Field("measured.counter", N_("Counter")),
    Field("measured.host_ram_gib", N_("Host RAM (GiB per node)")),
    Field("measured.tokens_per_second_per_gpu", N_("Tokens/s per GPU")),
    Field("measured.step_seconds", N_("Step (s)")),
    Field("measured.step_seconds_range", N_("Steps from/to (s)")),
    Field("measured.steps", N_("Steps counted")),
    Field("measured.mfu", N_("MFU")),
    Field("measured.response_tokens", N_("Response (tokens)")),
    Field("script", N_("Link"), detail=N_("Script")),
    Field("contributor", N_("Contributor")),
    Field("evidence", N_("Evidence"), detail=N_("Evidence")),
    Field("measured", "measured", detail=N_("Measured")),
    Field("recommended_over", N_("Faster than"), detail=N_("Faster than")),
    Field("notes", N_("Notes")),
)
#: The fields by name and by heading, as ``fold`` writes them; a name precedes a heading.
_BY_NAME = {fold(each.heading): each for each in FIELDS} | {fold(each.name): each for each in FIELDS}


def field_named(word: str) -> Field:
    """Return a field by its name or heading in any spelling; a setting by ``settings.`` and its key.

    Raises:
        NoAnswerError: the field is unknown.
    """
    key = word.removeprefix("settings.")
    if key and key != word:
        return Field(word, key, read=lambda run: run.settings.get(key))
    field = _BY_NAME.get(fold(word))
    if field is None:
        remedy = did_you_mean(word, [field.name for field in FIELDS])
        raise NoAnswerError.because(
            f"unknown field {word!r}", remedy or "use a field of run files, or settings.<key>"
        )
    return field


# -- selection


class Filter(NamedTuple):
    """A filter of runs.

    Attributes:
        meaning: the selected runs in words.
        example: a value.
        words: returns the words of a run that it matches.
        allowed: returns the allowed words, besides those of the runs; None if any is allowed.
        remedy: a remedy for an unknown word.
    """

    meaning: str
    example: str
    words: Callable[[Run], tuple[str | None, ...]]
    allowed: Callable[[Dataset], Iterable[str]] | None = None
    remedy: str = ""


FILTERS = {
    "tag": Filter("with one of these tags", "MIN", lambda run: (run.tag,), lambda data: TAGS),
    "task": Filter("of one of these tasks", "GRPO-LoRA", lambda run: (run.task,)),
    "gpu": Filter(
        "on one of these GPUs, by any of their names", "H100",
        lambda run: (run.gpus.type,), lambda data: data.gpus.names, "add it to gpus.yaml",
    ),
    "train": Filter(
        "with one of these training backends", "fsdp", lambda run: (run.train,), lambda data: TRAIN_BACKENDS,
    ),
    "infer": Filter(
        "with one of these rollout engines, with or without version", "vllm",
        lambda run: (run.infer.engine, str(run.infer)) if run.infer else (), lambda data: ENGINES,
    ),
    "kind": Filter(
        "with this evidence: ran, reported, claimed, or a kind of run files", "ran",
        lambda run: (run.kind, run.word), lambda data: (*WORDS, *KINDS),
    ),
    "model": Filter(
        "of one of these models, by the Hugging Face name or the name in the row", "Qwen2.5-7B",
        lambda run: (run.model, run.model.rsplit("/", 1)[-1], run.short_name),
        lambda data: data.architectures.names, "add it to architectures.yaml",
    ),
}  # fmt: skip


def select_runs(
    data: Dataset, sizes: Sequence[str], filters: Mapping[str, Iterable[str]], sort: Sequence[Order]
) -> list[Run]:
    """Return the selected runs in order.

    Args:
        data: the data.
        sizes: the size classes; empty for all.
        filters: the allowed values, compared without case, by the name of the filter.
        sort: the fields to sort by. Empty: runs that ran and RECOMMENDED ones, then reported, then claimed
            ones; by tag, date added, number of GPUs and id.
    """
    runs = [run for run in data.runs.values() if not sizes or run.size in sizes]
    for name, words in filters.items():
        allowed = _compared(data, words)
        runs = [run for run in runs if allowed & _compared(data, FILTERS[name].words(run))]
    runs.sort(key=_page_order)
    # Stable sorts from the last key to the first combine the keys. Missing values come last.
    for name, descending in reversed(sort):
        key = field_named(name).sort_key
        runs.sort(key=key, reverse=descending)
        runs.sort(key=lambda run: not key(run))
    return runs


def _compared(data: Dataset, words: Iterable[str | None]) -> set[str]:
    """Return words for comparison; a GPU becomes its name in the registry."""
    gpus = {word: data.gpus.get(word) for word in words if word}
    return {gpu.name if gpu else fold(word) for word, gpu in gpus.items()}


def _page_order(run: Run) -> tuple[int, int, str, int, str]:
    tag = TAGS.index(run.tag) if run.tag else len(TAGS)
    added = run.added.isoformat() if run.added else "9999"
    return WORDS.index(run.word) if run.is_folded else 0, tag, added, run.gpus.count, run.id


def filter_values(data: Dataset, name: str, values: Sequence[str]) -> tuple[str, ...]:
    """Check the values of the filter ``name``.

    Raises:
        NoAnswerError: a value is unknown, or there is none.
    """
    if not values:
        raise NoAnswerError.because("name at least one value")
    words, every, remedy = FILTERS[name][2:]
    recorded = {word for run in data.runs.values() for word in words(run) if word}
    allowed = [*every(data), *sorted(recorded)] if every else values
    for value in values:
        if fold(value) not in map(fold, allowed):
            raise NoAnswerError.because(f"unknown value {value!r}", did_you_mean(value, allowed, remedy))
    return tuple(values)


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
        raise NoAnswerError.because(f"must be a whole number from 1 to {most:,}, got {text!r}")
    return int(digits)


def each_once(words: Iterable[str], read: Callable[[str], T], none: str) -> tuple[T, ...]:
    """Parse words into distinct values, in the order given.

    Args:
        words: the words of a list.
        read: turns a word into a value; raises ``NoAnswerError`` for an invalid word.
        none: the message if there are no words.
    """
    values: dict[T, None] = {}
    for word in words:
        if (value := read(word)) in values:
            raise NoAnswerError.because(f"{word!r} is given twice", "keep one of the two")
        values[value] = None
    if not values:
        raise NoAnswerError.because(none)
    return tuple(values)


def sizes(text: str) -> tuple[str, ...]:
    """Parse size classes, in the order given.

    Raises:
        NoAnswerError: a size class does not exist or is given twice, or there is none.
    """

    def read(word: str) -> str:
        if word.upper() not in SIZES:
            hint = did_you_mean(word, SIZES)
            raise NoAnswerError.because(f"unknown size class {word!r}", hint, code="unknown_size")
        return word.upper()

    return each_once(words(text), read, "name at least one size class, or leave the argument out")


def columns(text: str) -> tuple[str, ...]:
    """Parse the names of fields.

    Raises:
        NoAnswerError: a field does not exist or is given twice, or there is none.
    """
    return each_once(words(text), lambda word: field_named(word).name, "name at least one field")


def sort_fields(text: str) -> tuple[Order, ...]:
    """Parse names of fields, each with an optional leading ``-`` that reverses its order.

    Raises:
        NoAnswerError: a field does not exist or is given twice, or there is none.
    """

    def read(word: str) -> Order:
        return field_named(word.removeprefix("-")).name, word.startswith("-")

    return each_once(words(text), read, "name at least one field")
