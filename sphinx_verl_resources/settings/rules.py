"""Rules of ``verl-resources check`` that compare a run with its launch script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..check import Check, rule
from ..fields import as_text
from .read import read_script
from .script_names import contradictions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..check import Finding
    from ..git import Repository


@rule()
def script_name(check: Check[Any]) -> Iterator[Finding]:
    """Require a launch script whose name agrees with the run."""
    for run, document in check.runs:
        found = contradictions(run, run.script.path, check.data.gpus.get) if run.script else ()
        for what, in_name, in_row in found:
            message = f"the {what} is {in_name!r} in the script's name, but {in_row!r} in the run file"
            remedy = "correct the run file, or link the script that was actually run"
            yield document.place(("script", "path")), message, remedy


@rule(needs_repository=True)
def script_differs(check: Check[Any]) -> Iterator[Finding]:
    """Require the recorded values in the linked script; settings that the script leaves open are skipped."""
    repository: Repository = check.repository  # type: ignore[assignment]
    for run, document in check.runs:
        script = run.script
        commit = repository.commit(script.ref) if script and script.path.endswith(".sh") else None
        if not script or not commit or script.path not in repository.paths(commit):
            continue
        text = repository.text(commit, script.path)
        if text is None:
            message = (
                f"the settings were not compared: {repository.shown} has no text of {script.path[:200]!r}"
            )
            yield document.place(("script", "path")), message, "if the clone is partial, fetch the file"
            continue
        gpu = check.data.gpu_of(run)
        device = {"DEVICE": "npu"} if gpu and gpu.vendor == "huawei" else {}  # the name in verl's scripts
        in_script = read_script(text, script.path, device).values
        for key, value in run.settings.items():
            if key in in_script and not _same(in_script[key], value):
                here, there = as_text(value)[:80], as_text(in_script[key])[:80]
                message = f"{key} is {here} here, but {there} in the script"
                remedy = "record the value that was run, or link the commit that was run"
                yield document.key_place(("settings", key)), message, remedy


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal: 1 and 1.0 are, 1 and true are not."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
