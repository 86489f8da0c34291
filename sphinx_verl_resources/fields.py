"""The fields of a run: name, heading, value, text, sort order.

A field is named by its path in the run file: ``measured.gib``, ``settings.trainer.nnodes``. Tables, sorting,
filters, details and exports use this one list. A field of the records that is not in ``_DESCRIBED`` is a
column too, with its name as heading.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from .diagnostics import NoAnswerError, did_you_mean
from .i18n import N_
from .records import KINDS, SIZES, Run
from .validation import models_in, strings_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

_SETTINGS = "settings."


def as_text(value: Any) -> str:
    """Return a recorded value on one line, in YAML's spelling.

    >>> as_text(1e-05), as_text(None), as_text(("a", True))
    ('0.00001', 'null', 'a, true')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    if isinstance(value, date):
        return value.isoformat()
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
    return tuple(
        (0, float(part), "") if index % 2 else (1, 0.0, part) for index, part in enumerate(parts) if part
    )


@dataclass(frozen=True)
class Field:
    """A recorded field of a run.

    Attributes:
        name: the dotted path in the run file, such as ``measured.gib``.
        heading: the untranslated heading of its column.
        csv: the column in the CSV file, with the unit; empty if not written there.
        order: returns the sort key of a value; default: natural order, with numbers as numbers.
        read: returns the value of a run; default: the value with this name.
        words: returns the words that a filter matches; default: the value.
        detail: the title in the details of a run; empty if not shown there.
        schema: the field in the model of run files; None for a derived value.
    """

    name: str
    heading: str
    csv: str = ""
    order: Callable[[Any], Any] | None = None
    read: Callable[[Run], Any] | None = None
    words: Callable[[Run], Iterable[str | None]] | None = None
    detail: str = ""
    schema: FieldInfo | None = None

    @property
    def help(self) -> str:
        """The description of the field in the schema of run files."""
        return (self.schema and self.schema.description) or ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed words; empty if the field accepts any."""
        return tuple(strings_in(self.schema.annotation)) if self.schema else ()

    @property
    def most(self) -> float:
        """The largest number that the schema of run files allows."""
        limits = (getattr(limit, "le", None) for limit in (self.schema.metadata if self.schema else ()))
        return next((limit for limit in limits if limit is not None), math.inf)

    def value(self, run: Run) -> Any:
        """Return the value; None if not recorded."""
        value: Any = self.read(run) if self.read else run
        for part in () if self.read else self.name.split("."):
            if isinstance(value, tuple):  # a list of records: the values of each
                value = tuple(inner for item in value if (inner := getattr(item, part)) is not None)
            else:
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
            return self.order(value) if self.order and value is not None else None
        # A setting may be a number in one run and a word in another.
        return ((0, value, ""),) if is_numeric(value) else natural(as_text(value))

    def search_words(self, run: Run) -> list[str]:
        """Return the words of a run that a filter on this field matches."""
        return [word for word in (self.words(run) if self.words else (self.text(run),)) if word]


#: Fields with more than a name and a value, in display order.
_DESCRIBED = (
    Field("id", N_("Run")),
    Field("size", N_("Size"), "size", order=SIZES.index),
    Field("tag", N_("Tag"), "tag"),
    Field(
        "model",
        N_("Model"),
        read=lambda run: run.short_name,
        words=lambda run: (run.model, run.model.rsplit("/", 1)[-1], run.short_name),
    ),
    Field("checkpoint", N_("Checkpoint"), "model", read=lambda run: run.model),
    Field("task", N_("Task"), "task"),
    Field("gpus", N_("Resource"), order=lambda gpus: (gpus.count, gpus.type or "")),
    Field("gpus.count", N_("GPUs"), "gpu_count"),
    Field("gpus.type", N_("GPU"), "gpu"),
    Field("gpus.memory_gb", N_("GPU memory (GB)"), "stated_memory_gb"),
    Field("gpus.nodes", N_("Nodes"), "nodes"),
    Field("train", N_("Train"), "train"),
    Field(
        "infer",
        N_("Infer"),
        words=lambda run: (run.infer.engine, str(run.infer)) if run.infer else (),
        detail=N_("Rollout engine"),
    ),
    Field("infer.engine", N_("Engine"), "engine"),
    Field("infer.version", N_("Engine version"), "engine_version"),
    Field("versions", "versions", detail=N_("Versions")),
    Field("max_batch", N_("MaxBatch"), "max_batch_prompts"),
    Field("kind", N_("Status"), order=KINDS.index, words=lambda run: (run.kind, run.word)),
    Field("added", N_("Added"), "added"),
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
    "resource": "gpus",
    "maxbatch": "max_batch",
    "link": "script",
    "label": "model",
    "gpu": "gpus.type",
}


@cache
def every_field() -> dict[str, Field]:
    """Return all fields of a run by name, except settings, see ``field_named``."""
    schema = dict(_in_model(Run))
    described = {field.name: replace(field, schema=schema.get(field.name)) for field in _DESCRIBED}
    others = {
        name: Field(name, name, schema=entry) for name, entry in schema.items() if name not in described
    }
    return described | others


def _in_model(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the dotted name and the field for every field of a model."""
    for name, entry in model.model_fields.items():
        yield prefix + name, entry
        for inner in models_in(entry.annotation):
            yield from _in_model(inner, f"{prefix}{name}.")


def field_named(name: str) -> Field:
    """Return the field with a name, which can also be ``settings.`` and a key of verl's configuration."""
    key = name.removeprefix(_SETTINGS)
    return Field(name, key, read=lambda run: run.settings.get(key)) if key != name else every_field()[name]


def find_field(word: str) -> Field:
    """Return the field that a user wrote: its name in any case, or the heading of a column of the page.

    Raises:
        NoAnswerError: the field is unknown.
    """
    if word == _SETTINGS:
        raise NoAnswerError.because("'settings.' needs a key of verl's configuration after the dot")
    if word.startswith(_SETTINGS):
        return field_named(word)
    name = word.lower().replace("-", "_")
    name = _ALIASES.get(name, name)
    if name not in every_field():
        otherwise = "use a field of run files, for example measured.gib, or settings.<key>"
        remedy = did_you_mean(name, [*every_field(), *_ALIASES]) or otherwise
        raise NoAnswerError.because(f"unknown field {word!r}", remedy)
    return every_field()[name]
