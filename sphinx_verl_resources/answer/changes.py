"""Changes: the settings that make a run fit, the cheapest first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ..diagnostics import NoAnswerError
from ..memory.estimate import attempt
from ..memory.recorded import ENGINE_LENGTH, ENGINE_SHARE, ENGINE_TP
from ..memory.settings import TRAINER_GPUS
from .command import as_arguments
from .layouts import COUNTS, Layout
from .suggestions import ROUNDS, Cost, reliefs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..memory.estimate import Estimate
    from ..memory.registries import EstimatorContext
    from ..memory.request import Request, Verdict
    from .suggestions import Relief

#: The largest number of changes to return.
_MOST = 5
#: The largest number of combinations of three settings to try, which takes less than a second.
_MOST_TRIED = 1200
_COSTS: tuple[Cost, ...] = ("none", "little", "much")


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

    @property
    def caveat(self) -> str:
        """The caveats in one text; empty if there are none."""
        return " ".join(self.caveats)


class _Part(NamedTuple):
    """One setting of a combination, at one of its steps."""

    relief: Relief
    step: int

    @property
    def overrides(self) -> Mapping[str, Any]:
        return self.relief.steps[self.step]

    @property
    def dearness(self) -> int:
        """The rank of its cost; settings that can change results rank after those that cost little time."""
        return 2 if self.relief.caveat == ROUNDS else {"none": 0, "little": 1, "much": 3}[self.relief.cost]


_Parts = tuple[_Part, ...]


def changes_for(layout: Layout, registries: EstimatorContext) -> tuple[Change, ...]:
    """Return the changes that make a run fit, in the order in which to try them; empty if it fits.

    Single settings that suffice come first. If there are none, or only ones that cost much or change results,
    combinations follow, the cheapest first. Otherwise more GPUs are needed. If nothing suffices, return the
    combination with the smallest peak.
    """
    if layout.verdict in ("fits", "unknown"):
        return ()
    search = _Search(layout.request, layout.estimate, registries)
    if layout.estimate.fits:
        only = search.change(())
        return (only,) if _suffices(only) else ()
    single = tuple(map(search.change, search.sufficient()))
    found = single if any(map(_suffices, single)) else (*_more_gpus(search), *single)
    return tuple(filter(_suffices, found)) or found[:1] or (search.change(search.least()),)


def _suffices(change: Change) -> bool:
    return change.verdict == "fits"


def _what_starts(found: Estimate) -> Iterator[dict[str, Any]]:
    """Yield settings that may let the rollout engine start: shorter sequences, larger TP, more memory.

    The engine's share of the GPU grows in steps of a tenth, up to vLLM's default.
    """
    rollout, limit = found.settings.rollout, int(found.settings.lengths.limit)
    length = {} if rollout.model_length and rollout.model_length <= limit else {ENGINE_LENGTH: limit}
    for tenths in range(10):
        share = round(rollout.utilization + tenths / 10, 2)
        if tenths and share > 0.9:
            return
        more = {ENGINE_SHARE: share} if tenths else {}
        tensor = rollout.tensor
        while found.settings.gpus % tensor == 0:
            yield {**length, **more, **({ENGINE_TP: tensor} if tensor > rollout.tensor else {})}
            tensor *= 2


def with_change(request: Request, overrides: Mapping[str, Any]) -> Request:
    """Return a request with a change, which may replace the number of GPUs."""
    if not overrides.keys().isdisjoint(TRAINER_GPUS):
        request = replace(request, gpus=None)
    return request.having(overrides)


class _Search:
    """A search over all settings that save memory, for one run on given GPUs.

    Attributes:
        request: the run.
        parts: all settings, each at its strongest step.
        gpus: overrides in every combination, usually those that change the number of GPUs.
    """

    def __init__(
        self,
        request: Request,
        found: Estimate,
        registries: EstimatorContext,
        gpus: Mapping[str, Any] | None = None,
    ) -> None:
        self.request, self.found, self.registries, self.gpus = request, found, registries, gpus or {}
        self.parts = tuple(_Part(relief, len(relief.steps) - 1) for relief in reliefs(found))
        self._known: dict[Any, Estimate | None] = {}

    def after(self, parts: Iterable[_Part]) -> Estimate | None:
        """Return the estimate with the given settings; None if they exclude each other."""
        overrides = dict(self.gpus)
        for part in parts:
            if any(overrides.get(key, value) != value for key, value in part.overrides.items()):
                return None
            overrides |= part.overrides
        key = tuple(sorted(overrides.items()))
        if key not in self._known:
            after = attempt(with_change(self.request, overrides), self.registries)
            self._known[key] = None if isinstance(after, NoAnswerError) else after
        return self._known[key]

    def fits(self, parts: Iterable[_Part]) -> bool:
        """Return whether the run fits with the given settings."""
        after = self.after(parts)
        return after is not None and after.fits

    def high(self, parts: Iterable[_Part]) -> float:
        """Return the high end of the range with the given settings."""
        after = self.after(parts)
        return float("inf") if after is None else after.high

    def change(self, parts: _Parts) -> Change:
        """Return a combination as a change."""
        after = self.after(parts)
        assert after
        overrides = dict(self.gpus)
        for part in parts:
            overrides |= part.overrides
        overrides, after = self._started(overrides, after)
        verdict = Layout(self.request, after).verdict
        cost: Cost = max((part.relief.cost for part in parts), key=_COSTS.index, default="none")
        caveats = tuple(dict.fromkeys(part.relief.caveat for part in parts if part.relief.caveat))
        arguments = as_arguments(overrides, self.request.version, self.registries)
        return Change(overrides, arguments, after.peak, after.high, verdict, cost, caveats)

    def _started(self, overrides: dict[str, Any], after: Estimate) -> tuple[dict[str, Any], Estimate]:
        """Add settings that let the rollout engine start, if the run fits and such settings exist."""
        if after.fits and not Layout(self.request, after).starts:
            for more in _what_starts(after):
                started = attempt(with_change(self.request, {**overrides, **more}), self.registries)
                if not isinstance(started, NoAnswerError) and Layout(self.request, started).fits:
                    return {**overrides, **more}, started
        return overrides, after

    def sufficient(self) -> list[_Parts]:
        """Return single settings that suffice, and combinations that are cheaper than these."""
        singles = self._cheapest(self._singles())
        limit = self._dearness(singles[0])[0] if singles else 4
        several: list[_Parts] = []
        # A single setting that costs little time and changes no results is cheap enough.
        for dearness in range(limit if limit > 1 else 0):
            several = several or self._several([part for part in self.parts if part.dearness <= dearness])
        if several and not singles and len(several[0]) > 2:
            several += [parts for parts in self._several(self.parts) if len(parts) == 2]
        found = [*singles, *self._cheapest(several)]
        return [self._weakened(parts) for parts in found[:_MOST]]

    def _singles(self) -> Iterator[_Parts]:
        """Yield the single settings that suffice, each at the weakest sufficient step."""
        for part in self.parts:
            steps = ((_Part(part.relief, step),) for step in range(part.step + 1))
            yield from islice(filter(self.fits, steps), 1)

    def _cheapest(self, found: Iterable[_Parts]) -> list[_Parts]:
        return sorted(found, key=self._dearness)[:_MOST]

    def _dearness(self, parts: _Parts) -> tuple[Any, ...]:
        each = [part.dearness for part in parts]
        return max(each, default=0), sum(each), self.high(parts)

    def _weakened(self, parts: _Parts) -> _Parts:
        """Return a combination that fits, with each setting at the weakest sufficient step."""
        for index, part in enumerate(parts):
            for step in range(part.step):
                weaker = (*parts[:index], _Part(part.relief, step), *parts[index + 1 :])
                if self.fits(weaker):
                    parts = weaker
                    break
        return parts

    def _several(self, allowed: Sequence[_Part]) -> list[_Parts]:
        """Return pairs that suffice; if there are none, the cheapest larger combination that does."""
        fitting = [parts for parts in self._all_that_help(allowed) if self.fits(parts)]
        if not fitting:
            return []

        def is_needed(part: _Part) -> bool:
            return not any(self.fits(_others(parts, part)) for parts in fitting)

        needed = tuple(filter(is_needed, allowed))  # these are part of every sufficient combination
        others = [part for part in allowed if part not in needed]
        for size in (2, 3):
            if size >= len(needed):
                more = combinations(others, size - len(needed))
                tried = ((*needed, *parts) for parts in islice(more, _MOST_TRIED))
                if found := self._cheapest(filter(self.fits, tried)):
                    return found
        return [self._without(min(fitting, key=self.high), self.fits)]

    def all_that_help(self) -> _Parts:
        """Return the combination with the lowest high end, including settings without effect."""
        return min(self._all_that_help(self.parts), key=self.high)

    def _all_that_help(self, allowed: Sequence[_Part]) -> list[_Parts]:
        """Return combinations of all compatible settings, one for each setting that excludes another."""
        alone = [part for part in allowed if any(_exclude(part, other) for other in allowed)]
        return [self._joined(first, allowed) for first in ((), *zip(alone))]

    def _joined(self, parts: _Parts, allowed: Iterable[_Part]) -> _Parts:
        """Add each setting at its best step, unless every step raises the peak."""
        for relief in (part.relief for part in allowed if part not in parts):
            steps = ((*parts, _Part(relief, step)) for step in range(len(relief.steps)))
            with_it = min(reversed(tuple(steps)), key=self.high)
            if self.high(with_it) <= self.high(parts):
                parts = with_it
        return parts

    def least(self) -> _Parts:
        """Return the combination with the lowest high end, without unnecessary settings."""
        everything = self.all_that_help()
        least = self.high(everything)
        return self._without(everything, lambda parts: self.high(parts) <= least)

    def _without(self, parts: _Parts, suffices: Callable[[_Parts], bool]) -> _Parts:
        """Return a combination without unnecessary settings; the most expensive are removed first."""
        for part in sorted(parts, key=lambda part: -part.dearness):
            fewer = _others(parts, part)
            if suffices(fewer):
                return self._without(fewer, suffices)
        return parts


def _exclude(part: _Part, other: _Part) -> bool:
    shared = part.overrides.keys() & other.overrides.keys()
    return any(part.overrides[key] != other.overrides[key] for key in shared)


def _others(parts: _Parts, part: _Part) -> _Parts:
    """Return a combination without a setting, at any of its steps."""
    return tuple(other for other in parts if other.relief is not part.relief)


def _more_gpus(search: _Search) -> Iterator[Change]:
    """Yield the fewest GPUs that fit with memory-saving settings, then the fewest without further changes."""
    settings = search.found.settings
    each = settings.gpus // settings.nodes if settings.nodes > 1 else 8
    helped = False
    for count in COUNTS:
        if count <= settings.gpus or (count > each and count % each):
            continue
        gpus = dict(zip(TRAINER_GPUS, (-(-count // each), min(count, each)), strict=True))
        found = attempt(with_change(search.request, gpus), search.registries)
        if isinstance(found, NoAnswerError):
            continue
        there = _Search(search.request, found, search.registries, gpus)
        if found.fits:
            yield there.change(())
            return
        if not helped:
            helped = there.fits(there.all_that_help())
            if helped:
                yield there.change(there.sufficient()[0])
