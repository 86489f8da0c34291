"""Tasks and their settings, and default settings that follow from the number of GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError, did_you_mean
from .registries import capacity_of
from .request import ACTOR, MODEL, ROLLOUT
from .settings import USUAL_CAPACITY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .registries import Registries
    from .request import Request

#: The memory optimisations of runs tagged MIN that have an effect.
SAVING: Mapping[str, Any] = {
    f"{MODEL}.enable_gradient_checkpointing": True,
    f"{MODEL}.use_remove_padding": True,
    f"{ACTOR}.use_dynamic_bsz": True,
    f"{ACTOR}.fsdp_config.param_offload": True,
    f"{ACTOR}.fsdp_config.optimizer_offload": True,
    "critic.fsdp.param_offload": True,
    "critic.fsdp.optimizer_offload": True,
}
_GRPO = {"algorithm.adv_estimator": "grpo", f"{ACTOR}.use_kl_loss": True, f"{ROLLOUT}.n": 5}
#: Settings of each task. GRPO compares the responses to one prompt: 5 in most of verl's scripts for it
#: (examples/grpo_trainer at 1dda039b9), 16 in its DAPO recipe (recipe/dapo at v0.5.0).
TASKS: Mapping[str, Mapping[str, Any]] = {
    "GRPO": _GRPO,
    "GRPO-LoRA": {
        **_GRPO,
        f"{MODEL}.lora_rank": 32,
        f"{MODEL}.target_modules": "all-linear",
        f"{ROLLOUT}.load_format": "safetensors",
        f"{ROLLOUT}.layered_summon": True,
    },
    "PPO": {"algorithm.adv_estimator": "gae", f"{ACTOR}.use_kl_loss": True},
    "DAPO": {"algorithm.adv_estimator": "grpo", f"{ROLLOUT}.n": 16},
}
#: Megatron as the strategy, with its memory optimisations.
MEGATRON_SAVING: Mapping[str, Any] = {
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
            ("optim.override_optimizer_config.use_precision_aware_optimizer", True),
        )
    },
}


def known_task(text: str) -> str:
    """Return a task under its name in ``TASKS``.

    Raises:
        NoAnswerError: there is no such task.

    >>> known_task("grpo-lora")
    'GRPO-LoRA'
    """
    for name in TASKS:
        if name.casefold() == text.casefold():
            return name
    hint = did_you_mean(text, TASKS)
    raise NoAnswerError.because(f"unknown task {text[:80]!r}", hint, code="unknown_value")


#: The largest share of the rollout engine's budget for weights, which leaves room for the KV cache.
_WEIGHTS_SHARE = 0.7
#: Settings of the rollout engine: the GPUs of one copy, its share of each, its longest sequence.
ENGINE_TP = f"{ROLLOUT}.tensor_model_parallel_size"
ENGINE_SHARE = f"{ROLLOUT}.gpu_memory_utilization"
ENGINE_LENGTH = f"{ROLLOUT}.max_model_len"
#: The longest prompt and response.
LIMITS = ("data.max_prompt_length", "data.max_response_length")
BUDGETS = (
    f"{ACTOR}.ppo_max_token_len_per_gpu",
    "critic.ppo_max_token_len_per_gpu",
    "critic.ppo_infer_max_token_len_per_gpu",
)


def engine_size(request: Request, registries: Registries) -> Mapping[str, int]:
    """Return the TP of the rollout engine as a setting; none if the request sets it.

    This is the smallest power of two that leaves room for a KV cache.
    """
    config, defaults = request.config, registries.defaults(request.version)
    utilization = config.get(ENGINE_SHARE, defaults.get(ENGINE_SHARE))
    shape, gpu = registries.shape(request.model), registries.gpus.get(request.gpu or "")
    if ENGINE_TP in config or not shape or not isinstance(utilization, int | float):
        return {}
    room = (capacity_of(gpu) if gpu else USUAL_CAPACITY) * utilization * _WEIGHTS_SHARE
    gpus, tensor = request.gpus or 8, 1
    while 2 * shape.parameters / tensor > room and not gpus % (2 * tensor) and not shape.heads % (2 * tensor):
        tensor *= 2
    return {ENGINE_TP: tensor}


def fitted(request: Request, registries: Registries) -> Request:
    """Return the request with unset settings filled in that follow from the number of GPUs.

    These are the number of nodes, the engine's TP and longest sequence, and, with a dynamic batch size, token
    budgets that hold exactly one sequence.
    """
    gpus = request.gpus or 8
    config = dict(request.config)
    if not {"trainer.nnodes", "trainer.n_gpus_per_node"} & config.keys():
        each = next(size for size in range(min(gpus, 8), 0, -1) if not gpus % size)
        config |= {"trainer.nnodes": gpus // each, "trainer.n_gpus_per_node": each}
    defaults = registries.defaults(request.version)
    for key in LIMITS:  # these decide most answers, so a plan always states them
        config.setdefault(key, defaults.get(key))

    def value(key: str) -> Any:
        return config.get(key, defaults.get(key))

    config |= engine_size(request, registries)
    limits = [value(key) for key in LIMITS]
    if all(type(item) is int for item in limits):
        # The engine starts only if its cache holds a sequence of this length; the model's own limit is far
        # longer.
        config.setdefault(ENGINE_LENGTH, sum(limits))
        for budget in BUDGETS if value(f"{ACTOR}.use_dynamic_bsz") is True else ():
            config.setdefault(budget, sum(limits))
    return replace(request, config=config)
