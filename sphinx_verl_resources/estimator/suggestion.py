"""The one setting that lowers the peak most, and what it saves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .engine import cache_tokens
from .phases import phases_of
from .roles import ACTOR, MODEL, REFERENCE, ROLLOUT
from .tokens import sequence_divisor
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .settings import MicroBatch, Role, Settings
    from .shape import Shape


@dataclass(frozen=True)
class Suggestion:
    """A change of one setting.

    Attributes:
        setting: as an override of verl, ``key=value``, or several that only work together.
        saves: bytes off the peak.
        peak: bytes that remain.
        peak_phase: the name of the phase that sets the peak then.
    """

    setting: str
    saves: float
    peak: float
    peak_phase: str


def suggestions(shape: Shape, settings: Settings, peak: float) -> Iterator[Suggestion]:
    """Yield every change of one setting that lowers the peak by more than a hundredth.

    >>> from sphinx_verl_resources.cli.data import load_registries
    >>> from sphinx_verl_resources.estimator.estimate import estimate
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> config = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}
    >>> found = estimate(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), load_registries([]))
    >>> found.suggestion in found.suggestions
    True
    """
    for setting, changed in _changes(shape, settings):
        peak_phase = max(phases_of(shape, changed), key=lambda phase: phase.total)
        saves = peak - peak_phase.total
        if saves > 0.01 * peak:
            yield Suggestion(setting, saves, peak_phase.total, peak_phase.name)


def _changes(shape: Shape, settings: Settings) -> Iterator[tuple[str, Settings]]:
    actor, critic = settings.actor, settings.critic
    for setting, changed in _role_changes(actor, ACTOR, f"{ACTOR}.fsdp_config", MODEL):
        yield setting, replace(settings, actor=changed)
    if critic:
        for setting, changed in _role_changes(critic, "critic", "critic.fsdp", "critic.model"):
            yield setting, replace(settings, critic=changed)
    yield from _rollout_changes(shape, settings)
    yield from _logits_changes(settings)
    yield from _smaller(settings)


def _role_changes(role: Role, prefix: str, fsdp_prefix: str, model: str) -> Iterator[tuple[str, Role]]:
    """Yield changes of a role's own keys."""
    if role.backend == "megatron":
        yield from _megatron_changes(role, f"{prefix}.megatron", f"{prefix}.optim")
        return
    if not role.checkpointing:
        yield f"{model}.enable_gradient_checkpointing=True", replace(role, checkpointing=True)
    if not role.remove_padding:
        yield f"{model}.use_remove_padding=True", replace(role, remove_padding=True)
    names = ["param_offload", "optimizer_offload", *(["offload_policy"] if role.backend == "fsdp2" else [])]
    for name in names:
        if not getattr(role.fsdp, name):
            yield f"{fsdp_prefix}.{name}=True", replace(role, fsdp=replace(role.fsdp, **{name: True}))


def _megatron_changes(role: Role, prefix: str, optimizer: str) -> Iterator[tuple[str, Role]]:
    megatron = role.megatron

    def changed(**changes: float) -> Role:
        return replace(role, megatron=replace(megatron, **changes))  # type: ignore[arg-type]

    for name in ("param_offload", "optimizer_offload"):
        if not getattr(megatron, name):
            yield f"{prefix}.{name}=True", changed(**{name: True})
    if megatron.granularity != "full":
        # Megatron refuses full recomputation without a method and a number of layers.
        transformer = f"{prefix}.override_transformer_config.recompute_"
        values = ("granularity=full", "method=uniform", "num_layers=1")
        yield " ".join(transformer + value for value in values), changed(recompute=True, recompute_layers=1)
    if not megatron.cpu_optimizer:
        config = f"{optimizer}.override_optimizer_config.optimizer_"
        yield f"{config}cpu_offload=True {config}offload_fraction=1", changed(cpu_optimizer=1.0)


def lower_utilization(shape: Shape, settings: Settings) -> float | None:
    """Take a tenth of the GPU from the rollout engine; None if its cache would not hold a sequence then."""
    rollout = settings.rollout
    lower = round(rollout.utilization - 0.1, 2)
    if rollout.separate or lower <= 0.1:
        return None
    smaller = replace(settings, rollout=replace(rollout, utilization=lower))
    # With less, the engine does not start.
    return lower if cache_tokens(shape, smaller) >= settings.lengths.limit else None


def _rollout_changes(shape: Shape, settings: Settings) -> Iterator[tuple[str, Settings]]:
    rollout = settings.rollout
    if rollout.separate:
        return

    def changed(**changes: object) -> Settings:
        return replace(settings, rollout=replace(rollout, **changes))  # type: ignore[arg-type]

    lower = lower_utilization(shape, settings)
    if lower:
        yield f"{ROLLOUT}.gpu_memory_utilization={lower:g}", changed(utilization=lower)
    if not rollout.eager:
        yield f"{ROLLOUT}.enforce_eager=True", changed(eager=True)
    if not rollout.frees_cache:
        yield f"{ROLLOUT}.free_cache_engine=True", changed(frees_cache=True)
    if settings.actor.lora_rank and not rollout.layered_summon:
        settings_ = f"{ROLLOUT}.layered_summon=True {ROLLOUT}.load_format=safetensors"
        yield settings_, changed(layered_summon=True)


def _logits_changes(settings: Settings) -> Iterator[tuple[str, Settings]]:
    if not settings.fused_kernels:
        yield f"{MODEL}.use_fused_kernels=True", replace(settings, fused_kernels=True)
    if not settings.entropy_chunk:
        yield f"{ACTOR}.entropy_from_logits_with_chunking=True", replace(settings, entropy_chunk=2048)


def _smaller(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Yield micro-batches of half the size."""
    actor, critic = settings.actor, settings.critic
    names = "ppo_micro_batch_size_per_gpu", "ppo_max_token_len_per_gpu"
    if found := _halved(f"{ACTOR}.{names[0]}", f"{ACTOR}.{names[1]}", actor.micro_batch, settings):
        yield found[0], replace(settings, actor=replace(actor, micro_batch=found[1]))
    for prefix, name, micro in (
        (ROLLOUT, "old_micro_batch", settings.old_micro_batch),
        (REFERENCE, "reference_micro_batch", settings.reference_micro_batch),
    ):
        keys = f"{prefix}.log_prob_micro_batch_size_per_gpu", f"{prefix}.log_prob_max_token_len_per_gpu"
        if found := _halved(*keys, micro, settings):
            yield found[0], replace(settings, **{name: found[1]})  # type: ignore[arg-type]
    if critic:
        one = behaviour(settings.version).one_critic_budget
        budget = f"critic.{'ppo_infer_max_token_len_per_gpu' if one else names[1]}"
        if found := _halved(f"critic.{names[0]}", budget, critic.micro_batch, settings):
            yield found[0], replace(settings, critic=replace(critic, micro_batch=found[1]))


def _halved(
    size_key: str, budget_key: str, micro: MicroBatch, settings: Settings
) -> tuple[str, MicroBatch] | None:
    """Return half as large a micro-batch, if there is one."""
    if micro.dynamic:
        least = settings.lengths.limit / sequence_divisor(settings.actor)
        half = micro.tokens // 2
        return (f"{budget_key}={half}", replace(micro, tokens=half)) if half >= least else None
    half = (micro.sequences or 1) // 2
    return (f"{size_key}={half}", replace(micro, sequences=half)) if half else None
