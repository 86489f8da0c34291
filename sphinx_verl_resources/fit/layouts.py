"""Layouts: ways to distribute a run over its GPUs, the verdict on each, and the limits of its settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ..memory.engine import cache_tokens, needed_cache_tokens
from ..memory.estimate import Estimate, attempt, largest_that_fits
from ..memory.recorded import BUDGETS
from ..memory.roles import LIMITS
from ..memory.settings import gpu_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..memory.request import Request, Verdict

#: The numbers of GPUs to try: powers of two within a node, then whole nodes.
COUNTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
#: verl's default token budget; larger ones hardly train faster.
USUAL_BUDGET = 16384
_RESPONSE, _BUDGET = LIMITS[1], "max_token_len_per_gpu"
#: What can be offloaded to host memory; ``adam-on-cpu``: the CPU computes the optimizer step, which is slow.
OFFLOADED = ("weights", "gradients", "optimizer", "activations", "adam-on-cpu")
#: The host memory of a node that is assumed, as a multiple of the memory of its GPUs.
HOST_SHARE = 2


#: Why a layout has its verdict.
Reason = Literal[
    "fits", "ran", "lengths", "borderline", "engine", "host", "too-large", "no-bfloat16", "unknown",
]  # fmt: skip
#: The verdict of each reason.
VERDICT_OF: Mapping[Reason, Verdict] = {
    "fits": "fits",
    "ran": "borderline",
    "borderline": "borderline",
    "engine": "borderline",
    "host": "borderline",
    "lengths": "depends-on-lengths",
    "too-large": "does-not-fit",
    "no-bfloat16": "does-not-fit",
    "unknown": "unknown",
}


@dataclass(frozen=True)
class Layout:
    """A way to distribute a run over its GPUs.

    Attributes:
        request: the request with all chosen settings.
        estimate: its estimate.
        given_host_limit: the host memory of a node in bytes; None if it is not known.
    """

    request: Request
    estimate: Estimate
    given_host_limit: float | None = None

    @property
    def name(self) -> str:
        """The training backend in a few words: ``FSDP``, or Megatron with its sizes."""
        actor = self.estimate.settings.actor
        if actor.backend != "megatron":
            return "FSDP2" if actor.backend == "fsdp2" else "FSDP"
        of = actor.megatron
        sizes = {"TP": of.tensor, "PP": of.pipeline, "CP": of.context, "EP": of.expert}
        return " ".join(["Megatron", *(f"{name} {size}" for name, size in sizes.items() if size > 1)])

    @property
    def is_megatron(self) -> bool:
        """True if Megatron trains."""
        return self.estimate.settings.actor.backend == "megatron"

    @property
    def offloaded(self) -> tuple[str, ...]:
        """The parts that are offloaded to host memory, in the words of ``OFFLOADED``."""
        actor = self.estimate.settings.actor
        of_backend = actor.megatron if self.is_megatron else actor.fsdp
        on_cpu = actor.fsdp.offload_policy if actor.backend == "fsdp2" else actor.megatron.cpu_optimizer > 0
        policy = on_cpu and not self.is_megatron
        parts = {
            "weights": of_backend.param_offload or policy,
            "gradients": policy or (self.is_megatron and of_backend.param_offload),
            "optimizer": of_backend.optimizer_offload or on_cpu,
            "adam-on-cpu": on_cpu,
        }
        return tuple(part for part, is_on in parts.items() if is_on)

    @property
    def token_budget(self) -> int | None:
        """The largest micro-batch in tokens per GPU; None if micro-batches are counted in sequences."""
        micro = self.estimate.settings.actor.micro_batch
        return micro.tokens if micro.dynamic else None

    @property
    def cache(self) -> tuple[float, float]:
        """The tokens that fit into the rollout engine's KV cache, and the tokens that it must hold."""
        shape, settings = self.estimate.shape, self.estimate.settings
        return cache_tokens(shape, settings), needed_cache_tokens(shape, settings)

    @property
    def starts(self) -> bool:
        """True if the KV cache is large enough for the rollout engine to start."""
        room, needed = self.cache
        return room >= needed

    @property
    def host_limit(self) -> float:
        """The host memory of a node in bytes: as given, or twice the memory of the node's GPUs."""
        settings = self.estimate.settings
        each = settings.gpus / max(1, settings.nodes)
        return self.given_host_limit or HOST_SHARE * each * settings.capacity

    @cached_property
    def reason(self) -> Reason:
        """Why the layout fits or not; the first that applies."""
        own = self.estimate
        if own.verdict == "unknown":
            return "unknown"
        gpu = gpu_of(self.request, own.registries)
        if gpu and not gpu.bfloat16:
            return "no-bfloat16"
        if own.verdict == "does-not-fit":
            return "too-large"
        if own.verdict != "fits":
            ran = own.ran and own.low > (own.capacity or 0.0)
            return "ran" if ran else "lengths" if own.verdict == "depends-on-lengths" else "borderline"
        if own.ran:
            return "fits"
        return "engine" if not self.starts else "host" if own.host.total > self.host_limit else "fits"

    @property
    def fits(self) -> bool:
        """True if the whole range fits, the rollout engine starts, and the host holds what is offloaded."""
        return self.estimate.fits and self.reason == "fits"

    @property
    def verdict(self) -> Verdict:
        """The verdict that follows from the reason."""
        return VERDICT_OF[self.reason]


# -- the limits of a layout's settings


def largest_token_budget(layout: Layout) -> int | None:
    """Return the largest micro-batch whose range fits, in tokens per GPU, up to a whole step.

    Return None if not even one sequence fits, or if micro-batches are counted in sequences.
    """
    settings = layout.estimate.settings
    micro, limit = settings.actor.micro_batch, settings.lengths.limit
    if not micro.dynamic:
        return None
    least = max(math.ceil(limit / micro.sharers), micro.tokens if layout.fits else 0)
    most = max(least, math.ceil(settings.old_micro_batch.most * limit / micro.sharers))
    return _largest(least, most, lambda tokens: _fits(layout, _with_budget(layout, tokens)))


def longest_response(layout: Layout) -> int | None:
    """Return the longest response that fits, in tokens; None if not even a short one fits.

    A token budget that is shorter than the sequence is raised to its length. The sequence must also fit into
    the rollout engine's KV cache and the model's positions.
    """
    estimate, request = layout.estimate, layout.request
    settings, micro = estimate.settings, estimate.settings.actor.micro_batch
    response = request.config.get(_RESPONSE, estimate.registries.defaults(request.version)[_RESPONSE])
    if type(response) is not int:
        return None
    prompt = int(settings.lengths.limit) - response
    most = settings.positions or estimate.shape.architecture.positions_of(request.model)
    if not settings.rollout.separate:
        most = int(min(most, layout.cache[0]))

    def fits(tokens: int) -> bool:
        budget = max(micro.tokens if layout.fits else 0, math.ceil((prompt + tokens) / micro.sharers))
        budgets = _with_budget(layout, budget) if micro.dynamic else {}
        return _fits(layout, {**budgets, _RESPONSE: tokens})

    return _largest(response if layout.fits and fits(response) else 1, most - prompt, fits)


def _largest(least: int, most: int, fits: Callable[[int], bool]) -> int | None:
    """Return the largest number that fits; None if not even the least does."""
    if most < least or not fits(least):
        return None
    return most if fits(most) else largest_that_fits(least, most, fits)


def _with_budget(layout: Layout, tokens: int) -> Mapping[str, Any]:
    """Return the settings for a token budget in every pass."""
    critic = layout.estimate.settings.critic is not None
    keys = {key for key in BUDGETS if critic or not key.startswith("critic.")}
    return dict.fromkeys({*keys, *(key for key in layout.request.config if key.endswith(_BUDGET))}, tokens)


def _fits(layout: Layout, changes: Mapping[str, Any]) -> bool:
    """Return whether a layout fits with changed settings."""
    changed = attempt(layout.request.having(changes), layout.estimate.registries)
    return isinstance(changed, Estimate) and changed.fits
