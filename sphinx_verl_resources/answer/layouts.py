"""Layouts: ways to distribute a run over its GPUs, the choice of the best, and the limits of its settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..memory.engine import cache_tokens, needed_cache_tokens
from ..memory.estimate import Estimate, attempt, largest_that_fits
from ..memory.recorded import BUDGETS
from ..memory.roles import LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..memory.registries import EstimatorContext
    from ..memory.request import Request, Verdict

#: The numbers of GPUs to try: powers of two within a node, then whole nodes.
COUNTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
#: verl's default token budget; larger ones hardly train faster.
USUAL_BUDGET = 16384
_RESPONSE = LIMITS[1]


@dataclass(frozen=True)
class Layout:
    """A way to distribute a run over its GPUs.

    Attributes:
        request: the request with all chosen settings.
        estimate: its estimate.
    """

    request: Request
    estimate: Estimate

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
        """The parts of the actor's states that are offloaded between uses, in words."""
        actor = self.estimate.settings.actor
        of_backend = actor.megatron if self.is_megatron else actor.fsdp
        parts = {
            "optimizer": of_backend.optimizer_offload,
            "parameters": of_backend.param_offload,
            "optimizer step": actor.megatron.cpu_optimizer > 0,
        }
        if actor.fsdp.offload_policy and actor.backend == "fsdp2":
            parts |= {"optimizer": True, "parameters": True}
        return tuple(part for part, is_on in parts.items() if is_on)

    @property
    def offloads(self) -> int:
        """The number of offloaded parts."""
        return len(self.offloaded)

    @property
    def token_budget(self) -> int | None:
        """The largest micro-batch in tokens per GPU; None if micro-batches are counted in sequences."""
        micro = self.estimate.settings.actor.micro_batch
        return micro.tokens if micro.dynamic else None

    @property
    def is_fastest(self) -> bool:
        """True if nothing is offloaded and the token budget is the largest one tried."""
        longest = self.estimate.settings.lengths.limit
        return not self.offloads and (self.token_budget or 0) >= max(USUAL_BUDGET, longest)

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

    @cached_property
    def fits(self) -> bool:
        """True if the whole range fits and the rollout engine starts."""
        return self.estimate.fits and self.starts

    @property
    def verdict(self) -> Verdict:
        """The estimate's verdict, or ``borderline`` if it fits but the rollout engine may not start."""
        found = self.estimate
        return found.verdict if found.verdict != "fits" or found.ran or self.starts else "borderline"


def best_of(layouts: Iterable[Layout]) -> Layout | None:
    """Return the best layout that fits: least offloading, then largest token budget, then least host memory.

    If none fits, return the one with the lowest high end; None if there are no layouts.
    """
    layouts = tuple(layouts)
    fitting = [layout for layout in layouts if layout.fits]
    if not fitting:
        return min(layouts, key=lambda one: one.estimate.high, default=None)
    ranks = [(layout.offloads, -(layout.token_budget or 0)) for layout in fitting]
    fastest = [layout for layout, rank in zip(fitting, ranks, strict=True) if rank == min(ranks)]
    return min(fastest, key=_rank) if len(fastest) > 1 else fastest[0]


def _rank(layout: Layout) -> tuple[float, float]:
    """Return the sort key of layouts with equal speed; fewer parts are faster."""
    megatron = layout.estimate.settings.actor.megatron
    return (layout.estimate.host.total, megatron.tensor * megatron.pipeline)


# -- the limits of a layout's settings


def largest_token_budget(layout: Layout, registries: EstimatorContext) -> int | None:
    """Return the largest micro-batch that fits, in tokens per GPU, up to a whole step.

    Return None if not even one sequence fits, or if micro-batches are counted in sequences.
    """
    settings = layout.estimate.settings
    micro, divisor = settings.actor.micro_batch, settings.actor.micro_batch.sharers
    if not micro.dynamic:
        return None

    def fits(tokens: int) -> bool:
        return _fits(layout, _with_budget(layout, tokens), registries)

    least = math.ceil(settings.lengths.limit / divisor)
    if layout.fits:
        least = max(least, micro.tokens)
    elif not fits(least):
        return None
    most = max(least, math.ceil(settings.old_micro_batch.most * settings.lengths.limit / divisor))
    return most if fits(most) else largest_that_fits(least, most, fits)


def longest_response(layout: Layout, registries: EstimatorContext) -> int | None:
    """Return the longest response that fits, in tokens; None if not even a short one fits.

    A token budget that is shorter than the sequence is raised to its length. The sequence must also fit into
    the rollout engine's KV cache and the model's positions.
    """
    settings, architecture = layout.estimate.settings, layout.estimate.shape.architecture
    micro, divisor = settings.actor.micro_batch, settings.actor.micro_batch.sharers
    response = layout.request.config.get(_RESPONSE, registries.defaults(layout.request.version)[_RESPONSE])
    if type(response) is not int:
        return None
    prompt = int(settings.lengths.limit) - response

    def fits(tokens: int) -> bool:
        length = prompt + tokens
        if not settings.rollout.separate and cache_tokens(layout.estimate.shape, settings) < length:
            return False
        budget = max(micro.tokens if layout.fits else 0, math.ceil(length / divisor))
        longer = {**(_with_budget(layout, budget) if micro.dynamic else {}), _RESPONSE: tokens}
        return _fits(layout, longer, registries)

    most = (settings.positions or architecture.positions_of(layout.request.model)) - prompt
    least = response if layout.fits and fits(response) else 1
    if most < least or not fits(least):
        return None
    return largest_that_fits(least, most, fits)


def _with_budget(layout: Layout, tokens: int) -> Mapping[str, Any]:
    """Return the settings for a token budget in every pass."""
    config = layout.request.config
    critic = layout.estimate.settings.critic is not None
    keys = {key for key in BUDGETS if critic or not key.startswith("critic.")}
    return dict.fromkeys(keys | {key for key in config if key.endswith("max_token_len_per_gpu")}, tokens)


def _fits(layout: Layout, changes: Mapping[str, Any], registries: EstimatorContext) -> bool:
    """Return whether a layout fits with changed settings."""
    found = attempt(layout.request.having(changes), registries)
    return isinstance(found, Estimate) and found.fits
