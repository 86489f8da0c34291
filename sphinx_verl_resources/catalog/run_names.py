"""The names of a run: its id, and the parts of its launch script's name.

verl has used two conventions for script names. ``[model]_[task]_[gpunums]_[device]_[train]_[infer].sh`` is
the hardware page's convention. ``run_<model>_<train-backend>.sh`` has been enforced by verl's hook
``check-example-naming`` since April 2026. Other names are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING

from .models.base import FORMS, SLUG, slug
from .models.run import MAX_ID_LENGTH
from .names import ENGINES, TRAIN_BACKENDS, fold

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from .models.registries import Gpu
    from .models.run import Run

#: The form of an id, in words.
ID_FORM = f"{FORMS[SLUG]}, at most {MAX_ID_LENGTH} characters"


def is_id(text: str) -> bool:
    """Return whether a text is a valid id, and so a valid name for a run file.

    >>> is_id("a-1"), is_id("../a"), is_id("a" * 81)
    (True, False, False)
    """
    return re.fullmatch(SLUG, text) is not None and len(text) <= MAX_ID_LENGTH


def suggested_id(
    model: str, task: str, gpus: int | None, gpu: str | None, more: str = "", taken: Container[str] = ()
) -> str:
    """Return an id for a run, built like the ids of the recorded runs.

    Args:
        model: the model, with or without its owner; the suffix ``-Instruct`` is omitted.
        task: the algorithm and variant.
        gpus: the number of GPUs; None if unknown.
        gpu: the type of the GPUs; None if unknown.
        more: a distinction from similar runs, such as the backend.
        taken: the existing ids; ``more``, and then a number, is added until the id is free.

    >>> suggested_id("Qwen/Qwen2.5-7B-Instruct", "GRPO-LoRA", 1, "H100")
    'qwen2-5-7b-grpo-lora-1xh100'
    >>> suggested_id("m", "GRPO", 8, None, "megatron", {"m-grpo-8-gpus", "m-grpo-8-gpus-megatron"})
    'm-grpo-8-gpus-megatron-2'
    >>> suggested_id("m", "GRPO", None, "H100"), suggested_id("m", "GRPO", None, None)
    ('m-grpo-h100', 'm-grpo')
    """
    name = _model_slug(model)
    kind = slug(gpu or "")
    known = f"{gpus}x{kind}" if kind else f"{gpus}-gpus"
    ending = slug(f"{task}-{kind if gpus is None else known}")
    most = MAX_ID_LENGTH
    first = f"{name[: most - 30 - len(ending)].strip('-') or 'run'}-{ending}"[:most].strip("-")
    longer = f"{first}-{slug(more)}"[:most].strip("-") if slug(more) else first
    numbered = (f"{longer[: most - 6].strip('-')}-{number}" for number in count(2))
    return next(name for name in chain((first, longer), numbered) if name not in taken)


#: The hardware in an id: ``-8xh100`` or ``-8-gpus``, with the rest of the id.
_HARDWARE = re.compile(r"(?:^|(?<=-))(?P<count>\d{1,6})(?:-gpus?(?=-|$)|x(?P<rest>[a-z].*))")


def current_id(run: Run, gpu: Gpu | None, gpus: Iterable[str], models: Iterable[str]) -> str:
    """Return the id of a run, updated to its current model and GPUs.

    Args:
        run: the run.
        gpu: the entry of its GPU.
        gpus: the names of all GPUs.
        models: the names of all models.

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> data = read_data([])
    >>> run = data.catalog.runs["qwen2-7b-grpo-2xh800"]
    >>> more = run.gpus.model_copy(update={"count": 4})
    >>> other = run.model_copy(update={"gpus": more, "model": "Qwen/Qwen2.5-14B-Instruct"})
    >>> current_id(other, data.gpus.get("H800"), data.gpus.names, data.architectures.names)
    'qwen2-5-14b-grpo-4xh800'
    """
    return _with_gpus(_with_model(run, models), run, gpu, gpus)


def _with_model(run: Run, models: Iterable[str]) -> str:
    """Return the id of a run, with a different model at its beginning replaced by the run's model."""
    own = _model_slug(run.model)
    if _first_of([own], run.id):
        return run.id
    other = _first_of(map(_model_slug, models), run.id)
    return f"{own}{run.id[len(other) :]}" if other else run.id


def _model_slug(name: str) -> str:
    """Return the beginning of the ids of a model's runs."""
    return slug(name.rsplit("/", 1)[-1].removesuffix("-Instruct"))


def _with_gpus(named: str, run: Run, gpu: Gpu | None, gpus: Iterable[str]) -> str:
    """Return an id with different GPUs replaced by the run's."""
    found = next(_HARDWARE.finditer(named), None)
    if found is None:
        return named
    own = [slug(name) for name in (run.gpus.type, *(gpu.lookup_names if gpu else ())) if name]
    kind, rest = "", found["rest"] or ""
    if rest:
        kind = _first_of(own, rest) or _first_of(map(slug, gpus), rest)
        if not kind:  # not a GPU
            return named
    if int(found["count"]) == run.gpus.count and (kind in own if kind else not own):
        return named
    there = f"x{kind if kind in own else own[0]}" if own else f"-gpu{'s'[: run.gpus.count > 1]}"
    after = rest[len(kind) :] if rest else named[found.end() :]
    return f"{named[: found.start()]}{run.gpus.count}{there}{after}"


def _first_of(names: Iterable[str], rest: str) -> str:
    """Return the longest name that a text begins with; empty if there is none."""
    return max((name for name in names if f"{rest}-".startswith(f"{name}-")), key=len, default="")


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
    name = path.rsplit("/", 1)[-1]
    if not name.endswith(".sh"):
        return None
    stem = name.removesuffix(".sh").lower()
    if stem.startswith("run_"):
        return _parse_new(stem.removeprefix("run_"))
    # From the right, because the model's name may contain underscores.
    parts = stem.rsplit("_", 5)
    if len(parts) != 6 or not parts[2].isdigit() or len(parts[2]) > 6 or parts[5] not in ENGINES:
        return None
    model, task, count, device, train, engine = parts
    return ScriptName(model, train, task, int(count), device, engine)


def _parse_new(stem: str) -> ScriptName | None:
    for train in sorted(TRAIN_BACKENDS, key=len, reverse=True):
        if stem.endswith(f"_{train}"):
            return ScriptName(stem.removesuffix(f"_{train}"), train)
    return None


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
    if (
        said.device is not None
        and run.gpus.type is not None
        and said.device.casefold() != run.gpus.type.casefold()
        and (gpu_of(said.device) is None or gpu_of(said.device) is not gpu_of(run.gpus.type))
    ):
        yield "GPU", said.device, run.gpus.type
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
