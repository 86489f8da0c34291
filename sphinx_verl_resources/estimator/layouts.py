"""Layouts of a run over its GPUs: the settings that follow from their number, with FSDP or Megatron."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, product
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from .estimate import Estimate, estimate
from .registries import capacity_of
from .resolve import USUAL_CAPACITY
from .roles import ACTOR, MODEL, REFERENCE, ROLLOUT
from .tokens import sequence_divisor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .registries import Registries
    from .request import Request

#: Share of the rollout engine's budget that its weights may take, so that there is room for the KV cache.
_WEIGHTS_SHARE = 0.7

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
        )
    },
}
#: Pipeline and tensor sizes that are tried with Megatron, by their product; the smaller pipeline first.
_LAYOUTS = sorted(product((1, 2, 4, 8, 16), (1, 2, 4, 8)), key=lambda sizes: (sizes[0] * sizes[1], sizes))
#: No GPU holds the logits of more tokens than this.
_MOST_TOKENS = 2**18
#: The longest prompt and response.
LIMITS = ("data.max_prompt_length", "data.max_response_length")
BUDGETS = (
    f"{ACTOR}.ppo_max_token_len_per_gpu",
    "critic.ppo_max_token_len_per_gpu",
    "critic.ppo_infer_max_token_len_per_gpu",
)


def fitted(request: Request, registries: Registries) -> Request:
    """Return the request with settings that follow from the number of GPUs, where they are not set.

    These are the number of nodes, the engine's TP, and with a dynamic batch size the token budgets. TP is the
    smallest power of two that leaves the engine room for a KV cache; a token budget holds one sequence.
    """
    gpus = request.gpus or 8
    config = dict(request.config)
    if not {"trainer.nnodes", "trainer.n_gpus_per_node"} & config.keys():
        each = next(size for size in range(min(gpus, 8), 0, -1) if not gpus % size)
        config |= {"trainer.nnodes": gpus // each, "trainer.n_gpus_per_node": each}
    defaults = registries.defaults(request.version)
    for key in LIMITS:  # they decide most answers, so the plan always names them
        config.setdefault(key, defaults.get(key))

    def value(key: str) -> Any:
        return config.get(key, defaults.get(key))

    key = f"{ROLLOUT}.tensor_model_parallel_size"
    shape, gpu = registries.shape(request.model), registries.gpus.get(request.gpu or "")
    memory = capacity_of(gpu) if gpu else USUAL_CAPACITY
    utilization = value(f"{ROLLOUT}.gpu_memory_utilization")
    if key not in config and shape and isinstance(utilization, int | float):
        room = memory * utilization * _WEIGHTS_SHARE
        tensor = 1
        while (
            2 * shape.parameters / tensor > room
            and not gpus % (2 * tensor)
            and not shape.heads % (2 * tensor)
        ):
            tensor *= 2
        config[key] = tensor
    limits = [value(key) for key in LIMITS]
    if value(f"{ACTOR}.use_dynamic_bsz") is True and all(type(item) is int for item in limits):
        for budget in BUDGETS:
            config.setdefault(budget, sum(limits))
    return replace(request, config=config)


def with_megatron(request: Request, registries: Registries) -> Iterator[Request]:
    """Yield the same run with Megatron, its memory optimisations on, by growing model-parallel sizes.

    Sizes that do not divide the GPUs or the heads are left out, and those with more stages than layers.
    Experts are spread as far as the model-parallel size leaves room.
    """
    shape, gpus = registries.shape(request.model), request.gpus or 8
    if shape is None:
        return
    moe = shape.architecture.moe
    dropped = (f"{ACTOR}.fsdp_config.", f"{REFERENCE}.fsdp_config.", "critic.fsdp.")
    config = {key: value for key, value in request.config.items() if not key.startswith(dropped)}
    if rank := config.pop(f"{MODEL}.lora_rank", None):  # the key that Megatron reads
        config[f"{MODEL}.lora.rank"] = rank
    for pipeline, tensor in _LAYOUTS:
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
        yield replace(request, backend="megatron", config={**config, **MEGATRON_SAVING, **layout})


def best_layout(asked: Request, registries: Registries) -> tuple[Request, Estimate] | None:
    """Return the first layout that fits at the high end of the range, or else the one that takes least.

    FSDP is tried first, with growing token budgets where none is set, then Megatron by growing parallel
    sizes. A training backend or parallel sizes that the request names are not changed. Return None where
    nothing can be estimated.
    """
    named = asked.backend or asked.config.get(f"{ACTOR}.strategy") or asked.config.get("model_engine")
    own_sizes = any(key.startswith(f"{ACTOR}.megatron.") for key in asked.config)
    with_fsdp = _with_budgets(asked, registries) if named != "megatron" or own_sizes else iter(())
    others = (
        with_megatron(asked, registries) if not named or (named == "megatron" and not own_sizes) else iter(())
    )
    tried = []
    for request in chain(with_fsdp, (fitted(other, registries) for other in others)):
        try:
            found = estimate(request, registries)
        except NoAnswerError:
            continue
        tried.append((request, found))
        if found.verdict == "fits":
            return tried[-1]
    return min(tried, key=lambda pair: pair[1].high, default=None)


def _with_budgets(asked: Request, registries: Registries) -> Iterator[Request]:
    """Yield the request with the smallest token budget, then with doubled ones up to a whole mini-batch.

    With one micro-batch per mini-batch, verl v0.9 keeps no undivided gradients.
    """
    request = fitted(asked, registries)
    yield request
    if any(asked.config.get(budget) is not None for budget in BUDGETS):
        return
    try:
        settings = estimate(request, registries).settings
    except NoAnswerError:
        return
    micro = settings.actor.micro_batch
    everything = settings.actor.mini_batch * settings.lengths.limit / sequence_divisor(settings.actor)
    tokens = micro.tokens
    while micro.dynamic and tokens < everything and tokens < _MOST_TOKENS:
        tokens *= 2
        yield replace(request, config={**request.config, **dict.fromkeys(BUDGETS, tokens)})


def layout_of(found: Estimate) -> str:
    """Return the training backend in a few words: ``FSDP``, or Megatron with its sizes."""
    actor = found.settings.actor
    if actor.backend != "megatron":
        return "FSDP2" if actor.backend == "fsdp2" else "FSDP"
    megatron = actor.megatron
    sizes = (
        ("TP", megatron.tensor),
        ("PP", megatron.pipeline),
        ("CP", megatron.context),
        ("EP", megatron.expert),
    )
    return " ".join(["Megatron", *(f"{name} {size}" for name, size in sizes if size > 1)])
