"""The parts of a launch script's name.

verl has used two conventions. ``[model]_[task]_[gpunums]_[device]_[train]_[infer].sh`` is that of the
hardware page. ``run_<model>_<train-backend>.sh`` has been enforced by verl's hook ``check-example-naming``
since April 2026. Other names are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..records import ENGINES, TRAIN_BACKENDS, fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..records import Run
    from ..registries import Gpu

_SIZE_TOKEN = re.compile(r"\d+(\.\d+)?b\Z")


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
    stem, suffix = path.rsplit("/", 1)[-1].lower().rsplit(".", 1) if "." in path else ("", "")
    for train in sorted(TRAIN_BACKENDS, key=len, reverse=True):
        if suffix == "sh" and stem.startswith("run_") and stem.endswith(f"_{train}"):
            return ScriptName(stem.removeprefix("run_").removesuffix(f"_{train}"), train)
    # The model's name may contain underscores.
    old = re.fullmatch(r"(.+)_([^_]+)_([0-9]{1,6})_([^_]+)_([^_]+)_([^_]+)", stem)
    if suffix != "sh" or not old or stem.startswith("run_") or old[6] not in ENGINES:
        return None
    return ScriptName(old[1], old[5], old[2], int(old[3]), old[4], old[6])


def contradictions(
    run: Run, script: str, gpu_of: Callable[[str], Gpu | None]
) -> Iterator[tuple[str, str, str]]:
    """Yield the contradictions between a run and the name of its script.

    Args:
        run: the run.
        script: the path of its script.
        gpu_of: returns the entry of a GPU by any of its names.

    Yields:
        The name of the field, its value in the script's name, and its value in the run.
    """
    said = parse_script_name(script)
    if said is None:
        return
    if not any(_same_model(said.model, name) for name in (run.model.rsplit("/", 1)[-1], run.short_name)):
        yield "model", said.model, run.short_name
    if said.task is not None and fold(said.task) != fold(run.task):
        yield "task", said.task, run.task
    if said.count is not None and said.count != run.gpus.count:
        yield "GPU count", str(said.count), str(run.gpus.count)
    device, gpu = said.device or "", run.gpus.type or ""
    is_same = device.casefold() == gpu.casefold() or (gpu_of(device) and gpu_of(device) is gpu_of(gpu))
    if device and gpu and not is_same:
        yield "GPU", device, gpu
    if said.train != run.train and (said.train, run.train) != ("fsdp", "fsdp2"):
        # verl's scripts named fsdp use FSDP or FSDP2.
        yield "training backend", said.train, run.train
    if said.engine is not None and run.infer is not None and said.engine != run.infer.engine:
        yield "rollout engine", said.engine, run.infer.engine


def _same_model(said: str, name: str) -> bool:
    """Return whether the model in a script's name can be ``name``.

    Script names omit the variant (``-Instruct``) and, in the older convention, also the minor version
    (``qwen2-7b`` for Qwen2.5-7B). A different size or family is a contradiction.
    """
    said_letters, name_letters = _squeeze(said), _squeeze(name)
    if name_letters.startswith(said_letters) or said_letters.startswith(name_letters):
        return True
    said_family, said_size = _family_and_size(said)
    name_family, name_size = _family_and_size(name)
    return said_size is not None and said_size == name_size and name_family.startswith(said_family)


def _squeeze(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _family_and_size(name: str) -> tuple[str, str | None]:
    tokens = re.split(r"[-_]", name.lower())
    for position, token in enumerate(tokens):
        if _SIZE_TOKEN.match(token):
            return _squeeze("".join(tokens[:position])), token
    return _squeeze(name), None
