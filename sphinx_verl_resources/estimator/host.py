"""Host memory of one node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..breakdown import Breakdown, Change
from . import kinds
from .allocations import allocate, fixed, size_of
from .constants import HOST_BASE
from .engine import engine_weights
from .fsdp import FsdpRole
from .phases import roles_of
from .tokens import update_tokens
from .versions import behaviour

if TYPE_CHECKING:
    from .allocations import Allocations
    from .megatron import MegatronRole
    from .settings import Role, Settings
    from .shape import Shape


def host_memory(shape: Shape, settings: Settings) -> Breakdown:
    """What the fullest node holds in host memory. Sizes are bytes per node.

    Offloaded states of every GPU of the node, the reference policy, activations, sleeping weights of the
    rollout engine where its version keeps them, and what Ray, data and Python take.
    """
    found: Allocations = ()
    for stages in roles_of(shape, settings):
        found += max((_offloaded(role) for role in stages), key=size_of, default=())
    found += _activations(shape, settings, settings.actor, critic=False)
    found += _activations(shape, settings, settings.critic, critic=True) if settings.critic else ()
    found += _reference(shape, settings) + _sleeping_weights(shape, settings)
    per_node = settings.gpus / settings.nodes
    of_node = Change("×", per_node, "GPUs of the node")
    on_node = [item.component if per_node == 1 else item.component.changed(of_node) for item in found]
    base = fixed(kinds.HOST_PROCESSES, HOST_BASE.evidence, HOST_BASE.value, "base")
    return Breakdown((*on_node, base.component))


def _offloaded(role: FsdpRole | MegatronRole) -> Allocations:
    """The states of one GPU that are on the host at some time."""
    if isinstance(role, FsdpRole):
        fsdp = role.role.fsdp
        if role.on_host:
            bare = replace(role, role=replace(role.role, fsdp=replace(fsdp, offload_policy=False)))
            return bare.weights + bare.gradients + bare.optimizer
        weights = role.weights if fsdp.param_offload else ()
        return weights + (role.optimizer if fsdp.optimizer_offload else ())
    megatron = role.role.megatron
    found = role.weights if megatron.param_offload else ()
    found += role.optimizer if megatron.optimizer_offload else ()
    if megatron.cpu_optimizer:
        size = megatron.moment_bytes * megatron.cpu_optimizer
        variables = (("parameters of the rank", role.optimized),)
        found += (
            allocate(
                kinds.HOST_OPTIMIZER[role.critic],
                "exact",
                variables,
                size,
            ),
        )
    return found


def _activations(shape: Shape, settings: Settings, role: Role, *, critic: bool) -> Allocations:
    """Layer inputs that wait on the host for the backward pass, all but those of two layers."""
    if role.backend == "megatron" or not role.activation_offload or shape.layers < 3:
        return ()
    variables = (
        ("tokens", update_tokens(settings, role)),
        ("hidden size", float(shape.hidden)),
        ("layers", float(shape.layers)),
    )
    return (
        allocate(
            kinds.OFFLOADED_INPUTS[critic],
            "exact",
            variables,
            2,
        ),
    )


def _reference(shape: Shape, settings: Settings) -> Allocations:
    """The reference policy: always there with FSDP, while it is idle with Megatron."""
    if not settings.reference:
        return ()
    if settings.actor.backend != "megatron":
        if behaviour(settings.version).reference_resident:
            return ()
        count, size = (("parameters", float(shape.parameters)),), settings.reference_bytes
        shard = settings.reference_fsdp.shard
        return (allocate(kinds.REFERENCE, "exact", count, size, "bytes", shard, "GPUs"),)
    if not settings.reference_offload:
        return ()
    actors, _ = roles_of(shape, settings)
    largest = max(actor.on_gpu for actor in actors if not isinstance(actor, FsdpRole))
    return (allocate(kinds.REFERENCE, "exact", (("parameters on the GPU", largest),), 2),)


def _sleeping_weights(shape: Shape, settings: Settings) -> Allocations:
    """Weights of the rollout engine, where it does not give them up while it sleeps."""
    rollout = settings.rollout
    if rollout.separate or not rollout.frees_cache:
        return ()
    adapters = bool(settings.actor.lora_rank) and not rollout.merge_lora
    on_host = not adapters if rollout.engine == "sglang" else adapters
    if not on_host and not behaviour(settings.version).sleep_keeps_weights:
        return ()
    weights = engine_weights(shape, settings)
    return (weights._replace(kind=kinds.SLEEPING_WEIGHTS),)
