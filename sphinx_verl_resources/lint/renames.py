"""New names for runs whose ids are stale, and for what refers to them in data files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .file_rules import has_schema
from .repairs import Repair, RepairedFile, decoded, encoded, repaired
from .run_rules import id_today

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .context import CheckContext, RunEntry, SourceFile


class Rename(NamedTuple):
    """A run under another name.

    Attributes:
        source: its file.
        path: the new file, which may exist already.
        shown: its name in messages.
        text: its content.
        references: the other files that name the run, with their new texts.
    """

    source: SourceFile
    path: Path
    shown: str
    text: str
    references: tuple[RepairedFile, ...]


def renames(context: CheckContext) -> Iterator[Rename]:
    """Yield the runs whose ids no longer name their models or GPUs."""
    for entry in context.runs:
        new = id_today(entry.run, context)
        if new != entry.run.id:
            yield _rename(entry, new, context)


def _rename(entry: RunEntry, new: str, context: CheckContext) -> Rename:
    """Return a run under another id."""
    file, old = entry.source.file, entry.run.id
    text, _ = repaired(decoded(file), new, needs_schema_line=has_schema(entry.source))
    others = (source for source in context.files if source.file is not file)
    return Rename(
        entry.source,
        file.path.with_name(f"{new}.yaml"),
        f"{file.shown.removesuffix(file.path.name)}{new}.yaml",
        encoded(file, text),
        tuple(found for source in others if (found := _referring(source, old, new))),
    )


def _referring(source: SourceFile, old: str, new: str) -> RepairedFile | None:
    """Return a file with the new name in place of the old one, None if it does not name the run."""
    text, repairs = decoded(source.file), []
    if old not in text:
        return None
    lines = re.split(r"(\r\n|[\r\n])", text)
    # Addresses lead elsewhere, whatever they are called.
    word = re.compile(rf"(?<![\w-]){re.escape(old)}(?![\w-])")
    for index, line in enumerate(lines):
        parts = re.split(r"(\s+)", line)
        changed = "".join(part if "://" in part else word.sub(new, part) for part in parts)
        if changed != line:
            lines[index] = changed
            repairs.append(Repair(index // 2 + 1, f"{old!r} made {new!r}, as the run is called now"))
    return RepairedFile(source, encoded(source.file, "".join(lines)), tuple(repairs)) if repairs else None
