"""The smallest number of GPUs that a run fits on, and the largest micro-batch that fits on given ones."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from .estimate import Estimate, estimate
from .facts import capacity_of
from .request import EstimateError, Request
from .resolve import USUAL_CARD
from .roles import ACTOR, MODEL, REFERENCE, ROLLOUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .facts import Facts

#: Numbers of GPUs that are tried: powers of two within a node, then whole nodes.
COUNTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
#: Share of the rollout engine's budget that its weights may take, so that there is room for the KV cache.
_WEIGHTS_SHARE = 0.7

#: Every memory optimisation of FSDP that costs no accuracy, as the rows tagged MIN have them.
SAVING: Mapping[str, Any] = {
    f"{MODEL}.enable_gradient_checkpointing": True,
    f"{MODEL}.use_remove_padding": True,
    f"{ACTOR}.use_dynamic_bsz": True,
    f"{ACTOR}.fsdp_config.param_offload": True,
    f"{ACTOR}.fsdp_config.optimizer_offload": True,
    f"{REFERENCE}.fsdp_config.param_offload": True,
    "critic.fsdp.param_offload": True,
    "critic.fsdp.optimizer_offload": True,
}
_MEGATRON: Mapping[str, Any] = {
    f"{ACTOR}.strategy": "megatron",
    **{
        f"{role}.{key}": value
        for role in (ACTOR, "critic")
        for key, value in (
            ("megatron.param_offload", True),
            ("megatron.optimizer_offload", True),
            ("megatron.override_transformer_config.recompute_granularity", "full"),
            ("megatron.override_transformer_config.recompute_method", "uniform"),
            ("megatron.override_transformer_config.recompute_num_layers", 1),
            ("optim.override_optimizer_config.optimizer_cpu_offload", True),
            ("optim.override_optimizer_config.optimizer_offload_fraction", 1),
        )
    },
}
#: What a task sets.
TASKS: Mapping[str, Mapping[str, Any]] = {
    "GRPO": {"algorithm.adv_estimator": "grpo", f"{ACTOR}.use_kl_loss": True},
    "GRPO-LoRA": {
        "algorithm.adv_estimator": "grpo",
        f"{ACTOR}.use_kl_loss": True,
        f"{MODEL}.lora_rank": 32,
        f"{MODEL}.target_modules": "all-linear",
        f"{ROLLOUT}.load_format": "safetensors",
        f"{ROLLOUT}.layered_summon": True,
    },
    "PPO": {"algorithm.adv_estimator": "gae", f"{ACTOR}.use_kl_loss": True},
    "DAPO": {"algorithm.adv_estimator": "grpo"},
}

#: Pipeline and tensor sizes that are tried with Megatron, by their product; the smaller pipeline first.
_LAYOUTS = sorted(product((1, 2, 4, 8, 16), (1, 2, 4, 8)), key=lambda sizes: (sizes[0] * sizes[1], sizes))


@dataclass(frozen=True)
class Plan:
    """What to run a model on.

    Attributes:
        gpus: the smallest number that fits; None if none of those tried does.
        estimate: on that number, or on the largest tried.
        micro_batch: the largest that still fits there, in sequences, or in tokens with a dynamic batch size;
            None where even the smallest does not fit.
        unit: ``sequences`` or ``tokens``.
    """

    gpus: int | None
    estimate: Estimate
    micro_batch: int | None
    unit: str


def task_settings(task: str) -> Mapping[str, Any] | None:
    """The settings of a task with every memory optimisation on; None for a task that is not known.

    >>> task_settings("grpo-lora")["actor_rollout_ref.model.lora_rank"]
    32
    """
    known = {name.casefold(): settings for name, settings in TASKS.items()}
    found = known.get(task.casefold())
    return None if found is None else {**SAVING, **found}


def plan(request: Request, facts: Facts) -> Plan:
    """The smallest number of GPUs, or for a given number the largest micro-batch, at the upper end of the range.

    Args:
        request: with a card; ``gpus`` None asks for the number.
        facts: the registries.

    Raises:
        EstimateError: the request leaves no estimate on any number of GPUs.
    """
    found, last = None, None
    for _, each in estimates(request, facts, (request.gpus,) if request.gpus else COUNTS):
        last = each
        if each.verdict == "fits":
            found = each
            break
    if last is None:
        # Nothing could be estimated; say why on the number asked for, or on one node.
        last = estimate(fitted(replace(request, gpus=request.gpus or 8), facts), facts)
    best = found or last
    size, unit = largest_micro_batch(replace(request, gpus=best.settings.gpus), facts)
    return Plan(best.settings.gpus if found else None, best, size, unit)


def estimates(request: Request, facts: Facts, counts: tuple[int, ...]) -> Iterator[tuple[int, Estimate]]:
    """The estimate on each number of GPUs that the settings can be divided among."""
    for count in counts:
        with suppress(EstimateError):
            yield count, estimate(fitted(replace(request, gpus=count), facts), facts)


def fitted(request: Request, facts: Facts) -> Request:
    """The request with what depends on the number of GPUs: nodes, and where it is not set the engine's TP.

    TP is the smallest power of two that leaves the engine room for a KV cache; the token budget, where a
    dynamic batch size has none, is the smallest that holds one sequence.
    """
    gpus = request.gpus or 8
    config = dict(request.config)
    config.setdefault("trainer.nnodes", -(-gpus // 8))
    config.setdefault("trainer.n_gpus_per_node", min(gpus, 8))
    defaults = facts.defaults(request.version)

    def value(key: str) -> Any:
        return config.get(key, defaults.get(key))

    key = f"{ROLLOUT}.tensor_model_parallel_size"
    shape, card = facts.shape(request.model), facts.gpus.get(request.gpu or "")
    memory = capacity_of(card) if card else USUAL_CARD
    utilization = value(f"{ROLLOUT}.gpu_memory_utilization")
    if key not in config and shape and isinstance(utilization, int | float):
        room = memory * utilization * _WEIGHTS_SHARE
        tensor = 1
        while 2 * shape.parameters / tensor > room and tensor < gpus and not gpus % (2 * tensor):
            tensor *= 2
        config[key] = tensor
    budget = f"{ACTOR}.ppo_max_token_len_per_gpu"
    limits = [value(f"data.max_{name}_length") for name in ("prompt", "response")]
    if (
        value(f"{ACTOR}.use_dynamic_bsz") is True
        and budget not in config
        and all(type(item) is int for item in limits)
    ):
        config[budget] = sum(limits)
    return replace(request, config=config)


def with_megatron(request: Request, facts: Facts) -> Iterator[Request]:
    """The same run with Megatron, its memory optimisations on, by growing model-parallel sizes.

    Sizes that do not divide the GPUs, the heads or the layers are left out; experts are spread as far as the
    model-parallel size leaves room.
    """
    shape, gpus = facts.shape(request.model), request.gpus or 8
    if shape is None:
        return
    moe = shape.architecture.moe
    dropped = (f"{ACTOR}.fsdp_config.", f"{REFERENCE}.fsdp_config.", "critic.fsdp.")
    config = {key: value for key, value in request.config.items() if not key.startswith(dropped)}
    for pipeline, tensor in sorted(
        product((1, 2, 4, 8, 16), (1, 2, 4, 8)), key=lambda sizes: (sizes[0] * sizes[1], sizes)
    ):
        if gpus % (tensor * pipeline) or shape.heads % tensor or shape.layers < pipeline:
            continue
        expert = 1
        while moe and not moe.num_experts % (2 * expert) and not gpus % (2 * expert * pipeline):
            expert *= 2
        sizes = {"tensor_model_parallel_size": tensor, "pipeline_model_parallel_size": pipeline}
        if moe:
            sizes |= {"expert_model_parallel_size": expert, "expert_tensor_parallel_size": 1}
        layout = {
            f"{role}.megatron.{name}": size for role in (ACTOR, "critic") for name, size in sizes.items()
        }
        yield replace(request, backend="megatron", config={**config, **_MEGATRON, **layout})


def largest_micro_batch(request: Request, facts: Facts) -> tuple[int | None, str]:
    """The largest micro-batch that fits at the upper end of the range, and its unit; found by halving.

    Raises:
        EstimateError: the request leaves no estimate.
    """
    base = fitted(request, facts)
    first = estimate(base, facts)
    micro = first.settings.actor.micro_batch
    name = "ppo_max_token_len_per_gpu" if micro.dynamic else "ppo_micro_batch_size_per_gpu"
    others = "log_prob_max_token_len_per_gpu" if micro.dynamic else "log_prob_micro_batch_size_per_gpu"
    keys = [f"{ACTOR}.{name}", f"{ROLLOUT}.{others}", f"{REFERENCE}.{others}"]
    config = {key: value for key, value in base.config.items() if not key.endswith("micro_batch_size")}
    least = int(first.settings.lengths.limit) if micro.dynamic else 1
    unit = "tokens" if micro.dynamic else "sequences"

    def fits(size: int) -> bool:
        changed = replace(base, config={**config, **dict.fromkeys(keys, size)})
        return estimate(changed, facts).verdict == "fits"

    if not fits(least):
        return None, unit
    most = max(1, first.settings.actor.mini_batch) * (
        int(first.settings.lengths.limit) if micro.dynamic else 1
    )
    low, high = least, max(least, most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low, unit
