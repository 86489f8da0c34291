"""Checks of settings against the model and against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..diagnostics import Code
from ..units import GIB
from .engine import cache_tokens
from .parameters import target_names, unknown_targets
from .request import error_at, warning_at
from .roles import ACTOR, MODEL, REFERENCE, ROLLOUT
from .tokens import ranks_of
from .versions import behaviour

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..diagnostics import Diagnostic
    from .settings import Megatron, Role, Settings
    from .shape import Shape


def problems_of(shape: Shape, settings: Settings) -> Iterator[Diagnostic]:
    """Yield the problems of a model with its settings."""
    actor, critic = settings.actor, settings.critic
    yield from _heads(shape, settings)
    for name, role in ((ACTOR, actor), ("critic", critic)):
        if role and role.backend == "megatron":
            yield from _stages(shape, role.megatron, f"{name}.megatron")
            yield from _experts(shape, role.megatron, f"{name}.megatron")
    yield from _micro_batch(settings, actor)
    if actor.lora_rank and actor.targets != "all-linear":
        yield from _targets(shape, actor)
    if not settings.rollout.separate:
        yield from _cache(shape, settings)


def _heads(shape: Shape, settings: Settings) -> Iterator[Diagnostic]:
    """Check sizes that divide the attention heads."""
    ulysses = "fsdp_config.ulysses_sequence_parallel_size"
    sizes = {
        f"{ROLLOUT}.tensor_model_parallel_size": settings.rollout.tensor,
        f"{ACTOR}.megatron.tensor_model_parallel_size": settings.actor.megatron.tensor,
        f"{ACTOR}.{ulysses}": settings.actor.fsdp.ulysses,
        f"{REFERENCE}.{ulysses}": settings.reference_fsdp.ulysses if settings.reference else 1,
    }
    if settings.critic:
        sizes["critic.megatron.tensor_model_parallel_size"] = settings.critic.megatron.tensor
        sizes["critic.fsdp.ulysses_sequence_parallel_size"] = settings.critic.fsdp.ulysses
    for key, size in sizes.items():
        if shape.heads % size:
            message = f"it is {size}, which does not divide the model's {shape.heads} attention heads"
            yield error_at(key, message, "choose a divisor")


def _stages(shape: Shape, megatron: Megatron, prefix: str) -> Iterator[Diagnostic]:
    """Check that every pipeline stage gets layers, and that there are enough."""
    first, last = megatron.first_layers or 0, megatron.last_layers or 0
    between = megatron.pipeline - bool(first) - bool(last)
    left = shape.layers - first - last
    if megatron.pipeline > 1 and (left < between or (not between and left)):
        message = f"{shape.layers} layers cannot be shared out so among {megatron.pipeline} stages"
        yield error_at(f"{prefix}.pipeline_model_parallel_size", message, "use fewer stages")


def _experts(shape: Shape, megatron: Megatron, prefix: str) -> Iterator[Diagnostic]:
    moe = shape.architecture.moe
    if moe and moe.num_experts % megatron.expert:
        message = f"it is {megatron.expert}, which does not divide the model's {moe.num_experts} experts"
        yield error_at(f"{prefix}.expert_model_parallel_size", message, "choose a divisor")


def _targets(shape: Shape, actor: Role) -> Iterator[Diagnostic]:
    """Check that the model has the targets of the adapters."""
    for name in unknown_targets(shape.architecture, actor.targets):
        message = f"no module of the model is called {name[:80]!r}; it gets no adapter"
        known = ", ".join(target_names(shape.architecture))
        yield warning_at(f"{MODEL}.target_modules", message, f"modules are called {known}")


def _micro_batch(settings: Settings, actor: Role) -> Iterator[Diagnostic]:
    micro, key = actor.micro_batch, f"{ACTOR}.ppo_micro_batch_size_per_gpu"
    per_rank = max(1, actor.mini_batch // ranks_of(actor, settings.gpus))
    if micro.dynamic:
        return
    if micro.sequences is None:
        message = "nothing sets the micro-batch; one sequence is taken"
        yield warning_at(key, message, "set it, or actor.use_dynamic_bsz", Code.missing_key)
    elif micro.sequences > per_rank:
        what = f"a micro-batch of {micro.sequences} sequences"
        message = f"{what} is larger than the mini-batch of a GPU, {per_rank}"
        yield warning_at(key, message, "the mini-batch is taken")


def _cache(shape: Shape, settings: Settings) -> Iterator[Diagnostic]:
    """Check that the KV cache holds one sequence; otherwise the engine does not start."""
    rollout = settings.rollout
    if rollout.engine != "vllm" or not settings.capacity_known:
        return
    room, needed = cache_tokens(shape, settings), float(rollout.model_length or settings.lengths.limit)
    traits = behaviour(settings.version)
    if not rollout.model_length and not traits.engine_in_process and "length" not in settings.unstated:
        needed = float(shape.architecture.max_position_embeddings)  # the engine's default
    if room < needed:
        budget = settings.capacity * rollout.utilization / GIB
        message = (
            f"beside its weights the engine's {budget:.1f} GiB hold {room:,.0f} tokens, "
            f"fewer than one sequence of {needed:,.0f}"
        )
        hint = "raise it or rollout.tensor_model_parallel_size, or set rollout.max_model_len"
        yield warning_at(f"{ROLLOUT}.gpu_memory_utilization", message, hint)
