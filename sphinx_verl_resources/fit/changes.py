"""Changes: the settings that make a run fit; what to try first comes first."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ..diagnostics import NoAnswerError
from ..i18n import N_
from ..memory.estimate import Estimate, attempt
from ..memory.request import ACTOR, MODEL
from ..memory.settings import TRAINER_GPUS
from .command import as_arguments
from .layouts import COUNTS
from .levers import HOST, STARTUP, Option, options_for
from .question import USUAL_RANK, named_settings
from .search import Searches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..memory.registries import EstimatorContext
    from ..memory.request import Request, Verdict
    from .layouts import Layout
    from .levers import Cost, Overrides

    #: A combination of levers, each with its steps up to the one that is taken.
    Levers = tuple[Option, ...]

#: The largest number of changes to return.
_MOST = 5
_COSTS: tuple[Cost, ...] = ("none", "little", "much")
#: The rank of a lever that can change results.
_CHANGES_RESULTS = 3
ADAPTERS_ONLY = N_("LoRA trains adapters instead of all parameters, so results differ.")


@dataclass(frozen=True)
class Change:
    """Settings to change, and the memory after the change. Sizes are bytes per GPU.

    Attributes:
        overrides: the settings by verl's dotted keys.
        arguments: the same as arguments of verl's launcher.
        peak: the peak with the change.
        high: the high end of the range with the change.
        verdict: the verdict with the change.
        cost: its cost in time.
        caveats: its other costs, each a translatable sentence.
    """

    overrides: Mapping[str, Any]
    arguments: tuple[str, ...]
    peak: float
    high: float
    verdict: Verdict
    cost: Cost
    caveats: tuple[str, ...] = ()


def changes_for(layout: Layout, data: EstimatorContext, asked: Request | None = None) -> tuple[Change, ...]:
    """Return the changes that make a run fit, in the order in which to try them; empty if it fits.

    Single levers that suffice come first, then combinations. If none of them keeps the results, more GPUs
    come before them, and LoRA after them. If nothing suffices, return the combination that comes nearest.

    Args:
        layout: the run.
        data: the records.
        asked: the question of a plan, which chooses the settings for other GPUs and for LoRA; without it, all
            settings are given.
    """
    if layout.verdict in ("fits", "unknown") or layout.reason == "no-bfloat16":
        return ()
    search = _Search(layout, data)
    found = search.sufficient()
    changes = [search.change(levers) for levers in found]
    if not found or _rank(found[0])[0] == _CHANGES_RESULTS:
        plan = asked if asked != layout.request else None
        changes = [*filter(None, (_more_gpus(layout, data, plan), *changes, _lora(layout, data, plan)))]
    least = () if changes else search.least()
    return tuple(changes[:_MOST]) or ((search.change(least),) if least else ())


def _changed(layout: Layout, overrides: Overrides, data: EstimatorContext) -> Layout | None:
    """Return a layout with other settings, also of the number of GPUs; None if it cannot be estimated."""
    request = layout.request.having(overrides)
    request = request if overrides.keys().isdisjoint(TRAINER_GPUS) else replace(request, gpus=None)
    found = attempt(request, data)
    return replace(layout, request=request, estimate=found) if isinstance(found, Estimate) else None


class _Search:
    """A search over the levers of a layout.

    Args:
        layout: the layout.
        data: the records.
        origin: the layout that changes start from, if it is another one.
    """

    def __init__(self, layout: Layout, data: EstimatorContext, origin: Layout | None = None) -> None:
        self._layout, self._data, self._origin, found = layout, data, origin or layout, layout.estimate
        over = {phase.name for phase in found.phases if not found.of_phase(phase.name).fits}
        over |= HOST if layout.reason == "host" else set()
        options = [*options_for(found)]
        self._options = [option for option in options if option.lever.phases & over]
        self._starts = [step for option in options if option.lever.phases == STARTUP for step in option.steps]
        self._known: dict[Any, Layout | None] = {}

    def _after(self, levers: Levers) -> Layout | None:
        """Return the layout with levers, and what lets its engine start; None if it cannot be estimated."""
        overrides: Overrides = {}
        for option in levers:
            overrides |= option.steps[-1]
        key = tuple(overrides.items())
        if key not in self._known:
            after = _changed(self._layout, overrides, self._data)
            if after and after.estimate.fits and not after.starts:
                started = (_changed(after, step, self._data) for step in self._starts)
                after = next((other for other in started if other and other.fits), after)
            self._known[key] = after
        return self._known[key]

    def _fits(self, levers: Levers) -> bool:
        after = self._after(levers)
        return after is not None and after.fits

    def _size(self, levers: Levers) -> float:
        """Return the high end of the range, plus what the host lacks."""
        after = self._after(levers)
        lack = after.estimate.host.total - after.host_limit if after else 0.0
        return after.estimate.high + max(0.0, lack) if after else float("inf")

    def sufficient(self, most: int = _CHANGES_RESULTS) -> list[Levers]:
        """Return levers that suffice, and for each cost without such a lever a combination that does.

        Args:
            most: the largest rank of a lever's cost.
        """
        if self._fits(()) or not self._fits(self._joined(most)):
            return [()] if self._fits(()) else []
        single = [self._weakened((option,)) for option in self._options if option.lever.rank <= most]
        found = [*filter(self._fits, single)]
        for rank in range(1, most + 1):
            everything = self._joined(rank)
            if all(_rank(levers)[0] > rank for levers in found) and self._fits(everything):
                found.append(self._weakened(self._needed(everything, self._fits)))
        return sorted(found, key=_rank)

    def least(self) -> Levers:
        """Return the combination that comes nearest to fitting."""
        everything = self._joined(_CHANGES_RESULTS)
        return self._needed(everything, lambda levers: self._size(levers) <= self._size(everything))

    def _joined(self, most: int) -> Levers:
        """Return all levers up to a rank that help or do no harm, each at its best step."""
        levers: Levers = ()
        for option in self._options:
            steps = _steps(option)[::-1] if option.lever.rank <= most else []
            levers = min([*((*levers, step) for step in steps), levers], key=self._size)
        return levers

    def _needed(self, levers: Levers, suffices: Callable[[Levers], bool]) -> Levers:
        """Return a combination without levers that it does not need; the last to try are removed first."""
        for option in sorted(levers, key=lambda option: option.lever.rank)[::-1]:
            fewer = tuple(other for other in levers if other is not option)
            levers = fewer if suffices(fewer) else levers
        return levers

    def _weakened(self, levers: Levers) -> Levers:
        """Return a combination with each lever at the weakest step that suffices; the same if none does."""
        for index, option in enumerate(levers):
            weaker = ((*levers[:index], step, *levers[index + 1 :]) for step in _steps(option))
            levers = next(filter(self._fits, weaker), levers)
        return levers

    def change(self, levers: Levers) -> Change:
        """Return a combination as a change."""
        return _change(self._origin, self._after(levers) or self._layout, self._data, levers)


def _steps(option: Option) -> list[Option]:
    """Return a lever at each of its steps, the weakest first."""
    return [option._replace(steps=option.steps[: step + 1]) for step in range(len(option.steps))]


def _rank(levers: Levers) -> tuple[int, ...]:
    """Return the sort key of combinations: the costs of their levers, then their number."""
    ranks = [option.lever.rank for option in levers]
    return max(ranks, default=0), len(ranks), sum(ranks)


def _overrides(before: Layout, after: Layout) -> Overrides:
    """Return the settings that lead from one layout to another; a setting that it drops gets its default."""
    old, settings = before.request.config, after.estimate.settings
    defaults = after.estimate.registries.defaults(settings.version)
    new = {key: defaults.get(key) for key in old} | dict(after.request.config)
    if before.is_megatron != after.is_megatron:
        roles = [ACTOR, "critic"] if settings.critic else [ACTOR]
        new |= {f"{role}.strategy": settings.actor.backend for role in roles}
    kept = TRAINER_GPUS if before.estimate.settings.gpus != settings.gpus else ()
    return {key: new[key] for key in new if key in kept or key not in old or old[key] != new[key]}


def _change(before: Layout, after: Layout, data: EstimatorContext, levers: Levers = ()) -> Change:
    """Return what leads from one layout to another with some levers."""
    overrides, found = _overrides(before, after), after.estimate
    slower = ["adam-on-cpu" in layout.offloaded for layout in (before, after)] == [False, True]
    costs: list[Cost] = [option.lever.cost for option in levers] + (["much"] if slower else ["none"])
    caveats = dict.fromkeys(option.lever.caveat for option in levers if option.lever.caveat)
    arguments = as_arguments(overrides, after.request.version, data)
    cost = max(costs, key=_COSTS.index)
    return Change(overrides, arguments, found.peak, found.high, after.verdict, cost, tuple(caveats))


def _more_gpus(layout: Layout, data: EstimatorContext, asked: Request | None) -> Change | None:
    """Return the fewest GPUs that fit, with the levers that they need; in a plan, as ``fewest`` counts."""
    gpus, nodes = layout.estimate.settings.gpus, layout.estimate.settings.nodes
    each = gpus // nodes if nodes > 1 else 8
    is_given = asked is not None and not asked.config.keys().isdisjoint(TRAINER_GPUS)

    @cache
    def change(count: int) -> Change | None:
        own = dict(zip(TRAINER_GPUS, (-(-count // each), min(count, each)), strict=True))
        there = asked and replace(asked.having(own) if is_given else asked, gpus=count)
        return _elsewhere(layout, own, data, there)

    counts = [count for count in COUNTS if count > gpus and (count < each or not count % each)]
    place = bisect_left(counts, True, key=lambda count: change(count) is not None)  # more GPUs fit no worse
    return change(counts[place]) if place < len(counts) else None


def _lora(layout: Layout, data: EstimatorContext, asked: Request | None) -> Change | None:
    """Return LoRA with the levers that it needs; None if the run trains adapters already."""
    if layout.estimate.settings.actor.lora_rank:
        return None
    of_megatron = {f"{MODEL}.lora.rank": USUAL_RANK}
    own = of_megatron if layout.is_megatron and not asked else named_settings(None, USUAL_RANK)
    change = _elsewhere(layout, own, data, asked and asked.having(own))
    return change and replace(change, caveats=(ADAPTERS_ONLY, *change.caveats))


def _elsewhere(
    layout: Layout, own: Overrides, data: EstimatorContext, asked: Request | None
) -> Change | None:
    """Return settings with the others that they need to fit; None if nothing suffices.

    In a plan, ``asked`` is its question with these settings, and the plan chooses the others.
    """
    if asked is None:
        there = _changed(layout, own, data)
        search = _Search(there, data, layout) if there else None
        found = search.sufficient(most=1) if search else []
        return search.change(found[0]) if search and found else None
    there = _planned(asked, layout, data)
    if there and there.is_megatron != layout.is_megatron:
        same = replace(asked, backend="megatron" if layout.is_megatron else "fsdp")
        there = _planned(same, layout, data) or there
    return _change(layout, _simpler(layout, there, own, data), data) if there else None


def _planned(asked: Request, layout: Layout, data: EstimatorContext) -> Layout | None:
    """Return the best layout of a plan, with a layout's host memory; None if none fits."""
    try:
        found = Searches(asked, data, layout.given_host_limit).on(asked.gpus, asked.gpu)[0]
    except NoAnswerError:
        return None
    return found if found.fits else None


def _simpler(layout: Layout, there: Layout, own: Overrides, data: EstimatorContext) -> Layout:
    """Return a layout that fits with as few changes of another layout as possible, besides its own."""
    kept = {*own, *TRAINER_GPUS, f"{MODEL}.lora.rank"}
    overrides = _overrides(layout, there)
    for key in [key for key in overrides if key not in kept]:
        fewer = {name: value for name, value in overrides.items() if name != key}
        if (after := _changed(layout, fewer, data)) and after.fits:
            overrides, there = fewer, after
    return there
