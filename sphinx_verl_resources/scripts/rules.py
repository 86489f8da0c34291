"""Rules of ``verl-resources check`` that compare a run with its launch script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, rule
from ..diagnostics import Severity
from ..selection import as_text
from .read import read_script
from .script_names import contradictions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..check import Finding


@rule(Severity.WARNING)
def script_name(check: Check) -> Iterator[Finding]:
    """Require a launch script whose name agrees with the run.

    Bad::

        gpus: {count: 2, type: H100}
        script: {ref: v0.4.0, path: examples/tuning/7b/qwen2-7b_grpo_4_h100_fsdp_vllm.sh}

    Good::

        gpus: {count: 4, type: H100}
        script: {ref: v0.4.0, path: examples/tuning/7b/qwen2-7b_grpo_4_h100_fsdp_vllm.sh}
    """
    for run, document in check.runs:
        found = contradictions(run, run.script.path, check.data.gpus.get) if run.script else ()
        for what, in_name, in_row in found:
            message = f"the {what} is {in_name!r} in the script's name, but {in_row!r} in the run file"
            remedy = "correct the run file, or link the script that was actually run"
            yield document.place(("script", "path")), message, remedy


@rule(Severity.WARNING)
def script_differs(check: Check) -> Iterator[Finding]:
    """Require the recorded values in the linked script, read from the checkout that ``--repo`` names.

    Settings that the script leaves open are skipped.

    Bad::

        settings: {data.train_batch_size: 1024}  # the script has data.train_batch_size=256

    Good::

        settings: {data.train_batch_size: 256}
    """
    for run, document in check.runs:
        commit = check.commits.get(run.script.ref) if run.script else None
        if not run.script or not run.script.path.endswith(".sh") or not commit or not check.repository:
            continue
        content = check.repository.ask("cat-file", "blob", f"{commit}:{run.script.path}") or b""
        gpu = check.data.gpu_of(run)
        device = {"DEVICE": "npu"} if gpu and gpu.vendor == "huawei" else {}  # the name in verl's scripts
        in_script = read_script(content.decode("utf-8", "replace"), run.script.path, device).values
        for key, value in run.settings.items():
            recorded = in_script.get(key, value)
            if recorded != value or isinstance(recorded, bool) != isinstance(value, bool):  # 1 is not true
                here, there = as_text(value)[:80], as_text(recorded)[:80]
                message = f"{key} is {here} here, but {there} in the script"
                remedy = "record the value that was run, or link the commit that was run"
                yield document.key_place(("settings", key)), message, remedy
