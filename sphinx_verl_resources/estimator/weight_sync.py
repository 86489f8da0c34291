"""The weight sync: both copies of the weights, and what they travel through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import engine, kinds
from .allocations import allocate, fixed
from .fsdp import FsdpRole
from .versions import behaviour

if TYPE_CHECKING:
    from .allocations import Allocation, Allocations
    from .megatron import MegatronRole
    from .settings import Settings
    from .shape import Shape


def sync_trainer(shape: Shape, settings: Settings, actor: FsdpRole | MegatronRole) -> Allocations:
    """What the training process holds of the actor while it hands the weights over.

    Sizes are bytes per GPU.
    """
    if isinstance(actor, FsdpRole):
        optimizer = () if actor.role.fsdp.optimizer_offload else actor.optimizer
        return _handed_over(shape, settings, actor) + optimizer
    # Adapters alone go without the frozen weights.
    adapters = actor.role.lora_rank and not settings.rollout.merge_lora
    return (*(actor.idle if adapters else actor.evaluating()), _largest_tensor(shape, 2))


def _handed_over(shape: Shape, settings: Settings, actor: FsdpRole) -> Allocations:
    """The weights of an actor that is trained with FSDP, and what is made of them on the way."""
    role, rollout = actor.role, settings.rollout
    size = role.fsdp.parameter_bytes
    if role.lora_rank and rollout.layered_summon and not rollout.merge_lora:
        layer = (("parameters of a layer", float(shape.unit)),)
        return (*actor.weights, allocate(kinds.SUMMONED_LAYER, "exact", layer, size))
    if role.backend == "fsdp2":
        streams = behaviour(settings.version).fsdp2_streams and not role.lora_rank
        weights = () if streams and role.fsdp.param_offload else actor.weights
        return (*weights, _largest_tensor(shape, size))
    if role.lora_rank:
        whole = (("parameters", float(shape.parameters)),)
        return (*actor.weights, allocate(kinds.SUMMONED_MODEL, "exact", whole, size))
    if settings.gpus == 1:  # the state dict is taken to refer to the parameters themselves
        return (*actor.weights, _largest_tensor(shape, size))
    copies = [item._replace(kind=kinds.STATE_DICT, evidence="assumed") for item in actor.weights]
    return (*actor.weights, *copies, _largest_tensor(shape, size))


def _largest_tensor(shape: Shape, size: int) -> Allocation:
    matrix = (("vocabulary × hidden", float(shape.vocabulary * shape.hidden)),)
    return allocate(kinds.LARGEST_TENSOR, "exact", matrix, size)


def sync_engine(shape: Shape, settings: Settings) -> Allocations:
    """What the rollout engine holds while it takes the weights, and the bucket that they travel through."""
    rollout, does = settings.rollout, behaviour(settings.version)
    if rollout.separate:
        awake: Allocations = ()
    elif does.cache_awake_in_sync or not rollout.stages_wake_up or not rollout.frees_cache:
        awake = engine.awake(shape, settings, 0.0)
    else:
        awake = (engine.engine_weights(shape, settings), *engine.graphs(settings))
    if rollout.bucket:
        awake += (fixed(kinds.BUCKET, "exact", rollout.bucket, "bucket"),)
    return awake
