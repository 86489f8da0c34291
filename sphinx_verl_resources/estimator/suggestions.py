"""Suggestions: the single settings that lower the peak, and by how much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from .engine import cache_tokens
from .phases import phases_of
from .reader import OF_ACTOR, OF_CRITIC
from .request import ACTOR, MODEL, REFERENCE, ROLLOUT
from .settings import sequence_divisor
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .reader import Sections
    from .settings import Role, Settings
    from .shape import Shape

    #: Overrides of verl, ``key=value``, and the same as new values by their place in ``Settings``.
    Changes = Iterator[tuple[str, Mapping[str, Any]]]


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

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> from sphinx_verl_resources.estimator.estimate import estimate
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> config = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.use_dynamic_bsz": True}
    >>> found = estimate(Request("Qwen/Qwen2.5-7B", config, gpus=8, gpu="H100"), read_data([]).registries)
    >>> found.suggestion in found.suggestions
    True
    """
    for overrides, values in _changes(shape, settings):
        changed = settings
        for place, value in values.items():
            changed = _with(changed, place, value)
        peak_phase = max(phases_of(shape, changed), key=lambda phase: phase.total)
        saves = peak - peak_phase.total
        if saves > 0.01 * peak:
            yield Suggestion(overrides, saves, peak_phase.total, peak_phase.name)


def _with(record: Any, place: str, value: Any) -> Any:
    """Return a record with another value at a place such as ``actor.fsdp.reshard``."""
    name, _, rest = place.partition(".")
    return replace(record, **{name: _with(getattr(record, name), rest, value) if rest else value})


def _changes(shape: Shape, settings: Settings) -> Changes:
    """Yield every change: what is off is switched on, and budgets become smaller."""
    yield from _switched_off(settings, _role_switches(settings.actor, "actor", OF_ACTOR))
    if settings.critic:
        yield from _switched_off(settings, _role_switches(settings.critic, "critic", OF_CRITIC))
    if not settings.rollout.separate:
        if lower := lower_utilization(shape, settings):
            yield f"{ROLLOUT}.gpu_memory_utilization={lower:g}", {"rollout.utilization": lower}
        switches = {
            f"{ROLLOUT}.enforce_eager=True": {"rollout.eager": True},
            f"{ROLLOUT}.free_cache_engine=True": {"rollout.frees_cache": True},
        }
        if settings.actor.lora_rank:
            overrides = f"{ROLLOUT}.layered_summon=True {ROLLOUT}.load_format=safetensors"
            switches[overrides] = {"rollout.layered_summon": True}
        yield from _switched_off(settings, switches)
    of_logits: Mapping[str, Mapping[str, Any]] = {
        f"{MODEL}.use_fused_kernels=True": {"fused_kernels": True},
        f"{ACTOR}.entropy_from_logits_with_chunking=True": {"entropy_chunk": 2048},
    }
    yield from _switched_off(settings, of_logits)
    yield from _smaller_micro_batches(settings)


def _switched_off(settings: Settings, switches: Mapping[str, Mapping[str, Any]]) -> Changes:
    """Yield the switches whose first place has no value yet."""
    for overrides, values in switches.items():
        if not attrgetter(next(iter(values)))(settings):
            yield overrides, values


def _role_switches(role: Role, place: str, of: Sections) -> Mapping[str, Mapping[str, Any]]:
    """Return the switches of a role's own keys."""
    if role.backend == "megatron":
        part, optimizer = f"{place}.megatron", f"{of.role}.optim.override_optimizer_config.optimizer_"
        switches: dict[str, Mapping[str, Any]] = {
            f"{of.role}.megatron.{name}=True": {f"{part}.{name}": True}
            for name in ("param_offload", "optimizer_offload")
        }
        if role.megatron.granularity != "full":
            # Megatron refuses full recomputation without a method and a number of layers.
            transformer = f"{of.role}.megatron.override_transformer_config.recompute_"
            together = ("granularity=full", "method=uniform", "num_layers=1")
            values = {f"{part}.recompute": True, f"{part}.recompute_layers": 1}
            switches[" ".join(transformer + override for override in together)] = values
        overrides = (f"{optimizer}cpu_offload=True", f"{optimizer}offload_fraction=1")
        switches[" ".join(overrides)] = {f"{part}.cpu_optimizer": 1.0}
        return switches
    names = ["param_offload", "optimizer_offload", *(["offload_policy"] if role.backend == "fsdp2" else [])]
    return {
        f"{of.model}.enable_gradient_checkpointing=True": {f"{place}.checkpointing": True},
        f"{of.model}.use_remove_padding=True": {f"{place}.remove_padding": True},
        **{f"{of.fsdp}.{name}=True": {f"{place}.fsdp.{name}": True} for name in names},
    }


def lower_utilization(shape: Shape, settings: Settings) -> float | None:
    """Take a tenth of the GPU from the rollout engine; None if its cache would not hold a sequence then."""
    rollout = settings.rollout
    lower = round(rollout.utilization - 0.1, 2)
    if rollout.separate or lower <= 0.1:
        return None
    smaller = replace(settings, rollout=replace(rollout, utilization=lower))
    # With less, the engine does not start.
    return lower if cache_tokens(shape, smaller) >= settings.lengths.limit else None


def _smaller_micro_batches(settings: Settings) -> Changes:
    """Yield half as large micro-batches, for each pass whose micro-batch holds two sequences or more."""
    update, log_prob = ("ppo", "ppo_max_token_len_per_gpu"), ("log_prob", "log_prob_max_token_len_per_gpu")
    passes = [
        ("actor.micro_batch", ACTOR, *update),
        ("old_micro_batch", ROLLOUT, *log_prob),
        ("reference_micro_batch", REFERENCE, *log_prob),
    ]
    if settings.critic:
        one_budget = behaviour(settings.version).one_critic_budget
        budget = "ppo_infer_max_token_len_per_gpu" if one_budget else update[1]
        passes.append(("critic.micro_batch", "critic", "ppo", budget))
    least = settings.lengths.limit / sequence_divisor(settings.actor)  # what a sequence takes on a GPU
    for place, prefix, name, budget in passes:
        micro = attrgetter(place)(settings)
        if micro.dynamic:
            if (half := micro.tokens // 2) >= least:
                yield f"{prefix}.{budget}={half}", {f"{place}.tokens": half}
        elif half := (micro.sequences or 1) // 2:
            yield f"{prefix}.{name}_micro_batch_size_per_gpu={half}", {f"{place}.sequences": half}
