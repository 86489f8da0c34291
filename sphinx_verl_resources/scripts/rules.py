"""Compare a run with its launch script: rules of ``verl-resources check``, and the names of scripts.

verl has used two conventions for names. ``[model]_[task]_[gpunums]_[device]_[train]_[infer].sh`` is that of
the hardware page. ``run_<model>_<train-backend>.sh`` has been enforced by verl's hook
``check-example-naming`` since April 2026. Other names are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..check import Check, Finding, rule
from ..diagnostics import Severity
from ..records import ENGINES, TRAIN_BACKENDS, Run, fold
from ..registries import Gpu
from ..selection import as_text
from .read import read_script


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
        for what, in_name, in_row in contradictions(run, check.data.gpus.get):
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


# -- names of scripts


@dataclass(frozen=True)
class ScriptName:
    """The parts of a script name; a part is None if the convention lacks it."""

    model: str
    train: str
    task: str | None = None
    count: int | None = None
    device: str | None = None
    engine: str | None = None


def parse_script_name(path: str) -> ScriptName | None:
    """Parse the file name at the end of ``path``; return None if it follows no convention."""
    file = re.search(r"([^/]+)\.sh\Z", path.lower())
    stem = file[1] if file else ""
    if new := re.fullmatch(rf"run_(.+?)_({'|'.join(TRAIN_BACKENDS)})", stem):
        return ScriptName(new[1], new[2])
    # The model's name may contain underscores.
    old = re.fullmatch(r"(?!run_)(.+)_([^_]+)_([0-9]{1,6})_([^_]+)_([^_]+)_([^_]+)", stem)
    if not old or old[6] not in ENGINES:
        return None
    return ScriptName(old[1], old[5], old[2], int(old[3]), old[4], old[6])


def contradictions(run: Run, gpu_of: Callable[[str], Gpu | None]) -> Iterator[tuple[str, str, str]]:
    """Yield the contradictions between a run and the name of its script, besides the model.

    Names leave out parts of a model's name (``qwen2-7b`` for Qwen2.5-7B-Instruct), so it is not compared.

    Args:
        run: the run.
        gpu_of: returns the entry of a GPU by any of its names.

    Yields:
        The name of the field, its value in the script's name, and its value in the run.
    """
    name = parse_script_name(run.script.path) if run.script else None
    if not name:
        return
    engine, train = run.infer.engine if run.infer else None, run.train
    fields = {
        "task": (name.task, run.task),
        "GPU count": (name.count, run.gpus.count),
        "GPU": (name.device, run.gpus.type),
        # verl's scripts named fsdp use FSDP or FSDP2.
        "training backend": (name.train, "fsdp" if (name.train, train) == ("fsdp", "fsdp2") else train),
        "rollout engine": (name.engine, engine),
    }
    for what, pair in fields.items():
        in_name, in_row = (str(each or "") for each in pair)
        gpu = gpu_of(in_name)
        if in_name and in_row and fold(in_name) != fold(in_row) and not (gpu and gpu is gpu_of(in_row)):
            yield what, in_name, in_row
