"""The single place for decisions: did it run, will it fit, how sure is that, what to change, the command."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import add
from typing import TYPE_CHECKING

from ..diagnostics import NoAnswerError
from ..memory.estimate import estimate
from ..memory.recorded import estimate_run, fitted, request_of_run
from ..memory.request import with_adapters
from ..memory.roles import LIMITS
from ..memory.settings import TRAINER_GPUS
from .changes import changes_for
from .evidence import needs_of, runs_for, smallest_run, takes_no_more, trust_in
from .layouts import Layout, best_of, largest_token_budget, longest_response
from .question import assumed, assumed_in, request_of
from .search import Searches, Tried

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..memory.registries import EstimatorContext
    from ..memory.request import Request, Verdict
    from ..records import Run
    from .changes import Change
    from .evidence import Needs, Trust
    from .question import Question


@dataclass(frozen=True, eq=False)
class Answer:
    """An answer. Expensive parts are computed on demand.

    Attributes:
        asked: the question as a request, before any setting was chosen.
        data: the records.
        layouts: the tried layouts; a single one if the settings were given.
        assumed: the assumptions about what the question leaves open.
        needs: the needs that decide which recorded runs are relevant; None if unknown.
        own: the recorded run in question, if there is one.
        is_open: whether the question gives no settings beyond model, task, GPUs and lengths.
    """

    asked: Request
    data: EstimatorContext
    layouts: Tried
    assumed: tuple[str, ...]
    needs: Needs | None
    own: Run | None = None
    is_open: bool = False

    @cached_property
    def evidence(self) -> tuple[Run, ...]:
        """The relevant recorded runs: its own, then the others, the strongest and nearest first."""
        runs = runs_for(self.needs, self.data)
        return runs if self.own is None else (self.own, *(run for run in runs if run.id != self.own.id))

    @cached_property
    def fsdp(self) -> Layout | None:
        """The best layout with FSDP."""
        return best_of(self.layouts.fsdp)

    @cached_property
    def megatron(self) -> Layout | None:
        """The best layout with Megatron."""
        return best_of(self.layouts.megatron)

    @cached_property
    def best(self) -> Layout:
        """The better of the two layouts; all figures are for this one.

        If both fit, prefer the backend of a recorded run that ran, then less offloading, then the larger
        token budget, then FSDP, which is simpler.
        """
        ran = {run.train == "megatron" for run in self.evidence if run.word != "claimed"}
        if self.fsdp and self.fsdp.fits and ran != {True} and self.fsdp.is_fastest:
            return self.fsdp
        of_both = [layout for layout in (self.fsdp, self.megatron) if layout]
        fitting = [layout for layout in of_both if layout.fits]

        def rank(layout: Layout) -> tuple[float, ...]:
            return layout.is_megatron not in ran, layout.offloads, -(layout.token_budget or 0)

        return min(fitting, key=rank) if fitting else min(of_both, key=lambda layout: layout.estimate.high)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the best layout, which never contradicts a recorded run that ran.

        If the question gives settings, such a run counts only if its own settings need at least as much
        memory.
        """
        verdict = self.best.verdict
        if verdict != "does-not-fit":
            return verdict
        has_run = any(run.word != "claimed" for run in self.evidence)
        if has_run and (self.is_open or takes_no_more(self.best.estimate, self.evidence, self.data)):
            return "borderline"
        return "does-not-fit"

    @property
    def gpus(self) -> int:
        """The number of GPUs that the best layout uses, which may be smaller than in the question."""
        return self.best.estimate.settings.gpus

    @property
    def all_gpus(self) -> int | None:
        """The number of GPUs in question, over all pools; None if unknown."""
        settings, asked = self.best.estimate.settings, self.asked
        if asked.gpus is None and not asked.unread.isdisjoint(TRAINER_GPUS):
            return None
        return settings.gpus + settings.other_gpus if settings.other_gpus else asked.gpus or settings.gpus

    @property
    def task(self) -> str:
        """The algorithm, with ``-LoRA`` if adapters are trained."""
        settings = self.best.estimate.settings
        task = self.asked.task or ("PPO" if settings.critic else "GRPO")
        return with_adapters(task) if settings.actor.lora_rank else task

    @cached_property
    def trust(self) -> Trust:
        """The measured runs behind the estimate."""
        return trust_in(self.best, self.needs, self.data)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The changes that make the run fit, in the order in which to try them; empty if it fits."""
        return changes_for(self.best, self.data)

    @cached_property
    def largest_token_budget(self) -> int | None:
        """The largest micro-batch that fits, in tokens per GPU; None if not even one sequence fits."""
        return largest_token_budget(self.best, self.data)

    @cached_property
    def longest_response(self) -> int | None:
        """The longest response that fits, in tokens; None if not even a short one fits."""
        return longest_response(self.best, self.data)


class Answers:
    """The answers to one question for several GPUs and numbers of GPUs, which share computations.

    Unset settings are chosen to make the run fit.
    """

    def __init__(self, question: Question, data: EstimatorContext) -> None:
        self._question, self._data = question, data
        self._asked = request_of(question)
        self._searches = Searches(self._asked, data)
        #: Kept here, not in ``Searches``: they refer to the searches, and that would be a reference cycle.
        self._tried: dict[tuple[int | None, str | None], Tried] = {}
        self._assumed = assumed(question, data)
        self._needs = needs_of(self._asked, data)

    def on(self, gpus: int | None, gpu: str | None) -> Answer:
        """Answer for a number of GPUs; ``gpu`` is a name in the registry.

        Raises:
            NoAnswerError: nothing can be estimated.
        """
        registries = self._data
        request = replace(self._asked, gpus=gpus, gpu=gpu)
        tried = self._tried_on(gpus, gpu)
        if not tried.fit:
            tried = _with_fewer(request, tried, self._tried_on)
        if not tried.fsdp and not tried.megatron:
            # Raise the error that explains why nothing can be estimated.
            estimate(fitted(replace(request, gpus=gpus or 8), registries), registries)
            raise NoAnswerError.because("no layout can be estimated", "choose other parallel sizes or GPUs")
        is_open = self._question.overrides.keys() <= set(LIMITS)
        needs = self._needs_on(gpus, gpu)
        return Answer(request, self._data, tried, self._assumed, needs, is_open=is_open)

    def evidence(self, gpus: int | None, gpu: str | None) -> tuple[Run, ...]:
        """Return the recorded runs relevant to the question, see ``Answer.evidence``."""
        return runs_for(self._needs_on(gpus, gpu), self._data)

    def smallest(self, gpu: str | None) -> Run | None:
        """Return the recorded run of ``Trust.smallest``, which may not be relevant to the question."""
        found = smallest_run(self._needs_on(None, gpu), self._data)
        return found[1] if found else None

    def _tried_on(self, gpus: int | None, gpu: str | None) -> Tried:
        if (gpus, gpu) not in self._tried:
            self._tried[gpus, gpu] = self._searches.on(gpus, gpu)
        return self._tried[gpus, gpu]

    def _needs_on(self, gpus: int | None, gpu: str | None) -> Needs | None:
        return self._needs and self._needs.on(gpus, self._data.gpus.get(gpu or ""))


def answer(question: Question, data: EstimatorContext) -> Answer:
    """Answer a question; unset settings are chosen to make the run fit.

    Raises:
        NoAnswerError: nothing can be estimated.

    >>> from sphinx_verl_resources.memory.registries import EstimatorContext
    >>> from sphinx_verl_resources.answer.question import Question
    >>> answer(Question("Qwen/Qwen2.5-7B", 8, "H100"), EstimatorContext()).verdict
    'fits'
    """
    return Answers(question, data).on(question.gpus, question.gpu)


def _with_fewer(asked: Request, tried: Tried, tried_on: Callable[[int | None, str | None], Tried]) -> Tried:
    """Add the layouts for the largest smaller number of GPUs on which one fits, if there is one.

    A run can fit on fewer GPUs if their number has more divisors: 8 GPUs can divide the rollout engine's
    weights, 9 cannot. All parallel sizes are powers of two, so it is enough to clear the last binary digits
    one by one. If the run nearly fits on the smallest of these numbers, that number is halved repeatedly:
    with a single replica, no buffers for communication between replicas are needed.

    ``tried`` has the layouts on all GPUs, none of which fits.
    """
    count = asked.gpus or 0
    if not tried.all or {"trainer.nnodes", "trainer.n_gpus_per_node"} & asked.config.keys():
        return tried
    fewer = tried
    while count := count & (count - 1) or (count // 2 if _is_near(fewer.all) else 0):
        fewer = tried_on(count, asked.gpu)
        if fewer.fit:
            return Tried(tried.fsdp + fewer.fsdp, partial(add, tried.megatron, fewer.megatron))
    return tried


def _is_near(tried: tuple[Layout, ...]) -> bool:
    """Return whether the GPU's memory is within the range of some layout."""
    best = best_of(tried)
    if best is None or best.estimate.capacity is None or best.estimate.undecided:
        return False
    return best.estimate.low <= best.estimate.capacity


def _alone(layout: Layout) -> Tried:
    return Tried((), lambda: (layout,)) if layout.is_megatron else Tried((layout,))


def answer_settings(request: Request, data: EstimatorContext) -> Answer:
    """Answer whether a run fits with exactly these settings; unset keys have verl's defaults.

    Raises:
        NoAnswerError: the settings cannot be estimated.
    """
    tried = _alone(Layout(request, estimate(request, data)))
    needs = needs_of(request, data)
    return Answer(request, data, tried, assumed_in(request, data), needs)


def answer_run(run: Run, data: EstimatorContext) -> Answer:
    """Answer whether a recorded run fits; the run itself and other recorded runs are evidence.

    Raises:
        NoAnswerError: its settings cannot be estimated.
    """
    request = request_of_run(run, data)
    tried = _alone(Layout(request, estimate_run(run, data)))
    return Answer(request, data, tried, (), needs_of(request, data), run)
