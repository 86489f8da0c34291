"""Layouts: the settings with which a model fits best, with FSDP and with Megatron."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..estimator.planner import layout_of, with_fsdp, with_megatron
from ..estimator.request import ACTOR
from ..estimator.tasks import SAVING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..estimator.estimate import Estimate
    from ..estimator.registries import Registries
    from ..estimator.request import Request


@dataclass(frozen=True)
class Layout:
    """A way to lay a run over its GPUs.

    Attributes:
        request: with every setting that was chosen.
        estimate: of it.
        offloads: how much is offloaded: 0 for nothing, and one more for each further part.
    """

    request: Request
    estimate: Estimate
    offloads: int = 0

    @property
    def name(self) -> str:
        """The training backend in a few words: ``FSDP``, or Megatron with its sizes."""
        return layout_of(self.estimate)

    @property
    def is_megatron(self) -> bool:
        """True where Megatron trains."""
        return self.estimate.settings.actor.backend == "megatron"


def tried_layouts(asked: Request, registries: Registries) -> tuple[Layout, ...]:
    """Return every layout that is tried, in the order in which it is.

    A training backend or parallel sizes that the request names are not changed.
    """
    request = asked.having({key: value for key, value in SAVING.items() if key not in asked.config})
    named = asked.backend or asked.config.get(f"{ACTOR}.strategy") or asked.config.get("model_engine")
    own_sizes = any(key.startswith(f"{ACTOR}.megatron.") for key in asked.config)
    as_asked = own_sizes or named != "megatron"
    ways = [with_fsdp] if as_asked else []
    if not (named and as_asked):
        ways.append(with_megatron)
    return tuple(Layout(*found) for way in ways for found in way(request, registries))


def best_of(layouts: Iterable[Layout]) -> Layout | None:
    """Return the best layout: it fits, offloads least, has the largest token budget, takes least of the host.

    Where none fits it is the one whose range ends lowest. None without any.
    """
    layouts = tuple(layouts)
    fitting = [layout for layout in layouts if layout.estimate.fits]
    if fitting:
        return min(fitting, key=lambda one: (one.offloads, -_budget(one), one.estimate.host.total))
    return min(layouts, key=lambda one: one.estimate.high, default=None)


def _budget(layout: Layout) -> float:
    return layout.estimate.settings.actor.micro_batch.tokens
