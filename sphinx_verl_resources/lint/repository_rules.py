"""Rules that a checkout of verl decides: links that lead somewhere, and scripts that say what is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..catalog.fields import as_text
from ..settings.launch_script import read_script
from .rule import Finding, at_key, at_value
from .run_rules import refs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .repository import Repository
    from .tree import CheckContext, RunEntry


def unknown_ref(entry: RunEntry, tree: CheckContext) -> Iterator[Finding]:
    """Commits exist."""
    repository = _repository(tree)
    for loc, ref, _path in refs_of(entry.run):
        if repository.commit(ref) is None:
            name = ".".join(map(str, loc))
            if repository.is_shallow:
                message = f"{name}: {ref!r} is not in {repository.shown}, which is a shallow clone"
                hint = "it says nothing about the link; fetch the rest with: git fetch --unshallow"
            else:
                message = f"{name}: {repository.shown} has no commit, tag or branch {ref!r}"
                hint = "correct it, or fetch it with: git fetch --tags origin"
            yield at_value(entry.source, loc, message, hint)


def unknown_path(entry: RunEntry, tree: CheckContext) -> Iterator[Finding]:
    """Files exist at the commits that are named with them."""
    repository = _repository(tree)
    for loc, ref, path in refs_of(entry.run):
        commit = repository.commit(ref)
        if commit and path and not repository.has(commit, path):
            near = repository.nearest(commit, path)
            hint = f"did you mean {near!r}?" if near else "correct the path, or the commit"
            place = (*loc[:-1], "path")
            message = f"{'.'.join(map(str, place))}: {ref[:12]} has no file {path[:200]!r}"
            yield at_value(entry.source, place, message, hint)


def script_differs(entry: RunEntry, tree: CheckContext) -> Iterator[Finding]:
    """The linked script sets what is recorded; what it leaves open or to defaults is not compared."""
    repository, script = _repository(tree), entry.run.script
    commit = repository.commit(script.ref) if script else None
    if not script or not commit or not script.path.endswith(".sh") or not repository.has(commit, script.path):
        return
    text = repository.text(commit, script.path)
    if text is None:
        message = f"the content of {script.path[:200]!r} cannot be read as text in {repository.shown}"
        hint = "the settings were not compared; where the clone leaves contents out, fetch them"
        yield at_value(entry.source, ("script", "path"), message, hint)
        return
    said = read_script(text, script.path).values
    for key, value in entry.run.settings.items():
        if key in said and not _same(said[key], value):
            message = f"{key} is {as_text(value)[:80]}, and {as_text(said[key])[:80]} in the script"
            hint = "record what was run, or link the commit that was"
            yield at_key(entry.source, ("settings", key), message, hint)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are alike; 1 and 1.0 are, 1 and true are not."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _repository(tree: CheckContext) -> Repository:
    assert tree.repository is not None  # see Rule.needs_repository
    return tree.repository
