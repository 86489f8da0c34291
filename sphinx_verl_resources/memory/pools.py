"""The GPUs of a run: the training GPUs, those for rollout or teachers, and their capacity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from .names import gpu_named, no_gpu
from .reader import Reader
from .registries import capacity_of, capacity_range
from .request import ROLLOUT, Request

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from typing import Any

    from ..registries import Gpu
    from .registries import Registries

TRAINER_GPUS = ("trainer.nnodes", "trainer.n_gpus_per_node")
#: The switches for pools of teachers and of reward models, by the section with their sizes.
_OTHERS = {
    "distillation": "distillation.enabled",
    "reward.reward_model": "reward.reward_model.enable_resource_pool",
}
#: The keys of the sizes of pools.
KEYS = frozenset((
    *TRAINER_GPUS, *_OTHERS.values(), "data.train_batch_size",
    *(f"{pool}.{key}" for pool in ("rollout", ROLLOUT, *_OTHERS) for key in ("nnodes", "n_gpus_per_node")),
))  # fmt: skip


def training_gpus(reader: Reader) -> tuple[int, int]:
    """Return the number of training GPUs, and of their nodes.

    A request gives the number of training GPUs, or of the GPUs in all pools together.
    """
    nodes, each = map(reader.whole, TRAINER_GPUS)
    gpus = reader.request.gpus
    if gpus is None:
        return nodes * each, nodes
    if gpus < 1:
        reader.error("gpus", f"expected at least one GPU, got {gpus}", "give a number, for example 8*H100")
        return 1, 1
    if nodes * each in (gpus, gpus - other_gpus(reader)):
        return nodes * each, nodes
    stated = [reader.is_set(key) for key in TRAINER_GPUS]
    if all(stated):
        message = f"{nodes} nodes × {each} GPUs contradict the {gpus} GPUs given: {gpus} is used"
        reader.warning("trainer.n_gpus_per_node", message, "correct one of the two")
    elif stated[0] and not gpus % nodes:
        return gpus, nodes
    elif stated[1] and not gpus % each:
        return gpus, gpus // each
    return gpus, math.ceil(gpus / 8)


class Pools(NamedTuple):
    """The GPUs of a run: training nodes, GPUs per node, other GPUs, and the key that leaves a number open."""

    nodes: int
    each: int
    others: int
    open_key: str = ""

    @property
    def total(self) -> int:
        """The GPUs of all pools together."""
        return self.nodes * self.each + self.others


def all_gpus(settings: Mapping[str, Any], unread: Container[str], registries: Registries) -> Pools:
    """Return the GPUs of all pools.

    Args:
        settings: the settings by dotted key; unset keys have verl's defaults.
        unread: the keys that are set to an unknown value.
        registries: the registries.

    >>> from sphinx_verl_resources.memory.context import EstimatorContext
    >>> teachers = {"distillation.enabled": True, "distillation.nnodes": 1, "distillation.n_gpus_per_node": 4}
    >>> all_gpus(teachers, (), EstimatorContext().registries).total
    12
    """
    reader = Reader(Request("", settings), registries)
    nodes, each = map(reader.whole, TRAINER_GPUS)
    others = other_gpus(reader)
    wrong = {problem.place.key for problem in reader.diagnostics}
    keys = [*TRAINER_GPUS, *(key for section in _other_pools(reader) for key in _keys(section))]
    return Pools(nodes, each, others, next((key for key in keys if key in unread or key in wrong), ""))


def other_gpus(reader: Reader) -> int:
    """Return the number of GPUs in pools that do not train; an unset size counts as 0."""
    return sum(_size(reader, section) for section in _other_pools(reader))


def rollout_gpus(reader: Reader) -> int:
    """Return the number of GPUs in the rollout engines' own pool; an unset size counts as 0."""
    return sum(_size(reader, section) for section in _rollout_pool(reader))


def _other_pools(reader: Reader) -> list[str]:
    """Return the sections of the pools outside the trainer's GPUs.

    These are separate rollout engines, teachers and reward models (trainer/ppo/v1/trainer_base.py:757-791 at
    1dda039b9).
    """
    return [*_rollout_pool(reader), *(section for section, key in _OTHERS.items() if reader.flag(key))]


def _rollout_pool(reader: Reader) -> list[str]:
    """Return the section of the rollout engines' own pool, if there is one."""
    if reader.has_rollout_pool:  # copied to the keys of the engine (fully_async_main.py:321 at 1dda039b9)
        return ["rollout" if any(key in reader.config for key in _keys("rollout")) else ROLLOUT]
    return [ROLLOUT] if reader.any("trainer.v1.trainer_mode") == "separate_async" else []


def _keys(section: str) -> tuple[str, str]:
    """Return the keys for a pool's nodes and for its GPUs per node."""
    return f"{section}.nnodes", f"{section}.n_gpus_per_node"


def _size(reader: Reader, section: str) -> int:
    """Return the number of GPUs in a pool; 0 if neither key is set, which leaves the number open."""
    nodes, each = _keys(section)
    if not (reader.is_set(nodes) or reader.is_set(each)):
        return 0
    if section == ROLLOUT and not reader.is_set(each):  # config/rollout/rollout.yaml:14
        each = TRAINER_GPUS[1]
    return reader.whole(nodes, 0) * reader.whole(each)


def trains_alone(reader: Reader) -> bool:
    """Return whether the settings describe training without a rollout engine.

    V1's mode ``separate_async`` requires ``rollout.nnodes``; settings without it describe training alone.
    """
    mode = reader.any("trainer.v1.trainer_mode")
    return mode == "separate_async" and not reader.is_set(f"{ROLLOUT}.nnodes")


def is_separate(reader: Reader, mode: str, *hybrid: str) -> bool:
    """Return whether no rollout engine is on the training GPUs.

    Asynchronous trainers before V1 separate the two, unless a switch also puts engines on the training GPUs
    (fully_async_trainer.py:152 at 1dda039b9). V1's mode ``separate_async`` has both: it starts and validates
    with the engines on the training GPUs (v1/trainer_separate_async.py:165).
    """
    if reader.any(mode) == "separate_async":
        return trains_alone(reader)
    return reader.has_rollout_pool and not any(reader.flag(key) for key in hybrid)


def capacity(reader: Reader, registries: Registries) -> float | None:
    """Return the GPU's capacity; if only its size is given, the least that GPUs of this size have."""
    request = reader.request
    gpu = gpu_of(request, registries)
    if gpu is not None:
        return capacity_of(gpu)
    if request.memory_gb is not None:
        alike = [capacity_of(gpu) for gpu in registries.gpus if gpu.memory_gb == request.memory_gb]
        return min(alike, default=max(0.0, capacity_range(request.memory_gb)[0]))
    if request.gpu is not None:
        problem = no_gpu(request.gpu, registries.gpus, "add it to gpus.yaml, or give its memory")
        reader.warning("gpus", problem.message, problem.remedy, problem.code)
    elif not request.partial:
        hint = "name one, for example 8*H100"
        message = "no GPU is named: the verdict is unknown, and the rollout budget is that of an 80 GB GPU"
        reader.warning("gpus", message, hint, "missing_key")
    return None


def gpu_of(request: Request, registries: Registries) -> Gpu | None:
    """Return the GPU by its name, or by name and size if it is sold in several sizes."""
    if request.gpu is None:
        return None
    sized = registries.gpus.get(f"{request.gpu}-{request.memory_gb:g}GB") if request.memory_gb else None
    return sized or gpu_named(request.gpu, registries.gpus)
