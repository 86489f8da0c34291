"""The one setting that lowers the peak most, and what it saves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .phases import phases_of
from .roles import ACTOR, MODEL, REFERENCE, ROLLOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .estimate import Estimate
    from .settings import MicroBatch, Settings


@dataclass(frozen=True)
class Relief:
    """A change of one setting.

    Attributes:
        setting: as an override of verl: ``key=value``.
        saves: bytes off the peak.
        peak: bytes that remain.
        binding: the phase that sets the peak then.
    """

    setting: str
    saves: float
    peak: float
    binding: str


def best_relief(estimate: Estimate) -> Relief | None:
    """The change that lowers the peak most; None if none lowers it by a hundredth."""
    return max(reliefs(estimate), key=lambda relief: relief.saves, default=None)


def reliefs(estimate: Estimate) -> Iterator[Relief]:
    """Every single change that lowers the peak noticeably, computed anew with it."""
    for setting, changed in _changes(estimate.settings):
        binding = max(phases_of(estimate.shape, changed), key=lambda phase: phase.total)
        saves = estimate.peak - binding.total
        if saves > 0.01 * estimate.peak:
            yield Relief(setting, saves, binding.total, binding.name)


def _changes(settings: Settings) -> Iterator[tuple[str, Settings]]:
    actor, rollout = settings.actor, settings.rollout
    if actor.backend == "megatron":
        yield from _megatron_changes(settings)
    else:
        yield from _fsdp_changes(settings)
    if rollout.utilization > 0.2 and not rollout.separate:
        lower = round(rollout.utilization - 0.1, 2)
        yield f"{ROLLOUT}.gpu_memory_utilization={lower:g}", _rollout(settings, utilization=lower)
    if not rollout.eager:
        yield f"{ROLLOUT}.enforce_eager=True", _rollout(settings, eager=True)
    if not rollout.frees_cache:
        yield f"{ROLLOUT}.free_cache_engine=True", _rollout(settings, frees_cache=True)
    if actor.lora_rank and not rollout.layered_summon:
        yield f"{ROLLOUT}.layered_summon=True", _rollout(settings, layered_summon=True)
    if not settings.fused_kernels:
        yield f"{MODEL}.use_fused_kernels=True", replace(settings, fused_kernels=True)
    if settings.computes_entropy and not settings.entropy_chunk:
        yield f"{ACTOR}.entropy_from_logits_with_chunking=True", replace(settings, entropy_chunk=2048)
    if not settings.remove_padding:
        yield f"{MODEL}.use_remove_padding=True", replace(settings, remove_padding=True)
    if smaller := _halved(
        f"{ACTOR}.ppo_micro_batch_size_per_gpu",
        f"{ACTOR}.ppo_max_token_len_per_gpu",
        actor.micro_batch,
        settings,
    ):
        yield smaller[0], replace(settings, actor=replace(actor, micro_batch=smaller[1]))
    for prefix, name, micro in (
        (ROLLOUT, "old_micro_batch", settings.old_micro_batch),
        (REFERENCE, "reference_micro_batch", settings.reference_micro_batch),
    ):
        keys = f"{prefix}.log_prob_micro_batch_size_per_gpu", f"{prefix}.log_prob_max_token_len_per_gpu"
        if smaller := _halved(*keys, micro, settings):
            yield smaller[0], replace(settings, **{name: smaller[1]})  # type: ignore[arg-type]


def _fsdp_changes(settings: Settings) -> Iterator[tuple[str, Settings]]:
    actor = settings.actor
    fsdp, prefix = actor.fsdp, f"{ACTOR}.fsdp_config"
    if not actor.checkpointing:
        yield (
            f"{MODEL}.enable_gradient_checkpointing=True",
            replace(settings, actor=replace(actor, checkpointing=True)),
        )
    if not fsdp.param_offload:
        yield (
            f"{prefix}.param_offload=True",
            replace(settings, actor=replace(actor, fsdp=replace(fsdp, param_offload=True))),
        )
    if not fsdp.optimizer_offload:
        changed = replace(actor, fsdp=replace(fsdp, optimizer_offload=True))
        yield f"{prefix}.optimizer_offload=True", replace(settings, actor=changed)
    if actor.backend == "fsdp2" and not fsdp.offload_policy:
        yield (
            f"{prefix}.offload_policy=True",
            replace(settings, actor=replace(actor, fsdp=replace(fsdp, offload_policy=True))),
        )
    critic = settings.critic
    if critic and critic.backend != "megatron":
        for name in ("param_offload", "optimizer_offload"):
            if not getattr(critic.fsdp, name):
                changed = replace(critic, fsdp=replace(critic.fsdp, **{name: True}))
                yield f"critic.fsdp.{name}=True", replace(settings, critic=changed)


def _megatron_changes(settings: Settings) -> Iterator[tuple[str, Settings]]:
    actor = settings.actor
    megatron, prefix = actor.megatron, f"{ACTOR}.megatron"
    changes = {
        f"{prefix}.param_offload=True": {"param_offload": True} if not megatron.param_offload else {},
        f"{prefix}.optimizer_offload=True": {"optimizer_offload": True}
        if not megatron.optimizer_offload
        else {},
        f"{prefix}.override_transformer_config.recompute_granularity=full": {"recompute": True}
        if not megatron.recompute
        else {},
        f"{ACTOR}.optim.override_optimizer_config.optimizer_offload_fraction=1": {"cpu_optimizer": 1.0}
        if megatron.cpu_optimizer < 1
        else {},
    }
    for setting, change in changes.items():
        if change:
            yield setting, replace(settings, actor=replace(actor, megatron=replace(megatron, **change)))  # type: ignore[arg-type]


def _halved(
    size_key: str, budget_key: str, micro: MicroBatch, settings: Settings
) -> tuple[str, MicroBatch] | None:
    """Half as large a micro-batch, if there is one."""
    if micro.dynamic:
        least = settings.lengths.limit / max(1, settings.actor.fsdp.ulysses)
        half = micro.tokens // 2
        return (f"{budget_key}={half}", replace(micro, tokens=half)) if half >= least else None
    half = (micro.sequences or 1) // 2
    return (f"{size_key}={half}", replace(micro, sequences=half)) if half else None


def _rollout(settings: Settings, **changes: object) -> Settings:
    return replace(settings, rollout=replace(settings.rollout, **changes))  # type: ignore[arg-type]
