"""Plans: layouts over GPUs, the smallest number of GPUs, the largest micro-batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, product
from typing import TYPE_CHECKING

from ..diagnostics import NoAnswerError
from .estimate import Estimate, attempt, estimate, largest_that_fits
from .request import ACTOR, MODEL, REFERENCE, ROLLOUT
from .settings import sequence_divisor
from .tasks import BUDGETS, MEGATRON_SAVING, fitted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .registries import Registries
    from .request import Request

# -- layouts

#: Pipeline and tensor sizes that are tried with Megatron, by their product; the smaller pipeline first.
_LAYOUTS = sorted(product((1, 2, 4, 8, 16), (1, 2, 4, 8)), key=lambda sizes: (sizes[0] * sizes[1], sizes))
#: No GPU holds the logits of more tokens than this.
_MOST_TOKENS = 2**18


def with_fsdp(asked: Request, registries: Registries) -> Iterator[tuple[Request, Estimate]]:
    """Yield the run with the smallest token budget, then with doubled ones up to a whole mini-batch.

    With one micro-batch per mini-batch, verl v0.9 keeps no undivided gradients.
    """
    request = fitted(asked, registries)
    first = attempt(request, registries)
    if isinstance(first, NoAnswerError):
        return
    yield request, first
    settings = first.settings
    micro = settings.actor.micro_batch
    everything = settings.actor.mini_batch * settings.lengths.limit / sequence_divisor(settings.actor)
    tokens, is_open = micro.tokens, all(asked.config.get(budget) is None for budget in BUDGETS)
    while is_open and micro.dynamic and tokens < everything and tokens < _MOST_TOKENS:
        tokens *= 2
        larger = request.having(dict.fromkeys(BUDGETS, tokens))
        if isinstance(found := attempt(larger, registries), Estimate):
            yield larger, found


def with_megatron(asked: Request, registries: Registries) -> Iterator[tuple[Request, Estimate]]:
    """Yield the run with Megatron, its memory optimisations on, by growing model-parallel sizes.

    Sizes that do not divide the GPUs or the heads are left out, and those with more stages than layers.
    Experts are spread as far as the model-parallel size leaves room.
    """
    shape, gpus = registries.shape(asked.model), asked.gpus or 8
    if shape is None:
        return
    moe = shape.architecture.moe
    dropped = (f"{ACTOR}.fsdp_config.", f"{REFERENCE}.fsdp_config.", "critic.fsdp.")
    config = {key: value for key, value in asked.config.items() if not key.startswith(dropped)}
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
        request = replace(asked, backend="megatron", config={**config, **MEGATRON_SAVING, **layout})
        request = fitted(request, registries)
        if isinstance(found := attempt(request, registries), Estimate):
            yield request, found


def best_layout(asked: Request, registries: Registries) -> tuple[Request, Estimate] | None:
    """Return the first layout that fits at the high end of the range, or else the one that takes least.

    FSDP is tried first, with growing token budgets where none is set, then Megatron by growing parallel
    sizes. A training backend or parallel sizes that the request names are not changed. Return None where
    nothing can be estimated.
    """
    named = asked.backend or asked.config.get(f"{ACTOR}.strategy") or asked.config.get("model_engine")
    own_sizes = any(key.startswith(f"{ACTOR}.megatron.") for key in asked.config)
    as_asked = own_sizes or named != "megatron"
    ways = [with_fsdp] if as_asked else []
    if not (named and as_asked):
        ways.append(with_megatron)
    tried = []
    for layout in chain.from_iterable(way(asked, registries) for way in ways):
        tried.append(layout)
        if layout[1].fits:
            return layout
    return min(tried, key=lambda layout: layout[1].high, default=None)


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


# -- plans

#: Numbers of GPUs that are tried: powers of two within a node, then whole nodes.
COUNTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


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


def plan(request: Request, registries: Registries) -> Plan:
    """Find the smallest number of GPUs that fits at the high end of the range, and its largest micro-batch.

    Args:
        request: with a GPU; ``gpus`` None asks for the number.
        registries: the registries.

    Raises:
        NoAnswerError: the request leaves no estimate on any number of GPUs.

    >>> from sphinx_verl_resources.cli.data import read_data
    >>> from sphinx_verl_resources.estimator.request import Request
    >>> from sphinx_verl_resources.estimator.tasks import task_settings
    >>> asked = Request("Qwen/Qwen2.5-7B", task_settings("GRPO-LoRA"), gpu="H100")
    >>> plan(asked, read_data([]).registries).gpus
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
        raise NoAnswerError.because("no layout leaves an estimate", "name other parallel sizes or GPUs")
    fits = [pair for pair in tried if pair[1].fits]
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
        return estimate(changed, registries).fits

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
    return largest_that_fits(low, high, fits), unit
