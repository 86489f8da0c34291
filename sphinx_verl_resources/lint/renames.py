"""New names for runs with stale ids, and for their references in data files."""

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
    """A run to rename.

    Attributes:
        source: its file.
        path: the new file, which may already exist.
        shown: the new file's name in messages.
        text: the new file's content.
        references: the other files that refer to the run, with their new texts.
    """

    source: SourceFile
    path: Path
    shown: str
    text: str
    references: tuple[RepairedFile, ...]


def renames(context: CheckContext) -> Iterator[Rename]:
    """Yield the runs whose ids have a different model or GPUs."""
    for entry in context.runs:
        new = id_today(entry.run, context)
        if new != entry.run.id:
            yield _rename(entry, new, context)


def _rename(entry: RunEntry, new: str, context: CheckContext) -> Rename:
    """Return the renaming of a run."""
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
    """Return a file with the old name replaced; None if it does not refer to the run."""
    text, repairs = decoded(source.file), []
    if old not in text:
        return None
    lines = re.split(r"(\r\n|[\r\n])", text)
    # Addresses point to other sites, so they keep the name.
    word = re.compile(rf"(?<![\w-]){re.escape(old)}(?![\w-])")
    for index, line in enumerate(lines):
        parts = re.split(r"(\s+)", line)
        changed = "".join(part if "://" in part else word.sub(new, part) for part in parts)
        if changed != line:
            lines[index] = changed
            repairs.append(Repair(index // 2 + 1, f"{old!r} changed to {new!r}, the run's new id"))
    return RepairedFile(source, encoded(source.file, "".join(lines)), tuple(repairs)) if repairs else None
