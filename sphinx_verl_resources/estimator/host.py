"""Host memory of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..memory.breakdown import Breakdown, Change, Component, Formula
from .constants import HOST_BASE
from .fsdp import FsdpRole, actor_of, critic_of
from .megatron import megatron_roles
from .parts import fixed, part
from .versions import behaviour

if TYPE_CHECKING:
    from .megatron import MegatronRole
    from .settings import Role, Settings
    from .shape import Shape

Parts = tuple[Component, ...]


def host_memory(shape: Shape, settings: Settings) -> Breakdown:
    """What one node holds in host memory. Sizes are bytes per node.

    Offloaded states of every GPU of the node, the reference policy, sleeping weights of the rollout engine
    where its version keeps them, and what Ray, data and Python take.
    """
    per_node = settings.gpus / settings.nodes
    found: list[Component] = []
    roles: list[FsdpRole | MegatronRole] = []
    if settings.actor.backend == "megatron":
        roles.append(megatron_roles(shape, settings.actor, settings.gpus)[0])
    else:
        roles.append(actor_of(shape, settings.actor))
    if settings.critic and settings.critic.backend != "megatron":
        roles.append(critic_of(shape, settings.critic))
    elif settings.critic:
        roles.append(megatron_roles(shape, settings.critic, settings.gpus, "critic-", "Critic:")[0])
    for role in roles:
        found += _offloaded(role, role.role)
    does = behaviour(settings.version)
    if settings.reference and settings.actor.backend != "megatron" and not does.reference_resident:
        count = (("parameters", float(shape.parameters)),)
        found.append(
            part(
                "reference",
                "Reference policy",
                "exact",
                count,
                does.reference_bytes,
                "bytes",
                settings.reference_shard,
                "GPUs",
            )
        )
    elif settings.reference and settings.actor.backend == "megatron" and settings.reference_offload:
        found.append(
            part(
                "reference",
                "Reference policy",
                "exact",
                (("parameters on the GPU", roles[0].weights()[0].size / 2),),
                2,
            )
        )
    keeps = does.sleep_keeps_weights or settings.actor.lora_rank
    if settings.rollout.frees_cache and keeps and not settings.rollout.separate:
        count = (("parameters", float(shape.parameters)),)
        found.append(
            part(
                "sleeping-weights",
                "Weights of the sleeping rollout engine",
                "exact",
                count,
                settings.rollout.element_bytes,
                "bytes",
                settings.rollout.tensor,
                "TP",
            )
        )
    of_node = Change("×", per_node, "GPUs of the node")
    base = fixed("base", HOST_BASE.name, HOST_BASE.evidence, HOST_BASE.value, "base")
    return Breakdown((*((item.changed(of_node) if per_node != 1 else item) for item in found), base))


def _offloaded(role: FsdpRole | MegatronRole, settings: Role) -> Parts:
    if isinstance(role, FsdpRole):
        fsdp = settings.fsdp
        if role.on_host:
            bare = FsdpRole(
                role.shape, _on_gpu(settings), role.parameters, role.trained, role.prefix, role.label
            )
            return bare.weights() + bare.gradients() + bare.optimizer()
        weights = role.weights() if fsdp.param_offload else ()
        return weights + (role.optimizer() if fsdp.optimizer_offload else ())
    megatron = settings.megatron
    found = role.weights() if megatron.param_offload else ()
    found += role.optimizer() if megatron.optimizer_offload else ()
    if megatron.cpu_optimizer:
        size = megatron.moment_bytes * megatron.cpu_optimizer
        count = role.stage.dense / role.replicas + role.stage.experts / role.expert_replicas
        formula = Formula((("parameters of the rank", count * role.trained),), ((size, "bytes"),))
        found += (Component(role.prefix + "host-optimizer", "Optimizer on the host", formula, "exact"),)
    return found


def _on_gpu(settings: Role) -> Role:
    from dataclasses import replace

    return replace(settings, fsdp=replace(settings.fsdp, offload_policy=False))
