"""The search: the candidates to try on a GPU, the best first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..memory.recorded import ENGINE_SHARE, ENGINE_TP
from .candidates import Place, backend_of, with_fsdp, with_megatron

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..memory.estimate import Estimate
    from ..memory.registries import EstimatorContext
    from ..memory.request import Request
    from .candidates import Candidates
    from .layouts import Layout

#: The phases in which the rollout engine is awake.
_AWAKE = ("rollout", "weight-sync")
#: vLLM's own default for its share.
_MOST_SHARE = 0.9


@dataclass(frozen=True, eq=False)
class Tried:
    """The layouts tried for a question, in order, including the best ones.

    Attributes:
        fsdp: the layouts with FSDP.
        search_megatron: a function that finds the layouts with Megatron, which takes longer.
    """

    fsdp: tuple[Layout, ...]
    search_megatron: Callable[[], tuple[Layout, ...]] = tuple

    @cached_property
    def megatron(self) -> tuple[Layout, ...]:
        """The layouts with Megatron."""
        return self.search_megatron()

    @property
    def all(self) -> tuple[Layout, ...]:
        """The layouts with any backend."""
        return self.fsdp + self.megatron

    @property
    def fit(self) -> bool:
        """True if any layout fits."""
        return any(layout.fits for layout in self.fsdp) or any(layout.fits for layout in self.megatron)


class Searches:
    """The searches for a question on several GPUs and numbers of GPUs, which share their candidates."""

    def __init__(self, asked: Request, registries: EstimatorContext) -> None:
        self._asked, self._registries = asked, registries
        self._named = backend_of(asked)
        self._candidates: dict[tuple[Any, int | None], Candidates] = {}

    def on(self, gpus: int | None, gpu: str | None) -> Tried:
        """Return the layouts tried on a GPU, which must be in the registry, or the same in every call."""

        def found(make: Callable[[Request, EstimatorContext], Candidates]) -> tuple[Layout, ...]:
            if (make, gpus) not in self._candidates:
                asked = replace(self._asked, gpus=gpus, gpu=gpu)
                self._candidates[make, gpus] = make(asked, self._registries)
            return _Search(self._candidates[make, gpus], gpu).tried

        return Tried(
            found(with_fsdp) if self._named != "megatron" else (),
            lambda: found(with_megatron) if self._named in (None, "megatron") else (),
        )


class _Search:
    """The search among candidates for one type of GPU."""

    def __init__(self, candidates: Candidates, gpu: str | None) -> None:
        self._all, self._gpu = candidates, gpu
        self._found: dict[tuple[Any, Place], Layout | None] = {}
        if not candidates.bases:
            return
        self._capacity = candidates.capacity_on(gpu)
        self._engine = {**candidates.engine_on(gpu)}  # a copy, which ``_widen_engine`` changes
        self._last = candidates.levels[-1]
        self._run()
        if not self._found:  # no candidate was worth an estimate; estimate the one with the least memory
            self._at(candidates.in_order(self._last)[0], self._last, candidates.budgets[-1])

    @property
    def tried(self) -> tuple[Layout, ...]:
        """The layouts that could be estimated, in the order of the search."""
        return tuple(layout for layout in self._found.values() if layout)

    def _run(self) -> None:
        """Try layouts until the best one is found, or none can fit."""
        if not self._fits(self._all.heads[0], 0, self._all.budgets[0]):
            while not any(self._can_fit(head, self._last) for head in dict.fromkeys(self._all.heads)):
                if not self._widen_engine():
                    return
        for level in self._all.levels:
            if self._finds_best(level):
                return

    def _finds_best(self, level: int) -> bool:
        """Try the layouts of a level, the best first; return whether one fits."""
        for budget in dict.fromkeys((*self._all.budgets, *self._all.cheapest)):
            for base in self._all.in_order(level):
                head = self._all.heads[base]
                if (
                    self._can_fit(head, level)
                    and self._fits(head, level, budget)
                    and self._fits(base, level, budget)
                ):
                    return True
        return False

    def _can_fit(self, base: int, level: int) -> bool:
        """Return whether a layout fits with any budget."""
        tried = self._found.get(((*self._engine.values(),), Place(base, level, self._all.budgets[0])))
        if tried and tried.fits:
            return True
        # The last level but one loads everything for the update. If it does not fit, no lower level does.
        if level < self._last - 1 and not self._can_fit(base, self._last - 1):
            return False
        least, *others = self._all.cheapest
        return self._fits(base, level, least) or any(
            self._fits(base, self._last, budget) and self._fits(base, level, budget) for budget in others
        )

    def _fits(self, base: int, level: int, budget: int | None) -> bool:
        if self._all.least_bytes(base, level, self._capacity) > self._capacity:
            return False
        layout = self._at(base, level, budget)
        return layout is not None and layout.fits

    def _at(self, base: int, level: int, budget: int | None) -> Layout | None:
        """Return a layout; None if it cannot be estimated."""
        place = Place(base, level, budget)
        key = (*self._engine.values(),), place
        if key not in self._found:
            self._found[key] = self._all.layout(place, self._gpu, self._engine)
        return self._found[key]

    def _widen_engine(self) -> bool:
        """Double the rollout engine's TP, or give its cache another tenth of each GPU.

        Return whether this can help.
        """
        tried, given = self.tried, self._all.asked.config
        if not tried:
            return False
        last = tried[-1].estimate
        rollout = last.settings.rollout
        wider, more = 2 * rollout.tensor, round(rollout.utilization + 0.1, 2)
        if ENGINE_TP not in given and not last.settings.gpus % wider and not last.shape.heads % wider:
            larger: dict[str, float] = {ENGINE_TP: wider}
        elif ENGINE_SHARE not in given and more <= _MOST_SHARE and not tried[-1].starts:
            larger = {ENGINE_SHARE: more}
        else:
            return False
        if not any(_fits_asleep(layout.estimate) for layout in tried):
            return False
        self._engine |= larger
        return True


def _fits_asleep(estimate: Estimate) -> bool:
    """Return whether all phases with a sleeping rollout engine fit."""
    capacity = estimate.capacity or 0.0
    return all(phase.total <= capacity for phase in estimate.phases if phase.name not in _AWAKE)
