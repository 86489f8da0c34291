"""The GPUs of a run: how many train, which roll out or teach, and what each of them offers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..diagnostics import Code
from ..units import GB
from .constants import DRIVER_RESERVE
from .registries import capacity_of
from .request import ROLLOUT

if TYPE_CHECKING:
    from ..catalog.models.registries import Gpu
    from .reader import Reader
    from .registries import Registries
    from .request import Request

TRAINER_GPUS = ("trainer.nnodes", "trainer.n_gpus_per_node")


def training_gpus(reader: Reader) -> tuple[int, int]:
    """Return the number of GPUs that train, and of their nodes.

    A request names the GPUs that train, or those of all pools together.
    """
    nodes, each = map(reader.whole, TRAINER_GPUS)
    gpus = reader.request.gpus
    if gpus is None:
        return nodes * each, nodes
    if gpus < 1:
        reader.error("gpus", f"expected at least one GPU, got {gpus}", "name their number, as in 8*H100")
        return 1, 1
    if nodes * each == gpus or nodes * each == gpus - other_gpus(reader):
        return nodes * each, nodes
    stated = [reader.is_set(key) for key in TRAINER_GPUS]
    if all(stated):
        message = f"{nodes} × {each} GPUs contradict the {gpus} GPUs that are named; {gpus} is taken"
        reader.warning("trainer.n_gpus_per_node", message, "correct one of the two")
    elif stated[0] and not gpus % nodes:
        return gpus, nodes
    elif stated[1] and not gpus % each:
        return gpus, gpus // each
    return gpus, math.ceil(gpus / 8)


def other_gpus(reader: Reader) -> int:
    """Return the GPUs of the pools that do not train, as far as they are set.

    Rollout engines of their own, teachers and reward models (trainer/ppo/v1/trainer_base.py:757-791 at
    1dda039b9) take none of the trainer's GPUs.
    """
    pools = [rollout_gpus(reader)]
    if reader.flag("distillation.enabled"):
        pools.append(_pool(reader, "distillation"))
    if reader.flag("reward.reward_model.enable_resource_pool"):
        pools.append(_pool(reader, "reward.reward_model"))
    return sum(pools)


def rollout_gpus(reader: Reader) -> int:
    """Return the GPUs of rollout engines that are no training GPUs, as far as they are set."""
    if reader.has_rollout_pool:  # copied to the keys of the engine (fully_async_main.py:321 at 1dda039b9)
        return _pool(reader, "rollout") or _pool(reader, ROLLOUT)
    return _pool(reader, ROLLOUT) if reader.any("trainer.v1.trainer_mode") == "separate_async" else 0


def _pool(reader: Reader, section: str) -> int:
    """Return the GPUs of a pool: nodes times GPUs of each; 0 where either is not set."""
    keys = (f"{section}.nnodes", f"{section}.n_gpus_per_node")
    sizes = [reader.whole(key, 0) for key in keys]
    return math.prod(sizes) if all(map(reader.is_set, keys)) else 0


def is_separate(reader: Reader, mode: str, *hybrid: str) -> bool:
    """Tell whether no rollout engine is on the training GPUs.

    The trainers for asynchronous training before V1 keep them apart, unless a switch asks for engines on the
    training GPUs too (fully_async_trainer.py:152 at 1dda039b9). The mode ``separate_async`` of V1 has both:
    it starts and validates with the engines on the training GPUs (v1/trainer_separate_async.py:165). It needs
    ``rollout.nnodes``; settings without it describe training alone.
    """
    if reader.any(mode) == "separate_async":
        return not reader.is_set(f"{ROLLOUT}.nnodes")
    return reader.has_rollout_pool and not any(reader.flags(*hybrid))


def capacity(reader: Reader, registries: Registries) -> float | None:
    """Return what the GPU offers; for a nominal size alone, the least that any GPU of that size offers."""
    request = reader.request
    gpu = gpu_of(request, registries)
    if gpu is not None:
        return capacity_of(gpu)
    if request.memory_gb is not None:
        alike = [capacity_of(gpu) for gpu in registries.gpus if gpu.memory_gb == request.memory_gb]
        return min(alike) if alike else max(0.0, request.memory_gb * GB - DRIVER_RESERVE.value)
    if request.gpu is not None:
        problem = registries.no_gpu(request.gpu, "add it to gpus.yaml, or give its memory")
        reader.warning("gpus", problem.message, problem.remedy, problem.code)
    elif not request.partial:
        hint = "name it, as in 8*H100"
        message = "no GPU is named: the verdict is unknown, and the rollout budget is that of an 80 GB GPU"
        reader.warning("gpus", message, hint, Code.missing_key)
    return None


def gpu_of(request: Request, registries: Registries) -> Gpu | None:
    """Return the GPU by its name; one sold in several sizes, by name and size."""
    if request.gpu is None:
        return None
    sized = registries.gpus.get(f"{request.gpu}-{request.memory_gb:g}GB") if request.memory_gb else None
    return sized or registries.gpus.get(request.gpu)


def is_npu(gpu: Gpu | None) -> bool:
    """Tell whether a GPU is an NPU."""
    return gpu is not None and gpu.vendor == "huawei"
