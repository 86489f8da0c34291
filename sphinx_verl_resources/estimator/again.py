"""Read only the settings that changed: a search changes a few keys of a run at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .reader import OF_ACTOR, OF_CRITIC, read_fields_again
from .reading import unstated
from .request import REFERENCE, ROLLOUT, changed
from .settings import Fsdp, Role, Settings, checked_megatron, data_parallel
from .tokens import log_prob_micro_batch, update_micro_batch

if TYPE_CHECKING:
    from .megatron_settings import Megatron
    from .reader import Reader, Sections


def settings_again(found: Settings, reader: Reader, keys: frozenset[str]) -> Settings:
    """Return the settings of a request that differs from an earlier request in a few keys only.

    Args:
        found: the settings of the earlier request.
        reader: the reader of the new request.
        keys: the keys that differ; none of them decides the GPUs, the backend or the roles.
    """
    reader.gpus, reader.backend = found.gpus, found.actor.backend
    actor = _role(found.actor, reader, OF_ACTOR, keys)
    critic = found.critic and _role(found.critic, reader, OF_CRITIC, keys)
    sharding = found.reference_fsdp if found.reference else actor.fsdp
    ranks = data_parallel(actor.backend, actor.fsdp, actor.megatron, reader.gpus)
    old = of_reference = log_prob_micro_batch(reader, ROLLOUT, ranks, actor.micro_batch)
    if found.reference:
        ranks = data_parallel(actor.backend, sharding, actor.megatron, reader.gpus)
        of_reference = log_prob_micro_batch(reader, REFERENCE, ranks, actor.micro_batch)
    return changed(
        read_fields_again(found, reader, OF_ACTOR, keys),
        actor=actor,
        critic=critic,
        reference_fsdp=sharding,
        old_micro_batch=old,
        reference_micro_batch=of_reference,
        unstated=unstated(reader),
    )


def _role(found: Role, reader: Reader, of: Sections, keys: frozenset[str]) -> Role:
    fsdp: Fsdp = read_fields_again(found.fsdp, reader, of, keys)
    megatron: Megatron = found.megatron
    if found.backend == "megatron":
        megatron = checked_megatron(read_fields_again(megatron, reader, of, keys), reader, of)
    micro = update_micro_batch(reader, of, data_parallel(found.backend, fsdp, megatron, reader.gpus))
    return changed(found, fsdp=fsdp, megatron=megatron, micro_batch=micro)
