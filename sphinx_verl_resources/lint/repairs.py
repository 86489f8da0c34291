"""The files of data directories as ``check --fix`` leaves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .file_rules import schema_target
from .fixes import repaired, with_schema_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .fixes import CommitOf, Repair
    from .repository import Repository
    from .tree import CheckContext, SourceFile

_BOM = "\ufeff"


class RepairedFile(NamedTuple):
    """A file that is to be written anew.

    Attributes:
        source: the file as it was.
        text: what it is to hold.
        repairs: what was changed.
    """

    source: SourceFile
    text: str
    repairs: tuple[Repair, ...]


def repaired_files(tree: CheckContext) -> Iterator[RepairedFile]:
    """The files in which something can be put right. What is no YAML is left as it is.

    Args:
        tree: the data; with a checkout of verl, branches are pinned to the commits that they are at there.
    """
    for source in tree.files:
        before = source.file.content.decode("utf-8")
        text = before.removeprefix(_BOM)
        if source.kind == "run":
            new, repairs = repaired(text, source.file.path.stem, _commit_of(tree.repository))
        else:
            new, repairs = with_schema_line(text, schema_target(source.kind))
        if repairs:
            yield RepairedFile(source, before[: len(before) - len(text)] + new, repairs)


def _commit_of(repository: Repository | None) -> CommitOf:
    def commit_of(ref: str, path: str | None) -> str | None:
        commit = repository.commit(ref) if repository else None
        return commit if repository and commit and (path is None or repository.has(commit, path)) else None

    return commit_of
