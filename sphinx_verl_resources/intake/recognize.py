"""The recorded model and GPU, and the task, that scripts and logs mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..diagnostics import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..catalog.models.registries import Gpu
    from ..catalog.registries import Registry

_CACHE = re.compile(r"models--(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+)")
_HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
#: Folders that programs append to the name of a model.
_INSIDE = re.compile(r"(?:/(?:snapshots(?:/\w+)?|huggingface|hf|actor|global_step_\d+))+\Z")

_MAKERS = ("NVIDIA", "AMD", "Instinct", "Tesla")

#: The key that decides most of the task.
ESTIMATOR = "algorithm.adv_estimator"
_TASKS = {"gae": "PPO", "remax": "ReMax", "reinforce_plus_plus": "REINFORCE++"}
_RANKS = ("actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank")
_MANAGERS = ("reward_model.reward_manager", "reward.reward_manager.name", "reward_manager.name")
#: Recipes with a program of their own, and how the rows of their runs name them.
_VARIANTS = {"fully_async": " (fully async)", "one_step_off": " (one step off)"}
_MODULE = re.compile(r"-m\s+(?P<module>[\w.]{1,200})|(?P<file>[\w./-]{1,200})\.py\b")


def recorded_models(path: str, names: Iterable[str]) -> list[str]:
    """Return the recorded checkpoints that a path can mean: one of that name, or those that end like it.

    >>> recorded_models("$HOME/models/qwen2.5-7b/", ["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct"])
    ['Qwen/Qwen2.5-7B']
    """
    known = list(dict.fromkeys(names))
    if path in known:
        return [path]
    last = _last_part(path).casefold()
    same = [name for name in known if last and _last_part(name).casefold() == last]
    owned = [name for name in same if path.rstrip("/").casefold().endswith(name.casefold())]
    return owned or same


def is_hub_name(path: str) -> bool:
    """Tell whether a text has the form of a name of Hugging Face, ``owner/name``."""
    return _HUB.fullmatch(path) is not None


def nearest_model(path: str, names: Iterable[str]) -> str | None:
    """Return the recorded checkpoint whose name is most like the end of a path."""
    by_last = {_last_part(name): name for name in names}
    near = nearest(_last_part(path), by_last)
    return by_last[near] if near else None


def _last_part(path: str) -> str:
    """Return the name of a model at the end of a path.

    >>> _last_part("/cache/models--Qwen--Qwen2.5-7B/snapshots/abc"), _last_part("${ROOT}/Qwen3-8B/")
    ('Qwen2.5-7B', 'Qwen3-8B')
    """
    cached = _CACHE.search(path)
    if cached:
        return cached["name"]
    return _INSIDE.sub("", path.rstrip("/")).rsplit("/", 1)[-1].strip("\"'}")


def recorded_gpu(printed: str, gpus: Registry[Gpu]) -> str | None:
    """Return the short name of the recorded GPU that a text begins with.

    Of a GPU that is sold with several sizes of memory, the name must say which.

    >>> from ..cli.data import load_paths
    >>> recorded_gpu("H100 80GB HBM3 On", load_paths([]).gpus)
    'H100'
    """
    words = [word for word in printed.split() if word not in _MAKERS]
    for end in range(len(words), 0, -1):
        for maker in ("", *_MAKERS):
            gpu = gpus.get(" ".join([maker, *words[:end]]).strip())
            if gpu:
                sizes = sum(other.name.upper().startswith(f"{words[0].upper()}-") for other in gpus)
                return None if end == 1 and sizes > 1 else _short_name(gpu)
    return None


def _short_name(gpu: Gpu) -> str:
    """Return the name of a GPU in rows: the shortest that has a letter."""
    return min((name for name in gpu.lookup_names if re.search(r"[A-Za-z]", name)), key=len)


def task_of(
    settings: Mapping[str, Any], program: str = "", *, unknown: frozenset[str] = frozenset()
) -> str | None:
    """Return the task of a run; None where what decides it is set to something that is not known.

    Args:
        settings: by dotted key.
        program: the script, in which the program that trains is looked for.
        unknown: keys that are set to an unknown value.

    >>> task_of({"algorithm.adv_estimator": "grpo", "actor_rollout_ref.model.lora_rank": 32})
    'GRPO-LoRA'
    >>> task_of({"algorithm.adv_estimator": "grpo"}, "python3 -m recipe.dapo.main_dapo")
    'DAPO'
    >>> task_of({})
    'PPO'
    """
    estimator = str(settings.get(ESTIMATOR, "gae")).strip().lower()
    if unknown & {ESTIMATOR, *_RANKS} or not re.fullmatch(r"[a-z0-9_]{1,40}", estimator):
        return None
    programs = [match["module"] or match["file"].replace("/", ".") for match in _MODULE.finditer(program)]
    modules = " ".join(programs)
    task = _TASKS.get(estimator, estimator.upper().replace("_", "-"))
    filters = settings.get("algorithm.filter_groups.enable") is True
    managers = {settings.get(key) for key in _MANAGERS}
    if "dapo" in modules.split(".") or "main_dapo" in modules or filters or "dapo" in managers:
        task = "DAPO"
    ranks = [settings.get(key) for key in _RANKS]
    if any(isinstance(rank, int) and rank > 0 for rank in ranks):
        task += "-LoRA"
    return task + next((name for recipe, name in _VARIANTS.items() if recipe in modules), "")
