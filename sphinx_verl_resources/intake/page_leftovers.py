"""Run files of an earlier import whose rows have other names since their checkpoints are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..catalog.yaml_data import read_yaml
from ..diagnostics import Code, Diagnostic, Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..catalog.files import DataFile
    from .page_runs import PageRun

_TODO = "TODO"
#: What changes with the checkpoint.
_OF_MODEL = frozenset({"id", "model", "label"})


def leftovers(runs: Sequence[PageRun], files: Iterable[DataFile]) -> Iterator[Diagnostic]:
    """Files that hold the same rows with an open ``model`` and under another name.

    Args:
        runs: the rows as they are imported now.
        files: the run files that are there.
    """
    known = [(run, _fields(run.text.encode("utf-8", "surrogatepass"))) for run in runs]
    known = [(run, fields) for run, fields in known if fields.get("model") != _TODO]
    ids = {run.record.id for run in runs}
    for file in files:
        fields = _fields(file.content)
        if fields.get("model") != _TODO or file.path.stem in ids:
            continue
        for run, others in known:
            if fields.get("label") == run.record.short_name and _rest(fields) == _rest(others):
                message = f"the row is imported as {run.record.id} now that its checkpoint is known"
                yield Diagnostic(Location(file.shown), Code.todo, message, "delete this file")
                break


def _fields(content: bytes) -> Mapping[str, Any]:
    data = read_yaml(content).data
    return data if isinstance(data, Mapping) else {}


def _rest(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _OF_MODEL}
