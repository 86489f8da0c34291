"""What lies on the GPU beside the tensors: contexts, communicators, fragments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import kinds
from .allocations import allocate, fixed
from .constants import COMMUNICATOR, CONTEXT, FRAGMENTATION, NEXT_COMMUNICATOR, SECOND_CONTEXT
from .versions import behaviour

if TYPE_CHECKING:
    from .allocations import Allocation, Allocations
    from .settings import Settings


_CONTEXT = fixed(kinds.CUDA_CONTEXT, CONTEXT.evidence, CONTEXT.value, "context")
_ENGINE_CONTEXT = fixed(
    kinds.ENGINE_CONTEXT,
    SECOND_CONTEXT.evidence,
    SECOND_CONTEXT.value,
    "context",
)


def outside(settings: Settings) -> Allocations:
    """What lies beside the tensors in every phase alike; fragments come on top, see ``fragments``."""
    constant = [_CONTEXT]
    if not behaviour(settings.version).engine_in_process and not settings.rollout.separate:
        constant.append(_ENGINE_CONTEXT)
    if settings.gpus > 1:
        constant.append(
            fixed(
                kinds.COMMUNICATORS,
                COMMUNICATOR.evidence,
                _communicators(settings),
                "buffers",
            )
        )
    return tuple(constant)


def fragments(allocated: float) -> Allocation:
    """What PyTorch's allocator cannot use."""
    return allocate(
        kinds.FRAGMENTATION,
        "assumed",
        (("allocated", allocated), ("share", FRAGMENTATION.value)),
        unit="",
    )


def _communicators(settings: Settings) -> float:
    """One for all GPUs, and one for each further way in which they are grouped."""
    actor, rollout = settings.actor, settings.rollout
    groups = [rollout.tensor > 1 and not rollout.separate]
    if actor.backend == "megatron":
        megatron = actor.megatron
        sizes = (
            megatron.tensor,
            megatron.pipeline,
            megatron.context,
            megatron.expert,
            megatron.expert_tensor,
        )
        groups += [size > 1 for size in sizes]
    else:
        groups += [actor.fsdp.ulysses > 1, actor.fsdp.shard < settings.gpus]
    return COMMUNICATOR.value + NEXT_COMMUNICATOR.value * sum(groups)
