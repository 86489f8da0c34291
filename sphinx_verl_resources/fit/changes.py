"""Changes: the settings that make a run fit; what to try first comes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from ..diagnostics import NoAnswerError
from ..i18n import N_
from ..memory.request import MODEL, ROLLOUT, Request, Verdict
from ..memory.settings import TRAINER_GPUS
from .command import as_arguments
from .levers import CHANGES_RESULTS, COSTS, HOST, ROUNDS, STARTUP, Cost, Lever, Option, Overrides, options_for
from .question import USUAL_RANK, named_settings
from .search import COUNTS, ON_CPU, Layout, Searches

ADAPTERS_ONLY = N_("LoRA trains adapters instead of all parameters, so results differ.")


class Change(NamedTuple):
    """Settings to change, and the memory after the change. Sizes are bytes per GPU.

    Attributes:
        overrides: the settings by verl's dotted keys.
        arguments: the same as arguments of verl's launcher.
        peak: the peak with the change.
        high: the high end of the range with the change.
        verdict: the verdict with the change.
        cost: its cost in time.
        sentences: what it does and when not to use it, to be translated.
    """

    overrides: Mapping[str, Any]
    arguments: tuple[str, ...]
    peak: float
    high: float
    verdict: Verdict
    cost: Cost
    sentences: tuple[str, ...] = ()


def changes_for(layout: Layout, request: Request | None = None) -> tuple[Change, ...]:
    """Return the changes that make a run fit, in the order in which to try them; empty if it fits.

    Single levers that suffice come first, or a combination if that costs less. If none of them keeps the
    results, more GPUs come before them, and LoRA after them. If nothing suffices, return the combination that
    comes nearest.

    Args:
        layout: the run.
        request: the question of a plan, which chooses the settings for other GPUs and for LoRA; without it,
            all settings are given.
    """
    if layout.verdict in ("fits", "unknown") or layout.reason == "no-bfloat16":
        return ()
    options = _options(layout)
    together = _Combination(layout).with_levers(options)
    alone = [_Combination(layout, (option,)).minimum() for option in options if together.layout.fits]
    best = [each for each in alone if each.layout.fits]
    if together.layout.fits and not (best and best[0].rank <= together.rank):
        best = [together.minimum(), *best]
    if not best or best[0].rank == CHANGES_RESULTS:
        best = [*filter(None, (_more_gpus(layout, request), *best, _lora(layout, request)))]
    if not best and together.levers:
        best = [together.minimum()]
    return tuple(each.change() for each in best)


# -- levers


@dataclass(frozen=True)
class _Combination:
    """Levers on a layout, each with its steps up to the one that is taken."""

    start: Layout
    levers: tuple[Option, ...] = ()

    @cached_property
    def layout(self) -> Layout:
        """The layout with the levers and what lets its engine start; ``start`` if it cannot be estimated."""
        overrides = {key: value for option in self.levers for key, value in option.steps[-1].items()}
        after = _with_overrides(self.start, overrides)
        if after.reason == "engine":
            options = (option for option in options_for(after.estimate) if option.lever.phases == STARTUP)
            attempts = (_with_overrides(after, step) for option in options for step in option.steps)
            after = next((other for other in attempts if other.fits), after)
        return after

    @property
    def size(self) -> float:
        """The high end of the range, and what the host lacks; 0 if the layout fits."""
        after = self.layout
        if after.fits:
            return 0.0
        lack = max(0.0, after.estimate.host.total - after.host_limit)
        return float("inf") if after is self.start else after.estimate.high + lack

    @property
    def rank(self) -> int:
        """The rank of the lever that costs most."""
        return max((option.lever.rank for option in self.levers), default=0)

    def with_levers(self, options: Iterable[Option]) -> _Combination:
        """Return it with the first levers that suffice, each at its best step; with all if none do."""
        best = self
        for option in options:
            if best.layout.fits:
                break
            # Levers that change nothing count, too: the next one may lower the phase that hides their effect.
            longer = [replace(best, levers=(*best.levers, step)) for step in _steps(option)[::-1]]
            best = min((*longer, best), key=lambda each: each.size)
        return best

    def minimum(self) -> _Combination:
        """Return it without the levers that it does not need, each at the weakest step that suffices."""
        best = self
        for option in reversed(self.levers):  # the last to try are left out first
            fewer = replace(best, levers=tuple(other for other in best.levers if other is not option))
            best = fewer if fewer.size <= self.size else best
        for place, option in enumerate(best.levers):
            before, after = best.levers[:place], best.levers[place + 1 :]
            weaker = (replace(best, levers=(*before, step, *after)) for step in _steps(option))
            best = next((each for each in weaker if each.layout.fits), best)
        return best

    def change(self) -> Change:
        """Return the combination as a change."""
        after, levers = self.layout, [option.lever for option in self.levers]
        overrides, own = _overrides(self.start, after), after.estimate
        arguments = as_arguments(overrides, after.request.version, own.registries)
        cost: Cost = max((lever.cost for lever in levers), key=COSTS.index, default="none")
        sentences = dict.fromkeys(lever.sentence for lever in levers if lever.sentence)
        sentences |= {ROUNDS: None} if "bfloat16" in overrides.values() else {}
        return Change(overrides, arguments, own.peak, own.high, after.verdict, cost, tuple(sentences))


def _options(layout: Layout) -> list[Option]:
    """Return the levers that lower what does not fit, the cheapest first."""
    own = layout.estimate
    over = {phase.name for phase in own.phases if not own.of_phase(phase.name).fits}
    over |= HOST if layout.reason == "host" else set()
    return [option for option in options_for(own) if option.lever.phases & over]


def _steps(option: Option) -> list[Option]:
    """Return a lever at each of its steps, the weakest first."""
    return [option._replace(steps=option.steps[: step + 1]) for step in range(len(option.steps))]


# -- other GPUs, and adapters


def _more_gpus(layout: Layout, request: Request | None) -> _Combination | None:
    """Return the fewest GPUs that fit, with the levers that they need; in a plan, as ``fewest`` counts."""
    gpus, nodes = layout.estimate.settings.gpus, layout.estimate.settings.nodes
    each = gpus // nodes if nodes > 1 else 8
    for count in COUNTS:
        if count > gpus and (count < each or not count % each):
            own = dict(zip(TRAINER_GPUS, (-(-count // each), min(count, each)), strict=True))
            if change := _having(own, layout, request and replace(request, gpus=count)):
                return change
    return None


def _lora(layout: Layout, request: Request | None) -> _Combination | None:
    """Return LoRA with the levers that it needs; None if the run trains adapters already."""
    is_given = layout.is_megatron and not request
    own = {f"{MODEL}.lora.rank": USUAL_RANK} if is_given else named_settings(None, USUAL_RANK)
    return None if layout.estimate.settings.actor.lora_rank else _having(own, layout, request, ADAPTERS_ONLY)


def _having(
    own: Overrides, layout: Layout, request: Request | None, sentence: str = ""
) -> _Combination | None:
    """Return settings with the levers that they need to fit; None if nothing suffices.

    A plan, whose question is ``request``, chooses the others, with the training backend of the layout if
    possible.
    """
    if request is None:
        first = _Combination(layout, (Option(Lever(own, "none", sentence=sentence), (own,)),))
        best = first.with_levers(option for option in _options(first.layout) if option.lever.rank <= 1)
        return best.minimum() if best.layout.fits else None
    for backend in ("megatron" if layout.is_megatron else "fsdp", request.backend):
        question = replace(request.having(own), backend=backend)
        with suppress(NoAnswerError):
            searches = Searches(question, layout.estimate.registries, layout.given_host_limit)
            plan = searches.on(request.gpus, request.gpu)
            if plan.fits:
                lever = Lever({}, "much" if ON_CPU in plan.offloaded else "none", sentence=sentence)
                parts = _parts(_overrides(layout, plan), own)
                return _Combination(layout, tuple(Option(lever, (part,)) for part in parts)).minimum()
    return None


def _parts(overrides: Overrides, own: Overrides) -> list[Overrides]:
    """Return settings in parts that are changed together: those of ``own``, then the others, the last first.

    A setting of the critic goes with that of the actor, an uneven last stage of a pipeline with its size, and
    ``model_engine`` with the strategy.
    """
    parts: dict[str, Overrides] = {"": {}}
    for key, value in overrides.items():
        section, name = ["", *key.split(".")][-2:]
        part = "pipeline" if "pipeline" in name else section if section.startswith("override") else name
        part = "strategy" if name == "model_engine" else part
        is_own = key in {*own, *TRAINER_GPUS, f"{MODEL}.lora.rank"}
        part = "" if is_own else key if key.startswith(ROLLOUT) else part
        parts.setdefault(part, {})[key] = value
    first, *others = parts.values()
    return [first, *reversed(others)]


# -- settings


def _with_overrides(layout: Layout, overrides: Overrides) -> Layout:
    """Return a layout with other settings, also of the number of GPUs; itself if they cannot be estimated."""
    request = layout.request.having(overrides)
    request = request if overrides.keys().isdisjoint(TRAINER_GPUS) else replace(request, gpus=None)
    return layout.with_request(request)


def _overrides(before: Layout, after: Layout) -> Overrides:
    """Return the settings that lead from one layout to another; a setting that it drops gets its default."""
    old, gpus = before.request.config, before.estimate.settings.gpus
    defaults = after.estimate.registries.defaults(after.request.version)
    new = {**{key: defaults.get(key) for key in old}, **after.request.config}
    both = TRAINER_GPUS if gpus != after.estimate.settings.gpus else ()
    if before.is_megatron != after.is_megatron:
        new["model_engine"] = "megatron" if after.is_megatron else "dp"
    return {key: value for key, value in new.items() if key in both or key not in old or old[key] != value}
