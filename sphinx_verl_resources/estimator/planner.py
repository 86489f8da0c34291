"""The smallest number of GPUs that a run fits on, and the largest micro-batch that they hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from .estimate import Estimate, estimate
from .layouts import best_layout, fitted
from .roles import ACTOR, MODEL, REFERENCE, ROLLOUT
from .tokens import sequence_divisor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .registries import Registries
    from .request import Request

#: Numbers of GPUs that are tried: powers of two within a node, then whole nodes.
COUNTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
#: The memory optimisations of runs tagged MIN, as far as they have an effect.
SAVING: Mapping[str, Any] = {
    f"{MODEL}.enable_gradient_checkpointing": True,
    f"{MODEL}.use_remove_padding": True,
    f"{ACTOR}.use_dynamic_bsz": True,
    f"{ACTOR}.fsdp_config.param_offload": True,
    f"{ACTOR}.fsdp_config.optimizer_offload": True,
    "critic.fsdp.param_offload": True,
    "critic.fsdp.optimizer_offload": True,
}
#: Settings of each task.
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


@dataclass(frozen=True)
class Plan:
    """The GPUs to run a model on.

    Attributes:
        gpus: the smallest number that fits; None if none of those tried does.
        with_fsdp: the smallest number that fits with FSDP where that is more, else None.
        request: what was estimated, every setting that the plan chose included.
        estimate: on that number, or on the largest tried.
        micro_batch: the largest that still fits there, in sequences, or in tokens with a dynamic batch size;
            None where even the smallest does not fit.
        unit: ``sequences`` or ``tokens``.
    """

    gpus: int | None
    with_fsdp: int | None
    request: Request
    estimate: Estimate
    micro_batch: int | None
    unit: str


def task_settings(task: str) -> Mapping[str, Any] | None:
    """Return the settings of a task with every memory optimisation on; None for an unknown task.

    >>> task_settings("grpo-lora")["actor_rollout_ref.model.lora_rank"]
    32
    """
    known = {name.casefold(): settings for name, settings in TASKS.items()}
    found = known.get(task.casefold())
    return None if found is None else {**SAVING, **found}


def plan(request: Request, registries: Registries) -> Plan:
    """Find the smallest number of GPUs that fits at the high end of the range, and its largest micro-batch.

    Args:
        request: with a GPU; ``gpus`` None asks for the number.
        registries: the registries.

    Raises:
        NoAnswerError: the request leaves no estimate on any number of GPUs.

    >>> from sphinx_verl_resources.cli.data import load_registries
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> asked = Request("Qwen/Qwen2.5-7B", task_settings("GRPO-LoRA"), gpu="H100")
    >>> plan(asked, load_registries([])).gpus
    1
    """
    if not request.gpus:  # the numbers that are tried replace those of the settings
        counted = ("trainer.nnodes", "trainer.n_gpus_per_node")
        free = {key: value for key, value in request.config.items() if key not in counted}
        request = replace(request, config=free)
    counts = (request.gpus,) if request.gpus else COUNTS
    layouts = (best_layout(replace(request, gpus=count), registries) for count in counts)
    tried = [layout for layout in layouts if layout is not None]
    if not tried:
        # Nothing could be estimated; give the reason for the number asked for, or for one node.
        estimate(fitted(replace(request, gpus=request.gpus or 8), registries), registries)
        raise NoAnswerError
    fits = [pair for pair in tried if pair[1].verdict == "fits"]
    chosen, found = fits[0] if fits else tried[-1]
    with_fsdp = None
    if fits and found.settings.actor.backend == "megatron":
        numbers = (pair[1].settings.gpus for pair in fits if pair[1].settings.actor.backend != "megatron")
        with_fsdp = next(numbers, None)
    size, unit = largest_micro_batch(chosen, registries)
    return Plan(found.settings.gpus if fits else None, with_fsdp, chosen, found, size, unit)


def largest_micro_batch(request: Request, registries: Registries) -> tuple[int | None, str]:
    """Find the largest micro-batch that fits at the high end of the range, and its unit.

    Raises:
        NoAnswerError: the request leaves no estimate.
    """
    base = fitted(request, registries)
    first = estimate(base, registries)
    micro = first.settings.actor.micro_batch
    name = "ppo_max_token_len_per_gpu" if micro.dynamic else "ppo_micro_batch_size_per_gpu"
    others = "log_prob_max_token_len_per_gpu" if micro.dynamic else "log_prob_micro_batch_size_per_gpu"
    keys = [f"{ACTOR}.{name}", f"{ROLLOUT}.{others}", f"{REFERENCE}.{others}"]
    of_all_ranks = [f"{ACTOR}.ppo_micro_batch_size"]
    of_all_ranks += [f"{role}.log_prob_micro_batch_size" for role in (ROLLOUT, REFERENCE)]
    config = {key: value for key, value in base.config.items() if key not in of_all_ranks}
    divided = sequence_divisor(first.settings.actor)
    least = -(-int(first.settings.lengths.limit) // divided) if micro.dynamic else 1
    unit = "tokens" if micro.dynamic else "sequences"

    def fits(size: int) -> bool:
        changed = replace(base, config={**config, **dict.fromkeys(keys, size)})
        return estimate(changed, registries).verdict == "fits"

    limit = int(first.settings.lengths.limit) if micro.dynamic else 1
    most = max(least, max(1, first.settings.actor.mini_batch) * limit)
    # A larger one can take less: with one micro-batch per mini-batch no gradients wait. So try all doublings.
    sizes = [least]
    while sizes[-1] < most:
        sizes.append(min(2 * sizes[-1], most))
    fitting = [index for index, size in enumerate(sizes) if fits(size)]
    if not fitting:
        return None, unit
    low = sizes[fitting[-1]]
    high = sizes[fitting[-1] + 1] - 1 if fitting[-1] + 1 < len(sizes) else low
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low, unit
