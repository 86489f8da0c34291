"""Every recorded field of a run by name: its value, its text, its place in an order, its heading.

A field is named as in the run file, dotted where it lies deeper: ``measured.gib``,
``settings.data.train_batch_size``. The nine columns of the hardware page are also known by heading.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..diagnostics import did_you_mean
from ..i18n import N_
from .names import KINDS, SIZES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel

    from .models.run import Run

#: The nine columns of the page, in its order.
PAGE_COLUMNS = ("tag", "model", "task", "gpus", "max_batch", "train", "infer", "script", "contributor")

#: Fields with a heading of their own, in the order in which they are listed to people.
HEADINGS = {
    "tag": N_("Tag"),
    "model": N_("Model"),
    "task": N_("Task"),
    "gpus": N_("Resource"),
    "max_batch": N_("MaxBatch"),
    "train": N_("Train"),
    "infer": N_("Infer"),
    "script": N_("Link"),
    "contributor": N_("Contributor"),
    "id": N_("Run"),
    "size": N_("Size"),
    "kind": N_("Kind"),
    "checkpoint": N_("Checkpoint"),
    "added": N_("Added"),
    "evidence": N_("Evidence"),
    "notes": N_("Notes"),
    "settings": N_("Settings"),
    "gpus.count": N_("GPUs"),
    "gpus.type": N_("GPU"),
    "gpus.nodes": N_("Nodes"),
    "gpus.memory_gb": N_("GPU memory (GB)"),
    "infer.engine": N_("Engine"),
    "infer.version": N_("Engine version"),
    "script.ref": N_("Commit"),
    "script.path": N_("Script"),
    "measured.gib": N_("Peak (GiB)"),
    "measured.counter": N_("Counter"),
    "measured.host_ram_gib": N_("Host RAM (GiB per node)"),
    "measured.step_seconds": N_("Step (s)"),
    "measured.mfu": N_("MFU"),
    "measured.response_tokens": N_("Response (tokens)"),
}
#: Other words for the same fields: the headings of the page, and what people type.
_ALIASES = {
    "resource": "gpus",
    "maxbatch": "max_batch",
    "link": "script",
    "label": "model",
    "gpu": "gpus.type",
}

NOT_RECORDED = N_("not recorded")


class UnknownFieldError(ValueError):
    """A name that no field has; the text says which, and what may have been meant."""


def field_name(word: str) -> str:
    """The field that ``word`` names.

    Raises:
        UnknownFieldError: there is none.
    """
    if word.startswith("settings."):
        if not word.removeprefix("settings."):
            raise UnknownFieldError("settings. needs a key of verl's configuration behind the dot")
        return word
    name = word.lower().replace("-", "_")
    name = _ALIASES.get(name, name)
    known = recorded_fields()
    if name not in known:
        hint = (
            did_you_mean(name, [*known, *_ALIASES])
            or "any field of a run file will do, measured.gib for example, and settings.<key>"
        )
        raise UnknownFieldError(f"unknown field {word!r}; {hint}")
    return name


@lru_cache(maxsize=1)
def recorded_fields() -> dict[str, str]:
    """Every field of a run file, dotted where it lies deeper, and what stands above its column."""
    from .models.run import Run
    from .validation import models_in

    def paths(model: type[BaseModel], prefix: str) -> Iterator[str]:
        for name, field in model.model_fields.items():
            yield prefix + name
            for inner in models_in(field.annotation):
                yield from paths(inner, f"{prefix}{name}.")

    return {**HEADINGS, **{path: HEADINGS.get(path, path) for path in paths(Run, "")}}


def heading(name: str) -> str:
    """What stands above the column of a field."""
    return HEADINGS.get(name) or name.removeprefix("settings.")


def field_value(run: Run, name: str) -> Any:
    """The value of a field, None where nothing is recorded."""
    if name.startswith("settings."):
        return run.settings.get(name.removeprefix("settings."))
    derived = _DERIVED.get(name)
    if derived:
        return derived(run)
    value: Any = run
    for part in name.split("."):
        if isinstance(value, tuple):
            value = tuple(getattr(item, part) for item in value if getattr(item, part) is not None)
        else:
            value = getattr(value, part, None)
    return value


def field_text(run: Run, name: str) -> str:
    """The value of a field as the page shows it."""
    value = field_value(run, name)
    if value is None or value == () or value == {}:
        return "" if name == "max_batch" else NOT_RECORDED
    return as_text(value)


def as_text(value: Any) -> str:
    """Any recorded value as text on one line, in YAML's spelling."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")  # 0.00001, not 1e-05
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, tuple):
        return ", ".join(as_text(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={as_text(item)}" for key, item in value.items())
    return re.sub(r"\s*\n\s*", " ", str(value).strip())


def is_numeric(value: Any) -> bool:
    """Whether a cell is set like a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def sort_key(run: Run, name: str) -> Any:
    """What orders runs by a field: numbers as numbers, also inside text; None where nothing is recorded."""
    if name == "gpus":
        return run.gpus.count, run.gpus.type or ""
    if name == "size":
        return SIZES.index(run.size)
    if name == "kind":
        return KINDS.index(run.kind)
    value = field_value(run, name)
    if value is None or value == ():
        return None
    # A setting may be a number in one run and a word in another.
    return ((0, value, ""),) if is_numeric(value) else natural(as_text(value))


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """A key that sorts ``2*H800`` before ``16*H100``."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text.casefold())
    return tuple(
        (0, float(part), "") if index % 2 else (1, 0.0, part) for index, part in enumerate(parts) if part
    )


def _infer(run: Run) -> str | None:
    return f"{run.infer.engine}{run.infer.version or ''}" if run.infer else None


def _script(run: Run) -> str | None:
    return (run.script.text or run.script.path.rsplit("/", 1)[-1]) if run.script else None


_DERIVED: dict[str, Any] = {
    "model": lambda run: run.short_name,
    "checkpoint": lambda run: run.model,
    "gpus": lambda run: run.resource,
    "infer": _infer,
    "script": _script,
    "contributor": lambda run: run.contributor.name if run.contributor else None,
    "evidence": lambda run: tuple(item.kind for item in run.evidence),
    "notes": lambda run: tuple(note.text for note in run.notes),
}
