"""The fields of a run, the selection of runs, and the parsing of options for both.

A field is named by its path in the run file: ``measured.gib``, ``settings.trainer.nnodes``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .diagnostics import NoAnswerError, did_you_mean
from .i18n import N_
from .records import ENGINES, KINDS, PAGE_SIZES, SIZES, TAGS, TRAIN_BACKENDS, WORDS, Run, fold, sizes_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from .dataset import BrokenRun, Dataset

T = TypeVar("T")
_SETTINGS = "settings."

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
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={as_text(item)}" for key, item in value.items())
    return re.sub(r"\s*\n\s*", " ", str(value).strip())


def is_numeric(value: Any) -> bool:
    """Return whether a value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """Return a sort key that puts ``2*H800`` before ``16*H100``."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text.casefold())
    return tuple((0, float(part), "") if part[:1].isdecimal() else (1, 0.0, part) for part in parts if part)


@dataclass(frozen=True)
class Field:
    """A recorded field of a run.

    Attributes:
        name: the dotted path in the run file, such as ``measured.gib``.
        heading: the untranslated heading of its column.
        csv: the column in the CSV file, with the unit; empty if not written there.
        order: returns the sort key of a value; default: natural order, with numbers as numbers.
        read: returns the value of a run; default: the value with this name.
        detail: the title in the details of a run; empty if not shown there.
    """

    name: str
    heading: str
    csv: str = ""
    order: Callable[[Any], Any] | None = None
    read: Callable[[Run], Any] | None = None
    detail: str = ""

    def value(self, run: Run) -> Any:
        """Return the value; None if not recorded."""
        value: Any = self.read(run) if self.read else run
        for part in () if self.read else self.name.split("."):
            value = getattr(value, part, None)
        return None if isinstance(value, (tuple, Mapping)) and not value else value

    def text(self, run: Run) -> str:
        """Return the value as pages show it; empty if not recorded."""
        value = self.value(run)
        return "" if value is None else as_text(value)

    def sort_key(self, run: Run) -> Any:
        """Return the sort key of a run for this field; None if not recorded."""
        value = self.value(run)
        if value is None or self.order:
            return None if value is None or not self.order else self.order(value)
        # A setting may be a number in one run and a word in another.
        return ((0, value, ""),) if is_numeric(value) else natural(as_text(value))


#: The fields in display order.
_FIELDS = (
    Field("id", N_("Run")),
    Field("size", N_("Size"), "size", order=SIZES.index),
    Field("tag", N_("Tag"), "tag"),
    Field("model", N_("Model"), read=lambda run: run.short_name),
    Field("checkpoint", N_("Checkpoint"), "model", read=lambda run: run.model),
    Field("task", N_("Task"), "task"),
    Field("gpus", N_("Resource"), order=lambda gpus: (gpus.count, gpus.type or "")),
    Field("gpus.count", N_("GPUs"), "gpu_count"),
    Field("gpus.type", N_("GPU"), "gpu"),
    Field("gpus.memory_gb", N_("GPU memory (GB)"), "stated_memory_gb"),
    Field("gpus.nodes", N_("Nodes"), "nodes"),
    Field("train", N_("Train"), "train"),
    Field("infer", N_("Infer"), detail=N_("Rollout engine")),
    Field("infer.engine", N_("Engine"), "engine"),
    Field("infer.version", N_("Engine version"), "engine_version"),
    Field("versions", "versions", detail=N_("Versions")),
    Field("versions.verl", "versions.verl"),
    Field("versions.torch", "versions.torch"),
    Field("max_batch", N_("MaxBatch"), "max_batch_prompts"),
    Field("kind", N_("Status"), order=KINDS.index),
    Field("added", N_("Added"), "added", detail=N_("Added")),
    Field("measured.gib", N_("Peak (GiB)"), "measured_gib"),
    Field("measured.counter", N_("Counter"), "measured_counter"),
    Field("measured.host_ram_gib", N_("Host RAM (GiB per node)"), "measured_host_ram_gib_per_node"),
    Field("measured.step_seconds", N_("Step (s)"), "measured_step_seconds"),
    Field("measured.mfu", N_("MFU"), "measured_mfu"),
    Field("measured.response_tokens", N_("Response (tokens)"), "measured_response_tokens"),
    Field("script", N_("Link"), detail=N_("Script")),
    Field("script.ref", N_("Commit"), "script_ref"),
    Field("script.path", N_("Script"), "script_path"),
    Field("contributor", N_("Contributor"), "contributor"),
    Field("evidence", N_("Evidence"), detail=N_("Evidence")),
    Field("measured", "measured", detail=N_("Measured")),
    Field("notes", N_("Notes")),
    Field("settings", N_("Settings")),
)
#: Other names of fields: headings of the page and common names.
_ALIASES = {
    "resource": "gpus", "maxbatch": "max_batch", "link": "script", "label": "model", "gpu": "gpus.type",
}  # fmt: skip


def every_field() -> dict[str, Field]:
    """Return all fields of a run by name, except settings, see ``field_named``."""
    return {field.name: field for field in _FIELDS}


def field_named(name: str) -> Field:
    """Return the field with a name, which can also be ``settings.`` and a key of verl's configuration."""
    key = name.removeprefix(_SETTINGS)
    return Field(name, key, read=lambda run: run.settings.get(key)) if key != name else every_field()[name]


def find_field(word: str) -> Field:
    """Return the field that a user wrote: its name in any case, or the heading of a column of the page.

    Raises:
        NoAnswerError: the field is unknown.
    """
    name = word.lower().replace("-", "_")
    name = _ALIASES.get(name, name)
    if name in every_field() or (word.startswith(_SETTINGS) and word != _SETTINGS):
        return field_named(word if word.startswith(_SETTINGS) else name)
    remedy = did_you_mean(name, [*every_field(), *_ALIASES]) or "use a field of run files, or settings.<key>"
    raise NoAnswerError.because(f"unknown field {word!r}", remedy)


# -- selection


class Filter(NamedTuple):
    """A filter of runs.

    Attributes:
        meaning: the selected runs in words.
        example: a value.
        words: returns the words of a run that it matches.
        known: returns the allowed words, besides those of the runs; None if any is allowed.
        remedy: a remedy for an unknown word.
    """

    meaning: str
    example: str
    words: Callable[[Run], tuple[str | None, ...]]
    known: Callable[[Dataset], Iterable[str]] | None
    remedy: str = ""


FILTERS = {
    "tag": Filter("with one of these tags", "MIN", lambda run: (run.tag,), lambda data: TAGS),
    "task": Filter("of one of these tasks", "GRPO-LoRA", lambda run: (run.task,), None),
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
        wanted, words_of = {_compared(data, name, word) for word in words}, FILTERS[name].words
        chosen = [
            run for run in chosen if any(_compared(data, name, word) in wanted for word in words_of(run))
        ]
    chosen.sort(key=_page_order)
    # Stable sorts from the last key to the first combine the keys.
    for name, descending in reversed(selection.sort):
        keys = {run.id: field_named(name).sort_key(run) for run in chosen}
        present = [run for run in chosen if keys[run.id] is not None]
        present.sort(key=lambda run: keys[run.id], reverse=descending)
        chosen = present + [run for run in chosen if keys[run.id] is None]
    return chosen


def _compared(data: Dataset, name: str, word: str | None) -> str:
    """Normalise a word for comparison; a GPU becomes its name in the registry."""
    gpu = data.gpus.get(word) if name == "gpu" and word else None
    return gpu.name if gpu else fold(word or "")


def _page_order(run: Run) -> tuple[int, int, str, int, str]:
    tag = TAGS.index(run.tag) if run.tag else len(TAGS)
    added = run.added.isoformat() if run.added else "9999"
    return WORDS.index(run.word), tag, added, run.gpus.count, run.id


def select_broken(data: Dataset, selection: RunSelection) -> list[BrokenRun]:
    """Return the broken run files that may belong to the selection."""
    return [file for file in data.broken if not selection.sizes or file.size in (None, *selection.sizes)]


def sizes_to_show(records: Iterable[Run | BrokenRun], selection: RunSelection) -> list[str]:
    """Return the size classes to show: the selected ones, otherwise the page's and any others with runs."""
    used = {*PAGE_SIZES, *(record.size for record in records)}
    return list(selection.sizes) or [size for size in SIZES if size in used]


def hint_if_unknown(data: Dataset, name: str, value: str) -> str | None:
    """Return a hint for an unknown value, empty if there is no suggestion; None for a known value.

    Args:
        data: the data.
        name: a filter, or ``settings``.
        value: a value of the filter, or a key.
    """
    if name == "settings":
        keys = sorted({key for run in data.runs.values() for key in run.settings})
        return None if value in keys else did_you_mean(value, keys)
    known = FILTERS[name].known
    recorded = {word for run in data.runs.values() for word in FILTERS[name].words(run) if word}
    allowed = [*known(data), *sorted(recorded)] if known else [value]
    return None if fold(value) in map(fold, allowed) else did_you_mean(value, allowed, FILTERS[name].remedy)


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
            raise NoAnswerError.because(f"unknown value {value!r}", hint)
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


def each_once(words: Iterable[str], read: Callable[[str], T], none: str, *, what: str = "") -> tuple[T, ...]:
    """Parse words into distinct values, in the order given.

    Args:
        words: the words of a list.
        read: turns a word into a value; raises ``NoAnswerError`` for an invalid word.
        none: the message if there are no words.
        what: the kind of the words, for messages.
    """
    found: dict[T, None] = {}
    for word in words:
        value = read(word)
        if value in found:
            raise NoAnswerError.because(f"{what}{word!r} is given twice", "keep one of the two")
        found[value] = None
    if not found:
        raise NoAnswerError.because(none)
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
    return each_once(words(text), _size, message, what="the size class ")


def _size(word: str) -> str:
    if word.upper() not in SIZES:
        raise NoAnswerError.because(f"unknown size class {word!r}", sizes_hint(word), code="unknown_size")
    return word.upper()


def columns(text: str, computed: Collection[str]) -> tuple[str, ...]:
    """Parse the names of fields and of ``computed`` columns.

    Raises:
        NoAnswerError: a column does not exist or is given twice, or there is none.
    """
    found = words(text)
    return each_once(
        found, lambda word: _column(word, computed), "name at least one field", what="the field "
    )


def sort_fields(text: str, computed: Collection[str]) -> tuple[tuple[str, bool], ...]:
    """Parse names of fields, each with an optional leading ``-`` that reverses its order.

    Raises:
        NoAnswerError: a field does not exist or is computed, or there is none.
    """

    def read(word: str) -> tuple[str, bool]:
        name = _column(word.removeprefix("-"), computed)
        if name in computed:
            raise NoAnswerError.because(f"{name!r} is computed", "use a field of run files")
        return name, word.startswith("-")

    return each_once(words(text), read, "name at least one field")


def _column(word: str, computed: Collection[str]) -> str:
    return word.lower() if word.lower() in computed else find_field(word).name
